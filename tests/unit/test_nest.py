import itertools

import pytest
from amaranth.sim import Simulator

from hw import config
from hw.control.nest import LoopNest, Walk


def blocks(count, block):
    block = block or count
    return [range(s, min(s + block, count)) for s in range(0, count, block)]


def expected(walk, counts, sizes, skip_dw, skip_dx):
    mb, nb, kb = (blocks(c, b) for c, b in zip(counts, sizes, strict=True))
    if walk == Walk.GEMM:
        return [(m, n, k, 0) for bk in kb for bm in mb for bn in nb
                for k in bk for n in bn for m in bm]
    if walk == Walk.DX:
        return [(m, n, k, 0) for bm in mb for bk in kb for bn in nb
                for n in bn for k in bk for m in bm]
    if walk == Walk.DW:
        return [(m, n, k, 0) for bn in nb for bk in kb for bm in mb
                for m in bm for n in bn for k in bk]
    order = (((bm, bn) for bm in mb for bn in nb) if walk == Walk.DX_MAJOR
             else ((bm, bn) for bn in nb for bm in mb))
    order = list(order)
    out = []
    for bk in kb:
        for bm, bn in order:
            for k in bk:
                if not skip_dw:
                    out += [(m, n, k, 1) for m in bm for n in bn]
                if not skip_dx:
                    out += [(m, n, k, 0) for n in bn for m in bm]
    return out


@pytest.mark.parametrize("walk", list(Walk))
def test_walks_every_tile_in_order(walk):
    dut = LoopNest(config.load("tiny"))
    cases = [(c, b, s) for c in [(1, 1, 1), (3, 2, 4), (1, 5, 2), (2, 1, 3)]
             for b in [(0, 0, 0), (1, 1, 1), (2, 2, 2), (2, 3, 1), (9, 9, 9)]
             for s in itertools.product((0, 1), repeat=2)
             if not all(s) and (walk.value >= 3 or not any(s))]

    async def bench(ctx):
        for counts, sizes, (skip_dw, skip_dx) in cases:
            ctx.set(dut.walk, walk)
            ctx.set(dut.skip_dw, skip_dw)
            ctx.set(dut.skip_dx, skip_dx)
            for d, c, b in zip("mnk", counts, sizes, strict=True):
                ctx.set(getattr(dut, f"count_{d}"), c)
                ctx.set(getattr(dut, f"block_{d}"), b)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            got = []
            while not ctx.get(dut.done):
                got.append((ctx.get(dut.m), ctx.get(dut.n), ctx.get(dut.k), ctx.get(dut.dw)))
                assert ctx.get(dut.last_k) == (got[-1][2] == counts[2] - 1)
                ctx.set(dut.next, 1)
                await ctx.tick()
                ctx.set(dut.next, 0)
                assert len(got) < 1000
            assert got == expected(walk, counts, sizes, skip_dw, skip_dx)

    sim = Simulator(dut)
    sim.add_clock(1e-9)
    sim.add_testbench(bench)
    sim.run()
