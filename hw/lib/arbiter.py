"""Several streams of one kind into one."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class Arbiter(wiring.Component):
    """Takes payloads of `inputs` streams in turns (round robin) and passes them on.

    Latency 0 clocks, one payload per clock. A payload on offer that is not taken stays chosen until
    it is; hence `o` keeps the rules of streams if the inputs do.

    Parameters
    ----------
    shape
        Payload.
    inputs : int
    priority : bool
        Input 0 goes before the others, which take turns.

    Members
    -------
    i : In(stream.Signature(shape)).array(inputs)
    o : Out(stream.Signature(shape))
    """

    def __init__(self, shape, inputs: int = 2, *, priority: bool = False):
        self.inputs, self.priority = inputs, priority
        super().__init__({"i": In(stream.Signature(shape)).array(inputs),
                          "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        first = int(self.priority)
        last = Signal(range(self.inputs), init=first)  # the input that had its turn last
        held = Signal()
        kept = Signal(range(self.inputs))
        chosen = Signal(range(self.inputs))
        turn = Signal(range(self.inputs))
        # The last assignment counts: the nearest behind `last` that is valid.
        with m.Switch(last):
            for n in range(first, self.inputs):
                with m.Case(n):
                    for k in [*range(n, first - 1, -1), *range(self.inputs - 1, n, -1)]:
                        with m.If(self.i[k].valid):
                            m.d.comb += turn.eq(k)
        m.d.comb += chosen.eq(Mux(held, kept, turn))
        if self.priority:
            with m.If(self.i[0].valid & ~held):
                m.d.comb += chosen.eq(0)
        with m.Switch(chosen):
            for n, port in enumerate(self.i):
                with m.Case(n):
                    m.d.comb += [self.o.valid.eq(port.valid), self.o.payload.eq(port.payload),
                                 port.ready.eq(self.o.ready)]
        m.d.sync += [held.eq(self.o.valid & ~self.o.ready), kept.eq(chosen)]
        taken = self.o.valid & self.o.ready
        with m.If(taken & (chosen != 0) if self.priority else taken):
            m.d.sync += last.eq(chosen)
        return m
