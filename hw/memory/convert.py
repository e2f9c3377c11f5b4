"""Rows of tiles that leave the accumulator, through the quantiser if they become BFP."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import DIM_BITS, OFFSET_BITS, Config
from hw.control.commands import Source
from hw.isa import Kind
from hw.lib.fifo import Fifo
from hw.memory.gearbox import word
from hw.memory.quantiser import Quantiser, quantise_request


def tile_info(cfg: Config) -> data.StructLayout:
    """What the second pass needs of a store command; the fields are the command's."""
    return data.StructLayout({
        "source": Source, "spad": 1, "spad_slot": cfg.spad_slot_bits, "kind": Kind, "bfp": 1,
        "row_exp": 1, "stochastic": 1, "rows": cfg.count_bits, "addr": OFFSET_BITS, "salt": 32,
        "row0": DIM_BITS, "col0": DIM_BITS,
    })


def bfp_row(cfg: Config) -> data.StructLayout:
    """A row of a BFP tile."""
    return data.StructLayout({
        "mant": data.ArrayLayout(cfg.mant_width, cfg.tile),  # {sign, magnitude} each
        "exp": 8,
        "last": 1,                                           # the tile's last valid row
    })


class RowConverter(wiring.Component):
    """Takes the valid rows of tiles out of the row buffer and has those of BFP tiles quantised.

    One row per clock. A BFP tile begins when its exponent is there. A row goes to the quantiser
    only when there is room for the result, which is `ROWS`, enough for its latency, less those
    inside. BFP and FP32 rows come out in order, each of their kind.

    While `abort` is high nothing is asked of the quantiser.

    Members
    -------
    tile : In(stream.Signature(tile_info(cfg)))
    tile_exp : In(stream.Signature(8)), the exponent of each BFP tile
    filled : In(1), r_en : Out(1), r_row : In(32 * tile), r_exp : In(8), read port of `RowBuffer`
    seed : In(32)
    q : Out(stream.Signature(quantise_request(cfg)))
    q_valid : In(1), q_mant : In(data.ArrayLayout(mant_width, tile)), results of the quantiser
    begins : Out(1), pulse: the first row of `tile.payload` is taken
    bfp : Out(stream.Signature(bfp_row(cfg)))
    fp32 : Out(stream.Signature(word(32 * tile)))
    abort : In(1)
    idle : Out(1), the quantiser has no row of this unit and none is on offer
    """

    ROWS = Quantiser.LATENCY + 4

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "tile": In(stream.Signature(tile_info(cfg))), "tile_exp": In(stream.Signature(8)),
            "filled": In(1), "r_en": Out(1), "r_row": In(32 * cfg.tile), "r_exp": In(8),
            "seed": In(32), "q": Out(stream.Signature(quantise_request(cfg))), "q_valid": In(1),
            "q_mant": In(data.ArrayLayout(cfg.mant_width, cfg.tile)), "begins": Out(1),
            "bfp": Out(stream.Signature(bfp_row(cfg))),
            "fp32": Out(stream.Signature(word(32 * cfg.tile))), "abort": In(1), "idle": Out(1),
        })

    def elaborate(self, platform):
        cfg = self.cfg
        m = Module()
        # Both have room for what has been reserved, so neither is ever full.
        m.submodules.mants = mants = Fifo(cfg.mant_width * cfg.tile, self.ROWS)
        m.submodules.tags = tags = Fifo(data.StructLayout({"exp": 8, "last": 1}), self.ROWS)

        # Ask the row buffer: `go`.
        go = Signal()
        last = Signal()
        row = Signal(cfg.count_bits)
        reserved = Signal(range(self.ROWS + 1))
        here_free = Signal()
        tile = self.tile.payload
        m.d.comb += [
            last.eq(row + 1 == tile.rows), self.begins.eq(go & (row == 0)),
            go.eq(self.tile.valid & self.filled & here_free
                  & (~tile.bfp | (self.tile_exp.valid & (reserved != self.ROWS)))),
            self.r_en.eq(go), self.tile.ready.eq(go & last),
            self.tile_exp.ready.eq(go & last & tile.bfp),
        ]
        with m.If(go):
            m.d.sync += row.eq(Mux(last, 0, row + 1))

        # The row is here.
        here = Signal(data.StructLayout({
            "bfp": 1, "row_exp": 1, "exp": 8, "last": 1, "stochastic": 1, "salt": 32,
            "row": DIM_BITS, "col": DIM_BITS}), reset_less=True)
        valid = Signal()
        asked = Signal()
        request = self.q.payload
        m.d.comb += [
            self.q.valid.eq(valid & here.bfp & ~self.abort), asked.eq(self.q.valid & self.q.ready),
            request.x.eq(self.r_row), request.exp.eq(Mux(here.row_exp, self.r_exp, here.exp)),
            request.stochastic.eq(here.stochastic), request.seed.eq(self.seed),
            request.salt.eq(here.salt), request.row.eq(here.row), request.col.eq(here.col),
            self.fp32.valid.eq(valid & ~here.bfp), self.fp32.payload.data.eq(self.r_row),
            self.fp32.payload.last.eq(here.last),
            here_free.eq(~valid | Mux(here.bfp, self.q.ready & ~self.abort, self.fp32.ready)),
        ]
        with m.If(go):
            m.d.sync += [
                valid.eq(1), here.exp.eq(self.tile_exp.payload), here.last.eq(last),
                here.row.eq(tile.row0 + row), here.col.eq(tile.col0),
                *(here[name].eq(tile[name]) for name in ("bfp", "row_exp", "stochastic", "salt")),
            ]
        with m.Elif(here_free):
            m.d.sync += valid.eq(0)

        # The result is here.
        given = Signal()
        inside = Signal(range(self.ROWS + 1))  # rows in the quantiser
        m.d.comb += [
            tags.i.valid.eq(asked), tags.i.payload.exp.eq(request.exp),
            tags.i.payload.last.eq(here.last),
            mants.i.valid.eq(self.q_valid), mants.i.payload.eq(self.q_mant),
            self.bfp.valid.eq(mants.o.valid & tags.o.valid),
            self.bfp.payload.mant.eq(mants.o.payload),
            self.bfp.payload.exp.eq(tags.o.payload.exp),
            self.bfp.payload.last.eq(tags.o.payload.last),
            given.eq(self.bfp.valid & self.bfp.ready),
            mants.o.ready.eq(given), tags.o.ready.eq(given),
            self.idle.eq((inside == 0) & ~self.q.valid),
        ]
        m.d.sync += [reserved.eq(reserved + (go & tile.bfp) - given),
                     inside.eq(inside + asked - self.q_valid)]
        return m
