"""Gathers the inputs of requests into the scratchpad."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import MAX_REQUESTS, OFFSET_BITS, Config
from hw.control.commands import Destination, Source, load_command
from hw.isa import WINDOW, Kind
from hw.lib.ram import Ram
from hw.requests.fetch import CLOCK_BITS, INDEX_BITS, REQUEST
from hw.requests.images import RowImages
from hw.requests.shape import image_bits

#: What the RAM keeps of a request.
_KEPT = data.StructLayout({"addr": OFFSET_BITS, "bad": 1, "posted_at": CLOCK_BITS})


class Gather(wiring.Component):
    """Gives the loads of one request's input after the other. A refused request has none.

    The parent resets it when transfers are lost; what the RAM keeps stays.

    Members
    -------
    window : In(WINDOW), second : In(1), buffer of the batch that forms
    last_image, last_rows : In, of an input, as from `Shape`
    clear : In(1), a batch begins; only while `settled`, not with `take`
    take : In(1), gather the request `index` if `free`
    index : In(7)
    free : Out(1)
    join : Out(1), pulse: all loads of the request taken last have been given;
        posted_at : Out(48), its doorbell's clock, with it
    settled : Out(1), all loads given are done, and no request is being gathered
    w_valid : In(1), w_index : In(7), request : In(REQUEST), requests as they are fetched
    o : Out(stream.Signature(load_command(cfg)))
    load_done : In(1)
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "window": In(WINDOW), "second": In(1), "last_image": In(image_bits(cfg)),
            "last_rows": In(cfg.count_bits), "clear": In(1), "take": In(1),
            "index": In(INDEX_BITS), "free": Out(1), "join": Out(1), "posted_at": Out(CLOCK_BITS),
            "settled": Out(1), "w_valid": In(1), "w_index": In(INDEX_BITS),
            "request": In(REQUEST), "o": Out(stream.Signature(load_command(cfg))),
            "load_done": In(1),
        })

    def elaborate(self, platform):
        cfg, m = self.cfg, Module()
        m.submodules.kept = ram = Ram(_KEPT.size, MAX_REQUESTS)
        m.submodules.images = images = RowImages(cfg, bfp=True)
        w_data = Signal(_KEPT)
        kept = Signal(_KEPT)
        under_way = Signal(image_bits(cfg) + INDEX_BITS + 1)  # loads
        given = Signal()
        command = self.o.payload
        m.d.comb += [
            w_data.addr.eq(self.request.input), w_data.bad.eq(self.request.bad),
            w_data.posted_at.eq(self.request.posted_at),
            ram.w_en.eq(self.w_valid), ram.w_addr.eq(self.w_index), ram.w_data.eq(w_data),
            ram.r_en.eq(self.take & self.free), ram.r_addr.eq(self.index), kept.eq(ram.r_data),
            self.posted_at.eq(kept.posted_at),
            images.window.eq(self.window), images.second.eq(self.second),
            images.last_image.eq(self.last_image), images.last_rows.eq(self.last_rows),
            images.clear.eq(self.clear), images.addr.eq(kept.addr),
            self.o.valid.eq(images.o.valid), images.o.ready.eq(self.o.ready),
            command.source.eq(Source.REQUEST), command.dest.eq(Destination.SPAD),
            command.kind.eq(Kind.X), command.row_exp.eq(1), command.gather.eq(1),
            command.cols.eq(cfg.tile),
            *(command[n].eq(images.o.payload[n]) for n in ("slot", "row", "rows", "addr")),
            given.eq(self.o.valid & self.o.ready),
            self.settled.eq(self.free & (under_way == 0)),
        ]
        m.d.sync += under_way.eq(under_way + given - self.load_done)
        with m.FSM(name="gather"):
            with m.State("FREE"):
                m.d.comb += self.free.eq(1)
                with m.If(self.take):
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.d.comb += [images.skip.eq(kept.bad), images.start.eq(~kept.bad)]
                m.next = "GIVE"
            with m.State("GIVE"):
                with m.If(~images.busy):
                    m.d.comb += self.join.eq(1)
                    m.next = "FREE"
        return m
