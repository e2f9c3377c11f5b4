"""Who uses the shared units, and how long inference waits for training."""

from amaranth.hdl import Assert, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.regs import COUNTER_BITS, UNITS

#: Counters of a unit, in the order of their registers.
USES = ("TRAINING", "INFERENCE", "TRAINING_HELD", "INFERENCE_HELD", "UNUSED")


class Occupancy(wiring.Component):
    """Counts clocks by unit, and checks holds of inference against their bounds.

    Units are in the order of `UNITS`, bits of a pair in that of `ContextId`. A clock is counted
    two clocks later. The check (an assertion) holds for a unit while `priority` has been high since
    its `held` was 0 last. For READ and WRITE it is against the largest bound since training began,
    as bursts may be under way that were asked for under other settings.

    Parameters
    ----------
    cfg : Config
    array_bound, vector_bound : int
        HOLD_BOUND of the execute unit and of the vector unit.

    Members
    -------
    clear : In(1), set all counters and `hold_max` to 0; what comes in this clock counts
    use : In(2).array(units), the unit works for the context in this clock
    asks : In(2).array(units), the context asks for the unit or uses it
    held : In(16).array(units), how long inference has been waiting for training by now
    priority : In(1), the policy is `priority`
    training : In(1), the training context is busy
    max_beats : In(9), most beats of a burst of training
    most_credits : In(16), most beats of its reads that are outstanding at any time
    count : Out(48).array(units * len(USES))
    hold_max, hold_bound : Out(16).array(units)
    activity : Out(10), `use` of the clock before, all units
    """

    def __init__(self, cfg: Config, array_bound: int, vector_bound: int):
        self.cfg, self.array_bound, self.vector_bound = cfg, array_bound, vector_bound
        units = len(UNITS)
        super().__init__({
            "clear": In(1), "use": In(2).array(units), "asks": In(2).array(units),
            "held": In(16).array(units), "priority": In(1), "training": In(1), "max_beats": In(9),
            "most_credits": In(16), "count": Out(COUNTER_BITS).array(units * len(USES)),
            "hold_max": Out(16).array(units), "hold_bound": Out(16).array(units),
            "activity": Out(2 * units),
        })

    def elaborate(self, platform):
        m = Module()
        capacity = self.cfg.outstanding * self.max_beats
        asked = Mux(self.most_credits > self.max_beats, self.most_credits, self.max_beats)
        bounds = {"ARRAY": self.array_bound, "VECTOR": self.vector_bound, "QUANTISER": 0,
                  "READ": Mux(asked < capacity, asked, capacity), "WRITE": 2 * self.max_beats}
        for n, (unit, _) in enumerate(UNITS):
            use = self.activity[2 * n:2 * n + 2]
            asks = Signal(2, name=f"{unit.lower()}_asks")
            held = Signal(16, name=f"{unit.lower()}_held")
            counts = self.count[len(USES) * n:len(USES) * (n + 1)]
            m.d.comb += self.hold_bound[n].eq(bounds[unit])
            m.d.sync += [use.eq(self.use[n]), asks.eq(self.asks[n]), held.eq(self.held[n])]
            with m.If(self.clear):
                m.d.sync += [*(c.eq(0) for c in counts), self.hold_max[n].eq(0)]
            with m.Else():
                m.d.sync += [c.eq(c + event) for c, event in zip(
                    counts, (*use, asks[0] & use[1], asks[1] & use[0], use == 0), strict=True)]
                with m.If(held > self.hold_max[n]):
                    m.d.sync += self.hold_max[n].eq(held)
            self._check(m, n, unit, held)
        return m

    def _check(self, m, n, unit, held):
        bound = self.hold_bound[n]
        limit = bound
        if unit in ("READ", "WRITE"):
            most = Signal(16, name=f"{unit.lower()}_most")
            limit = Mux(most > bound, most, bound)
            m.d.sync += most.eq(Mux(self.training | (self.held[n] != 0), limit, bound))
        only = Signal(name=f"{unit.lower()}_only_priority")
        m.d.sync += only.eq(self.priority & (only | (self.held[n] == 0)))
        m.d.sync += Assert(Cat(~only, held <= limit).any())
