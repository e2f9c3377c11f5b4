"""GEMM and GRAD at every edge of a tile, in every order and mode, whole and in parts."""

from itertools import product

import numpy as np
import pytest

from hw.config import load
from hw.isa import INSTRUCTION_BYTES, Opcode, Order
from sw.compiler.assembler import disassemble
from sw.runtime.operation import Operation, Request
from tb.program import Program, contents, part

TINY, EDGE = load("tiny"), load("edge")


def sizes(cfg):
    t = cfg.tile
    return 1, t - 1, t, t + 1, 2 * t + 1


def every_order(cfg, m, k, n, seed):
    """A program of a GEMM and a GRAD in each order; (program, offset, gradients by order)."""
    p = Program(cfg, seed)
    x, w, dy = p.bfp(m, k), p.bfp(k, n), p.bfp(m, n)
    p.gemm(x, w, p.room(m, n, seed % 2 == 0))
    gradients = []
    for order in Order:
        dx, dw = p.room(m, k, seed % 3 == 0), p.room(k, n, seed % 5 == 0)
        p.grad(x, w, dy, dx, dw, order)
        gradients.append((dx, dw))
    return p, p.end(), gradients


def assert_same(cfg, memory, matrices):
    """Assert that all matrices have the same bytes."""
    first, *others = (contents(cfg, memory, m) for m in matrices)
    for other in others:
        assert np.array_equal(first, other)


def run_shapes(verify, cfg, shapes):
    programs = [every_order(cfg, *shape, seed) for seed, shape in enumerate(shapes)]
    results = verify(cfg, [p.job(at, latency=5) for p, at, _ in programs])
    for (_, _, gradients), result in zip(programs, results, strict=True):
        for same in zip(*gradients, strict=True):
            assert_same(cfg, result.memory, same)


@pytest.mark.parametrize("m", sizes(TINY))
def test_every_edge_of_a_tile(verify, m):
    run_shapes(verify, TINY, [(m, k, n) for k, n in product(sizes(TINY), sizes(TINY))])


def test_odd_shapes_of_a_larger_array(verify):
    run_shapes(verify, EDGE, [
        (1, 1, 1), (15, 17, 16), (33, 1, 15), (1, 33, 17), (16, 16, 33), (17, 47, 1), (2, 31, 18),
        (31, 2, 49), (48, 16, 16), (20, 35, 50), (15, 64, 15), (33, 33, 33)])


def test_blocks_change_nothing(verify):
    m, k, n = 15, 19, 22
    p = Program(TINY, 1)
    x, w, dy = p.bfp(m, k), p.bfp(k, n), p.bfp(m, n)
    partials = p.room(m, k, False), p.room(k, n, False)
    results = []
    blocks = [(0, 0, 0), (1, 1, 1), (1, 2, 3), (3, 1, 2), (9, 2, 1), (2, 5, 4)]
    for order, (bm, bn, bk) in product(Order, blocks):
        dx, dw = p.room(m, k, False), p.room(k, n, True)
        p.grad(x, w, dy, dx, dw, order, partials, bm=bm, bn=bn, bk=bk, stochastic=1, salt=77)
        results.append((dx, dw))
    memory = verify(TINY, [p.job(p.end())])[0].memory
    for same in zip(*results, strict=True):
        assert_same(TINY, memory, same)


@pytest.mark.parametrize("cfg", [TINY, EDGE], ids=["tiny", "edge"])
def test_results_in_every_form(verify, cfg):
    """FP32 and BFP results, both roundings, exponents per tile and per row, accumulation."""
    t = cfg.tile
    m, k, n = t + 3, 2 * t + 1, t - 1
    p = Program(cfg, 2)
    x, w, dy = p.bfp(m, k, pitch=5), p.bfp(k, n, pitch=3), p.bfp(m, n, pitch=4)
    for number, (bfp, stochastic, x_row, y_row) in enumerate(product((0, 1), repeat=4)):
        p.gemm(x, w, p.room(m, n, bool(bfp), pitch=2), stochastic=stochastic, x_row=x_row,
               y_row=y_row, salt=number, y_row0=2**20 - 3, y_col0=2**16 - 1, bk=number % 3)
    p.gemm(x, w, p.normal(m, n, pitch=7), y_accumulate=1, bk=1)
    for order, off in product(Order, ("", "y", "dw")):
        p.grad(x, w, dy, p.normal(m, k), p.normal(k, n), order, y_accumulate=1, dw_accumulate=1,
               y_off=off == "y", dw_off=off == "dw", bm=1, bn=1)
        p.grad(x, w, dy, p.room(m, k, True), p.room(k, n, True), order, stochastic=1,
               salt=2**32 - 1, y_off=off == "y", dw_off=off == "dw", dw_row0=5, dw_col0=2**19)
    verify(cfg, [p.job(p.end())])


def row_of(cfg, images, row):
    """Exponent bytes (BFP) and elements of one row of a matrix, given its images."""
    i, r = divmod(row, cfg.tile)
    if images.shape[2] == cfg.fp32_bytes:
        return images[i, :, 4 * r * cfg.tile:4 * (r + 1) * cfg.tile]
    start = cfg.exp_beats * cfg.beat_bytes + r * cfg.tile
    return np.hstack([images[i, :, r:r + 1], images[i, :, start:start + cfg.tile]])


