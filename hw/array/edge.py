"""Bottom edge of one array column."""

from amaranth.hdl import Module, Mux, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.lib.delay import delay
from hw.numerics.fp32 import Fp32Add, SumToFp32


class Edge(wiring.Component):
    """A column's integer sum, scaled, in FP32, added to the accumulator's element.

    One sum per clock, no stall. Roundings as in docs/numerics.md.

    Parameters
    ----------
    sum_width : bits of the sum

    Members
    -------
    sum : In(signed(sum_width))
    scale : In(signed(11)), the product is sum * 2**scale
    nan : In(1), the product is NaN
    acc : In(32), `ACC_DELAY` clocks after `sum`
    overwrite : In(1), with `acc`: the result is the product alone
    y : Out(32)
    overflow : Out(1), a finite product or sum became Inf
    """

    #: Clocks from `sum` to the `acc` that it is added to.
    ACC_DELAY = SumToFp32.LATENCY
    #: Clocks from `sum` to `y`.
    LATENCY = SumToFp32.LATENCY + Fp32Add.LATENCY

    def __init__(self, sum_width: int):
        self.sum_width = sum_width
        super().__init__({
            "sum": In(signed(sum_width)), "scale": In(signed(11)), "nan": In(1),
            "acc": In(32), "overwrite": In(1), "y": Out(32), "overflow": Out(1),
        })

    def elaborate(self, platform):
        if platform is None:
            return self._contents(self)
        return platform.instance(self, f"edge_s{self.sum_width}", self._contents)

    def _contents(self, io):
        m = Module()
        m.submodules.convert = convert = SumToFp32(self.sum_width)
        m.submodules.add = add = Fp32Add()
        product_overflow = delay(m, convert.overflow, Fp32Add.LATENCY, name="product_overflow")
        m.d.comb += [
            convert.sum.eq(io.sum), convert.scale.eq(io.scale), convert.nan.eq(io.nan),
            # the accumulator never holds -0, so adding zero is overwriting
            add.a.eq(Mux(io.overwrite, 0, io.acc)), add.b.eq(convert.y),
            io.y.eq(add.y), io.overflow.eq(add.overflow | product_overflow),
        ]
        return m
