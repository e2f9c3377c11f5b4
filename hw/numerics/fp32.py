"""FP32 arithmetic: integer sums to FP32, addition and maximum, multiplication.

Results as in docs/numerics.md: rounded once to nearest even, flushed to +0 below 2**-126, Inf from
2**128 on, every NaN 0x7FC00000, never -0.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.lib.trees import add_carry
from hw.numerics.rounding import BIAS, NAN, normalise, round_to_fp32


def canonical(word: Value) -> Value:
    """FP32 `word` as the NPU sees it: NaN is 0x7FC00000, subnormals and -0 are +0."""
    fraction, exponent = word[:23], word[23:31]
    nan = (exponent == 255) & fraction.any()
    return Mux(nan, NAN, Mux(exponent.any(), word, 0))


class SumToFp32(wiring.Component):
    """`round24(sum * 2**scale)`, or NaN.

    One value per clock, no stall.

    Parameters
    ----------
    width : bits of the two's-complement sum; -2**(width-1) never occurs

    Members
    -------
    sum : In(signed(width))
    scale : In(signed(11))
    nan : In(1), the result is NaN whatever the sum
    y : Out(32)
    overflow : Out(1), y is Inf
    """

    #: Clocks from `sum` to `y`.
    LATENCY = 3

    def __init__(self, width: int):
        self.width = width
        super().__init__({"sum": In(signed(width)), "scale": In(signed(11)), "nan": In(1),
                          "y": Out(32), "overflow": Out(1)})

    def elaborate(self, platform):
        m = Module()
        bits = self.width - 1

        magnitude = Signal(bits, reset_less=True)
        scale1 = Signal(signed(11), reset_less=True)
        sign1 = Signal(reset_less=True)
        nan1 = Signal(reset_less=True)
        sign = self.sum[-1]
        m.d.sync += [
            magnitude.eq((self.sum[:bits] ^ sign.replicate(bits)) + sign),
            scale1.eq(self.scale), sign1.eq(sign), nan1.eq(self.nan),
        ]

        shifted, places = normalise(m, magnitude)
        significand = Signal(bits, reset_less=True)
        exponent = Signal(signed(12), reset_less=True)
        sign2 = Signal(reset_less=True)
        nan2 = Signal(reset_less=True)
        m.d.sync += [
            significand.eq(shifted), exponent.eq(scale1 + (BIAS + bits - 1) - places),
            sign2.eq(sign1), nan2.eq(nan1),
        ]

        word, overflow = round_to_fp32(m, significand, exponent, sign2, Const(0, 1), nan2)
        m.d.comb += [self.y.eq(word), self.overflow.eq(overflow)]
        return m


class Fp32Add(wiring.Component):
    """`round24(a + b)` of FP32 values; subnormal operands count as zero.

    One sum per clock, no stall. Inf + (-Inf), or any NaN, is NaN.

    Parameters
    ----------
    with_maximum : the component has `maximum`

    Members
    -------
    a, b : In(32)
    maximum : In(1), with a and b: y is the larger of them; then a NaN must be 0x7FC00000
    y : Out(32)
    overflow : Out(1), y is Inf though a and b are finite
    """

    #: Clocks from `a` and `b` to `y`.
    LATENCY = 4

    def __init__(self, *, with_maximum: bool = False):
        self.with_maximum = with_maximum
        members = {"a": In(32), "b": In(32)} | ({"maximum": In(1)} if with_maximum else {})
        super().__init__(members | {"y": Out(32), "overflow": Out(1)})

    def elaborate(self, platform):
        m = Module()

        def stage(n, **shapes):
            return [Signal(shape, name=f"{name}{n}", reset_less=True)
                    for name, shape in shapes.items()]

        # Order by magnitude, so that the difference is never negative.
        large = Signal(32)
        small = Signal(32)
        with m.If(self.b[:31] > self.a[:31]):
            m.d.comb += [large.eq(self.b), small.eq(self.a)]
        with m.Else():
            m.d.comb += [large.eq(self.a), small.eq(self.b)]
        if self.with_maximum:  # the larger of the two, plus zero
            maximum = Signal(32)
            nothing = Signal(32)
            m.d.comb += [maximum.eq(Mux(self.maximum & large[31], small, large)),
                         nothing.eq(Mux(self.maximum, 0, small))]
            large, small = maximum, nothing
        distance = Signal(8)
        subtract = large[31] ^ small[31]
        (sign1, subtract1, inf1, nan1, exponent1, large1, small1, distance1) = stage(
            1, sign=1, subtract=1, inf=1, nan=1, exponent=8, large=24, small=24, distance=5)
        m.d.comb += distance.eq(large[23:31] - small[23:31])
        large_inf, small_inf = large[23:31].all(), small[23:31].all()
        m.d.sync += [
            sign1.eq(large[31]), subtract1.eq(subtract), exponent1.eq(large[23:31]),
            inf1.eq(large_inf),
            nan1.eq(large_inf & large[:23].any() | small_inf & (small[:23].any() | subtract)),
            # not masked for exponent 0: the sum then has exponent 0 too, and becomes +0
            large1.eq(Cat(large[:23], Const(1, 1))),
            small1.eq(Mux(small[23:31].any(), Cat(small[:23], Const(1, 1)), 0)),
            distance1.eq(distance[:5] | distance[5:].any().replicate(5)),
        ]

        # Align to 24 bits, guard, round, sticky; add or subtract.
        aligned, sticky = Cat(Const(0, 3), small1), Const(0, 1)
        for bit, select in enumerate(distance1):
            step = 1 << bit
            kept = Signal(27, name=f"aligned{step}")
            lost = Signal(name=f"lost{step}")
            m.d.comb += [kept.eq(Mux(select, aligned >> step, aligned)),
                         lost.eq(sticky | select & aligned[:step].any())]
            aligned, sticky = kept, lost
        term = Cat(aligned[0] | sticky, aligned[1:], Const(0, 1))
        (sign2, inf2, nan2, exponent2, total2) = stage(
            2, sign=1, inf=1, nan=1, exponent=8, total=28)
        m.d.sync += [
            sign2.eq(sign1), inf2.eq(inf1), nan2.eq(nan1), exponent2.eq(exponent1),
            total2.eq(add_carry(Cat(Const(0, 3), large1, Const(0, 1)),
                                term ^ subtract1.replicate(28), subtract1)),
        ]

        shifted, places = normalise(m, total2)
        (sign3, inf3, nan3, exponent3, significand3) = stage(
            3, sign=1, inf=1, nan=1, exponent=signed(10), significand=28)
        m.d.sync += [
            sign3.eq(sign2), inf3.eq(inf2), nan3.eq(nan2), significand3.eq(shifted),
            exponent3.eq(exponent2 + 1 - places),
        ]

        word, overflow = round_to_fp32(m, significand3, exponent3, sign3, inf3, nan3)
        m.d.comb += [self.y.eq(word), self.overflow.eq(overflow)]
        return m


class Fp32Mul(wiring.Component):
    """`round24(a * b)` of FP32 values; subnormal operands count as zero.

    One product per clock, no stall. 0 * Inf, or any NaN, is NaN.

    Members
    -------
    a, b : In(32)
    y : Out(32)
    overflow : Out(1), y is Inf though a and b are finite
    """

    #: Clocks from `a` and `b` to `y`.
    LATENCY = 3

    def __init__(self):
        super().__init__({"a": In(32), "b": In(32), "y": Out(32), "overflow": Out(1)})

    def elaborate(self, platform):
        m = Module()

        def parts(word):
            exponent, fraction = word[23:31], word[:23]
            live, top = exponent.any(), exponent.all()
            significand = Mux(live, Cat(fraction, Const(1, 1)), 0)
            return exponent, significand, ~live, top & ~fraction.any(), top & fraction.any()

        a_exponent, a, a_zero, a_inf, a_nan = parts(self.a)
        b_exponent, b, b_zero, b_inf, b_nan = parts(self.b)
        # Products by the three bytes of b.
        products = [Signal(32, name=f"product{n}", reset_less=True) for n in range(3)]
        exponent1 = Signal(signed(10), reset_less=True)
        sign1 = Signal(reset_less=True)
        inf1 = Signal(reset_less=True)
        nan1 = Signal(reset_less=True)
        m.d.sync += [product.eq(a * b[8 * n:8 * n + 8]) for n, product in enumerate(products)]
        m.d.sync += [
            exponent1.eq(a_exponent + b_exponent - BIAS), sign1.eq(self.a[31] ^ self.b[31]),
            inf1.eq(a_inf | b_inf), nan1.eq(a_nan | b_nan | a_inf & b_zero | b_inf & a_zero),
        ]

        # Their sum: the leading bit is bit 47 or 46. 24 bits, guard and sticky are kept.
        total = Signal(48)
        high = total[47]
        significand2 = Signal(26, reset_less=True)
        exponent2 = Signal(signed(10), reset_less=True)
        sign2 = Signal(reset_less=True)
        inf2 = Signal(reset_less=True)
        nan2 = Signal(reset_less=True)
        m.d.comb += total.eq(products[0] + (products[1] << 8) + (products[2] << 16))
        m.d.sync += [
            significand2.eq(Mux(high, Cat(total[:23].any(), total[23:]),
                                Cat(total[:22].any(), total[22:47]))),
            exponent2.eq(exponent1 + high), sign2.eq(sign1), inf2.eq(inf1), nan2.eq(nan1),
        ]

        word, overflow = round_to_fp32(m, significand2, exponent2, sign2, inf2, nan2)
        m.d.comb += [self.y.eq(word), self.overflow.eq(overflow)]
        return m
