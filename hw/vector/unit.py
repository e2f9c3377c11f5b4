"""Vector unit: functions of FP32 tiles in the accumulator."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config, clog2
from hw.control.commands import Source, vector_command
from hw.lib.delay import delay
from hw.lib.ram import Ram
from hw.numerics.functions import INF, Log2
from hw.vector.fetch import RowFetch, row_info
from hw.vector.lane import Lane
from hw.vector.queue import RowQueue
from hw.vector.sweeps import Statistic


class VectorUnit(wiring.Component):
    """Executes vector commands on accumulator tiles, as a list of sweeps each (hw/vector/sweeps).

    A sweep reads a row's operands, computes `lanes` columns per clock and writes whole rows;
    `LATENCY` clocks lie between the last read of a row and the write of its result, if no port
    stalls. Results as in docs/numerics.md. Columns beyond the valid ones are written as +0 (in
    tiles of maxima -Inf), rows beyond the valid ones not at all, but for COLUMN_SUM's state.

    Members
    -------
    cmd : In(stream.Signature(vector_command(cfg)))
    learning_rate, momentum, weight_decay : In(32), of SGD, as in the registers; stable while busy
    v_r_valid : Out(1), v_r_ready : In(1), v_r_slot, v_r_row : Out, accumulator read
    v_r_data : In(T x 32), in the clock after a request was accepted
    v_w_valid : Out(1), v_w_ready : In(1), v_w_slot, v_w_row, v_w_data : Out, write of a row
    vector_done : Out(1), pulse per command, in order: its last row is being written
    vector_source : Out(Source), with `vector_done`, the command's stream
    busy : Out(1), a command is inside
    overflow : Out(1), pulse: a valid element of a result became Inf from finite operands
    """

    #: Clocks from the last accepted read of a row to the write of its result.
    LATENCY = Lane.LATENCY + 3

    def __init__(self, cfg: Config):
        self.cfg = cfg
        slot, row, line = cfg.acc_slot_bits, cfg.row_bits, data.ArrayLayout(32, cfg.tile)
        super().__init__({
            "cmd": In(stream.Signature(vector_command(cfg))),
            "learning_rate": In(32), "momentum": In(32), "weight_decay": In(32),
            "v_r_valid": Out(1), "v_r_ready": In(1), "v_r_slot": Out(slot), "v_r_row": Out(row),
            "v_r_data": In(line),
            "v_w_valid": Out(1), "v_w_ready": In(1), "v_w_slot": Out(slot), "v_w_row": Out(row),
            "v_w_data": Out(line),
            "vector_done": Out(1), "vector_source": Out(Source),
            "busy": Out(1), "overflow": Out(1),
        })

    def elaborate(self, platform):
        cfg, m = self.cfg, Module()
        # A row per `chunks` clocks keeps the lanes busy.
        depth = -(-(self.LATENCY + 1) // cfg.chunks) + 1
        m.submodules.fetch = fetch = RowFetch(cfg, depth)
        outer = wiring.flipped(self)
        wiring.connect(m, outer.cmd, fetch.cmd)
        for name in ("learning_rate", "momentum", "weight_decay", "v_r_ready"):
            m.d.comb += getattr(fetch, name).eq(getattr(outer, name))
        for name in ("v_r_valid", "v_r_slot", "v_r_row", "busy"):
            m.d.comb += getattr(outer, name).eq(getattr(fetch, name))

        # Operands of the row in the lanes.
        x = Signal(data.ArrayLayout(32, cfg.tile), reset_less=True)
        y = Signal(data.ArrayLayout(32, cfg.tile), reset_less=True)
        info = Signal(row_info(cfg), reset_less=True)
        computing = Signal()
        chunk = Signal.like(info.steps)
        chunk_ends = chunk == info.steps
        with m.If(fetch.x_en):
            m.d.sync += x.eq(self.v_r_data)
        with m.If(fetch.y_en):
            m.d.sync += y.eq(self.v_r_data)
        with m.If(fetch.row_en):
            m.d.sync += [info.eq(fetch.info), chunk.eq(0), computing.eq(1)]
        with m.Else():
            m.d.sync += [chunk.eq(chunk + 1), computing.eq(computing & ~chunk_ends)]
        statistics, statistic = self._statistics(m, fetch)

        passed = data.StructLayout({
            **{name: row_info(cfg).members[name] for name in (
                "slot", "row", "source", "last", "limit", "log2", "keep", "maximum", "function")},
            "chunk": chunk.shape(), "ends": 1})
        tags = Signal(passed)
        m.d.comb += [tags.chunk.eq(chunk), tags.ends.eq(chunk_ends),
                     *(tags[name].eq(info[name]) for name in passed.members
                       if name not in ("chunk", "ends"))]
        delays = Lane.ADD_DELAY, Lane.FUNCTION_DELAY - Lane.ADD_DELAY, \
            Lane.LATENCY - Lane.FUNCTION_DELAY
        stages = [tags]
        for n, clocks in enumerate(delays):
            stages.append(data.View(passed, delay(m, stages[-1], clocks, name=f"tags{n}")))
        valid = delay(m, computing, Lane.LATENCY, name="valid_line", reset=True)
        _, at_add, at_function, at_end = stages

        seconds = self._seconds(m, x, y, chunk, info)
        results, overflows = [], []
        pad = Mux(at_end.maximum, INF | 1 << 31, 0)
        for n in range(cfg.lanes):
            m.submodules[f"lane_{n}"] = lane = Lane()
            m.d.comb += [
                lane.x.eq(self._column(x, n, chunk)), lane.y.eq(seconds[n]),
                lane.uniform.eq(Mux(info.statistic, statistic, info.uniform)),
                lane.statistic.eq(statistic), lane.pad.eq(Cat(Const(n, clog2(cfg.lanes)), chunk)
                                                          >= info.live),
                lane.pad_low.eq(info.maximum), lane.factor.eq(info.factor),
                lane.addend.eq(info.addend), lane.negate.eq(info.negate),
                lane.maximum.eq(at_add.maximum), lane.function.eq(at_function.function),
            ]
            z = lane.z
            if n == 0:
                m.submodules.log2 = log2 = Log2()
                m.d.comb += log2.x.eq(delay(m, lane.x, Lane.LATENCY - Log2.LATENCY,
                                            name="log2_line"))
                z = Mux(at_end.log2, log2.y, z)
            inside = Signal(name=f"inside{n}")
            result = Signal(32, name=f"result{n}")
            m.d.comb += [
                inside.eq(Cat(Const(n, clog2(cfg.lanes)), at_end.chunk) < at_end.limit),
                result.eq(Mux(inside, z, pad)),
            ]
            results.append(result)
            overflows.append(inside & lane.overflow)
        m.d.sync += self.overflow.eq(valid & Cat(overflows).any())
        m.d.comb += [
            statistics.w_en.eq(valid & (at_end.chunk == 0) & (at_end.keep != Statistic.NONE)),
            statistics.w_addr.eq(Cat(at_end.row, at_end.keep)), statistics.w_data.eq(results[0]),
        ]

        line = self._line(m, results, valid, at_end.chunk, pad)
        head = data.StructLayout({"slot": cfg.acc_slot_bits, "row": cfg.row_bits,
                                  "source": Source, "last": 1})
        m.submodules.queue = queue = RowQueue(head.size + 32 * cfg.tile, depth)
        first = data.View(head, queue.o.payload[:head.size])
        m.d.comb += [
            queue.push.eq(valid & at_end.ends),
            queue.row.eq(Cat(*(at_end[name] for name in head.members), line)),
            queue.o.ready.eq(self.v_w_ready), self.v_w_valid.eq(queue.o.valid),
            self.v_w_slot.eq(first.slot), self.v_w_row.eq(first.row),
            self.v_w_data.eq(queue.o.payload[head.size:]),
            fetch.written.eq(queue.o.valid & self.v_w_ready),
            self.vector_done.eq(fetch.written & first.last), self.vector_source.eq(first.source),
        ]
        return m

    def _statistics(self, m, fetch):
        """Memory of the numbers per row; that of the row in the lanes."""
        m.submodules.statistics = ram = Ram(32, len(Statistic) << self.cfg.row_bits)
        m.d.comb += [ram.r_en.eq(fetch.row_en),
                     ram.r_addr.eq(Cat(fetch.info.row, fetch.info.read))]
        return ram, ram.r_data

    def _column(self, line, lane, chunk, beyond=0):
        """Word `lane` of group `chunk` of a row; `beyond` if there is no such column."""
        columns = range(lane, self.cfg.lanes << len(chunk), self.cfg.lanes)
        return Array(line[c] if c < self.cfg.tile else beyond for c in columns)[chunk]

    def _seconds(self, m, x, y, chunk, info):
        """Second operand of every lane."""
        cfg = self.cfg
        far_chunk = Signal(len(chunk) + 1)
        m.d.comb += far_chunk.eq(chunk + (info.h >> clog2(cfg.lanes)))
        pad = Mux(info.maximum, INF | 1 << 31, 0)
        seconds = []
        for n in range(cfg.lanes):
            moved = Signal(32, name=f"moved{n}")
            second = Signal(32, name=f"second{n}")
            with m.Switch(info.h):
                for h in (1 << bit for bit in range(clog2(cfg.lanes))):
                    if n < h:
                        with m.Case(h):
                            m.d.comb += moved.eq(x[n + h])
                with m.Default():
                    m.d.comb += moved.eq(self._column(x, n, far_chunk, pad))
            m.d.comb += second.eq(Mux(info.right, moved, self._column(y, n, chunk)))
            seconds.append(second)
        return seconds

    def _line(self, m, results, valid, chunk, pad):
        """The row whose last group of results is there."""
        cfg = self.cfg
        words = []
        for n in range(cfg.chunks):
            present = results[:cfg.tile - n * cfg.lanes]
            absent = Cat([pad] * len(present))
            if n < cfg.chunks - 1:
                held = Signal(32 * cfg.lanes, name=f"held{n}", reset_less=True)
                with m.If(valid & (chunk == n)):
                    m.d.sync += held.eq(Cat(present))
                absent = Mux(chunk > n, held, absent)
            words.append(Mux(chunk == n, Cat(present), absent))
        return Cat(words)
