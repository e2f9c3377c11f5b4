"""Tile images to AXI4 read bursts."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config, clog2
from hw.isa import Kind
from hw.memory.axi import MAX_BEATS, PAGE_BYTES


class ReadBursts(wiring.Component):
    """Splits images into INCR bursts and keeps count of those that are not answered.

    An image is taken in one clock, then one burst is raised per clock as long as `ar_ready` and the
    limits allow. A raised burst stays until it is accepted.

    Members
    -------
    start : In(1), take `address`, `beats` (1 ..) and `kind`; only while `ready`
    ready : Out(1)
    max_beats : In(9), most beats of a burst; 0 counts as 1
    credits : In(16), a burst is raised only if `owed` and its beats are no more than this together,
        or if nothing is owed
    buffered : In(16), beats that have arrived and are not used; with what is owed they are never
        more than `Config.read_buffer`
    abort : In(1), raise no burst
    ar_valid, ar_ready, ar_addr, ar_len : AXI4 read address channel
    ar_kind : Out(Kind), with `ar_addr`
    beat : In(1), a beat arrives; last : In(1), it is its burst's last
    owed : Out(16), beats of bursts that are raised which have not arrived
    idle : Out(1), no burst is raised or unanswered
    """

    def __init__(self, cfg: Config, most: int):
        self.cfg = cfg
        super().__init__({
            "start": In(1), "address": In(cfg.addr_width), "beats": In(range(most + 1)),
            "kind": In(Kind), "ready": Out(1), "max_beats": In(9), "credits": In(16),
            "buffered": In(16), "abort": In(1), "ar_valid": Out(1), "ar_ready": In(1),
            "ar_addr": Out(cfg.addr_width), "ar_len": Out(8), "ar_kind": Out(Kind),
            "beat": In(1), "last": In(1), "owed": Out(16), "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        cfg = self.cfg
        page_beats = PAGE_BYTES // cfg.beat_bytes
        beat_bits = clog2(cfg.beat_bytes)
        index = Signal(cfg.addr_width - beat_bits)  # next beat's number in DRAM
        left = Signal.like(self.beats)
        kind = Signal(Kind)
        room = Signal(range(page_beats + 1))
        limit = Signal(range(MAX_BEATS + 1))
        whole = Signal(range(MAX_BEATS + 1))        # the longest burst from here on
        burst = Signal(range(MAX_BEATS + 1))
        in_flight = Signal(range(cfg.outstanding + 1))
        raised = Signal()
        longest = min(MAX_BEATS, cfg.read_buffer)
        m.d.comb += [
            self.ready.eq(left == 0), self.idle.eq(in_flight == 0),
            room.eq(page_beats - index[:clog2(page_beats)]),
            limit.eq(Mux(self.max_beats > longest, longest,
                         Mux(self.max_beats == 0, 1, self.max_beats))),
            whole.eq(Mux(room < limit, room, limit)), burst.eq(Mux(left < whole, left, whole)),
            raised.eq((left != 0) & (~self.ar_valid | self.ar_ready) & ~self.abort
                      & (in_flight != cfg.outstanding)
                      & (self.owed + self.buffered + burst <= cfg.read_buffer)
                      & ((self.owed == 0) | (self.owed + burst <= self.credits))),
        ]
        m.d.sync += [
            in_flight.eq(in_flight + raised - (self.beat & self.last)),
            self.owed.eq(self.owed + Mux(raised, burst, 0) - self.beat),
        ]
        with m.If(self.ar_ready):
            m.d.sync += self.ar_valid.eq(0)
        with m.If(raised):
            m.d.sync += [
                self.ar_valid.eq(1), self.ar_addr.eq(Cat(Const(0, beat_bits), index)),
                self.ar_len.eq(burst - 1), self.ar_kind.eq(kind),
                index.eq(index + burst), left.eq(left - burst),
            ]
        with m.If(self.start):
            m.d.sync += [index.eq(self.address[beat_bits:]), left.eq(self.beats),
                         kind.eq(self.kind)]
        return m
