"""Commands to sweeps, sweeps to rows: what the vector unit reads, and when."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config, clog2
from hw.control.commands import Source, vector_command
from hw.isa import Function
from hw.numerics.fp32 import canonical
from hw.numerics.functions import LN2, LOG2E, Table
from hw.vector.lane import Addend, Factor
from hw.vector.sweeps import SWEEP, Columns, Number, Second, Statistic, Tile, programs


def row_info(cfg: Config) -> data.StructLayout:
    """What happens to a row whose operands have been read."""
    return data.StructLayout({
        "slot": cfg.acc_slot_bits,   # where the result goes
        "row": cfg.row_bits,
        "source": Source,
        "last": 1,                   # last row of the command
        "steps": max(1, clog2(cfg.chunks)),  # groups of `lanes` columns to compute, minus 1
        "limit": cfg.count_bits,     # columns to compute
        "live": cfg.count_bits,      # columns of x that count
        "right": 1,                  # the second operand is x, moved by `h` columns
        "h": cfg.count_bits,
        "uniform": 32,
        "statistic": 1,              # the statistic is the uniform number
        "factor": Factor,
        "addend": Addend,
        "negate": 1,
        "maximum": 1,
        "function": Table,
        "log2": 1,
        "read": Statistic,
        "keep": Statistic,
    })


class RowFetch(wiring.Component):
    """Expands commands into sweeps and reads the rows of their operands.

    A row takes a read for each operand, x last. No read is made unless the lanes are free, and the
    last one only when they are granted. A sweep that uses what earlier ones wrote reads a row when
    the sweep before has written it. At most `depth` rows are between the last of their reads and
    the write of their result.

    Two clocks from a command to its first read, none between sweeps and commands.

    Members
    -------
    cmd : In(stream.Signature(vector_command(cfg)))
    learning_rate, momentum, weight_decay : In(32), stable while a command is inside
    v_r_valid, v_r_ready, v_r_slot, v_r_row : read port of the accumulator
    asks : Out(1), all that the next row needs is there but the lanes
    free : In(1), the row in the lanes will have left them when the one that is read now comes
    grant : In(1), if they are free they take this context's row
    takes : Out(1), the last read of a row is accepted: it takes the lanes
    steps : Out, with `takes`, clocks for which it keeps them, minus 1
    x_en, y_en : Out(1), the row that was asked for in the clock before is x, is y
    row_en : Out(1), with `x_en`, the last read of a row
    info : Out(row_info(cfg)), with `row_en`
    written : In(1), the result of a row, in the order of the rows, has been written
    busy : Out(1), a command is inside or a row not yet written
    """

    def __init__(self, cfg: Config, depth: int):
        self.cfg, self.depth = cfg, depth
        super().__init__({
            "cmd": In(stream.Signature(vector_command(cfg))),
            "learning_rate": In(32), "momentum": In(32), "weight_decay": In(32),
            "v_r_valid": Out(1), "v_r_ready": In(1), "v_r_slot": Out(cfg.acc_slot_bits),
            "v_r_row": Out(cfg.row_bits), "asks": Out(1), "free": In(1), "grant": In(1),
            "takes": Out(1), "steps": Out(row_info(cfg).members["steps"]),
            "x_en": Out(1), "y_en": Out(1),
            "row_en": Out(1), "info": Out(row_info(cfg)), "written": In(1), "busy": Out(1),
        })

    def elaborate(self, platform):
        cfg, m = self.cfg, Module()
        tile, half = cfg.tile, 1 << clog2(cfg.tile) - 1
        job = Signal(vector_command(cfg))
        job_valid = Signal()
        load = Signal()
        word = self._program(m, load)

        # The present sweep, with its slots and numbers.
        active = Signal()
        sweep = Signal(SWEEP)
        source = Signal(Source)
        to_slot = Signal(cfg.acc_slot_bits)
        x_slot = Signal(cfg.acc_slot_bits)
        y_slot = Signal(cfg.acc_slot_bits)
        y_row = Signal(cfg.row_bits)  # FIRST
        uniform = Signal(32)
        columns = Signal(cfg.count_bits)
        h = Signal(cfg.count_bits)
        row = Signal(cfg.row_bits)
        last_row = Signal(cfg.row_bits)
        rows_before = Signal(cfg.count_bits)
        below, right = sweep.second == Second.BELOW, sweep.second == Second.RIGHT

        accepted = Signal()
        read_x = Signal()
        sweep_ends = Signal()
        repeat = Signal()
        m.d.comb += [
            sweep_ends.eq(read_x & (row == last_row)), repeat.eq((below | right) & (h != 1)),
            load.eq(job_valid & (~active | sweep_ends & ~repeat)),
            self.cmd.ready.eq(~job_valid | load & word.end),
        ]
        with m.If(self.cmd.ready):
            m.d.sync += [job_valid.eq(self.cmd.valid), job.eq(self.cmd.payload)]
        with m.If(read_x):
            m.d.sync += row.eq(row + 1)
        with m.If(sweep_ends):
            m.d.sync += [row.eq(0), h.eq(h >> 1), active.eq(repeat)]
            with m.If(below & repeat):
                m.d.sync += last_row.eq((h >> 1) - 1)
        with m.If(load | sweep_ends):
            m.d.sync += rows_before.eq(last_row + 1)
        with m.If(load):
            m.d.sync += [active.eq(1), sweep.eq(word), source.eq(job.source),
                         columns.eq(job.cols), h.eq(half), y_row.eq(job.b_row)]
            m.d.sync += [slot.eq(self._slot(m, job, choice, name)) for slot, choice, name in (
                (to_slot, word.to, "to"), (x_slot, word.x, "x"), (y_slot, word.y, "y"))]
            m.d.sync += uniform.eq(self._number(m, job, word.number))
            with m.If(word.whole):
                m.d.sync += last_row.eq(tile - 1)
            with m.Elif(word.second == Second.BELOW):
                m.d.sync += last_row.eq(tile - half - 1)
            with m.Else():
                m.d.sync += last_row.eq(job.rows - 1)

        # Rows that are not yet written are this sweep's `row` and the last ones of the sweep
        # before: it has written all that are needed when row `row` (BELOW: `row` + h) is.
        unwritten = Signal(range(self.depth + 1))
        clear = Signal()
        y_read = Signal()
        m.d.sync += unwritten.eq(unwritten + read_x - self.written)
        m.d.comb += clear.eq(~sweep.follows | (unwritten <= row)
                             | (unwritten + Mux(below, h, 0) < rows_before))
        first = sweep.second == Second.FIRST
        read_y = ~y_read & ((sweep.second == Second.ROW) | below | first & (row == 0))
        m.d.comb += [
            self.asks.eq(active & clear & (unwritten != self.depth)),
            self.v_r_valid.eq(self.asks & self.free & (read_y | self.grant)),
            self.v_r_slot.eq(Mux(read_y, y_slot, x_slot)),
            self.v_r_row.eq(Mux(read_y & first, y_row, row + Mux(read_y & below, h, 0))),
            accepted.eq(self.v_r_valid & self.v_r_ready), read_x.eq(accepted & ~read_y),
            self.takes.eq(read_x),
            self.busy.eq(job_valid | active | (unwritten != 0)),
        ]
        with m.If(accepted):
            m.d.sync += y_read.eq(read_y)
        m.d.sync += [self.x_en.eq(read_x), self.y_en.eq(accepted & read_y),
                     self.row_en.eq(read_x)]

        info = self.info
        limit = Signal(cfg.count_bits)
        with m.If(right):
            m.d.comb += limit.eq(h)
        with m.Elif(sweep.columns == Columns.ALL):
            m.d.comb += limit.eq(tile)
        with m.Elif(sweep.columns == Columns.ONE):
            m.d.comb += limit.eq(1)
        with m.Else():
            m.d.comb += limit.eq(columns)
        m.d.comb += self.steps.eq((limit - 1) >> clog2(cfg.lanes))
        with m.If(read_x):
            m.d.sync += [
                info.slot.eq(to_slot), info.row.eq(row), info.source.eq(source),
                info.last.eq(sweep.end & sweep_ends & ~repeat),
                info.steps.eq(self.steps), info.limit.eq(limit),
                info.live.eq(Mux(sweep.columns == Columns.ALL, columns, tile)),
                info.right.eq(right), info.h.eq(h), info.uniform.eq(uniform),
                info.statistic.eq(sweep.number == Number.STATISTIC),
                *(info[name].eq(sweep[name]) for name in (
                    "factor", "addend", "negate", "maximum", "function", "log2", "read", "keep")),
            ]
        return m

    def _program(self, m, load):
        """The next sweep; with `load` it is taken. The first is that of the command that comes."""
        starts, words = {}, []
        for program in map(tuple, programs().values()):
            if program not in starts:
                starts[program] = len(words)
                words += program

        address = Signal(range(len(words) + 1))
        word = Signal(SWEEP)
        with m.Switch(address):
            for n, sweep in enumerate(words):
                with m.Case(n):
                    m.d.comb += word.eq(SWEEP.const(vars(sweep)))
        with m.If(load):
            m.d.sync += address.eq(address + 1)
        command = self.cmd.payload
        with m.If(self.cmd.ready), m.Switch(
                Cat(command.last, command.first, command.turn, command.function)):
            for (function, turn, first, last), program in programs().items():
                turn = f"{turn:02b}" if function is Function.SOFTMAX else "--"
                with m.Case(f"{function.value:05b}{turn}{first:b}{last:b}"):
                    m.d.sync += address.eq(starts[tuple(program)])
        return word

    def _slot(self, m, job, choice, name):
        slot = Signal(self.cfg.acc_slot_bits, name=f"next_{name}")
        with m.Switch(choice):
            for tile in Tile:
                with m.Case(tile):
                    m.d.comb += slot.eq(job[tile.name.lower()])
        return slot

    def _number(self, m, job, choice):
        number = Signal(32)
        minus = Const(1 << 31, 32)
        with m.Switch(choice):
            for case, value in ((Number.LOG2E, LOG2E), (Number.MINUS_LOG2E, LOG2E | 1 << 31),
                                (Number.LN2, LN2), (Number.SCALAR, canonical(job.scalar)),
                                (Number.WEIGHT_DECAY, canonical(self.weight_decay)),
                                (Number.MOMENTUM, canonical(self.momentum)),
                                (Number.MINUS_RATE, canonical(self.learning_rate) ^ minus)):
                with m.Case(case):
                    m.d.comb += number.eq(value)
            with m.Default():
                m.d.comb += number.eq(0x3F800000)
        return number
