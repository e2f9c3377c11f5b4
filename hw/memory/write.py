"""Tile images to AXI4 write bursts."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import OFFSET_BITS, Config, clog2
from hw.control.commands import Source
from hw.isa import Kind
from hw.lib.fifo import Fifo
from hw.memory.axi import MAX_BEATS, PAGE_BYTES


def image_beat(cfg: Config) -> data.StructLayout:
    """One beat of a tile image; `offset`, `kind` and `source` are the image's in all of it."""
    return data.StructLayout({
        "data": cfg.axi_width,
        "last": 1,               # the image's last beat
        "offset": OFFSET_BITS,   # of the image's first byte in the region
        "kind": Kind,
        "source": Source,
    })


class ImageMerge(wiring.Component):
    """Two streams of images into one, image by image; input 0 goes first.

    Latency 0 clocks, one beat per clock.

    Members
    -------
    i : In(stream.Signature(image_beat(cfg))).array(2)
    o : Out(stream.Signature(image_beat(cfg)))
    """

    def __init__(self, cfg: Config):
        super().__init__({"i": In(stream.Signature(image_beat(cfg))).array(2),
                          "o": Out(stream.Signature(image_beat(cfg)))})

    def elaborate(self, platform):
        m = Module()
        inside = Signal()  # of an image, the one of `current`
        current = Signal()
        chosen = Signal()
        first, second = self.i
        m.d.comb += [
            chosen.eq(Mux(inside, current, ~first.valid)),
            first.ready.eq(self.o.ready & ~(inside & current)),
            second.ready.eq(self.o.ready & chosen),
            self.o.valid.eq(Mux(chosen, second.valid, first.valid)),
        ]
        with m.If(chosen):
            m.d.comb += self.o.payload.eq(second.payload)
        with m.Else():
            m.d.comb += self.o.payload.eq(first.payload)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [inside.eq(~self.o.payload.last), current.eq(chosen)]
        return m


