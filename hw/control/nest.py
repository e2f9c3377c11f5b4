"""Loop nest over the tiles of one instruction."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, unsigned
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config

#: Loop dimensions, as indices of the counters.
M, N, K = 0, 1, 2


class Walk(enum.Enum, shape=unsigned(3)):
    """Nest shapes (docs/architecture.md, "Sequencer")."""

    GEMM = 0  #: blocks K M N, tiles k n m
    DX = 1  #: blocks M K N, tiles n k m
    DW = 2  #: blocks N K M, tiles m n k
    DX_MAJOR = 3  #: blocks K M N, tiles k, then dW (m n), dX (n m)
    DW_MAJOR = 4  #: blocks K N M, tiles k, then dW (m n), dX (n m)


#: Dimensions of the block loops, innermost first, by walk.
BLOCK_LOOPS = {Walk.GEMM: (N, M, K), Walk.DX: (N, K, M), Walk.DW: (M, K, N),
               Walk.DX_MAJOR: (N, M, K), Walk.DW_MAJOR: (M, N, K)}
#: Dimensions of the tile loops, innermost first, by walk; the fused walks list dX's here and swap
#: the two innermost for dW.
TILE_LOOPS = {Walk.GEMM: (M, N, K), Walk.DX: (M, K, N), Walk.DW: (K, N, M),
              Walk.DX_MAJOR: (M, N, K), Walk.DW_MAJOR: (M, N, K)}


class LoopNest(wiring.Component):
    """Walks all (m, n, k) tiles of an instruction, block by block, one step per `next`.

    `start` loads the first position; the outputs are valid from the next clock on and step, one
    clock after each `next`, until `done` is high, which a `next` at the last position sets. In the
    fused walks every block and k is walked twice, first with `dw` high, then low; `skip_dw` and
    `skip_dx` leave one of the two out.

    Members
    -------
    start, next : In(1)
    walk : In(Walk), stable from `start` to `done`, as are the following
    skip_dw, skip_dx : In(1), fused walks
    count_{m,n,k} : In(index_bits + 1), tiles, at least 1
    block_{m,n,k} : In(16), tiles of a block; 0 is all
    m, n, k : Out(index_bits)
    dw : Out(1), this step is an operation of dW (fused walks)
    last_{m,n,k} : Out(1), the index is the last of its dimension
    done : Out(1)
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        index = cfg.index_bits
        super().__init__({
            "start": In(1), "next": In(1), "walk": In(Walk), "skip_dw": In(1), "skip_dx": In(1),
            **{f"count_{d}": In(index + 1) for d in "mnk"},
            **{f"block_{d}": In(16) for d in "mnk"},
            **{d: Out(index) for d in "mnk"},
            **{f"last_{d}": Out(1) for d in "mnk"},
            "dw": Out(1), "done": Out(1, init=1),
        })

    def elaborate(self, platform):
        m = Module()
        index = [getattr(self, d) for d in "mnk"]
        last = [getattr(self, f"last_{d}") for d in "mnk"]
        origin = [Signal(self.cfg.index_bits, name=f"origin_{d}") for d in "mnk"]
        offset = [Signal(16, name=f"offset_{d}") for d in "mnk"]
        edge = [Signal(name=f"edge_{d}") for d in "mnk"]  # last tile of its block
        for d, name in enumerate("mnk"):
            block = getattr(self, f"block_{name}")
            m.d.comb += [
                last[d].eq(index[d] + 1 == getattr(self, f"count_{name}")),
                edge[d].eq(last[d] | ((block != 0) & (offset[d] + 1 == block))),
            ]

        fused = Signal()
        m.d.comb += fused.eq((self.walk == Walk.DX_MAJOR) | (self.walk == Walk.DW_MAJOR))
        tile_loop = [Signal(2, name=f"tile_loop{i}") for i in range(3)]
        block_loop = [Signal(2, name=f"block_loop{i}") for i in range(3)]
        with m.Switch(self.walk):
            for walk in Walk:
                with m.Case(walk):
                    m.d.comb += [s.eq(d) for s, d in zip(tile_loop, TILE_LOOPS[walk], strict=True)]
                    m.d.comb += [s.eq(d)
                                 for s, d in zip(block_loop, BLOCK_LOOPS[walk], strict=True)]
        with m.If(fused & self.dw):
            m.d.comb += [tile_loop[0].eq(N), tile_loop[1].eq(M)]

        # Carries from the innermost loop outwards.
        step = [Signal(name=f"step{i}") for i in range(3)]  # tile loop i counts or wraps
        carry = [Signal(name=f"carry{i}") for i in range(3)]  # block loop i counts or wraps
        twice = Signal()  # the second half of a fused step follows
        edges, lasts = Array(edge), Array(last)
        pair = Signal()
        m.d.comb += [
            pair.eq(edges[tile_loop[0]] & edges[tile_loop[1]]),
            twice.eq(fused & self.dw & ~self.skip_dx & pair),
            step[0].eq(1), step[1].eq(edges[tile_loop[0]]), step[2].eq(pair & ~twice),
            carry[0].eq(step[2] & edges[tile_loop[2]]),
            carry[1].eq(carry[0] & lasts[block_loop[0]]),
            carry[2].eq(carry[1] & lasts[block_loop[1]]),
        ]
        for d in range(3):
            stepped = Signal(name=f"stepped_{'mnk'[d]}")
            carried = Signal(name=f"carried_{'mnk'[d]}")
            m.d.comb += [
                stepped.eq(Cat(s & (loop == d) for s, loop in zip(step, tile_loop, strict=True))
                           .any()),
                carried.eq(Cat(c & (loop == d) for c, loop in zip(carry, block_loop, strict=True))
                           .any()),
            ]
            following = Signal(self.cfg.index_bits, name=f"following_{'mnk'[d]}")
            m.d.comb += following.eq(Mux(last[d], 0, index[d] + 1))
            with m.If(self.start):
                m.d.sync += [index[d].eq(0), origin[d].eq(0), offset[d].eq(0)]
            with m.Elif(self.next):
                with m.If(carried):
                    m.d.sync += [index[d].eq(following), origin[d].eq(following), offset[d].eq(0)]
                with m.Elif(stepped):
                    with m.If(edge[d]):
                        m.d.sync += [index[d].eq(origin[d]), offset[d].eq(0)]
                    with m.Else():
                        m.d.sync += [index[d].eq(index[d] + 1), offset[d].eq(offset[d] + 1)]
        with m.If(self.start):
            m.d.sync += [self.dw.eq(fused & ~self.skip_dw), self.done.eq(0)]
        with m.Elif(self.next):
            with m.If(fused & pair):
                m.d.sync += self.dw.eq(~twice & ~self.skip_dw)
            with m.If(carry[2] & lasts[block_loop[2]]):
                m.d.sync += self.done.eq(1)
        return m
