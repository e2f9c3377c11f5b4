"""The streams of the two contexts into one."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.control.commands import ContextId


class ContextArbiter(wiring.Component):
    """Passes on what the contexts offer, inference first (docs/serving.md, "Arbitration").

    Latency 0 clocks, one payload per clock. An offer on `o` that is not taken may change, so what
    takes it looks at it only in the clock in which it does. The `ready` of a context does not
    depend on its own `valid`.

    Parameters
    ----------
    shape
        Payload.

    Members
    -------
    i : In(stream.Signature(shape)).array(2), by ContextId
    o : Out(stream.Signature(shape))
    context : Out(ContextId), whose payload is on `o`
    fair : In(1), if both ask, the one that did not get the last grant
    hold : In(1), training is not offered
    """

    def __init__(self, shape):
        super().__init__({"i": In(stream.Signature(shape)).array(2),
                          "o": Out(stream.Signature(shape)), "context": Out(ContextId),
                          "fair": In(1), "hold": In(1)})

    def elaborate(self, platform):
        m = Module()
        training, inference = self.i
        last = Signal(ContextId)  # who got the last grant
        asks = Signal()           # training does
        gives_way = Signal()      # inference does, if both ask
        chosen = Signal()
        m.d.comb += [
            asks.eq(training.valid & ~self.hold),
            gives_way.eq(self.fair & (last == ContextId.INFERENCE)),
            chosen.eq(inference.valid & ~(gives_way & asks)),
            self.context.eq(chosen), self.o.valid.eq(inference.valid | asks),
            inference.ready.eq(self.o.ready & ~(gives_way & asks)),
            training.ready.eq(self.o.ready & ~self.hold & (~inference.valid | gives_way)),
        ]
        with m.If(chosen):
            m.d.comb += self.o.payload.eq(inference.payload)
        with m.Else():
            m.d.comb += self.o.payload.eq(training.payload)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += last.eq(chosen)
        return m
