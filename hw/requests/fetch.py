"""Fetches and checks request descriptors."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import MAX_REQUESTS, OFFSET_BITS, Config, clog2
from hw.control.commands import Destination, Source, load_command
from hw.isa import Kind
from hw.lib.ram import Ram

#: Bits of a clock number.
CLOCK_BITS = 48
#: Bits of a pointer to requests: at most MAX_REQUESTS are between two of them.
POINTER_BITS = clog2(MAX_REQUESTS) + 1
#: Bits of a request's place in the RAMs: its number modulo MAX_REQUESTS.
INDEX_BITS = POINTER_BITS - 1

#: Words of a descriptor; the rest of its entry is not looked at.
DESCRIPTOR = data.StructLayout({"input": 32, "output": 32, "tag": 32, "zero": 32})
#: What is known of a request: `bad`, it is refused; `posted_at`, the clock of its doorbell.
REQUEST = data.StructLayout({"input": OFFSET_BITS, "output": OFFSET_BITS, "tag": 32, "bad": 1,
                             "posted_at": CLOCK_BITS})


class Fetch(wiring.Component):
    """Asks for the descriptors of all requests posted, and checks those that come, in order.

    A request comes out the clock after its descriptor. Only a doorbell's first request has its
    clock in the RAM; the others of that doorbell follow it.

    Members
    -------
    clear : In(1), all pointers become 0
    restart : In(1), transfers under way are lost: ask again
    enable : In(1), descriptors may be asked for
    give_up : In(1), descriptors are not asked for: those that have not come count as all zero
    now : In(48)
    doorbell : In(1), posted : In(8), the ring's: `posted` counts on from the next clock
    request_ring : In(32), ring_log2 : In(3), region_size, input_bytes, output_bytes : In(32)
    o : Out(stream.Signature(load_command(cfg)))
    descriptor_valid : In(1), descriptor : In(DESCRIPTOR)
    valid : Out(1), index : Out(7), request : Out(REQUEST), a request that has been fetched
    asked, fetched : Out(8), pointers; `fetched` is behind `valid`
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "clear": In(1), "restart": In(1), "enable": In(1), "give_up": In(1),
            "now": In(CLOCK_BITS), "doorbell": In(1), "posted": In(POINTER_BITS),
            "request_ring": In(OFFSET_BITS), "ring_log2": In(3), "region_size": In(OFFSET_BITS),
            "input_bytes": In(OFFSET_BITS), "output_bytes": In(OFFSET_BITS),
            "o": Out(stream.Signature(load_command(cfg))),
            "descriptor_valid": In(1), "descriptor": In(DESCRIPTOR),
            "valid": Out(1), "index": Out(INDEX_BITS), "request": Out(REQUEST),
            "asked": Out(POINTER_BITS), "fetched": Out(POINTER_BITS),
        })

    def elaborate(self, platform):
        cfg, m = self.cfg, Module()
        entry = Signal(INDEX_BITS)
        command = self.o.payload
        m.d.comb += [
            entry.eq(self.asked & ((1 << self.ring_log2) - 1)),
            self.o.valid.eq(self.enable & ~self.give_up & (self.asked != self.posted)),
            command.source.eq(Source.REQUEST), command.dest.eq(Destination.DESCRIPTOR),
            command.kind.eq(Kind.REQUEST),
            command.addr.eq(self.request_ring + (entry << clog2(cfg.entry_bytes))),
        ]

        # A descriptor comes, and with it the clock of its doorbell.
        seen = Signal(POINTER_BITS)
        come = Signal()
        descriptor = Signal(DESCRIPTOR)
        doorbells = Signal(MAX_REQUESTS)  # entries that are the first of their doorbell
        m.submodules.clocks = clocks = Ram(CLOCK_BITS, MAX_REQUESTS)
        m.d.comb += [
            come.eq(Mux(self.give_up, seen != self.posted, self.descriptor_valid)
                    & ~self.restart),
            descriptor.eq(Mux(self.give_up, 0, self.descriptor)),
            clocks.w_en.eq(self.doorbell), clocks.w_addr.eq(self.posted),
            clocks.w_data.eq(self.now), clocks.r_en.eq(come), clocks.r_addr.eq(seen),
        ]
        latest = Signal(DESCRIPTOR, reset_less=True)
        first = Signal(reset_less=True)
        ends = [Signal(OFFSET_BITS + 1, name=f"{n}_end", reset_less=True) for n in ("in", "out")]
        m.d.sync += [
            self.valid.eq(come), latest.eq(descriptor),
            first.eq(doorbells.bit_select(seen[:INDEX_BITS], 1)),
            ends[0].eq(descriptor.input + self.input_bytes),
            ends[1].eq(descriptor.output + self.output_bytes),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += self.asked.eq(self.asked + 1)
        with m.If(come):
            m.d.sync += [seen.eq(seen + 1), doorbells.bit_select(seen[:INDEX_BITS], 1).eq(0)]
        with m.If(self.doorbell):
            m.d.sync += doorbells.bit_select(self.posted[:INDEX_BITS], 1).eq(1)

        # Checked.
        posted_at = Signal(CLOCK_BITS, reset_less=True)  # of the request before
        low = clog2(cfg.beat_bytes)
        m.d.comb += [
            self.index.eq(self.fetched), self.request.input.eq(latest.input),
            self.request.output.eq(latest.output), self.request.tag.eq(latest.tag),
            self.request.posted_at.eq(Mux(first, clocks.r_data, posted_at)),
            self.request.bad.eq((latest.zero != 0) | (latest.input[:low] != 0)
                                | (latest.output[:low] != 0) | (ends[0] > self.region_size)
                                | (ends[1] > self.region_size)),
        ]
        with m.If(self.valid):
            m.d.sync += [self.fetched.eq(self.fetched + 1),
                         posted_at.eq(self.request.posted_at)]

        with m.If(self.restart):
            m.d.sync += self.asked.eq(seen)
        with m.If(self.clear):
            m.d.sync += [self.asked.eq(0), seen.eq(0), self.fetched.eq(0), doorbells.eq(0)]
        return m
