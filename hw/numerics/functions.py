"""Functions of one FP32 number: ReLU, and the tables of docs/numerics.md."""

from decimal import ROUND_HALF_EVEN, Decimal, localcontext

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from hw.lib.delay import delay
from hw.lib.trees import add_carry
from hw.numerics.fp32 import SumToFp32
from hw.numerics.rounding import BIAS, NAN

INF = 0x7F800000
LOG2E = 0x3FB8AA3B
LN2 = 0x3F317218
#: Intervals of a table; one more entry closes the last.
INTERVALS = 64


class Table(enum.Enum, shape=unsigned(3)):
    """Function of a lane. Of the tables, RSQRT has one for even and one for odd exponents."""

    IDENTITY = 0
    RELU = 1
    EXP2 = 4
    RECIP = 5
    RSQRT = 6


def entries(name: str) -> list[int]:
    """The 65 integers of table EXP2, RECIP, RSQRT0, RSQRT1 or LOG2."""
    one = Decimal(1)
    formula = {
        "EXP2": lambda u: 2**23 * Decimal(2) ** u,
        "RECIP": lambda u: 2**24 / (one + u),
        "RSQRT0": lambda u: 2**24 / (one + u).sqrt(),
        "RSQRT1": lambda u: 2**24 / (2 * (one + u)).sqrt(),
        "LOG2": lambda u: 2**24 * (one + u).ln() / Decimal(2).ln(),
    }[name]
    with localcontext(prec=50, rounding=ROUND_HALF_EVEN):
        return [int(formula(Decimal(i) / INTERVALS).to_integral_value())
                for i in range(INTERVALS + 1)]


def _lookup(m: Module, names: list[str], select, index, *, base: Signal, step: Signal):
    """Entry `index` of the table that is number `select` in `names`, and |next entry - entry|."""
    with m.Switch(Cat(index, select)):
        for table, name in enumerate(names):
            numbers = entries(name)
            for i in range(INTERVALS):
                with m.Case(table * INTERVALS + i):
                    m.d.comb += [base.eq(numbers[i]), step.eq(abs(numbers[i + 1] - numbers[i]))]


