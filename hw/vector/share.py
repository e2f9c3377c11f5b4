"""Who gets the lanes of the vector unit."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.control.commands import ContextId
from hw.lib.context_arbiter import ContextArbiter
from hw.vector.fetch import row_info


class LaneArbiter(wiring.Component):
    """Grants the lanes row by row, inference first.

    A row takes the lanes with the last of its reads, for `steps` + 1 clocks.

    Members
    -------
    asks, takes, steps, grant : arrays of 2, by ContextId, and free : see `RowFetch`
    fair : In(1), in turns
    held : Out(16), clocks for which inference has been asking while a row of training had the
        lanes, or its turn
    """

    def __init__(self, cfg: Config):
        self.steps_shape = row_info(cfg).members["steps"]
        super().__init__({
            "asks": In(1).array(2), "takes": In(1).array(2),
            "steps": In(self.steps_shape).array(2), "grant": Out(1).array(2), "free": Out(1),
            "fair": In(1), "held": Out(16)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.arbiter = arbiter = ContextArbiter(self.steps_shape)
        wait = Signal(self.steps_shape)  # clocks until the lanes are free
        owner = Signal(ContextId)        # whose row was the last one
        taken = self.takes[0] | self.takes[1]
        m.d.comb += [arbiter.fair.eq(self.fair), arbiter.o.ready.eq(taken),
                     self.free.eq(wait == 0)]
        for n in range(2):
            m.d.comb += [arbiter.i[n].valid.eq(self.asks[n]),
                         arbiter.i[n].payload.eq(self.steps[n]),
                         self.grant[n].eq(arbiter.context == ContextId(n))]
        with m.If(taken):
            m.d.sync += [wait.eq(arbiter.o.payload), owner.eq(arbiter.context)]
        with m.Elif(~self.free):
            m.d.sync += wait.eq(wait - 1)
        by_training = Mux(self.free, arbiter.context, owner) == ContextId.TRAINING.value
        with m.If(self.asks[1] & by_training):
            m.d.sync += self.held.eq(self.held + ~self.held.all())
        with m.Else():
            m.d.sync += self.held.eq(0)
        return m
