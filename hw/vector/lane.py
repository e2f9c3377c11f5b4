"""One lane of the vector unit."""

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from hw.lib.delay import delay
from hw.numerics.fp32 import Fp32Add, Fp32Mul
from hw.numerics.functions import INF, Table, TableFunction


class Factor(enum.Enum, shape=unsigned(2)):
    """What a lane multiplies its operand with."""

    UNIFORM = 0  #: One number for all lanes.
    SECOND = 1  #: The second operand.
    SQUARE = 2  #: The operand itself.
    GATE = 3  #: 1 where the second operand is positive, NaN where it is NaN; else the result is +0.


class Addend(enum.Enum, shape=unsigned(2)):
    """What a lane adds to the product, or compares it with."""

    NONE = 0  #: What changes nothing: +0, or -Inf with `pad_low`.
    SECOND = 1  #: The second operand.
    STATISTIC = 2  #: The row's statistic.


class Lane(wiring.Component):
    """`function(x * factor + addend)`, or `function(max(x * factor, addend))`, in FP32.

    One element per clock, no stall; each of the three is rounded on its own.

    Members
    -------
    x : In(32), operand; y : In(32), second operand
    uniform : In(32), statistic : In(32), the same for all lanes
    pad : In(1), x counts as what changes nothing
    factor : In(Factor), addend : In(Addend), negate : In(1), add minus the addend
    pad_low : In(1), what changes nothing is -Inf, not +0; `maximum` follows
    maximum : In(1), `ADD_DELAY` clocks after x
    function : In(Table), `FUNCTION_DELAY` clocks after x
    z : Out(32), result
    overflow : Out(1), a finite product, sum or power became Inf
    """

    #: Clocks from `x` to the `maximum` and the `function` of its element.
    ADD_DELAY = Fp32Mul.LATENCY
    FUNCTION_DELAY = ADD_DELAY + Fp32Add.LATENCY
    #: Clocks from `x` to `z`.
    LATENCY = FUNCTION_DELAY + TableFunction.LATENCY

    def __init__(self):
        super().__init__({
            "x": In(32), "y": In(32), "uniform": In(32), "statistic": In(32), "pad": In(1),
            "pad_low": In(1), "factor": In(Factor), "addend": In(Addend), "negate": In(1),
            "maximum": In(1), "function": In(Table), "z": Out(32), "overflow": Out(1),
        })

    def elaborate(self, platform):
        if platform is None:
            return self._contents(self)
        return platform.instance(self, "vector_lane", self._contents)

    def _contents(self, io):
        m = Module()
        m.submodules.mul = mul = Fp32Mul()
        m.submodules.add = add = Fp32Add(with_maximum=True)
        m.submodules.function = function = TableFunction()
        x = Signal(32)
        pad = Signal(32)
        m.d.comb += [pad.eq(Mux(io.pad_low, INF | 1 << 31, 0)), x.eq(Mux(io.pad, pad, io.x)),
                     mul.a.eq(x)]
        with m.Switch(io.factor):
            with m.Case(Factor.UNIFORM):
                m.d.comb += mul.b.eq(io.uniform)
            with m.Case(Factor.SECOND):
                m.d.comb += mul.b.eq(io.y)
            with m.Case(Factor.SQUARE):
                m.d.comb += mul.b.eq(x)
            with m.Case(Factor.GATE):
                # 1, or the NaN that y is; zero times zero else, whatever x is
                nan = io.y[23:31].all() & io.y[:23].any()
                positive = ~io.y[31] & io.y[23:31].any()
                with m.If(positive):
                    m.d.comb += mul.b.eq(Mux(nan, io.y, 0x3F800000))
                with m.Else():
                    m.d.comb += mul.a.eq(0)
        addend = Signal(32)
        with m.Switch(io.addend):
            with m.Case(Addend.SECOND):
                m.d.comb += addend.eq(io.y)
            with m.Case(Addend.STATISTIC):
                m.d.comb += addend.eq(io.statistic)
            with m.Default():
                m.d.comb += addend.eq(pad)
        m.d.comb += [
            add.a.eq(mul.y),
            add.b.eq(delay(m, Cat(addend[:31], addend[31] ^ io.negate), self.ADD_DELAY,
                           name="addend_line")),
            add.maximum.eq(io.maximum),
            function.x.eq(add.y), function.function.eq(io.function), io.z.eq(function.y),
            io.overflow.eq(
                delay(m, mul.overflow, self.LATENCY - self.ADD_DELAY, name="product_overflow")
                | delay(m, add.overflow, self.LATENCY - self.FUNCTION_DELAY, name="sum_overflow")
                | function.overflow),
        ]
        return m