class TableFunction(wiring.Component):
    """A function of an FP32 number (`Table`), by linear interpolation in a table.

    One number per clock, no stall. Results as in docs/numerics.md: 24 bits, nothing is rounded.

    Members
    -------
    x : In(32), canonical
    function : In(Table)
    y : Out(32)
    overflow : Out(1), EXP2 of a finite number is Inf
    """

    #: Clocks from `x` to `y`.
    LATENCY = 3

    def __init__(self):
        super().__init__({"x": In(32), "function": In(Table), "y": Out(32), "overflow": Out(1)})

    def elaborate(self, platform):
        m = Module()
        x = self.x
        exponent, sign = x[23:31], x[31]
        nan = exponent.all() & x[:23].any()

        # x as fixed point with 23 fractional bits, towards minus infinity, for EXP2.
        places = Signal(8)
        m.d.comb += places.eq(BIAS + 6 - exponent)
        shifted, sticky = Cat(Const(0, 6), x[:23], exponent.any()), Const(0, 1)
        for bit in range(5):
            step = 1 << bit
            kept = Signal(30, name=f"fixed{step}")
            lost = Signal(name=f"fixed_lost{step}")
            m.d.comb += [kept.eq(Mux(places[bit], shifted >> step, shifted)),
                         lost.eq(sticky | places[bit] & shifted[:step].any())]
            shifted, sticky = kept, lost
        tiny = places[5:].any()
        magnitude = Mux(tiny, 0, shifted)
        inexact = sticky | shifted.any() & tiny
        fixed = Signal(31)
        m.d.comb += fixed.eq((Cat(magnitude, Const(0, 1)) ^ sign.replicate(31))
                             + (sign & ~inexact))

        # What needs no table is a whole result; else the exponent that the table's number gets.
        whole = Signal()
        result = Signal(32)
        fraction = Signal(23)
        table = Signal(2)  # EXP2, RECIP, RSQRT0, RSQRT1
        large = Signal()
        m.d.comb += [result.eq(x), fraction.eq(x[:23])]
        with m.Switch(self.function):
            with m.Case(Table.RELU):
                m.d.comb += [whole.eq(1), result.eq(Mux(sign, 0, x))]
            with m.Case(Table.EXP2):
                m.d.comb += [result.eq(Cat(Const(0, 23), (fixed[23:].as_signed() + BIAS)[:8])),
                             fraction.eq(fixed[:23])]
                with m.If(sign & (x[:31] > 0x42FC0000)):  # -126
                    m.d.comb += [whole.eq(1), result.eq(0)]
                with m.Elif(~sign & (exponent >= BIAS + 7)):
                    m.d.comb += [whole.eq(1), result.eq(INF), large.eq(~exponent.all())]
            with m.Case(Table.RECIP):
                m.d.comb += [table.eq(1), result.eq(Cat(Const(0, 23), (253 - exponent)[:8], sign))]
                with m.If(exponent >= 253 + (x[:23] == 0)):
                    m.d.comb += [whole.eq(1), result.eq(0)]
                with m.Elif(exponent == 0):
                    m.d.comb += [whole.eq(1), result.eq(INF)]
            with m.Case(Table.RSQRT):
                m.d.comb += [
                    table.eq(Cat(~exponent[0], Const(1, 1))),
                    result.eq(Cat(Const(0, 23), (190 - ((exponent + 1) >> 1))[:8])),
                ]
                with m.If(sign):
                    m.d.comb += [whole.eq(1), result.eq(NAN)]
                with m.Elif(exponent == 0):
                    m.d.comb += [whole.eq(1), result.eq(INF)]
                with m.Elif(exponent.all()):
                    m.d.comb += [whole.eq(1), result.eq(0)]
            with m.Default():
                m.d.comb += whole.eq(1)
        with m.If(nan):
            m.d.comb += [whole.eq(1), result.eq(NAN), large.eq(0)]

        result1 = Signal(32, reset_less=True)
        fraction1 = Signal(23, reset_less=True)
        table1 = Signal(2, reset_less=True)
        m.d.sync += [result1.eq(result), fraction1.eq(fraction), table1.eq(table)]
        base = Signal(25)
        step = Signal(18)
        _lookup(m, ["EXP2", "RECIP", "RSQRT0", "RSQRT1"], table1, fraction1[17:],
                base=base, step=step)

        result2 = Signal(32, reset_less=True)
        base2 = Signal(25, reset_less=True)
        step2 = Signal(18, reset_less=True)
        offset2 = Signal(17, reset_less=True)
        falls2 = Signal(reset_less=True)
        m.d.sync += [result2.eq(result1), base2.eq(base), step2.eq(step),
                     offset2.eq(fraction1[:17]), falls2.eq(table1 != 0)]

        result3 = Signal(32, reset_less=True)
        base3 = Signal(25, reset_less=True)
        product3 = Signal(35, reset_less=True)
        falls3 = Signal(reset_less=True)
        m.d.sync += [result3.eq(result2), base3.eq(base2), product3.eq(step2 * offset2),
                     falls3.eq(falls2)]
        number = Signal(25)
        total = add_carry(Cat(Const(0, 17), base3, Const(0, 1)),
                          Cat(product3, Const(0, 8)) ^ falls3.replicate(43), falls3)
        m.d.comb += [number.eq(total[17:42]), self.overflow.eq(
            delay(m, large, self.LATENCY, name="large"))]
        with m.If(delay(m, whole, self.LATENCY, name="whole")):
            m.d.comb += self.y.eq(result3)
        with m.Else():
            m.d.comb += self.y.eq(Cat(number[:23], (result3[23:31] + number[24])[:8], result3[31]))
        return m


class Log2(wiring.Component):
    """`log2(x)` of an FP32 number, by linear interpolation in a table, rounded once.

    One number per clock, no stall. 0 gives -Inf, a negative number NaN.

    Members
    -------
    x : In(32), canonical
    y : Out(32)
    """

    #: Clocks from `x` to `y`.
    LATENCY = 2 + SumToFp32.LATENCY

    def __init__(self):
        super().__init__({"x": In(32), "y": Out(32)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.convert = convert = SumToFp32(33)
        x = self.x
        exponent = x[23:31]
        base = Signal(24)
        step = Signal(19)
        _lookup(m, ["LOG2"], Const(0, 0), x[17:23], base=base, step=step)

        exponent1 = Signal(8, reset_less=True)
        base1 = Signal(24, reset_less=True)
        step1 = Signal(19, reset_less=True)
        offset1 = Signal(17, reset_less=True)
        m.d.sync += [exponent1.eq(exponent), base1.eq(base), step1.eq(step), offset1.eq(x[:17])]
        base2 = Signal(signed(33), reset_less=True)
        rise2 = Signal(19, reset_less=True)
        m.d.sync += [base2.eq(Cat(base1, (exponent1 - BIAS)[:9].as_signed()).as_signed()),
                     rise2.eq((step1 * offset1) >> 17)]
        m.d.comb += [convert.sum.eq(base2 + rise2), convert.scale.eq(-24), self.y.eq(convert.y)]

        infinite = (exponent == 0) | exponent.all()
        nan = exponent.all() & x[:23].any() | (x[31] & exponent.any())
        special = Signal(3)
        m.d.comb += special.eq(delay(m, Cat(infinite, exponent == 0, nan), self.LATENCY,
                                     name="special"))
        with m.If(special[2]):
            m.d.comb += self.y.eq(NAN)
        with m.Elif(special[0]):
            m.d.comb += self.y.eq(Cat(Const(INF, 31), special[1]))
        return m