class BurstWriter(wiring.Component):
    """Buffers beats and writes them in INCR bursts over AXI4.

    A burst ends with its image, before a 4 KiB boundary, at `max_beats`, at 256 beats and at half
    the write buffer. Its AW is raised when all its data is buffered; its W follows at once,
    accepted or not.
    One beat per clock; a full buffer stalls the input.

    `base` may change only while nothing is inside. After an error response no `done` is given
    until the unit is reset.

    Members
    -------
    i : In(stream.Signature(image_beat(cfg)))
    base : In(addr_width), address of the region, a multiple of a beat
    max_beats : In(9), most beats of a burst, 0 counts as 1; of one that is being formed when it
        changes, the beats still to come keep to it
    aw_valid, aw_ready, aw_addr, aw_len : out, in, Out(addr_width), Out(8)
    w_valid, w_ready, w_data, w_last : out, in, Out(axi_width), out
    b_valid, b_ready, b_resp : in, out, In(2)
        AXI4 write channels; every strobe is set, all bursts have one ID
    done : Out(1), pulse: the last response of an image has arrived, all of them OK;
        done_source : Out(Source), the image's, with it
    error : Out(1), pulse: a response that is neither OKAY nor EXOKAY
    error_addr : Out(32), offset in the region of that response's burst
    count_en : Out(1), a burst's address is accepted
    count_kind : Out(Kind), count_bytes : Out(16), of that burst
    abort : In(1), while high no new AW is raised; one that waits, and W that is owed, go on
    idle : Out(1), no AW waits, no W is owed and no response is outstanding
    empty : Out(1), nor is there a beat inside; every `done` has been given or is given now
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "i": In(stream.Signature(image_beat(cfg))), "base": In(cfg.addr_width),
            "max_beats": In(9),
            "aw_valid": Out(1), "aw_ready": In(1), "aw_addr": Out(cfg.addr_width),
            "aw_len": Out(8), "w_valid": Out(1), "w_ready": In(1), "w_data": Out(cfg.axi_width),
            "w_last": Out(1), "b_valid": In(1), "b_ready": Out(1), "b_resp": In(2),
            "done": Out(1), "done_source": Out(Source),
            "error": Out(1), "error_addr": Out(OFFSET_BITS),
            "count_en": Out(1), "count_kind": Out(Kind), "count_bytes": Out(16),
            "abort": In(1), "idle": Out(1), "empty": Out(1),
        })

    def elaborate(self, platform):
        cfg = self.cfg
        m = Module()
        log_beat = clog2(cfg.beat_bytes)
        longest = min(MAX_BEATS, cfg.write_buffer // 2)
        depth = max(2, cfg.outstanding)
        m.submodules.beats = beats = Fifo(data.StructLayout({"data": cfg.axi_width, "last": 1}),
                                          cfg.write_buffer)
        m.submodules.bursts = bursts = Fifo(data.StructLayout(
            {"offset": OFFSET_BITS, "len": 8, "kind": Kind, "source": Source, "last": 1}), depth)
        m.submodules.pending = pending = Fifo(data.StructLayout(
            {"offset": OFFSET_BITS, "source": Source, "last": 1}), depth)

        # In: cut images into bursts; a burst enters `bursts` with its last beat.
        image_starts = Signal(init=1)
        burst_starts = Signal(init=1)
        next_offset = Signal(OFFSET_BITS)
        burst_offset = Signal(OFFSET_BITS)
        offset = Signal(OFFSET_BITS)
        start = Signal(OFFSET_BITS)
        length = Signal(8)
        page_beat = Signal(range(PAGE_BYTES // cfg.beat_bytes))
        ends = Signal()
        push = Signal()
        m.d.comb += [
            offset.eq(Mux(image_starts, self.i.payload.offset, next_offset)),
            start.eq(Mux(burst_starts, offset, burst_offset)),
            page_beat.eq(self.base[log_beat:] + offset[log_beat:]),
            ends.eq(self.i.payload.last | page_beat.all() | (length == longest - 1)
                    | (length + 1 >= self.max_beats)),
            self.i.ready.eq(beats.i.ready & bursts.i.ready),
            push.eq(self.i.valid & self.i.ready),
            beats.i.valid.eq(push), bursts.i.valid.eq(push & ends),
            beats.i.payload.data.eq(self.i.payload.data), beats.i.payload.last.eq(ends),
            bursts.i.payload.offset.eq(start), bursts.i.payload.len.eq(length),
            bursts.i.payload.kind.eq(self.i.payload.kind),
            bursts.i.payload.source.eq(self.i.payload.source),
            bursts.i.payload.last.eq(self.i.payload.last),
        ]
        with m.If(push):
            m.d.sync += [image_starts.eq(self.i.payload.last), burst_starts.eq(ends),
                         next_offset.eq(offset + cfg.beat_bytes), burst_offset.eq(start),
                         length.eq(Mux(ends, 0, length + 1))]

        # AW, one register behind the queue.
        outstanding = Signal(range(cfg.outstanding + 1))
        raised = Signal()
        answered = Signal()
        free = Signal()
        burst = bursts.o.payload
        kind = Signal(Kind)
        m.d.comb += [
            free.eq(~self.abort & (outstanding != cfg.outstanding)
                    & (~self.aw_valid | self.aw_ready)),
            raised.eq(bursts.o.valid & free), bursts.o.ready.eq(free),
            pending.i.valid.eq(raised), pending.i.payload.offset.eq(burst.offset),
            pending.i.payload.last.eq(burst.last), pending.i.payload.source.eq(burst.source),
            self.count_en.eq(self.aw_valid & self.aw_ready), self.count_kind.eq(kind),
            self.count_bytes.eq((self.aw_len + 1) << log_beat),
        ]
        m.d.sync += [self.aw_valid.eq(raised | (self.aw_valid & ~self.aw_ready)),
                     outstanding.eq(outstanding + raised - answered)]
        with m.If(raised):
            m.d.sync += [self.aw_addr.eq(self.base + burst.offset), self.aw_len.eq(burst.len),
                         kind.eq(burst.kind)]

        # W of the bursts whose AW is raised.
        owed = Signal(range(cfg.outstanding + 1))
        m.d.comb += [
            self.w_valid.eq(beats.o.valid & (owed != 0)),
            beats.o.ready.eq(self.w_ready & (owed != 0)),
            self.w_data.eq(beats.o.payload.data), self.w_last.eq(beats.o.payload.last),
        ]
        m.d.sync += owed.eq(owed + raised - (self.w_valid & self.w_ready & self.w_last))

        # B, in the order of AW.
        failed = Signal()
        bad = Signal()
        m.d.comb += [
            self.b_ready.eq(pending.o.valid), answered.eq(self.b_valid & self.b_ready),
            pending.o.ready.eq(self.b_valid), bad.eq(answered & self.b_resp[1]),
            self.idle.eq(outstanding == 0),
            self.empty.eq(self.idle & image_starts & (bursts.level == 0)),
        ]
        m.d.sync += [
            self.error.eq(bad), self.error_addr.eq(pending.o.payload.offset),
            failed.eq(failed | bad),
            self.done.eq(answered & pending.o.payload.last & ~bad & ~failed),
            self.done_source.eq(pending.o.payload.source),
        ]
        return m
