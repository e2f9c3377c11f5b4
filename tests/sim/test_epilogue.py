"""A fused epilogue gives the bytes of the unfused sequence: FP32 result, then the function."""

from itertools import product

import numpy as np
import pytest

from hw.config import load
from hw.isa import Function, Order
from sw.compiler.assembler import window
from tb.program import Program, contents

TINY, EDGE = load("tiny"), load("edge")
T = TINY.tile
GEMM = (Function.BIAS, Function.RELU, Function.BIAS_RELU)
#: Accumulator windows of one tile: every partial sum is spilled.
NARROW = {"y_window": window(0), "dw_window": window(40)}
#: Rings of the epilogue's operand.
RINGS = [window(60 - n, high, wide) for n, (high, wide) in
         enumerate([(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (2, 0)])]
#: Results: BFP, rounding, exponents of X and Y by rows.
FORMS = [{}, {"y_bfp": 1},
         {"y_bfp": 1, "stochastic": 1, "salt": 9, "y_row0": 7, "y_col0": 2**20 - 2},
         {"y_bfp": 1, "y_row": 1, "x_row": 1}]
#: Memories whose writes, reads or both are slow.
SLOW = ({"latency": 1}, {"latency": 1, "stall": {"w": 0.9, "aw": 0.9, "b": 0.9}},
        {"latency": 90, "stall": {"r": 0.7}}, {"latency": 30, "stall": {"w": 0.9, "ar": 0.8}},
        {"latency": 2, "stall": 0.6, "seed": 4})


def result_form(fields):
    """Fields of `fields` that say how a result is written."""
    return {name: value for name, value in fields.items() if name != "x_row"}


def assert_pairs(cfg, memory, pairs):
    for number, (fused, unfused) in enumerate(pairs):
        assert np.array_equal(*(contents(cfg, memory, m) for m in (fused, unfused))), number


def gemms(p, m, k, n, cases):
    """Fused and unfused GEMMs; `cases` are (function, form, fields). Pairs of results."""
    x, w, bias = p.bfp(m, k), p.bfp(k, n), p.normal(1, n)
    partial, pairs = p.room(m, n, False), []
    for function, form, fields in cases:
        bfp = bool(form.get("y_bfp"))
        start = p.normal(m, n)
        fused, unfused = (p.room(m, n, bfp) for _ in range(2))
        sums = p.room(m, n, False)
        accumulate = not bfp
        if accumulate:
            for copy in (fused, sums):
                p.convert(start, copy)
        p.gemm(x, w, fused, partial, None if function is Function.RELU else bias,
               function=function, y_accumulate=accumulate, **form, **fields)
        p.gemm(x, w, sums, y_accumulate=accumulate, x_row=form.get("x_row", 0))
        p.vector(function, sums, w=bias, y=unfused, **result_form(form))
        pairs.append((fused, unfused))
    return pairs


def test_gemm(verify):
    """Each function, form, ring and blocking, with spills and on top of a result."""
    jobs, found = [], []
    blocks = ({}, {"bk": 1, **NARROW}, {"bm": 2, "bn": 1, "bk": 2, **NARROW}, {"bn": 2})
    for seed, (m, k, n) in enumerate([(1, 1, 1), (9, 11, 13), (4, 17, 8), (5, 4, 23)]):
        p = Program(TINY, seed)
        cases = [(function, form, {"e_window": RINGS[(i + seed) % len(RINGS)],
                                   **blocks[(i // 2 + seed) % len(blocks)]})
                 for i, (function, form) in enumerate(product(GEMM, FORMS))]
        found.append(gemms(p, m, k, n, cases))
        jobs.append(p.job(p.end(), latency=4 + 30 * (seed % 2), stall=0.3 * (seed // 2), seed=seed))
    for pairs, result in zip(found, verify(TINY, jobs), strict=True):
        assert_pairs(TINY, result.memory, pairs)
        assert result.registers["READ_BIAS"] > 0


def grads(p, m, k, n, cases):
    """Fused and unfused GRADs; `cases` are (form, order, fields). Pairs of results."""
    x, w, dy = p.bfp(m, k), p.bfp(k, n), p.bfp(m, n)
    partials, pairs = (p.room(m, k, False), p.room(k, n, False)), []
    for form, order, fields in cases:
        bfp, off = bool(form.get("y_bfp")), bool(fields.get("dw_off"))
        start = p.normal(m, k), p.normal(k, n)
        fused, unfused = ([p.room(m, k, bfp), p.room(k, n, False)] for _ in range(2))
        sums = p.room(m, k, False)
        accumulate = {"y_accumulate": not bfp, "dw_accumulate": 1}
        for source, copies in ((start[0], (sums,) if bfp else (fused[0], sums)),
                               (start[1], (fused[1], unfused[1]))):
            for copy in copies:
                p.convert(source, copy)
        p.grad(x, w, dy, *fused, order, partials, function=Function.RELU_GRAD, **accumulate, **form,
               **fields)
        p.grad(x, w, dy, sums, unfused[1], Order.SEQUENTIAL, dw_off=off, **accumulate)
        p.vector(Function.RELU_GRAD, sums, w=x, y=unfused[0], **form)
        pairs += zip(fused, unfused, strict=True)
    return pairs


#: GRAD has no exponents per row, and BFP results do not accumulate.
GRAD_FORMS = FORMS[:3]


@pytest.mark.parametrize("order", Order)
def test_grad(verify, order):
    """RELU_GRAD in every order, with spills, blocks, rings, forms, and without dW."""
    jobs, found = [], []
    blocks = ({}, {"bm": 1, "bn": 1, "bk": 1, **NARROW}, {"bm": 2, "bn": 1, "bk": 2, **NARROW},
              {"bm": 1, "bn": 3, "y_window": window(0, 1, 0)}, {"dw_off": 1, "bn": 1, **NARROW})
    for seed, (m, k, n) in enumerate([(1, 1, 1), (9, 11, 13), (13, 8, 5)]):
        p = Program(TINY, seed)
        cases = [(form, order, {"e_window": RINGS[(i + seed) % len(RINGS)], **block})
                 for i, (form, block) in enumerate(product(GRAD_FORMS, blocks))]
        found.append(grads(p, m, k, n, cases))
        jobs.append(p.job(p.end(), latency=3 + 40 * (seed % 2), stall=0.4 * (seed // 2), seed=seed))
    results = verify(TINY, jobs)
    for pairs, result in zip(found, results, strict=True):
        assert_pairs(TINY, result.memory, pairs)
    assert any(r.registers["WRITE_PARTIAL"] for r in results[1:])


def test_a_larger_array(verify):
    """The same on `edge`, with a partly used last tile."""
    p = Program(EDGE, 1)
    fields = {"e_window": window(60, 0, 1)}
    pairs = gemms(p, 37, 20, 50, [(f, form, fields) for f in GEMM for form in FORMS])
    pairs += grads(p, 20, 37, 33, [(form, order, {"bm": 1, **fields})
                                   for form, order in zip([*GRAD_FORMS, {}], Order, strict=True)])
    memory = verify(EDGE, [p.job(p.end())])[0].memory
    assert_pairs(EDGE, memory, pairs)


def test_operands_are_loaded_when_they_change(verify):
    """A bias tile once per column of tiles in a row, X's tile once for each of dX."""
    p = Program(TINY, 2)
    m, k, n = 12, 4, 20
    x, w, dy, bias = p.bfp(m, k), p.bfp(k, n), p.bfp(m, n), p.normal(1, n)
    starts = []
    for fields in ({}, {"bm": 1}, {"bn": 1, "bm": 1}):
        p.gemm(x, w, p.room(m, n, False), bias=bias, **fields)
        starts.append(p.end())
    p.grad(x, w, dy, p.room(m, k, False), p.room(k, n, False), Order.SEQUENTIAL, dw_off=1,
           function=Function.RELU_GRAD)
    starts.append(p.end())
    results = [r.registers for r in verify(TINY, [p.job(at) for at in starts])]
    image = TINY.image_beats(False, 1) * TINY.beat_bytes
    assert [r["READ_BIAS"] for r in results] == [5 * image, 15 * image, 15 * image, 0]
    assert [r["VECTOR_OPERATIONS"] for r in results] == [15, 15, 15, 3]
    assert results[3]["READ_X"] == 3 * TINY.bfp_bytes


def test_operands_that_are_just_written(verify):
    """The bias and X come from the instructions right before, of either stream, in both ways."""
    p = Program(TINY, 3)
    values, x = p.normal(9, 11), p.room(9, 11, True)
    w, dy = p.bfp(11, 13), p.bfp(9, 13)
    short, flat, high, wide, tall = (p.bfp(*size) for size in (
        (1, T), (T, 13), (9, T), (T, 11), (11, T)))
    copies = []
    for fence in (False, True):
        def step(add, *args, fence=fence, **fields):
            add(*args, **fields)
            if fence:
                p.fence()

        bias, gradient, dx = p.normal(1, 13), p.room(1, 13, False), p.room(9, 11, True)
        y, dw, total = p.room(9, 13, True), p.normal(11, 13), p.room(9, 13, True)
        p.convert(p.fp32(np.zeros((1, 13), np.float32)), bias)
        p.convert(p.fp32(np.ones((11, 13), np.float32)), dw)
        step(p.vector, Function.RELU, values, y=x)
        step(p.vector, Function.COLUMN_SUM, dy, y=gradient)
        step(p.vector, Function.SCALE, gradient, y=bias, scalar=0x40000000)
        step(p.gemm, x, w, y, bias=bias, function=Function.BIAS_RELU)
        step(p.gemm, x, w, total, bias=bias, dy_independent=0, bk=1, **NARROW)
        step(p.vector, Function.RELU, values, y=x, stochastic=1)  # X is written anew
        step(p.grad, x, w, y, dx, dw, Order.DW_MAJOR, function=Function.RELU_GRAD, dw_accumulate=1)
        step(p.vector, Function.COLUMN_SUM, total, y=gradient)
        step(p.gemm, x, w, y, bias=gradient)
        # within the stream, right at the beginning, with nothing else to wait for
        free = {"x_independent": 1, "w_independent": 1}
        row, hidden, total2, dx2 = (p.room(*size, bfp) for *size, bfp in (
            (1, 13, False), (9, 11, True), (9, 13, False), (9, 11, False)))
        step(p.gemm, short, flat, row, **free)
        step(p.gemm, high, flat, total2, bias=row, **free)
        step(p.gemm, high, wide, hidden, **free)
        step(p.grad, hidden, tall, high, dx2, p.room(11, T, False), Order.SEQUENTIAL, dw_off=1,
             function=Function.RELU_GRAD, w_independent=1, dy_independent=1)
        copies.append((bias, gradient, dx, y, dw, total, row, hidden, total2, dx2))
    at = p.end()
    for result in verify(TINY, [p.job(at, **memory) for memory in SLOW]):
        assert_pairs(TINY, result.memory, zip(*copies, strict=True))


def test_slots_change_hands(verify):
    """Results, gradients and operands in slots that the instruction before had for others.

    A long function of the other stream keeps the vector unit busy, so that epilogues are late.
    """
    p = Program(TINY, 4)
    free = {f"{name}_independent": 1 for name in ("x", "w", "dy")}
    values, targets = p.normal(32, 40), p.bfp(32, 40)
    for size, k, step in product((0, 1), (3, 9), (1, -1)):
        x, w, dy, bias = p.bfp(11, k), p.bfp(k, 9), p.bfp(11, 9), p.normal(1, 9)
        places = [window(n << 2 * size, size, size) for n in range(3)]
        p.vector(Function.SOFTMAX, values, w=targets, y=p.room(32, 40, False), overlap=15, **free)
        for turn in range(12):
            fields = {f"{name}_window": places[(n + step * turn) % 3]
                      for n, name in enumerate(("y", "dw", "e"))}
            fields |= {"overlap": 15, "y_accumulate": turn % 3 == 0, **free}
            if turn % 2:
                p.grad(x, w, dy, p.normal(11, k), p.room(k, 9, False), list(Order)[turn % 4],
                       bm=1, function=Function.RELU_GRAD, **fields)
            else:
                p.gemm(x, w, p.normal(11, 9), bias=bias, function=GEMM[turn % 4], **fields)
    at = p.end()
    results = verify(TINY, [p.job(at, **memory) for memory in SLOW])
    for result in results[1:]:
        assert np.array_equal(result.memory, results[0].memory)
