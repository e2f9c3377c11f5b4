"""Registers and counters of a context."""

from amaranth.hdl import Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.control.block import BUS, answer, on_write, reset_value, words
from hw.control.phases import PhaseCounters
from hw.isa import INSTRUCTION, PHASES
from hw.regs import CONTEXT_REGISTERS, COUNTER_BITS, COUNTERS, ID, PHASE_BASE, STATIC


class ContextRegisters(wiring.Component):
    """Block of registers of one context.

    Members
    -------
    bus : In(BUS), see `hw.control.block`; a read is answered at once, of a phase some clocks later
    value_<NAME> : one Out(32) per "rw" register
    status_<NAME> : one In(32) per "ro" or "w1c" register (not ID and CONFIG_HASH)
    write_<NAME> : Out(32), for "wo" and "w1c": the bits written as 1, for one clock; 0 otherwise
    count_<NAME> : In(16), what a counter is increased by in this clock
    set_CYCLES_OP : In(1), CYCLES_OP takes the value of `cycles_op`
    phase : In(5), under which CYCLES_TOTAL and ARRAY_BUSY also count in this clock
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        members = {
            "bus": In(BUS), "cycles_op": In(COUNTER_BITS), "set_CYCLES_OP": In(1),
            "phase": In(INSTRUCTION["phase"].shape),
            **{f"count_{name}": In(16) for name, _ in COUNTERS if name != "CYCLES_OP"},
        }
        for r in STATIC:
            if r.access == "rw":
                members[f"value_{r.name}"] = Out(32, init=reset_value(cfg, r.name))
            elif r.access != "wo" and r.name not in ("ID", "CONFIG_HASH"):
                members[f"status_{r.name}"] = In(32)
            if r.access in ("wo", "w1c"):
                members[f"write_{r.name}"] = Out(32)
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        clear = self.write_COUNTERS_CLEAR.any()
        counters = {name: Signal(COUNTER_BITS, name=name.lower()) for name, _ in COUNTERS}
        with m.If(clear):
            m.d.sync += [c.eq(0) for c in counters.values()]
        with m.Else():
            m.d.sync += [c.eq(c + getattr(self, f"count_{name}")) for name, c in counters.items()
                         if name != "CYCLES_OP"]
            with m.If(self.set_CYCLES_OP):
                m.d.sync += counters["CYCLES_OP"].eq(self.cycles_op)

        def write(r):
            if r.access == "rw":
                m.d.sync += getattr(self, f"value_{r.name}").eq(self.bus.w_data)
            elif r.name == "COUNTERS_CLEAR":
                m.d.comb += self.write_COUNTERS_CLEAR.eq(1)
            else:
                m.d.comb += getattr(self, f"write_{r.name}").eq(self.bus.w_data)

        values = {}
        constants = {"ID": Const(ID, 32), "CONFIG_HASH": Const(self.cfg.hash, 32)}
        for r in CONTEXT_REGISTERS:
            if r.access == "wo" or r.offset >= PHASE_BASE:
                continue
            if r.words == 2:
                value = counters[r.name]
            elif r.access == "rw":
                value = getattr(self, f"value_{r.name}")
            else:
                value = constants.get(r.name)
                if value is None:
                    value = getattr(self, f"status_{r.name}")
            values |= words(r, value)
        on_write(m, self.bus, STATIC, write)
        answer(m, self.bus, values)
        self._phases(m, clear)
        return m

    def _phases(self, m, clear):
        """Counters by phase: the answer comes in the clock after the memory has taken the read."""
        m.submodules.phases = phases = PhaseCounters()
        asked = Signal()
        arrives = Signal()
        both = Signal(128)  # counters of a phase
        offset = self.bus.r_offset
        m.d.comb += [
            asked.eq(self.bus.r_valid & ~arrives),
            phases.r_phase.eq(offset[4:]), both[:64].eq(phases.r_cycles),
            both[64:].eq(phases.r_busy), phases.phase.eq(self.phase), phases.clear.eq(clear),
            phases.cycles.eq(self.count_CYCLES_TOTAL.any()),
            phases.busy.eq(self.count_ARRAY_BUSY.any()),
        ]
        m.d.sync += arrives.eq(phases.r_valid & phases.r_ready)
        with m.If((offset >= PHASE_BASE) & (offset < PHASE_BASE + 16 * PHASES) & (offset[:2] == 0)):
            m.d.comb += [
                phases.r_valid.eq(asked), self.bus.r_ready.eq(arrives), self.bus.r_ok.eq(1),
                self.bus.r_data.eq(both.word_select(offset[2:4], 32)),
            ]
