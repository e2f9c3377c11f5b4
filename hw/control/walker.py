"""Which tile operation comes next: the loop nests of one instruction."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.control.nest import LoopNest, Walk
from hw.isa import INSTRUCTION, Opcode, Order


class Walker(wiring.Component):
    """Walks the tile operations of an instruction in order (docs/architecture.md, "Sequencer").

    `start` begins; from the next clock on the outputs describe an operation, and `next` steps to
    the one after it, one clock later. `finished` is high when there are no more.

    Members
    -------
    start, next : In(1)
    instr : In(INSTRUCTION), GEMM or GRAD; stable, as are the sizes
    count_{m,n,k}, rest_{m,n,k} : In, sizes in tiles and valid elements of the last tile
    m, n, k : Out(index_bits), tiles of the operation
    valid_{m,n,k} : Out(count_bits), valid elements of the tile in that dimension
    is_dx, is_dw : Out(1), an operation of dX, of dW
    row, col : Out(index_bits), tile of the result
    rows, cols : Out(count_bits), its valid rows and columns
    first, last : Out(1), first and last tile of its reduction
    finished : Out(1)
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "start": In(1), "next": In(1), "instr": In(INSTRUCTION),
            **{f"count_{d}": In(cfg.index_bits + 1) for d in "mnk"},
            **{f"rest_{d}": In(cfg.count_bits) for d in "mnk"},
            **{d: Out(cfg.index_bits) for d in "mnk"},
            **{f"valid_{d}": Out(cfg.count_bits) for d in "mnk"},
            "is_dx": Out(1), "is_dw": Out(1),
            "row": Out(cfg.index_bits), "col": Out(cfg.index_bits),
            "rows": Out(cfg.count_bits), "cols": Out(cfg.count_bits),
            "first": Out(1), "last": Out(1), "finished": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        i = self.instr
        m.submodules.nest = nest = LoopNest(self.cfg)
        m.submodules.dw_nest = dw_nest = LoopNest(self.cfg)  # dW of sequential and interleaved
        grad = Signal()
        fused = Signal()
        split = Signal()
        use_dw_nest = Signal()
        m.d.comb += [
            grad.eq(i.opcode == Opcode.GRAD.value),
            fused.eq(grad & ((i.order == Order.DX_MAJOR.value)
                             | (i.order == Order.DW_MAJOR.value))),
            split.eq(grad & ~fused),
            nest.start.eq(self.start & ~(split & i.y_off)),
            dw_nest.start.eq(self.start & split & ~i.dw_off),
            nest.next.eq(self.next & ~use_dw_nest), dw_nest.next.eq(self.next & use_dw_nest),
            nest.skip_dw.eq(i.dw_off), nest.skip_dx.eq(i.y_off), dw_nest.walk.eq(Walk.DW),
        ]
        with m.If(~grad):
            m.d.comb += nest.walk.eq(Walk.GEMM)
        with m.Elif(~fused):
            m.d.comb += nest.walk.eq(Walk.DX)
        with m.Else():
            m.d.comb += nest.walk.eq(Mux(i.order == Order.DX_MAJOR.value, Walk.DX_MAJOR,
                                         Walk.DW_MAJOR))
        for n in (nest, dw_nest):
            for d in "mnk":
                m.d.comb += [getattr(n, f"count_{d}").eq(getattr(self, f"count_{d}")),
                             getattr(n, f"block_{d}").eq(i[f"b{d}"])]

        turn = Signal()  # of dW, in `interleaved`
        with m.If(self.start):
            m.d.sync += turn.eq(0)
        with m.Elif(self.next):
            m.d.sync += turn.eq(~turn)
        m.d.comb += [
            use_dw_nest.eq(nest.done | ((i.order == Order.INTERLEAVED.value) & turn
                                        & ~dw_nest.done)),
            self.is_dw.eq(grad & (use_dw_nest | (fused & nest.dw))),
            self.is_dx.eq(grad & ~self.is_dw), self.finished.eq(nest.done & dw_nest.done),
        ]
        last = {d: Signal(name=f"last_{d}") for d in "mnk"}
        for d in "mnk":
            m.d.comb += [
                getattr(self, d).eq(Mux(use_dw_nest, getattr(dw_nest, d), getattr(nest, d))),
                last[d].eq(Mux(use_dw_nest, getattr(dw_nest, f"last_{d}"),
                               getattr(nest, f"last_{d}"))),
                getattr(self, f"valid_{d}").eq(
                    Mux(last[d], getattr(self, f"rest_{d}"), self.cfg.tile)),
            ]

        def by_output(y, dx, dw):
            return Mux(self.is_dw, dw, Mux(self.is_dx, dx, y))

        m.d.comb += [
            self.row.eq(by_output(self.m, self.m, self.k)),
            self.col.eq(by_output(self.n, self.k, self.n)),
            self.rows.eq(by_output(self.valid_m, self.valid_m, self.valid_k)),
            self.cols.eq(by_output(self.valid_n, self.valid_k, self.valid_n)),
            self.first.eq(by_output(self.k, self.n, self.m) == 0),
            self.last.eq(by_output(last["k"], last["n"], last["m"])),
        ]
        return m
