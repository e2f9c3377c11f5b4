"""Operations of both contexts to the one array."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.control.commands import ContextId, exec_command
from hw.lib.context_arbiter import ContextArbiter


class ArrayArbiter(wiring.Component):
    """Passes operations on to the execute unit, inference first, and marks them with their context.

    Latency 0 clocks. A context knows only its own operations: `b_reuse` is taken back when the
    last one that was taken was of the other context, or when there was none since reset.

    Members
    -------
    i : In(stream.Signature(exec_command)).array(2), by ContextId; `context` is ignored
    o : Out(stream.Signature(exec_command)), to `ExecuteUnit.cmd`; an offer may change
    fair, hold : In(1), see `ContextArbiter`
    inside : In(1), `ExecuteUnit.inside` of training
    held : Out(16), clocks for which inference's present offer has been waiting while an operation
        of training is inside; at most `ExecuteUnit.HOLD_BOUND` without `fair`
    """

    def __init__(self, cfg: Config):
        command = stream.Signature(exec_command(cfg))
        self.cfg = cfg
        super().__init__({"i": In(command).array(2), "o": Out(command), "fair": In(1),
                          "hold": In(1), "inside": In(1), "held": Out(16)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.arbiter = arbiter = ContextArbiter(exec_command(self.cfg))
        for n in range(2):
            wiring.connect(m, wiring.flipped(self.i[n]), arbiter.i[n])
        loaded = Signal()        # a stationary tile is in the array, or on its way
        owner = Signal(ContextId)  # whose
        m.d.comb += [
            arbiter.fair.eq(self.fair), arbiter.hold.eq(self.hold),
            self.o.valid.eq(arbiter.o.valid), arbiter.o.ready.eq(self.o.ready),
            self.o.payload.eq(arbiter.o.payload), self.o.payload.context.eq(arbiter.context),
            self.o.payload.b_reuse.eq(arbiter.o.payload.b_reuse & loaded
                                      & (owner == arbiter.context)),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [loaded.eq(1), owner.eq(arbiter.context)]
        waits = self.i[ContextId.INFERENCE.value]
        with m.If(waits.valid & ~waits.ready & self.inside):
            m.d.sync += self.held.eq(self.held + 1)
        with m.Else():
            m.d.sync += self.held.eq(0)
        return m
