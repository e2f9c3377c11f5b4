"""Second pass over a tile that leaves the accumulator: quantise and pack its image."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import DIM_BITS, OFFSET_BITS, Config
from hw.control.commands import Source
from hw.isa import Kind
from hw.lib.fifo import Fifo
from hw.memory.gearbox import Gearbox, word
from hw.memory.write import image_beat
from hw.numerics.quantise import QuantiseLane, StochasticBits


def tile_info(cfg: Config) -> data.StructLayout:
    """What the second pass needs of a store command; the fields are the command's."""
    return data.StructLayout({
        "source": Source, "kind": Kind, "bfp": 1, "row_exp": 1, "stochastic": 1,
        "rows": cfg.count_bits, "addr": OFFSET_BITS, "salt": 32, "row0": DIM_BITS, "col0": DIM_BITS,
    })


class TileEncoder(wiring.Component):
    """Rows of tiles to the beats of their images, in order.

    One row or one beat per clock, whichever the image has more of. A BFP tile begins when its
    exponent is there, an FP32 tile with its first row and when no BFP row is being quantised. A
    stalled output stalls everything. `seed` may change only while nothing is inside.

    Parameters
    ----------
    tiles : int
        Tiles that can be inside, from being offered to their last beat; the parent sees to it.

    Members
    -------
    tile : In(stream.Signature(tile_info(cfg)))
    tile_exp : In(stream.Signature(8)), the exponent of each BFP tile
    exp_beat : In(stream.Signature(word(axi_width))),
        exponent bytes of the valid rows of each BFP tile with one exponent per row, in beats
    filled : In(1), r_en : Out(1), r_row : In(32 * tile), r_exp : In(8), read port of `RowBuffer`
    seed : In(32)
    o : Out(stream.Signature(image_beat(cfg)))
    """

    def __init__(self, cfg: Config, tiles: int):
        self.cfg, self.tiles = cfg, tiles
        super().__init__({
            "tile": In(stream.Signature(tile_info(cfg))), "tile_exp": In(stream.Signature(8)),
            "exp_beat": In(stream.Signature(word(cfg.axi_width))),
            "filled": In(1), "r_en": Out(1), "r_row": In(32 * cfg.tile), "r_exp": In(8),
            "seed": In(32), "o": Out(stream.Signature(image_beat(cfg))),
        })

    def elaborate(self, platform):
        cfg = self.cfg
        m = Module()
        m.submodules.bits = bits = StochasticBits(cfg.tile)
        m.submodules.pack_bfp = pack_bfp = Gearbox(cfg.tile * cfg.container, cfg.axi_width)
        m.submodules.pack_fp32 = pack_fp32 = Gearbox(cfg.tile * 32, cfg.axi_width)
        m.submodules.images = images = Fifo(data.StructLayout(
            {"source": Source, "kind": Kind, "bfp": 1, "row_exp": 1, "exp": 8,
             "offset": OFFSET_BITS}), self.tiles)
        assert bits.LATENCY == 1 + QuantiseLane.R_DELAY, "bits meet the row they belong to"

        # Ask for a row: `go`. Everything up to the packers moves with `en`.
        en = Signal()
        go = Signal()
        last = Signal()
        row = Signal(cfg.row_bits)
        valid_row = Signal()
        quantising = Signal()
        tile = self.tile.payload
        m.d.comb += [
            valid_row.eq(row < tile.rows), last.eq(row == cfg.tile - 1),
            go.eq(self.tile.valid & Mux(tile.bfp, self.tile_exp.valid, ~quantising)
                  & (self.filled | ~valid_row) & en),
            self.r_en.eq(go & valid_row),
            self.tile.ready.eq(go & last), self.tile_exp.ready.eq(go & last & tile.bfp),
            bits.en.eq(en), bits.seed.eq(self.seed), bits.salt.eq(tile.salt),
            bits.row.eq(tile.row0 + row), bits.col.eq(tile.col0),
            images.i.valid.eq(go & (row == 0)),
            images.i.payload.source.eq(tile.source), images.i.payload.kind.eq(tile.kind),
            images.i.payload.bfp.eq(tile.bfp),
            images.i.payload.row_exp.eq(tile.row_exp), images.i.payload.offset.eq(tile.addr),
            images.i.payload.exp.eq(self.tile_exp.payload),
        ]
        with m.If(go):
            m.d.sync += row.eq(Mux(last, 0, row + 1))

        # The row is here.
        here = Signal(data.StructLayout({"bfp": 1, "fp32": 1, "blank": 1, "last": 1,
                                         "row_exp": 1, "stochastic": 1, "exp": 8}))
        exp = Signal(8)
        m.d.comb += exp.eq(Mux(here.blank, 0, Mux(here.row_exp, self.r_exp, here.exp)))
        with m.If(en):
            m.d.sync += [here.bfp.eq(go & tile.bfp), here.fp32.eq(go & ~tile.bfp),
                         here.blank.eq(~valid_row), here.last.eq(last),
                         here.row_exp.eq(tile.row_exp), here.stochastic.eq(tile.stochastic),
                         here.exp.eq(self.tile_exp.payload)]

        # BFP: quantise, then two's complement containers.
        containers = []
        for c in range(cfg.tile):
            m.submodules[f"lane{c}"] = lane = QuantiseLane(cfg.mant_width)
            m.d.comb += [lane.en.eq(en), lane.x.eq(self.r_row.word_select(c, 32)),
                         lane.exp.eq(exp), lane.stochastic.eq(here.stochastic),
                         lane.r.eq(bits.r[c])]
            container = Signal(cfg.container, name=f"container{c}")
            magnitude, sign = lane.q[:-1], lane.q[-1]
            m.d.comb += container.eq((magnitude ^ sign.replicate(cfg.container)) + sign)
            containers.append(container)
        valids = Signal(QuantiseLane.LATENCY)
        lasts = Signal(QuantiseLane.LATENCY)
        with m.If(en):
            m.d.sync += [valids.eq(Cat(here.bfp, valids)), lasts.eq(Cat(here.last, lasts))]
        m.d.comb += [
            quantising.eq(here.bfp | valids.any()),
            pack_bfp.i.valid.eq(valids[-1]), pack_bfp.i.payload.last.eq(lasts[-1]),
            pack_bfp.i.payload.data.eq(Cat(containers)),
            pack_fp32.i.valid.eq(here.fp32), pack_fp32.i.payload.last.eq(here.last),
            pack_fp32.i.payload.data.eq(Mux(here.blank, 0, self.r_row)),
            # Never both at once: an FP32 row is asked for only when nothing is being quantised.
            en.eq((pack_bfp.i.ready | ~valids[-1]) & (pack_fp32.i.ready | ~here.fp32)),
        ]

        # Out: exponents, then what the packers give.
        image = images.o.payload
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
            given.eq(self.o.valid & self.o.ready), images.o.ready.eq(given & self.o.payload.last),
        ]
        with m.If(header & ~image.row_exp):
            m.d.comb += [self.o.valid.eq(images.o.valid), self.o.payload.data.eq(square)]
        with m.Elif(header):
            m.d.comb += [self.o.valid.eq(images.o.valid & (self.exp_beat.valid | ended)),
                         self.o.payload.data.eq(Mux(ended, 0, self.exp_beat.payload.data)),
                         self.exp_beat.ready.eq(images.o.valid & self.o.ready & ~ended)]
        with m.Else():
            for pack, chosen in (pack_bfp, image.bfp), (pack_fp32, ~image.bfp):
                with m.If(images.o.valid & chosen):
                    m.d.comb += [self.o.valid.eq(pack.o.valid), pack.o.ready.eq(self.o.ready),
                                 self.o.payload.data.eq(pack.o.payload.data),
                                 self.o.payload.last.eq(pack.o.payload.last)]
        with m.If(given & header):
            m.d.sync += [head.eq(head + 1),
                         ended.eq(ended | (image.row_exp & self.exp_beat.payload.last))]
        with m.If(given & self.o.payload.last):
            m.d.sync += [head.eq(0), ended.eq(0)]
        return m
