"""Registers and counters that the contexts share."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config, clog2
from hw.control.block import BUS, answer, on_write, reset_value, words
from hw.control.occupancy import USES
from hw.control.times import Times
from hw.regs import (
    BINS,
    COUNTER_BITS,
    HISTOGRAM_BASE,
    SHARED_COUNTERS,
    SHARED_REGISTERS,
    SHARED_STATIC,
    TIMES,
    UNITS,
)

#: Registers that lie in the request unit, which may refuse what is written.
REQUEST_OWNED = ("REQUEST_CONTROL", "CONSUMED")
#: Registers of which a write of any value, 0 too, is an event.
STROBES = (*REQUEST_OWNED, "DOORBELL", "SHARED_COUNTERS_CLEAR")
#: The offset's bits name histogram and bin.
assert HISTOGRAM_BASE % (4 * BINS << clog2(len(TIMES))) == 0


class SharedRegisters(wiring.Component):
    """Block of registers of scheduling and requests, with the counters that read as 48 bits.

    Members
    -------
    bus : In(BUS), see `hw.control.block`; a read is answered at once, of a histogram some clocks
        later
    value_<NAME> : one Out(32) per "rw" register that does not lie in the request unit
    status_<NAME> : one In(32) per other register that can be read
    strobe_<NAME> : Out(1), pulse: `wdata` is written to REQUEST_CONTROL, CONSUMED, DOORBELL, or
        anything to SHARED_COUNTERS_CLEAR
    write_REQUEST_IRQ_STATUS : Out(32), the bits written as 1, for one clock; 0 otherwise
    wdata : Out(32)
    count_BATCHES, count_SPIKE_CYCLES : In(1), what these counters are increased by in this clock
    occupied : In(48).array(units * len(USES)), hold_max, hold_bound : In(16).array(units), from
        `Occupancy`
    time_valid : In(1), wait, service, latency : In(48), a request's times (see `Times`)
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        units = len(UNITS)
        members = {
            "bus": In(BUS), "wdata": Out(32), "count_BATCHES": In(1), "count_SPIKE_CYCLES": In(1),
            "occupied": In(COUNTER_BITS).array(units * len(USES)),
            "hold_max": In(16).array(units), "hold_bound": In(16).array(units),
            "time_valid": In(1), **{name.lower(): In(COUNTER_BITS) for name, _ in TIMES},
            **{f"strobe_{name}": Out(1) for name in STROBES},
            "write_REQUEST_IRQ_STATUS": Out(32),
        }
        for r in SHARED_STATIC:
            if r.access == "rw" and r.name not in REQUEST_OWNED:
                members[f"value_{r.name}"] = Out(32, init=reset_value(cfg, r.name))
            elif r.access != "wo":
                members[f"status_{r.name}"] = In(32)
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        clear = self.strobe_SHARED_COUNTERS_CLEAR
        m.d.comb += self.wdata.eq(self.bus.w_data)

        def write(r):
            if r.name in STROBES:
                m.d.comb += getattr(self, f"strobe_{r.name}").eq(1)
            elif r.access == "w1c":
                m.d.comb += getattr(self, f"write_{r.name}").eq(self.bus.w_data)
            else:
                m.d.sync += getattr(self, f"value_{r.name}").eq(self.bus.w_data)

        events = {}
        for name in ("BATCHES", "SPIKE_CYCLES"):
            events[name] = counter = Signal(COUNTER_BITS, name=name.lower())
            with m.If(clear):
                m.d.sync += counter.eq(0)
            with m.Else():
                m.d.sync += counter.eq(counter + getattr(self, f"count_{name}"))
        m.submodules.times = times = Times()
        m.d.comb += [times.clear.eq(clear), times.time_valid.eq(self.time_valid),
                     *(getattr(times, name.lower()).eq(getattr(self, name.lower()))
                       for name, _ in TIMES)]
        counters = [*events.values(), *self.occupied]
        for n in range(len(TIMES)):
            counters += [times.count, times.sum[n], times.min[n], times.max[n]]
        counters = dict(zip((name for name, _ in SHARED_COUNTERS), counters, strict=True))
        holds = {f"{unit}_{name}": value for n, (unit, _) in enumerate(UNITS) for name, value in (
            ("HOLD_MAX", self.hold_max[n]), ("HOLD_BOUND", self.hold_bound[n]))}

        values = {}
        for r in SHARED_REGISTERS:
            if r.access == "wo" or r.offset >= HISTOGRAM_BASE:
                continue
            value = counters.get(r.name)
            if value is None:
                value = holds.get(r.name)
            if value is None:
                kind = "value" if hasattr(self, f"value_{r.name}") else "status"
                value = getattr(self, f"{kind}_{r.name}")
            values |= words(r, value)
        on_write(m, self.bus, SHARED_STATIC, write)
        answer(m, self.bus, values)
        self._histograms(m, times)
        return m

    def _histograms(self, m, times):
        offset = self.bus.r_offset
        m.d.comb += Cat(times.r_bin, times.r_time).eq(offset[2:])
        with m.If((offset >= HISTOGRAM_BASE) & (offset < HISTOGRAM_BASE + 4 * BINS * len(TIMES))
                  & (offset[:2] == 0)):
            m.d.comb += [
                times.r_valid.eq(self.bus.r_valid), self.bus.r_ready.eq(times.r_ready),
                self.bus.r_ok.eq(1), self.bus.r_data.eq(times.r_data),
            ]
