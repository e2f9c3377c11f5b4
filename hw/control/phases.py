"""Counters by phase."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.isa import INSTRUCTION, PHASES
from hw.lib.ram import Ram
from hw.regs import COUNTER_BITS


class PhaseCounters(wiring.Component):
    """Counts clocks under the phase they belong to.

    The counters of the present phase are registers, one clock behind; the others lie in a RAM.

    Members
    -------
    clear : In(1), set all counters to 0
    phase : In(5), of this clock
    cycles, busy : In(1), what PHASE_CYCLES and PHASE_BUSY are increased by in this clock
    r_valid : In(1), r_ready : Out(1), r_phase : In(5), read the counters of a phase
    r_cycles, r_busy : Out(48), in the clock after a read
    """

    def __init__(self):
        phase = In(INSTRUCTION["phase"].shape)
        super().__init__({
            "clear": In(1), "phase": phase, "cycles": In(1), "busy": In(1),
            "r_valid": In(1), "r_ready": Out(1), "r_phase": phase,
            "r_cycles": Out(COUNTER_BITS), "r_busy": Out(COUNTER_BITS),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.others = others = Ram(2 * COUNTER_BITS, PHASES)
        written = Signal(PHASES)  # rows since the last `clear`; the others count as 0
        present = Signal.like(self.phase)  # the phase whose counters are here
        here = Signal(2 * COUNTER_BITS)
        arriving = Signal()  # they are coming from the RAM
        known = Signal()
        change = Signal()
        cycles = Signal()
        busy = Signal()
        now = Signal(2 * COUNTER_BITS)
        row = Signal(2 * COUNTER_BITS)
        sums = Signal(2 * COUNTER_BITS)
        from_here = Signal()
        m.d.comb += [
            change.eq(self.phase != present), self.r_ready.eq(~change),
            others.r_en.eq(change | self.r_valid),
            others.r_addr.eq(Mux(change, self.phase, self.r_phase)),
            row.eq(Mux(known, others.r_data, 0)), now.eq(Mux(arriving, row, here)),
            sums.eq(Cat((now[:COUNTER_BITS] + cycles)[:COUNTER_BITS], now[COUNTER_BITS:] + busy)),
            others.w_en.eq(change), others.w_addr.eq(present), others.w_data.eq(sums),
            Cat(self.r_cycles, self.r_busy).eq(Mux(from_here, here, row)),
        ]
        m.d.sync += [
            present.eq(self.phase), arriving.eq(change), here.eq(sums),
            cycles.eq(self.cycles), busy.eq(self.busy), from_here.eq(self.r_phase == present),
            known.eq(written.bit_select(others.r_addr, 1)),
        ]
        with m.If(change):
            m.d.sync += written.bit_select(present, 1).eq(1)
        with m.If(self.clear):
            m.d.sync += [written.eq(0), known.eq(0), here.eq(0), cycles.eq(0), busy.eq(0)]
        return m
