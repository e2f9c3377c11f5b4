"""Second pass over a tile that leaves the accumulator: build its image, or its rows on chip."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect

from hw.config import OFFSET_BITS, Config
from hw.control.commands import Source
from hw.isa import Kind
from hw.memory.convert import bfp_row
from hw.memory.gearbox import Gearbox, word
from hw.memory.write import image_beat


def image_info(cfg: Config) -> data.StructLayout:
    """Of a tile: where it goes, and what its rows do not tell."""
    return data.StructLayout({
        "source": Source, "spad": 1, "spad_slot": cfg.spad_slot_bits, "kind": Kind, "bfp": 1,
        "row_exp": 1, "exp": 8, "offset": OFFSET_BITS,
    })


class TileEncoder(wiring.Component):
    """Rows of tiles to the beats of their images, or to the scratchpad, in order.

    One row or one beat per clock, whichever the image has more of. An image ends with its last
    valid row. A stalled output stalls everything behind it.

    A tile for the scratchpad and one for DRAM may not be inside together.

    Members
    -------
    image : In(stream.Signature(image_info(cfg)))
    bfp : In(stream.Signature(bfp_row(cfg))), fp32 : In(stream.Signature(word(32 * tile))),
        the valid rows of BFP and FP32 tiles
    exp_beat : In(stream.Signature(word(axi_width))),
        exponent bytes of the valid rows of each BFP image with one exponent per row, in beats
    o : Out(stream.Signature(image_beat(cfg)))
    s_w_valid, s_w_ready, s_w_slot, s_w_row, s_w_data, s_w_exp : a row for the scratchpad
    s_w_last : Out(1), with `s_w_valid`: the tile's last
    source : Out(Source), of the tile in `o` or `s_w_*`
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "image": In(stream.Signature(image_info(cfg))),
            "bfp": In(stream.Signature(bfp_row(cfg))),
            "fp32": In(stream.Signature(word(32 * cfg.tile))),
            "exp_beat": In(stream.Signature(word(cfg.axi_width))),
            "o": Out(stream.Signature(image_beat(cfg))),
            "s_w_valid": Out(1), "s_w_ready": In(1), "s_w_slot": Out(cfg.spad_slot_bits),
            "s_w_row": Out(cfg.row_bits), "s_w_exp": Out(8),
            "s_w_data": Out(data.ArrayLayout(cfg.mant_width, cfg.tile)),
            "s_w_last": Out(1), "source": Out(Source),
        })

    def elaborate(self, platform):
        cfg = self.cfg
        m = Module()
        m.submodules.pack_bfp = pack_bfp = Gearbox(cfg.tile * cfg.container, cfg.axi_width)
        m.submodules.pack_fp32 = pack_fp32 = Gearbox(cfg.tile * 32, cfg.axi_width)
        connect(m, wiring.flipped(self.fp32), pack_fp32.i)
        image, row = self.image.payload, self.bfp.payload

        # BFP rows: to the scratchpad as they are, or to two's complement containers.
        written = Signal()
        containers = []
        for c in range(cfg.tile):
            magnitude, sign = row.mant[c][:-1], row.mant[c][-1]
            container = Signal(cfg.container, name=f"container{c}")
            m.d.comb += container.eq((magnitude ^ sign.replicate(cfg.container)) + sign)
            containers.append(container)
        m.d.comb += [
            pack_bfp.i.payload.data.eq(Cat(containers)), pack_bfp.i.payload.last.eq(row.last),
            self.s_w_slot.eq(image.spad_slot), self.s_w_data.eq(row.mant),
            self.s_w_exp.eq(row.exp), self.s_w_last.eq(row.last), self.source.eq(image.source),
            written.eq(self.s_w_valid & self.s_w_ready),
        ]
        with m.If(self.image.valid):  # of this tile or of one before it to the same place
            with m.If(image.spad):
                m.d.comb += [self.s_w_valid.eq(self.bfp.valid), self.bfp.ready.eq(self.s_w_ready)]
            with m.Else():
                m.d.comb += [pack_bfp.i.valid.eq(self.bfp.valid),
                             self.bfp.ready.eq(pack_bfp.i.ready)]
        with m.If(written):
            m.d.sync += self.s_w_row.eq(Mux(row.last, 0, self.s_w_row + 1))

        # Beats: exponents, then what the packers give.
        head = Signal(range(cfg.exp_beats + 1))
        header = Signal()
        final_head = Signal()
        ended = Signal()  # the exponent bytes of the valid rows have gone out
        given = Signal()
        spare = cfg.exp_beats * cfg.beat_bytes - cfg.tile
        square = Cat(image.exp.replicate(cfg.beat_bytes - spare),
                     Mux(final_head, 0, image.exp.replicate(spare)))
        m.d.comb += [
            header.eq(image.bfp & (head != cfg.exp_beats)),
            final_head.eq(head == cfg.exp_beats - 1),
            self.o.payload.offset.eq(image.offset), self.o.payload.source.eq(image.source),
            self.o.payload.kind.eq(image.kind),
            given.eq(self.o.valid & self.o.ready),
            self.image.ready.eq((given & self.o.payload.last) | (written & row.last)),
        ]
        with m.If(self.image.valid & ~image.spad):
            with m.If(header & ~image.row_exp):
                m.d.comb += [self.o.valid.eq(1), self.o.payload.data.eq(square)]
            with m.Elif(header):
                m.d.comb += [self.o.valid.eq(self.exp_beat.valid | ended),
                             self.o.payload.data.eq(Mux(ended, 0, self.exp_beat.payload.data)),
                             self.exp_beat.ready.eq(self.o.ready & ~ended)]
            with m.Else():
                for pack, chosen in (pack_bfp, image.bfp), (pack_fp32, ~image.bfp):
                    with m.If(chosen):
                        m.d.comb += [self.o.valid.eq(pack.o.valid), pack.o.ready.eq(self.o.ready),
                                     self.o.payload.data.eq(pack.o.payload.data),
                                     self.o.payload.last.eq(pack.o.payload.last)]
        with m.If(given & header):
            m.d.sync += [head.eq(head + 1),
                         ended.eq(ended | (image.row_exp & self.exp_beat.payload.last))]
        with m.If(given & self.o.payload.last):
            m.d.sync += [head.eq(0), ended.eq(0)]
        return m
