"""First pass over a tile that leaves the accumulator: read, mask, find the exponents."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.control.commands import Source, store_command
from hw.lib.ram import Ram


class RowBuffer(wiring.Component):
    """Ring of masked rows between the two passes, with the exponent of each.

    A row takes a place when it is reserved, is written later and is read once, all in order; its
    exponent follows on its own. Read latency 1 clock; what was read stays until the next read.

    Parameters
    ----------
    depth : int
        Rows.

    Members
    -------
    reserve : In(1), take a place; only with `room`
    room : Out(1), a place is free
    w_en : In(1), w_row : In(32 * tile), the next row
    e_en : In(1), e_exp : In(8), the next row's exponent
    r_en : In(1), read the next row and free its place; only with `filled`
    filled : Out(1), a row is there
    r_row : Out(32 * tile), r_exp : Out(8)
    """

    def __init__(self, cfg: Config, depth: int):
        self.cfg, self.depth = cfg, depth
        super().__init__({
            "reserve": In(1), "room": Out(1), "w_en": In(1), "w_row": In(32 * cfg.tile),
            "e_en": In(1), "e_exp": In(8), "r_en": In(1), "filled": Out(1),
            "r_row": Out(32 * cfg.tile), "r_exp": Out(8),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = Ram(32 * self.cfg.tile, self.depth)
        m.submodules.exponents = exponents = Ram(8, self.depth)
        reserved = Signal(range(self.depth + 1))
        written = Signal(range(self.depth + 1))

        def ring(enable, name):
            pointer = Signal(range(self.depth), name=name)
            with m.If(enable):
                m.d.sync += pointer.eq(Mux(pointer == self.depth - 1, 0, pointer + 1))
            return pointer

        read = ring(self.r_en, "read")
        m.d.comb += [
            rows.w_en.eq(self.w_en), rows.w_data.eq(self.w_row),
            rows.w_addr.eq(ring(self.w_en, "write_row")),
            exponents.w_en.eq(self.e_en), exponents.w_data.eq(self.e_exp),
            exponents.w_addr.eq(ring(self.e_en, "write_exponent")),
            rows.r_en.eq(self.r_en), rows.r_addr.eq(read), self.r_row.eq(rows.r_data),
            exponents.r_en.eq(self.r_en), exponents.r_addr.eq(read),
            self.r_exp.eq(exponents.r_data),
            self.room.eq(reserved != self.depth), self.filled.eq(written != 0),
        ]
        m.d.sync += [reserved.eq(reserved + self.reserve - self.r_en),
                     written.eq(written + self.w_en - self.r_en)]
        return m


class TileScan(wiring.Component):
    """Reads the valid rows of a command's accumulator tile once and finds their exponents.

    A scatter reads one row each of as many slots instead.

    An exponent is the largest exponent field of the valid elements: 255 if one is NaN or Inf.
    One row per clock and one clock between tiles. A row comes out a clock after its read was
    accepted, its exponent `LATENCY` clocks later; nothing stalls them, so a read is asked for
    only with `room`, and a command taken only with `tile_room`.

    Members
    -------
    cmd : In(stream.Signature(store_command(cfg)))
    tile_room, room : In(1), there is space for another tile, for another row
    s_r_valid, s_r_ready, s_r_slot, s_r_row, s_r_data :
        read port of the accumulator; data comes a clock after the request was accepted
    reserve : Out(1), a read is accepted
    row_en : Out(1), row : Out(32 * tile), with +0 in columns that are not valid
    exp_en : Out(1), exp : Out(8), the row's exponent
    exp_row : Out(1), with `exp_en`: of a BFP image with one exponent per row
    exp_last : Out(1), with `exp_en`: the tile's last valid row
    tile_en : Out(1), tile_exp : Out(8), the tile's exponent, if it is to be BFP
    read_done : Out(1), pulse: the tile has been read for the last time;
        read_source : Out(Source), the command's, with it
    nonfinite : Out(1), pulse: a final result holds a NaN or Inf
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "cmd": In(stream.Signature(store_command(cfg))), "tile_room": In(1), "room": In(1),
            "s_r_valid": Out(1), "s_r_ready": In(1), "s_r_slot": Out(cfg.acc_slot_bits),
            "s_r_row": Out(cfg.row_bits), "s_r_data": In(data.ArrayLayout(32, cfg.tile)),
            "reserve": Out(1), "row_en": Out(1), "row": Out(32 * cfg.tile),
            "exp_en": Out(1), "exp": Out(8), "exp_row": Out(1), "exp_last": Out(1),
            "tile_en": Out(1), "tile_exp": Out(8), "read_done": Out(1), "read_source": Out(Source),
            "nonfinite": Out(1),
        })

    @property
    def LATENCY(self) -> int:
        """Clocks from a row to its exponent."""
        return -(-self.cfg.row_bits // 2)

    def elaborate(self, platform):
        cfg = self.cfg
        m = Module()
        busy = Signal()
        row = Signal(cfg.row_bits)
        left = Signal(cfg.row_bits)  # rows after this one
        slot = Signal(cfg.acc_slot_bits)
        scatter = Signal()
        valid_columns = Signal(cfg.tile)
        kept = data.StructLayout({"bfp": 1, "row_exp": 1, "spad": 1, "final": 1})
        flags = Signal(kept)
        accepted = Signal()
        last = Signal()
        command = self.cmd.payload
        m.d.comb += [
            self.cmd.ready.eq(~busy & self.tile_room),
            self.s_r_valid.eq(busy & self.room), self.s_r_slot.eq(slot), self.s_r_row.eq(row),
            accepted.eq(self.s_r_valid & self.s_r_ready), last.eq(left == 0),
            self.reserve.eq(accepted),
        ]
        with m.If(accepted):
            m.d.sync += [row.eq(row + ~scatter), slot.eq(slot + scatter), left.eq(left - 1),
                         busy.eq(~last)]
        with m.If(self.cmd.valid & self.cmd.ready):
            m.d.sync += [
                busy.eq(1), row.eq(Mux(command.scatter, command.row, 0)),
                left.eq(command.rows - 1), slot.eq(command.slot), scatter.eq(command.scatter),
                self.read_source.eq(command.source),
                valid_columns.eq(Cat(command.cols > c for c in range(cfg.tile))),
                *(flags[name].eq(command[name]) for name in kept.members),
            ]

        # The data of the row; the command stays for this clock, as busy is low for one.
        arrived = Signal()
        arrived_last = Signal()
        words = [Mux(valid_columns[c], self.s_r_data[c], 0) for c in range(cfg.tile)]
        m.d.sync += [arrived.eq(accepted), arrived_last.eq(last),
                     self.read_done.eq(accepted & last)]
        m.d.comb += [self.row_en.eq(arrived), self.row.eq(Cat(words))]

        # Largest exponent of the row: a tree with a register behind every second level.
        values = [w[23:31] for w in words]
        tags = Cat(arrived, arrived_last, flags.as_value())
        for stage in range(self.LATENCY):
            for _ in range(2):
                pairs = zip(values[::2], values[1::2], strict=False)
                values = [Mux(a > b, a, b) for a, b in pairs] + values[len(values) & ~1:]
            registers = [Signal(8, name=f"largest{stage}_{k}", reset_less=True)
                         for k in range(len(values))]
            m.d.sync += [r.eq(v) for r, v in zip(registers, values, strict=True)]
            delayed = Signal.like(tags, name=f"tags{stage}")
            m.d.sync += delayed.eq(tags)
            values, tags = registers, delayed
        ends = Signal()
        tile_flags = kept(tags[2:])
        m.d.comb += [
            self.exp_en.eq(tags[0]), self.exp.eq(values[0]), self.exp_last.eq(tags[1]),
            self.exp_row.eq(tile_flags.bfp & tile_flags.row_exp & ~tile_flags.spad),
            ends.eq(tags[0] & tags[1]),
        ]

        # Largest of the tile.
        running = Signal(8)
        m.d.comb += [self.tile_exp.eq(Mux(self.exp > running, self.exp, running)),
                     self.tile_en.eq(ends & tile_flags.bfp)]
        with m.If(self.exp_en):
            m.d.sync += running.eq(Mux(self.exp_last, 0, self.tile_exp))
        m.d.sync += self.nonfinite.eq(ends & tile_flags.final & (self.tile_exp == 255))
        return m
