"""Images of a batch's requests, and the rows of tile slots that they belong to."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import OFFSET_BITS, Config
from hw.isa import WINDOW
from hw.requests.shape import image_bits


def row_image(cfg: Config, bfp: bool) -> data.StructLayout:
    """One image: its row r belongs to row `row` of slot `slot` + r."""
    return data.StructLayout({
        "addr": OFFSET_BITS, "rows": cfg.count_bits, "row": cfg.row_bits,
        "slot": cfg.spad_slot_bits if bfp else cfg.acc_slot_bits,
    })


class RowImages(wiring.Component):
    """Lists the images of one request after the other.

    Request number q of a batch has row q mod T of tile row q div T of `window`; row j of its image
    i belongs to tile column i T + j.

    Parameters
    ----------
    cfg : Config
    bfp : bool
        BFP images and scratchpad slots, else FP32 and accumulator slots.

    Members
    -------
    window : In(WINDOW), second : In(1), the window of the same size behind it
    last_image, last_rows : In, of a request, as from `Shape`
    clear : In(1), a batch begins
    start : In(1), list the images of the next request, the first of which is at `addr`
    skip : In(1), the next request has none, but takes its row
    addr : In(32)
        Of clear, start and skip one at a time, and none while `busy`.
    busy : Out(1), images are left
    o : Out(stream.Signature(row_image(cfg, bfp)))
    """

    def __init__(self, cfg: Config, bfp: bool):
        self.cfg, self.bfp = cfg, bfp
        super().__init__({
            "window": In(WINDOW), "second": In(1), "last_image": In(image_bits(cfg)),
            "last_rows": In(cfg.count_bits), "clear": In(1), "start": In(1), "skip": In(1),
            "addr": In(OFFSET_BITS), "busy": Out(1),
            "o": Out(stream.Signature(row_image(cfg, self.bfp))),
        })

    def elaborate(self, platform):
        cfg, m = self.cfg, Module()
        row = Signal(cfg.row_bits)
        tile_row = Signal(16)  # slot of the tile row's first tile, from the window's
        size = Signal(16)
        image = Signal(image_bits(cfg))
        addr = Signal(OFFSET_BITS)
        slot = Signal(16)
        last = Signal()
        window = self.window
        m.d.comb += [
            size.eq(1 << (window.h_log2 + window.w_log2)[:4]), last.eq(image == self.last_image),
            self.o.valid.eq(self.busy), self.o.payload.addr.eq(addr),
            self.o.payload.rows.eq(Mux(last, self.last_rows, cfg.tile)),
            self.o.payload.row.eq(row), self.o.payload.slot.eq(slot),
        ]
        with m.If(self.clear):
            m.d.sync += [row.eq(0), tile_row.eq(0)]
        with m.If(self.start):
            m.d.sync += [self.busy.eq(1), image.eq(0), addr.eq(self.addr),
                         slot.eq(window.base + tile_row + Mux(self.second, size, 0))]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [self.busy.eq(~last), image.eq(image + 1), slot.eq(slot + cfg.tile),
                         addr.eq(addr + cfg.image_bytes(self.bfp))]
        with m.If(self.skip | (self.o.valid & self.o.ready & last)):
            m.d.sync += row.eq(row + 1)
            with m.If(row == cfg.tile - 1):
                m.d.sync += [row.eq(0),
                             tile_row.eq((tile_row + (1 << window.w_log2)) & (size - 1))]
        return m
