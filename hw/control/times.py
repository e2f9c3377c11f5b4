"""Times of requests: count, sum, extremes and histograms."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.lib.ram import Ram
from hw.regs import BINS, COUNTER_BITS, TIMES


class Histogram(wiring.Component):
    """Counts how often each of `BINS` numbers comes; one per clock.

    The counters lie in a RAM. A number is counted two clocks after it came.

    Members
    -------
    clear : In(1), set all counters to 0, whatever has come so far, in this clock too
    valid : In(1), bin : In(range(BINS)), a number
    r_valid : In(1), r_ready : Out(1), r_bin : In(range(BINS)), read a counter; `r_ready` is low
        while a number comes
    r_data : Out(32), in the clock after a read
    """

    def __init__(self):
        super().__init__({
            "clear": In(1), "valid": In(1), "bin": In(range(BINS)),
            "r_valid": In(1), "r_ready": Out(1), "r_bin": In(range(BINS)), "r_data": Out(32),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = Ram(32, BINS)
        written = Signal(BINS)  # rows since the last `clear`; the others count as 0
        known = Signal()
        counting = Signal()
        present = Signal(range(BINS))  # the bin whose counter comes
        fresh = Signal()  # it was written in the clock of its read: `sum` is its value
        last_sum = Signal(32)
        total = Signal(32)
        m.d.comb += [
            self.r_ready.eq(~self.valid), ram.r_en.eq(self.valid | self.r_valid),
            ram.r_addr.eq(Mux(self.valid, self.bin, self.r_bin)),
            self.r_data.eq(Mux(fresh, last_sum, Mux(known, ram.r_data, 0))),
            total.eq(self.r_data + 1),
            ram.w_en.eq(counting), ram.w_addr.eq(present), ram.w_data.eq(total),
        ]
        m.d.sync += [
            counting.eq(self.valid & ~self.clear), present.eq(self.bin), last_sum.eq(total),
            known.eq(written.bit_select(ram.r_addr, 1) & ~self.clear),
            fresh.eq(counting & (ram.r_addr == present) & ~self.clear),
        ]
        with m.If(self.clear):
            m.d.sync += written.eq(0)
        with m.Elif(counting):
            m.d.sync += written.bit_select(present, 1).eq(1)
        return m


class Times(wiring.Component):
    """Statistics of the times of requests; takes a request per clock.

    Members
    -------
    clear : In(1), forget all requests so far, one of this clock too
    time_valid : In(1), a request with its times, in clocks
    wait, service, latency : In(48)
    count : Out(48), requests
    sum, min, max : Out(48).array(3), of the times, in the order of `TIMES`, 2 clocks later; `min`
        of none is all ones
    r_valid : In(1), read counter `r_bin` of histogram `r_time`; it stays until `r_ready`
    r_ready : Out(1), `r_data` is its value in this clock
    r_time, r_bin : In, r_data : Out(32)
    """

    def __init__(self):
        number = Out(COUNTER_BITS)
        super().__init__({
            "clear": In(1), "time_valid": In(1),
            **{name.lower(): In(COUNTER_BITS) for name, _ in TIMES},
            "count": number, "sum": number.array(len(TIMES)),
            "min": Out(COUNTER_BITS, init=(1 << COUNTER_BITS) - 1).array(len(TIMES)),
            "max": number.array(len(TIMES)),
            "r_valid": In(1), "r_ready": Out(1), "r_time": In(range(len(TIMES))),
            "r_bin": In(range(BINS)), "r_data": Out(32),
        })

    def elaborate(self, platform):
        m = Module()
        valid = Signal()
        taken = Signal()  # a read
        arrives = Signal()
        m.d.sync += valid.eq(self.time_valid & ~self.clear)
        with m.If(self.clear):
            m.d.sync += self.count.eq(0)
        with m.Elif(valid):
            m.d.sync += self.count.eq(self.count + 1)
        for n, (name, _) in enumerate(TIMES):
            time = Signal(COUNTER_BITS, name=f"{name.lower()}_taken", reset_less=True)
            length = Signal(range(BINS), name=f"{name.lower()}_length")
            for bit in range(COUNTER_BITS):  # the highest one counts
                with m.If(time[bit]):
                    m.d.comb += length.eq(min(bit + 1, BINS - 1))
            m.d.sync += time.eq(getattr(self, name.lower()))
            with m.If(self.clear):
                m.d.sync += [self.sum[n].eq(0), self.min[n].eq(~0), self.max[n].eq(0)]
            with m.Elif(valid):
                m.d.sync += [self.sum[n].eq(self.sum[n] + time),
                             self.min[n].eq(Mux(time < self.min[n], time, self.min[n])),
                             self.max[n].eq(Mux(time > self.max[n], time, self.max[n]))]
            m.submodules[name.lower()] = histogram = Histogram()
            m.d.comb += [histogram.clear.eq(self.clear), histogram.valid.eq(valid),
                         histogram.bin.eq(length), histogram.r_bin.eq(self.r_bin)]
            with m.If(self.r_time == n):
                m.d.comb += [histogram.r_valid.eq(self.r_valid & ~arrives),
                             self.r_data.eq(histogram.r_data)]
                m.d.comb += taken.eq(histogram.r_valid & histogram.r_ready)
        m.d.comb += self.r_ready.eq(arrives)
        m.d.sync += arrives.eq(taken)
        return m
