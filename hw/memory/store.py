"""Store unit: accumulator tiles to images in DRAM."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.config import OFFSET_BITS, Config
from hw.control.commands import Source, store_command
from hw.isa import Kind
from hw.lib.fifo import Fifo
from hw.memory.encode import TileEncoder, tile_info
from hw.memory.gearbox import Gearbox, word
from hw.memory.scan import RowBuffer, TileScan
from hw.memory.write import BurstWriter

#: Tiles between being taken and the last beat of their image.
TILES = 4
#: Rows beyond a tile that the first pass may be ahead; covers the latency of its exponents.
ROWS_AHEAD = 8


class StoreUnit(wiring.Component):
    """Reads accumulator tiles, converts them and writes their images to DRAM over AXI4.

    The first pass (`TileScan`) reads a tile's valid rows into a row buffer and finds its exponents
    and any NaN or Inf; the second (`TileEncoder`) quantises from the buffer, while the first reads
    the next tile. Rounding is docs/numerics.md's "Quantise"; FP32 words are written as they are.
    Rows and columns that are not valid are written as zero.

    With beats of one row a BFP tile takes T clocks and one per beat of exponents. A write channel
    that stalls stops, through the buffers, the reads of the accumulator.

    While `abort` is high no command is taken and no AW raised; the parent resets the unit once
    `idle` is high too. `seed` and `base` may change only while nothing is inside.

    Members
    -------
    cmd : In(stream.Signature(store_command(cfg)))
    seed : In(32), of stochastic rounding
    base : In(addr_width), address of the region, a multiple of a beat
    s_r_valid : Out(1), s_r_ready : In(1), s_r_slot, s_r_row : Out
        accumulator read, a row per clock
    s_r_data : In(data.ArrayLayout(32, tile)), the clock after a request was accepted
    aw_valid, aw_ready, aw_addr, aw_len : out, in, Out(addr_width), Out(8)
    w_valid, w_ready, w_data, w_last : out, in, Out(axi_width), out
    b_valid, b_ready, b_resp : in, out, In(2)
        AXI4 write channels: INCR, beats of axi_width, every strobe set, one ID
    store_read : Out(1), pulse per command: its accumulator tile was read for the last time;
        store_read_source : Out(Source), the command's, with it
    store_done : Out(1), pulse per command, in order: the last response of its image has arrived
        OK; none after an error; store_done_source : Out(Source), the command's, with it
    nonfinite : Out(1), pulse: the valid elements of a command with `final` hold a NaN or Inf
    count_en : Out(1), count_kind : Out(Kind), count_bytes : Out(16), an accepted AW's bytes
    error : Out(1), error_addr : Out(32), pulse: a write failed; offset of its burst in the region
    abort : In(1)
    idle : Out(1), no AW waits, no W is owed and no response is outstanding
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "cmd": In(stream.Signature(store_command(cfg))), "seed": In(32),
            "base": In(cfg.addr_width),
            "s_r_valid": Out(1), "s_r_ready": In(1), "s_r_slot": Out(cfg.acc_slot_bits),
            "s_r_row": Out(cfg.row_bits), "s_r_data": In(data.ArrayLayout(32, cfg.tile)),
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
        m.submodules.encode = encode = TileEncoder(cfg, TILES)
        m.submodules.write = write = BurstWriter(cfg)
        # `held` keeps the number of tiles inside to TILES, so none of these is ever full.
        m.submodules.tiles = tiles = Fifo(tile_info(cfg), TILES)
        m.submodules.exponents = exponents = Fifo(8, TILES)
        m.submodules.pack_exps = pack_exps = Gearbox(8, cfg.axi_width)
        m.submodules.exp_beats = exp_beats = Fifo(word(cfg.axi_width), TILES * cfg.exp_beats)

        held = Signal(range(TILES + 1))
        taken = Signal()
        finished = Signal()
        m.d.sync += held.eq(held + taken - finished)
        m.d.comb += [
            taken.eq(self.cmd.valid & self.cmd.ready),
            finished.eq(encode.o.valid & encode.o.ready & encode.o.payload.last),
            scan.cmd.valid.eq(self.cmd.valid & ~self.abort),
            self.cmd.ready.eq(scan.cmd.ready & ~self.abort),
            scan.cmd.payload.eq(self.cmd.payload), scan.tile_room.eq(held != TILES),
            tiles.i.valid.eq(taken),
            *(tiles.i.payload[name].eq(self.cmd.payload[name])
              for name in tile_info(cfg).members),
        ]

        m.d.comb += [
            self.s_r_valid.eq(scan.s_r_valid), scan.s_r_ready.eq(self.s_r_ready),
            self.s_r_slot.eq(scan.s_r_slot), self.s_r_row.eq(scan.s_r_row),
            scan.s_r_data.eq(self.s_r_data), self.store_read.eq(scan.read_done),
            self.store_read_source.eq(scan.read_source), self.nonfinite.eq(scan.nonfinite),
            scan.room.eq(rows.room), rows.reserve.eq(scan.reserve),
            rows.w_en.eq(scan.row_en), rows.w_row.eq(scan.row),
            rows.e_en.eq(scan.exp_en), rows.e_exp.eq(scan.exp),
            exponents.i.valid.eq(scan.tile_en), exponents.i.payload.eq(scan.tile_exp),
            pack_exps.i.valid.eq(scan.exp_en & scan.exp_row),
            pack_exps.i.payload.data.eq(scan.exp), pack_exps.i.payload.last.eq(scan.exp_last),
            encode.filled.eq(rows.filled), rows.r_en.eq(encode.r_en),
            encode.r_row.eq(rows.r_row), encode.r_exp.eq(rows.r_exp),
            encode.seed.eq(self.seed),
        ]
        connect(m, pack_exps.o, exp_beats.i)
        connect(m, exp_beats.o, encode.exp_beat)
        connect(m, tiles.o, encode.tile)
        connect(m, exponents.o, encode.tile_exp)
        connect(m, encode.o, write.i)

        outer = flipped(self)
        for name in ("base", "aw_ready", "w_ready", "b_valid", "b_resp", "abort"):
            m.d.comb += getattr(write, name).eq(getattr(outer, name))
        for name in ("aw_valid", "aw_addr", "aw_len", "w_valid", "w_data", "w_last", "b_ready",
                     "count_en", "count_kind", "count_bytes", "error", "error_addr", "idle"):
            m.d.comb += getattr(self, name).eq(getattr(write, name))
        m.d.comb += [self.store_done.eq(write.done),
                     self.store_done_source.eq(write.done_source)]
        return m