def test_a_row_depends_on_no_other_row(verify):
    """With one exponent per row, a request's result is the same whatever it is batched with."""
    m, k, n, kept = 9, 11, 6, 5
    p = Program(TINY, 3)
    w, results = p.bfp(k, n), []
    values = p.rng.standard_normal((m, k), np.float32)
    for others in (1.0, 1e6, 1e-30, np.nan):
        batch = values * np.float32(others)
        batch[kept] = values[kept]
        x = p.room(m, k, True)
        p.convert(p.fp32(batch), x, y_row=1, stochastic=1)
        for bfp in (False, True):
            y = p.room(m, n, bfp)
            p.gemm(x, w, y, x_row=1, y_row=1, stochastic=1)
            results.append((bfp, y))
    memory = verify(TINY, [p.job(p.end())])[0].memory
    for wanted in (False, True):
        rows = [row_of(TINY, contents(TINY, memory, y), kept)
                for bfp, y in results if bfp == wanted]
        assert all(np.array_equal(rows[0], row) for row in rows[1:])
        assert len(np.unique(rows[0])) > 4


@pytest.mark.parametrize("dim", "mnk")
def test_a_gemm_in_parts_is_the_gemm(verify, dim):
    """Two instructions on sub-matrices, at origins inside them, do what one does."""
    cfg, t = TINY, TINY.tile
    size = {"m": 11, "k": 14, "n": 13}
    p = Program(cfg, 4)
    x = p.bfp(size["m"], size["k"], pitch=6)
    w = p.bfp(size["k"], size["n"], pitch=5)
    modes = [{}] if dim == "k" else [{}, {"y_bfp": 1, "stochastic": 1, "salt": 3}]
    pairs = []
    for mode in modes:
        whole, halves = (p.room(size["m"], size["n"], "y_bfp" in mode, pitch=4) for _ in range(2))
        p.gemm(x, w, whole, **mode)
        for first, count in ((0, 2), (2, 99)):
            at = {d: first if d == dim else 0 for d in "mnk"}
            s = {d: min(count * t, size[d] - at[d] * t) if d == dim else size[d] for d in "mnk"}
            p.gemm(part(cfg, x, at["m"], at["k"], s["m"], s["k"]),
                   part(cfg, w, at["k"], at["n"], s["k"], s["n"]),
                   part(cfg, halves, at["m"], at["n"], s["m"], s["n"]), **{
                       **mode, "y_accumulate": int(dim == "k" and first > 0),
                       "y_row0": at["m"] * t, "y_col0": at["n"] * t})
        pairs.append((whole, halves))
    memory = verify(cfg, [p.job(p.end())])[0].memory
    for pair in pairs:
        assert_same(cfg, memory, pair)


@pytest.mark.parametrize("dim", "mnk")
def test_a_grad_in_parts_is_the_grad(verify, dim):
    cfg, t = TINY, TINY.tile
    size = {"m": 11, "k": 14, "n": 13}
    p = Program(cfg, 5)
    x, w, dy = (p.bfp(size[a], size[b], pitch=5) for a, b in ("mk", "kn", "mn"))
    pairs = []
    for order in Order:
        whole, halves = ([p.room(size[a], size[b], False, pitch=6) for a, b in ("mk", "kn")]
                         for _ in range(2))
        p.grad(x, w, dy, *whole, order)
        for first, count in ((0, 1), (1, 99)):
            at = {d: first if d == dim else 0 for d in "mnk"}
            s = {d: min(count * t, size[d] - at[d] * t) if d == dim else size[d] for d in "mnk"}
            dims = ("mk", "kn", "mn", "mk", "kn")
            p.grad(*(part(cfg, matrix, at[a], at[b], s[a], s[b])
                     for matrix, (a, b) in zip((x, w, dy, *halves), dims, strict=True)),
                   order, y_accumulate=int(dim == "n" and first > 0),
                   dw_accumulate=int(dim == "m" and first > 0))
        pairs += zip(whole, halves, strict=True)
    memory = verify(cfg, [p.job(p.end())])[0].memory
    for pair in pairs:
        assert_same(cfg, memory, pair)


@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 4, 4), (37, 29, 41), (300, 1000, 7)])
@pytest.mark.parametrize("order", Order)
def test_a_grad_is_one_instruction(shape, order):
    """Whatever the shape: the tile loops are in hardware."""
    m, k, n = shape
    op = Operation(TINY, Request(opcode=Opcode.GRAD, m=m, k=k, n=n),
                   order=order.name.lower().replace("_", "-"), blocks=(1, 2, 1))
    memory = op.image({name: np.zeros(s, np.float32) for name, s in op.request.inputs.items()})
    code = memory[op.programs[1]:op.programs[1] + 2 * INSTRUCTION_BYTES].tobytes()
    lines = disassemble(code).splitlines()
    assert [line.split()[1] for line in lines] == ["GRAD", "END"]
