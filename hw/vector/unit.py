"""Vector unit: functions of FP32 tiles in the accumulator."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config, clog2
from hw.control.commands import ContextId, Source, vector_command
from hw.lib.delay import delay
from hw.lib.ram import Ram
from hw.numerics.functions import INF, Log2
from hw.vector.fetch import RowFetch, row_info
from hw.vector.lane import Lane
from hw.vector.queue import RowQueue
from hw.vector.row import RowInLanes
from hw.vector.share import LaneArbiter
from hw.vector.sweeps import Statistic


class VectorUnit(wiring.Component):
    """Executes vector commands on accumulator tiles, as a list of sweeps each (hw/vector/sweeps).

    A sweep reads a row's operands, computes `lanes` columns per clock and writes whole rows;
    `LATENCY` clocks lie between the last read of a row and the write of its result, if no port
    stalls. Results as in docs/numerics.md. Columns beyond the valid ones are written as +0 (in
    tiles of maxima -Inf), rows beyond the valid ones not at all, but for COLUMN_SUM's state.

    Each context has commands, reads and results of its own; rows share the lanes. A row of training
    does not take them while inference asks for them, and waits for nothing once it has: its result
    has room. So inference waits for the row in the lanes only, at most `HOLD_BOUND` clocks.

    Members
    -------
    All arrays have 2 elements, by ContextId.

    cmd : In(stream.Signature(vector_command(cfg))).array
    learning_rate, momentum, weight_decay : In(32).array, of SGD, as in the registers; stable while
        busy
    v_r_valid : Out(1).array, v_r_ready : In(1).array, v_r_slot, v_r_row : Out.array, accumulator
        read; it may be withdrawn before it is accepted
    v_r_data : In(T x 32).array, in the clock after a request was accepted
    v_w_valid : Out(1).array, v_w_ready : In(1).array, v_w_slot, v_w_row, v_w_data : Out.array
    vector_done : Out(1).array, pulse per command, in order: its last row is being written
    vector_source : Out(Source).array, with `vector_done`, the command's stream
    busy : Out(1).array, a command is inside
    overflow : Out(1).array, pulse: a valid element of a result became Inf from finite operands
    fair : In(1), the lanes go to the contexts in turns, not to inference first
    hold : In(1), no command of training is taken; those inside run to their end
    use : Out(1).array, the lanes work on a row of the context
    asks : Out(1).array, the context has a row or a held command for them; as late as `use`
    held : Out(16), clocks for which a row of training has kept inference from its next read
    """

    #: Clocks from the last accepted read of a row to the write of its result.
    LATENCY = Lane.LATENCY + 3

    def __init__(self, cfg: Config):
        self.cfg = cfg
        #: Most clocks for which training holds up a row of inference, without `fair`. If training
        #: reads a row in clock t, inference did not ask in t, so it asks from t + 1 on. Reads may
        #: follow after `steps` more clocks, at most chunks - 1; inference's is the first.
        self.HOLD_BOUND = cfg.chunks - 1
        slot, row, line = cfg.acc_slot_bits, cfg.row_bits, data.ArrayLayout(32, cfg.tile)
        super().__init__({
            name: member.array(2) for name, member in {
                "cmd": In(stream.Signature(vector_command(cfg))),
                "learning_rate": In(32), "momentum": In(32), "weight_decay": In(32),
                "v_r_valid": Out(1), "v_r_ready": In(1), "v_r_slot": Out(slot),
                "v_r_row": Out(row), "v_r_data": In(line),
                "v_w_valid": Out(1), "v_w_ready": In(1), "v_w_slot": Out(slot),
                "v_w_row": Out(row), "v_w_data": Out(line),
                "vector_done": Out(1), "vector_source": Out(Source), "busy": Out(1),
                "overflow": Out(1), "use": Out(1), "asks": Out(1)}.items()
        } | {"fair": In(1), "hold": In(1), "held": Out(16)})

    def elaborate(self, platform):
        cfg, m = self.cfg, Module()
        # A row per `chunks` clocks keeps the lanes busy.
        depth = -(-(self.LATENCY + 1) // cfg.chunks) + 1
        fetches = self._fetches(m, depth)
        row = RowInLanes(m, cfg, fetches, self.v_r_data)
        m.d.comb += [self.use[n].eq(row.computing & (row.context == ContextId(n)))
                     for n in range(2)]
        statistics = self._statistics(m, fetches)
        valid, tags = self._tags(m, row)
        at_end = tags[-1]
        pad = Mux(at_end.maximum, INF | 1 << 31, 0)
        results, overflow = self._lanes(m, row, statistics.r_data, tags, pad)
        m.d.comb += [
            statistics.w_en.eq(valid & (at_end.chunk == 0) & (at_end.keep != Statistic.NONE)),
            statistics.w_addr.eq(Cat(at_end.row, at_end.keep, at_end.context)),
            statistics.w_data.eq(results[0]),
        ]
        line = self._line(m, results, valid, at_end.chunk, pad)
        self._write(m, fetches, depth, valid, at_end, line, overflow)
        return m

    def _fetches(self, m, depth):
        """Both contexts' row front ends behind their ports, sharing the lanes."""
        m.submodules.arbiter = arbiter = LaneArbiter(self.cfg)
        m.d.comb += [arbiter.fair.eq(self.fair), self.held.eq(arbiter.held)]
        fetches = []
        for n in range(2):
            m.submodules[f"fetch{n}"] = fetch = RowFetch(self.cfg, depth)
            fetches.append(fetch)
            shut = self.hold if n == ContextId.TRAINING.value else Const(0)
            m.d.comb += [
                fetch.cmd.payload.eq(self.cmd[n].payload),
                fetch.cmd.valid.eq(self.cmd[n].valid & ~shut),
                self.cmd[n].ready.eq(fetch.cmd.ready & ~shut),
                *(getattr(fetch, name).eq(getattr(self, name)[n]) for name in (
                    "learning_rate", "momentum", "weight_decay", "v_r_ready")),
                *(getattr(self, name)[n].eq(getattr(fetch, name)) for name in (
                    "v_r_valid", "v_r_slot", "v_r_row", "busy")),
                *(getattr(arbiter, name)[n].eq(getattr(fetch, name)) for name in (
                    "asks", "takes", "steps")),
                fetch.free.eq(arbiter.free), fetch.grant.eq(arbiter.grant[n]),
                # two clocks lie between the read of a row and its first in the lanes
                self.asks[n].eq(delay(m, fetch.asks | self.cmd[n].valid & shut, 2,
                                      name=f"asks{n}_line", reset=True)),
            ]
        return fetches

    def _statistics(self, m, fetches):
        """Memory of the numbers per row and context; it reads that of the row in the lanes."""
        m.submodules.statistics = ram = Ram(32, 2 * len(Statistic) << self.cfg.row_bits)
        for n, fetch in enumerate(fetches):
            with m.If(fetch.row_en):
                m.d.comb += [ram.r_en.eq(1),
                             ram.r_addr.eq(Cat(fetch.info.row, fetch.info.read, Const(n, 1)))]
        return ram

    def _tags(self, m, row):
        """Whether results come out of the lanes; what these are at, after every delay of a lane."""
        passed = data.StructLayout({
            **{name: row_info(self.cfg).members[name] for name in (
                "slot", "row", "source", "last", "limit", "log2", "keep", "maximum", "function")},
            "context": ContextId, "chunk": row.chunk.shape(), "ends": 1})
        tags = Signal(passed)
        m.d.comb += [tags.context.eq(row.context), tags.chunk.eq(row.chunk), tags.ends.eq(row.ends),
                     *(tags[name].eq(row.info[name]) for name in passed.members
                       if name not in ("context", "chunk", "ends"))]
        delays = Lane.ADD_DELAY, Lane.FUNCTION_DELAY - Lane.ADD_DELAY, \
            Lane.LATENCY - Lane.FUNCTION_DELAY
        stages = []
        for n, clocks in enumerate(delays):
            tags = data.View(passed, delay(m, tags, clocks, name=f"tags{n}"))
            stages.append(tags)
        return delay(m, row.computing, Lane.LATENCY, name="valid_line", reset=True), stages

    def _lanes(self, m, row, statistic, tags, pad):
        """Results of all lanes, and whether one of them has overflowed."""
        info, (at_add, at_function, at_end) = row.info, tags
        results, overflows = [], []
        for n in range(self.cfg.lanes):
            m.submodules[f"lane_{n}"] = lane = Lane()
            column = Const(n, clog2(self.cfg.lanes))
            m.d.comb += [
                lane.x.eq(row.firsts[n]), lane.y.eq(row.seconds[n]),
                lane.uniform.eq(Mux(info.statistic, statistic, info.uniform)),
                lane.statistic.eq(statistic), lane.pad.eq(Cat(column, row.chunk) >= info.live),
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
            m.d.comb += [inside.eq(Cat(column, at_end.chunk) < at_end.limit),
                         result.eq(Mux(inside, z, pad))]
            results.append(result)
            overflows.append(inside & lane.overflow)
        return results, Cat(overflows).any()

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

    def _write(self, m, fetches, depth, valid, at_end, line, overflow):
        """Queues of rows for the accumulator."""
        head = data.StructLayout({"slot": self.cfg.acc_slot_bits, "row": self.cfg.row_bits,
                                  "source": Source, "last": 1})
        for n, fetch in enumerate(fetches):
            own = valid & (at_end.context == ContextId(n))
            m.submodules[f"queue{n}"] = queue = RowQueue(head.size + len(line), depth)
            first = data.View(head, queue.o.payload[:head.size])
            m.d.comb += [
                queue.push.eq(own & at_end.ends),
                queue.row.eq(Cat(*(at_end[name] for name in head.members), line)),
                queue.o.ready.eq(self.v_w_ready[n]), self.v_w_valid[n].eq(queue.o.valid),
                self.v_w_slot[n].eq(first.slot), self.v_w_row[n].eq(first.row),
                self.v_w_data[n].eq(queue.o.payload[head.size:]),
                fetch.written.eq(queue.o.valid & self.v_w_ready[n]),
                self.vector_done[n].eq(fetch.written & first.last),
                self.vector_source[n].eq(first.source),
            ]
            m.d.sync += self.overflow[n].eq(own & overflow)
