"""Store unit: accumulator tiles to images in DRAM or tiles in the scratchpad."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.config import OFFSET_BITS, Config
from hw.control.commands import Source, store_command
from hw.isa import Kind
from hw.lib.fifo import Fifo
from hw.memory.convert import RowConverter, tile_info
from hw.memory.encode import TileEncoder, image_info
from hw.memory.gearbox import Gearbox, word
from hw.memory.quantiser import quantise_request
from hw.memory.scan import RowBuffer, TileScan
from hw.memory.write import BurstWriter, ImageMerge, image_beat

#: Tiles between being taken and the last beat of their image (their last row on chip).
TILES = 4
#: Rows beyond a tile that the first pass may be ahead; covers the latency of its exponents.
ROWS_AHEAD = 8


class StoreUnit(wiring.Component):
    """Reads accumulator tiles, converts them and writes them to DRAM over AXI4, or on chip.

    The first pass (`TileScan`) reads a tile's valid rows into a row buffer and finds its exponents
    and any NaN or Inf; the second (`RowConverter`, `TileEncoder`) has BFP rows quantised and builds
    the image, while the first reads the next tile. Numbers and images are docs/numerics.md's; only
    the beats of `Config.image_beats` are written. Columns that are not valid are written as zero.

    With beats of one row a BFP image of `rows` rows takes `rows` clocks and one per beat of
    exponents, if the quantiser takes a row in every clock. A write channel that stalls stops,
    through the buffers, the reads of the accumulator. Every row that has been asked of the
    quantiser has room here.

    A command for the other destination (`spad`) than the one before is taken when everything
    before it is done. Beats of `raw` go between images, first.

    While `abort` is high no command, no beat of `raw` and no row of the quantiser is taken and no
    AW raised; the parent resets the unit once `idle` is high too. `seed` and `base` may change
    only while nothing is inside.

    Members
    -------
    cmd : In(stream.Signature(store_command(cfg))); `spad` only with `bfp` and without `scatter`
    raw : In(stream.Signature(image_beat(cfg))), ready-made images
    seed : In(32), of stochastic rounding
    base : In(addr_width), address of the region, a multiple of a beat
    max_beats : In(9), most beats of a burst; 0 counts as 1
    s_r_valid : Out(1), s_r_ready : In(1), s_r_slot, s_r_row : Out
        accumulator read, a row per clock
    s_r_data : In(data.ArrayLayout(32, tile)), the clock after a request was accepted
    q : Out(stream.Signature(quantise_request(cfg))), rows for the quantiser
    q_valid : In(1), q_mant : In(data.ArrayLayout(mant_width, tile)), its results, in order
    s_w_valid : Out(1), s_w_ready : In(1), s_w_slot, s_w_row, s_w_data, s_w_exp : Out
        scratchpad write, a row per clock
    aw_valid, aw_ready, aw_addr, aw_len : out, in, Out(addr_width), Out(8)
    w_valid, w_ready, w_data, w_last : out, in, Out(axi_width), out
    b_valid, b_ready, b_resp : in, out, In(2)
        AXI4 write channels: INCR, beats of axi_width, every strobe set, one ID
    store_read : Out(1), pulse per command: its accumulator tile was read for the last time;
        store_read_source : Out(Source), the command's, with it
    store_done : Out(1), pulse per command, in order, and per raw image: the last response of its
        image has arrived OK (none after an error), or its last row is in the scratchpad;
        store_done_source : Out(Source), the command's, with it
    nonfinite : Out(1), pulse: the valid elements of a command with `final` hold a NaN or Inf
    count_en : Out(1), count_kind : Out(Kind), count_bytes : Out(16), an accepted AW's bytes
    error : Out(1), error_addr : Out(32), pulse: a write failed; offset of its burst in the region
    abort : In(1)
    idle : Out(1), no AW waits, no W is owed, no response is outstanding, and the quantiser has no
        row of this unit and is not asked for one
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "cmd": In(stream.Signature(store_command(cfg))),
            "raw": In(stream.Signature(image_beat(cfg))), "seed": In(32),
            "base": In(cfg.addr_width), "max_beats": In(9),
            "s_r_valid": Out(1), "s_r_ready": In(1), "s_r_slot": Out(cfg.acc_slot_bits),
            "s_r_row": Out(cfg.row_bits), "s_r_data": In(data.ArrayLayout(32, cfg.tile)),
            "q": Out(stream.Signature(quantise_request(cfg))), "q_valid": In(1),
            "q_mant": In(data.ArrayLayout(cfg.mant_width, cfg.tile)),
            "s_w_valid": Out(1), "s_w_ready": In(1), "s_w_slot": Out(cfg.spad_slot_bits),
            "s_w_row": Out(cfg.row_bits), "s_w_exp": Out(8),
            "s_w_data": Out(data.ArrayLayout(cfg.mant_width, cfg.tile)),
            "aw_valid": Out(1), "aw_ready": In(1), "aw_addr": Out(cfg.addr_width),
            "aw_len": Out(8), "w_valid": Out(1), "w_ready": In(1), "w_data": Out(cfg.axi_width),
            "w_last": Out(1), "b_valid": In(1), "b_ready": Out(1), "b_resp": In(2),
            "store_read": Out(1), "store_read_source": Out(Source),
            "store_done": Out(1), "store_done_source": Out(Source), "nonfinite": Out(1),
            "count_en": Out(1), "count_kind": Out(Kind), "count_bytes": Out(16),
            "error": Out(1), "error_addr": Out(OFFSET_BITS), "abort": In(1), "idle": Out(1),
        })

    def elaborate(self, platform):
        cfg = self.cfg
        m = Module()
        m.submodules.scan = scan = TileScan(cfg)
        m.submodules.rows = rows = RowBuffer(cfg, cfg.tile + ROWS_AHEAD)
        m.submodules.convert = convert = RowConverter(cfg)
        m.submodules.encode = encode = TileEncoder(cfg)
        m.submodules.merge = merge = ImageMerge(cfg)
        m.submodules.write = write = BurstWriter(cfg)
        # `held` keeps the number of tiles inside to TILES, so none of these is ever full.
        m.submodules.tiles = tiles = Fifo(tile_info(cfg), TILES)
        m.submodules.exponents = exponents = Fifo(8, TILES)
        m.submodules.images = images = Fifo(image_info(cfg), TILES)
        m.submodules.pack_exps = pack_exps = Gearbox(8, cfg.axi_width)
        m.submodules.exp_beats = exp_beats = Fifo(word(cfg.axi_width), TILES * cfg.exp_beats)
        outer = flipped(self)

        # Commands in.
        held = Signal(range(TILES + 1))
        spad = Signal()  # destination of the latest command
        spad_done = Signal()
        spad_source = Signal(Source)
        may = Signal()
        taken = Signal()
        finished = Signal()
        m.d.comb += [
            may.eq(~self.abort & ((self.cmd.payload.spad == spad)
                                  | ((held == 0) & Mux(spad, ~spad_done, write.empty)))),
            taken.eq(self.cmd.valid & self.cmd.ready),
            scan.cmd.valid.eq(self.cmd.valid & may), self.cmd.ready.eq(scan.cmd.ready & may),
            scan.cmd.payload.eq(self.cmd.payload), scan.tile_room.eq(held != TILES),
            tiles.i.valid.eq(taken),
            *(tiles.i.payload[name].eq(self.cmd.payload[name])
              for name in tile_info(cfg).members),
        ]
        m.d.sync += held.eq(held + taken - finished)
        with m.If(taken):
            m.d.sync += spad.eq(self.cmd.payload.spad)

        # First pass.
        for name in ("s_r_ready", "s_r_data"):
            m.d.comb += getattr(scan, name).eq(getattr(outer, name))
        for name in ("s_r_valid", "s_r_slot", "s_r_row", "nonfinite"):
            m.d.comb += getattr(self, name).eq(getattr(scan, name))
        m.d.comb += [
            self.store_read.eq(scan.read_done), self.store_read_source.eq(scan.read_source),
            scan.room.eq(rows.room), rows.reserve.eq(scan.reserve),
            rows.w_en.eq(scan.row_en), rows.w_row.eq(scan.row),
            rows.e_en.eq(scan.exp_en), rows.e_exp.eq(scan.exp),
            exponents.i.valid.eq(scan.tile_en), exponents.i.payload.eq(scan.tile_exp),
            pack_exps.i.valid.eq(scan.exp_en & scan.exp_row),
            pack_exps.i.payload.data.eq(scan.exp), pack_exps.i.payload.last.eq(scan.exp_last),
        ]

        # Second pass.
        tile = tiles.o.payload
        connect(m, tiles.o, convert.tile)
        connect(m, exponents.o, convert.tile_exp)
        connect(m, convert.q, flipped(self.q))
        connect(m, convert.bfp, encode.bfp)
        connect(m, convert.fp32, encode.fp32)
        connect(m, pack_exps.o, exp_beats.i)
        connect(m, exp_beats.o, encode.exp_beat)
        connect(m, images.o, encode.image)
        m.d.comb += [
            convert.filled.eq(rows.filled), rows.r_en.eq(convert.r_en),
            convert.r_row.eq(rows.r_row), convert.r_exp.eq(rows.r_exp),
            convert.seed.eq(self.seed), convert.q_valid.eq(self.q_valid),
            convert.q_mant.eq(self.q_mant), convert.abort.eq(self.abort),
            images.i.valid.eq(convert.begins), images.i.payload.offset.eq(tile.addr),
            images.i.payload.exp.eq(exponents.o.payload),
            *(images.i.payload[name].eq(tile[name])
              for name in ("source", "spad", "spad_slot", "kind", "bfp", "row_exp")),
        ]

        # On chip. If the writer has a pulse of a raw image, ours waits, and the next row for ours.
        written = Signal()
        waits = Signal()
        for name in ("s_w_slot", "s_w_row", "s_w_data", "s_w_exp"):
            m.d.comb += getattr(self, name).eq(getattr(encode, name))
        m.d.comb += [
            waits.eq(spad_done & write.done),
            self.s_w_valid.eq(encode.s_w_valid & ~waits),
            encode.s_w_ready.eq(self.s_w_ready & ~waits),
            written.eq(self.s_w_valid & self.s_w_ready & encode.s_w_last),
            self.store_done.eq(write.done | spad_done),
            self.store_done_source.eq(Mux(write.done, write.done_source, spad_source)),
        ]
        m.d.sync += spad_done.eq(written | waits)
        with m.If(written):
            m.d.sync += spad_source.eq(encode.source)

        # To DRAM.
        raw = merge.i[0]
        m.d.comb += [
            raw.valid.eq(self.raw.valid & ~self.abort), raw.payload.eq(self.raw.payload),
            self.raw.ready.eq(raw.ready & ~self.abort),
            finished.eq((encode.o.valid & encode.o.ready & encode.o.payload.last) | written),
        ]
        connect(m, encode.o, merge.i[1])
        connect(m, merge.o, write.i)
        for name in ("base", "max_beats", "aw_ready", "w_ready", "b_valid", "b_resp", "abort"):
            m.d.comb += getattr(write, name).eq(getattr(outer, name))
        for name in ("aw_valid", "aw_addr", "aw_len", "w_valid", "w_data", "w_last", "b_ready",
                     "count_en", "count_kind", "count_bytes", "error", "error_addr"):
            m.d.comb += getattr(self, name).eq(getattr(write, name))
        m.d.comb += self.idle.eq(write.idle & convert.idle)
        return m
