"""AXI4-Lite registers."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config, clog2
from hw.control.phases import PhaseCounters
from hw.isa import INSTRUCTION, PHASES
from hw.regs import COUNTER_BITS, COUNTERS, ID, PHASE_BASE, REGISTERS, SPACE

#: AXI responses.
OKAY, SLVERR = 0, 2


class Registers(wiring.Component):
    """Register file behind an AXI4-Lite slave.

    One access at a time, 32-bit words, all strobes set. An access to no register, a write to a
    read-only one or with a strobe missing answers SLVERR and changes nothing.

    Members
    -------
    awvalid .. rready : AXI4-Lite
    value : one Out per "rw" register
    status_<NAME> : one In(32) per "ro" or "w1c" register (not ID and CONFIG_HASH)
    write_<NAME> : Out(32), for "wo" and "w1c": the bits written as 1, for one clock; 0 otherwise
    count_<NAME> : In(16), what a counter is increased by in this clock
    set_CYCLES_OP : In(1), CYCLES_OP takes the value of `cycles_op`
    phase : In(5), under which CYCLES_TOTAL and ARRAY_BUSY also count in this clock
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        address = clog2(SPACE)
        members = {
            "awaddr": In(address), "awvalid": In(1), "awready": Out(1),
            "wdata": In(32), "wstrb": In(4), "wvalid": In(1), "wready": Out(1),
            "bresp": Out(2), "bvalid": Out(1), "bready": In(1),
            "araddr": In(address), "arvalid": In(1), "arready": Out(1),
            "rdata": Out(32), "rresp": Out(2), "rvalid": Out(1), "rready": In(1),
            "cycles_op": In(COUNTER_BITS), "set_CYCLES_OP": In(1),
            "phase": In(INSTRUCTION["phase"].shape),
            **{f"count_{name}": In(16) for name, _ in COUNTERS if name != "CYCLES_OP"},
        }
        for r in REGISTERS:
            if r.words == 2:
                continue
            if r.access == "rw":
                members[f"value_{r.name}"] = Out(32)
            else:
                if r.access in ("ro", "w1c") and r.name not in ("ID", "CONFIG_HASH"):
                    members[f"status_{r.name}"] = In(32)
                if r.access in ("wo", "w1c"):
                    members[f"write_{r.name}"] = Out(32)
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        # A write waits for both channels; a read answers in the next clock, or, for a phase, in the
        # one after that.
        write = Signal()
        read = Signal()
        of_phase = Signal()
        reading_phase = Signal()
        phase_word = Signal(2)
        m.submodules.phases = phases = PhaseCounters()
        m.d.comb += [
            write.eq(self.awvalid & self.wvalid & ~self.bvalid),
            self.awready.eq(write), self.wready.eq(write),
            read.eq(self.arvalid & ~self.rvalid & ~reading_phase & (phases.r_ready | ~of_phase)),
            self.arready.eq(read),
        ]
        write_ok = Signal()
        read_ok = Signal()
        words = Signal(128)  # of a phase
        word = Signal(32)
        with m.If(write):
            m.d.sync += [self.bvalid.eq(1), self.bresp.eq(Mux(write_ok, OKAY, SLVERR))]
        with m.Elif(self.bready):
            m.d.sync += self.bvalid.eq(0)
        with m.If(read & of_phase):
            m.d.sync += [reading_phase.eq(1), phase_word.eq(self.araddr[2:4])]
        with m.Elif(reading_phase):
            m.d.sync += [reading_phase.eq(0), self.rvalid.eq(1), self.rresp.eq(OKAY),
                         self.rdata.eq(words.word_select(phase_word, 32))]
        with m.Elif(read):
            m.d.sync += [self.rvalid.eq(1), self.rresp.eq(Mux(read_ok, OKAY, SLVERR)),
                         self.rdata.eq(word)]
        with m.Elif(self.rready):
            m.d.sync += self.rvalid.eq(0)

        m.d.comb += [
            of_phase.eq((self.araddr >= PHASE_BASE) & (self.araddr < PHASE_BASE + 16 * PHASES)
                        & (self.araddr[:2] == 0)),
            phases.r_valid.eq(read & of_phase), phases.r_phase.eq(self.araddr[4:]),
            words[:64].eq(phases.r_cycles), words[64:].eq(phases.r_busy),
            phases.phase.eq(self.phase), phases.clear.eq(self.write_COUNTERS_CLEAR.any()),
            phases.cycles.eq(self.count_CYCLES_TOTAL.any()),
            phases.busy.eq(self.count_ARRAY_BUSY.any()),
        ]
        counters = {name: Signal(COUNTER_BITS, name=name.lower()) for name, _ in COUNTERS}
        with m.If(self.write_COUNTERS_CLEAR.any()):
            m.d.sync += [c.eq(0) for c in counters.values()]
        with m.Else():
            m.d.sync += [c.eq(c + getattr(self, f"count_{name}")) for name, c in counters.items()
                         if name != "CYCLES_OP"]
            with m.If(self.set_CYCLES_OP):
                m.d.sync += counters["CYCLES_OP"].eq(self.cycles_op)

        full = self.wstrb.all()
        with m.Switch(self.awaddr):
            for r in REGISTERS:
                if r.access == "ro":
                    continue
                with m.Case(r.offset):
                    m.d.comb += write_ok.eq(full)
                    with m.If(write & full):
                        if r.access == "rw":
                            m.d.sync += getattr(self, f"value_{r.name}").eq(self.wdata)
                        elif r.name == "COUNTERS_CLEAR":
                            m.d.comb += self.write_COUNTERS_CLEAR.eq(1)
                        else:
                            m.d.comb += getattr(self, f"write_{r.name}").eq(self.wdata)

        constants = {"ID": ID, "CONFIG_HASH": self.cfg.hash}
        with m.Switch(self.araddr):
            for r in REGISTERS:
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
                for word_index in range(r.words):
                    with m.Case(r.offset + 4 * word_index):
                        m.d.comb += [read_ok.eq(1), word.eq(
                            value[32:] if word_index else value[:32] if r.words == 2 else value)]
        return m
