"""Which tile of a VECTOR or CONVERT comes next."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config


class VectorWalker(wiring.Component):
    """Walks the tiles of an instruction: rows of tiles, COLUMN_SUM columns; SOFTMAX three times.

    `start` begins; from the next clock on the outputs describe an operation, and `next` steps to
    the one after it, one clock later. `finished` is high when there are no more.

    Members
    -------
    start, next : In(1)
    by_columns : In(1), the inner loop is over rows; stable, as are the following
    turns : In(1), three turns of the inner loop for each of the outer one, else one
    count_{m,n}, rest_{m,n} : In, sizes in tiles and valid elements of the last tile
    m, n : Out(index_bits), the tile
    rows, cols : Out(count_bits), its valid rows and columns
    turn : Out(2)
    first, last : Out(1), the tile is the first, the last of the inner loop
    finished : Out(1)
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "start": In(1), "next": In(1), "by_columns": In(1), "turns": In(1),
            **{f"count_{d}": In(cfg.index_bits + 1) for d in "mn"},
            **{f"rest_{d}": In(cfg.count_bits) for d in "mn"},
            **{d: Out(cfg.index_bits) for d in "mn"},
            "rows": Out(cfg.count_bits), "cols": Out(cfg.count_bits),
            "turn": Out(2), "first": Out(1), "last": Out(1), "finished": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        last_m = Signal()
        last_n = Signal()
        inner = Mux(self.by_columns, self.m, self.n)
        last_outer = Mux(self.by_columns, last_n, last_m)
        m.d.comb += [
            last_m.eq(self.m + 1 == self.count_m), last_n.eq(self.n + 1 == self.count_n),
            self.first.eq(inner == 0), self.last.eq(Mux(self.by_columns, last_m, last_n)),
            self.rows.eq(Mux(last_m, self.rest_m, self.cfg.tile)),
            self.cols.eq(Mux(last_n, self.rest_n, self.cfg.tile)),
        ]

        def count(inner, outer):
            with m.If(~self.last):
                m.d.sync += inner.eq(inner + 1)
            with m.Else():
                m.d.sync += inner.eq(0)
                with m.If(self.turns & (self.turn != 2)):
                    m.d.sync += self.turn.eq(self.turn + 1)
                with m.Else():
                    m.d.sync += [outer.eq(outer + 1), self.turn.eq(0),
                                 self.finished.eq(last_outer)]

        with m.If(self.start):
            m.d.sync += [self.m.eq(0), self.n.eq(0), self.turn.eq(0), self.finished.eq(0)]
        with m.Elif(self.next & self.by_columns):
            count(self.m, self.n)
        with m.Elif(self.next):
            count(self.n, self.m)
        return m
