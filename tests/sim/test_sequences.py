"""Programs one after the other: without reset, after STOP, after a reset in the middle."""

from itertools import product

import numpy as np
import pytest

from hw.config import load
from hw.isa import Order
from tb.program import Program, contents

TINY = load("tiny")
T = TINY.tile


def layer(p, x_values, w_values, order, fence=False):
    """CONVERT of X and W, a GEMM on them and a GRAD on its result; the results."""
    m, k, n = x_values.rows, x_values.cols, w_values.cols
    x, w, y, dx = p.room(m, k, True), p.room(k, n, True), p.room(m, n, True), p.room(m, k, True)
    dw = p.room(k, n, False)
    for add, *operands in ((p.convert, x_values, x), (p.convert, w_values, w), (p.gemm, x, w, y),
                           (p.grad, x, w, y, dx, dw, order)):
        add(*operands, bm=1, bn=1, bk=2)
        if fence:
            p.fence()
    return y, dx, dw


def test_dependent_instructions(verify):
    """Each reads what the one before writes, with and without FENCE: the same results."""
    p = Program(TINY, 1)
    cases = []
    for k, order in product((1, T - 1, T, 2 * T, 2 * T + 1), Order):
        values = p.normal(4 * T, k), p.normal(k, 2 * T)
        for fence in (False, True):
            results = layer(p, *values, order, fence)
            cases.append((p.end(), results))
    jobs = [p.job(at, fresh=number == 0, latency=30) for number, (at, _) in enumerate(cases)]
    memory = verify(TINY, jobs)[-1].memory
    for (_, plain), (_, fenced) in zip(cases[::2], cases[1::2], strict=True):
        for a, b in zip(plain, fenced, strict=True):
            assert np.array_equal(contents(TINY, memory, a), contents(TINY, memory, b))


def test_the_same_job_twice(verify):
    p = Program(TINY, 2)
    layer(p, p.normal(9, 13), p.normal(13, 6), Order.INTERLEAVED)
    at = p.end()
    first, again, once_more = verify(TINY, [p.job(at), p.job(at, fresh=False),
                                            p.job(at, fresh=False)])
    assert np.array_equal(first.memory, once_more.memory)
    assert again.registers == once_more.registers  # clock for clock


def test_many_instructions(verify):
    """Tags of an instruction that is 256 or so back, in slots not used since, must not hit."""
    p = Program(TINY, 3)
    x, w = p.bfp(T, T), p.bfp(T, T)
    y, copy = p.room(T, T, True), p.room(T, T, True)
    for distance in (0, *range(252, 260)):
        p.convert(p.normal(T, T), x)
        for _ in range(distance - 2):
            p.convert(y, copy)
        p.gemm(x, w, y := p.room(T, T, True))
    result = verify(TINY, [p.job(p.end(), latency=2)])[0]
    assert result.registers["INSTRUCTIONS"] > 2000


@pytest.fixture(scope="module")
def disturbed():
    """A program for disturbances, one for afterwards, and the clocks that the first one takes."""
    p = Program(TINY, 4)
    layer(p, p.normal(9, 6), p.normal(6, 7), Order.DX_MAJOR)
    first = p.end()
    layer(p, p.normal(6, 9), p.normal(9, 5), Order.INTERLEAVED)
    return p, first, p.end()


#: Clocks at which a program is stopped; it takes about 700 with this memory.
MOMENTS = [*range(0, 60, 3), *range(60, 760, 11)]
SLOW = {"latency": 9, "stall": 0.3}


@pytest.mark.parametrize("how", ["stop_after", "reset_after"])
def test_afterwards_all_is_right(verify, disturbed, how):
    """A program is stopped or reset at any clock; it, and another one, then run as if new."""
    p, first, second = disturbed
    jobs = []
    for number, clock in enumerate(MOMENTS):
        jobs += [p.job(first, fresh=number == 0, **SLOW, **{how: clock}),
                 p.job((first, second)[number % 2], fresh=False)]
    results = verify(TINY, jobs)
    if how == "stop_after":
        ended = [r.registers["STATUS"] for r in results[::2]]
        assert ended.count(0) > 60
        assert ended[-1] == 2
    assert all(r.registers["STATUS"] == 2 for r in results[1::2])
