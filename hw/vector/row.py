"""The row that the vector unit's lanes work on."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data

from hw.config import Config, clog2
from hw.control.commands import ContextId
from hw.numerics.functions import INF
from hw.vector.fetch import RowFetch, row_info


class RowInLanes:
    """Operands of the lanes: of the row that the front end of a context has read, in module `m`.

    `lanes` columns per clock, from the clock after `row_en` of a front end on.

    Parameters
    ----------
    fetches, r_data : the front ends, and what each has read from the accumulator

    Attributes
    ----------
    info : row_info(cfg), what is done with the row; context : whose it is
    computing : there is a row; chunk : the group of its columns; ends : which is its last
    firsts, seconds : both operands of every lane
    """

    def __init__(self, m: Module, cfg: Config, fetches: list[RowFetch], r_data):
        self._cfg = cfg
        line = data.ArrayLayout(32, cfg.tile)
        x = Signal(line, name="x", reset_less=True)
        y = Signal(line, name="y")
        self.info = Signal(row_info(cfg), reset_less=True)
        self.context = Signal(ContextId, reset_less=True)
        self.computing = Signal()
        self.chunk = Signal.like(self.info.steps, name="chunk")
        self.ends = self.chunk == self.info.steps
        with m.If(fetches[0].row_en | fetches[1].row_en):
            m.d.sync += [self.chunk.eq(0), self.computing.eq(1)]
        with m.Else():
            m.d.sync += [self.chunk.eq(self.chunk + 1),
                         self.computing.eq(self.computing & ~self.ends)]
        for n, fetch in enumerate(fetches):
            # a row between whose reads the other context's come keeps its second operand
            second = Signal(line, name=f"y{n}", reset_less=True)
            with m.If(fetch.x_en):
                m.d.sync += x.eq(r_data[n])
            with m.If(fetch.y_en):
                m.d.sync += second.eq(r_data[n])
            with m.If(fetch.row_en):
                m.d.sync += [self.info.eq(fetch.info), self.context.eq(n)]
            with m.If(self.context == ContextId(n)):
                m.d.comb += y.eq(second)
        self.firsts = [self._column(x, n, self.chunk) for n in range(cfg.lanes)]
        self.seconds = self._seconds(m, x, y)

    def _column(self, line, lane, chunk, beyond=0):
        """Word `lane` of group `chunk` of a row; `beyond` if there is no such column."""
        columns = range(lane, self._cfg.lanes << len(chunk), self._cfg.lanes)
        return Array(line[c] if c < self._cfg.tile else beyond for c in columns)[chunk]

    def _seconds(self, m, x, y):
        """A column of the second operand, or one of X that is `h` columns further right."""
        info, chunk, lanes = self.info, self.chunk, self._cfg.lanes
        far_chunk = Signal(len(chunk) + 1)
        m.d.comb += far_chunk.eq(chunk + (info.h >> clog2(lanes)))
        pad = Mux(info.maximum, INF | 1 << 31, 0)
        seconds = []
        for n in range(lanes):
            moved = Signal(32, name=f"moved{n}")
            second = Signal(32, name=f"second{n}")
            with m.Switch(info.h):
                for h in (1 << bit for bit in range(clog2(lanes))):
                    if n < h:
                        with m.Case(h):
                            m.d.comb += moved.eq(x[n + h])
                with m.Default():
                    m.d.comb += moved.eq(self._column(x, n, far_chunk, pad))
            m.d.comb += second.eq(Mux(info.right, moved, self._column(y, n, chunk)))
            seconds.append(second)
        return seconds
