"""Two streams: beside each other where the program allows it, in program order everywhere else."""

from itertools import product

import numpy as np
import pytest

from hw.config import load
from hw.isa import Error, Function, Kind, Order
from sw.compiler.assembler import window
from tb.program import UNARY, Program, contents, quarter, word

TINY, EDGE = load("tiny"), load("edge")
MEMORIES = ({"latency": 1}, {"latency": 50}, {"stall": 0.5, "latency": 6, "seed": 2})
MOST_OVERLAP = 15


def assert_same(cfg, first, second):
    """Assert that matrices have the same bytes, given two pairs of memory and matrices."""
    for a, b in zip(first[1], second[1], strict=True):
        assert np.array_equal(contents(cfg, first[0], a), contents(cfg, second[0], b))


def train(p, layers, overlap, m, width):
    """Gradients of each layer and, beside the next layer's, the update of this one; the results."""
    p.rng = np.random.default_rng(5)  # the same data in every program
    x, dy, results = p.bfp(m, width), p.bfp(m, width), []
    for number in range(layers):
        w, dw, dx = p.bfp(width, width), p.room(width, width, False), p.room(m, width, True)
        p.grad(x, w, dy, dx, dw, list(Order)[number % 4], function=Function.RELU_GRAD, phase=number,
               overlap=overlap and min(number, 2))
        momentum, weights = p.normal(width, width), p.normal(width, width)
        y = p.room(width, width, True)
        p.vector(Function.SGD, dw, w=momentum, dy=weights, y=y, w_kind=Kind.STATE,
                 dy_kind=Kind.STATE, overlap=0, phase=number)
        results += [dx, dw, momentum, weights, y]
    return results


def test_updates_beside_gradients(verify):
    """Faster than one after the other, and the same bytes."""
    for cfg, m, width in ((TINY, 24, 16), (EDGE, 48, 48)):
        p = Program(cfg, 1)
        first = train(p, 5, 0, m, width)
        plain = p.end()
        second = train(p, 5, 1, m, width)
        beside = p.end()
        for number, memory in enumerate(MEMORIES if cfg is TINY else MEMORIES[1:2]):
            a, b = verify(cfg, [p.job(plain, **memory), p.job(beside, **memory)])
            assert_same(cfg, (a.memory, first), (b.memory, second))
            assert a.registers["VECTOR_OVERLAP"] < b.registers["VECTOR_OVERLAP"], number
            assert b.registers["CYCLES_TOTAL"] < a.registers["CYCLES_TOTAL"], number
            assert b.registers["VECTOR_OVERLAP"] <= min(b.registers["VECTOR_BUSY"],
                                                        b.registers["ARRAY_BUSY"])


def beside(p, overlap, function, count, fields):
    """GEMMs and functions in turn on data of their own; results."""
    p.rng, results = np.random.default_rng(3), []
    x, w = p.bfp(9, 11), p.bfp(11, 10)
    for number in range(count):
        y = p.room(9, 10, number % 2 == 0)
        p.gemm(x, w, y, overlap=min(overlap, number), bk=number % 2, **fields)
        made = p.function(function, 10, 9, scalar=word(0.7), overlap=min(overlap, number + 1))
        results += [y, *(made[name] for name in ("y", "dw", "dy", "w") if name in made)]
    return results


@pytest.mark.parametrize("function", [
    Function.ADD, Function.EXP, Function.COLUMN_SUM, Function.SOFTMAX, Function.MSE, Function.SGD])
def test_functions_beside_products(verify, function):
    """Disjoint data: the same bytes whatever the streams do, with windows that share banks."""
    p = Program(TINY, 2)
    for fields in {}, {"function": Function.RELU}:
        cases = [(beside(p, overlap, function, 6, fields), p.end())
                 for overlap in (0, 1, MOST_OVERLAP)]
        for memory in MEMORIES:
            results = verify(TINY, [p.job(at, **memory) for _, at in cases])
            first, *others = ((r.memory, c[0]) for r, c in zip(results, cases, strict=True))
            for other in others:
                assert_same(TINY, first, other)
            plain, _, free = (r.registers for r in results)
            assert free["VECTOR_OVERLAP"] > 0
            assert fields or plain["VECTOR_OVERLAP"] == 0
            assert free["CYCLES_TOTAL"] < plain["CYCLES_TOTAL"]


def test_dependencies_in_both_directions(verify):
    """RAW, WAR and WAW between the streams, in the same accumulator slots: overlap is 0."""
    p = Program(TINY, 3)
    starts = []
    for size in (1, 0):
        slots = {f"{name}_window": window(8 * number, size, size)
                 for number, name in enumerate(("y", "dw", "e"))}
        shared = window(0, 2, 2 + size)
        squares = [p.bfp(9, 9, exponents=(123, 127)) for _ in range(3)]
        sums = [p.normal(9, 9) for _ in range(3)]
        for _ in range(40):
            i, j, k, s = (int(n) for n in p.rng.integers(0, 3, 4))
            kind = int(p.rng.integers(0, 5))
            if kind == 0:
                p.gemm(squares[i], squares[j], sums[s], bias=sums[(s + 1) % 3],
                       y_accumulate=1, bk=1, **slots)
            elif kind == 1 and k not in (i, j):
                p.gemm(squares[i], squares[j], squares[k], function=Function.RELU, **slots)
            elif kind == 2:
                p.grad(squares[0], squares[1], squares[2], sums[s], sums[(s + 1) % 3],
                       Order.DW_MAJOR, function=Function.RELU_GRAD, y_accumulate=1,
                       dw_accumulate=1, bm=1, **slots)
            elif kind == 3:
                p.vector(Function.MUL, sums[s], w=squares[i], y=squares[(i + 1) % 3],
                         y_window=shared, stochastic=1)
            else:
                p.vector(Function.SGD, squares[i], w=sums[s], dy=sums[(s + 1) % 3],
                         y=squares[(i + 1) % 3], y_window=shared)
        starts.append(p.end())
    verify(TINY, [p.job(at, **memory) for at, memory in product(starts, MEMORIES)])


@pytest.mark.parametrize("array_last", [False, True])
def test_only_the_latest_may_be_unfinished(verify, array_last):
    """With overlap k an instruction reads what the (k+1)th latest of the other stream wrote."""
    p = Program(TINY, 4)
    long, short = p.normal(24, 24), p.normal(2, 2)
    x, w, other = p.bfp(24, 24), p.bfp(24, 24), p.bfp(2, 2)
    for overlap in range(MOST_OVERLAP + 1):
        if array_last:
            source = p.room(24, 24, True)
            p.vector(Function.EXP, long, y=source)
            for _ in range(overlap):
                p.vector(Function.RELU, short, y=p.room(2, 2, False))
            p.gemm(source, w, p.room(24, 24, False), overlap=overlap)
        else:
            source = p.room(24, 24, False)
            p.gemm(x, w, source)
            for _ in range(overlap):
                p.gemm(other, other, p.room(2, 2, False))
            p.vector(Function.ADD, source, w=long, y=p.room(24, 24, False), overlap=overlap)
            p.vector(Function.RELU, short, y=source, y_window=window(0), m=2, overlap=0)  # WAW
    at = p.end()
    verify(TINY, [p.job(at, **memory) for memory in MEMORIES])


def test_fences_and_ends_wait_for_both(verify):
    """A short instruction after a long one of the other stream, then FENCE or END."""
    p = Program(TINY, 5)
    x, w, values = p.bfp(32, 32), p.bfp(32, 32), p.normal(32, 32)
    little, tiny = p.bfp(1, 1), p.normal(1, 1)
    starts = []
    for order in (1, -1):
        y = p.room(32, 32, False)
        steps = [lambda y=y: p.gemm(x, w, y, overlap=1),
                 lambda: p.vector(Function.RELU, tiny, y=p.room(1, 1, False), overlap=1)]
        if order < 0:
            steps = [lambda y=y: p.vector(Function.EXP, values, y=y, overlap=1),
                     lambda: p.gemm(little, little, p.room(1, 1, False), overlap=1)]
        for step in steps:
            step()
        starts.append(p.end())
        for step in steps:
            step()
        p.fence()
        p.vector(Function.RELU, y, y=p.room(32, 32, False), overlap=MOST_OVERLAP)
        p.fence()
        p.gemm(x, w, p.room(32, 32, False), overlap=MOST_OVERLAP)
        starts.append(p.end())
    verify(TINY, [p.job(at, **memory) for at, memory in product(starts, MEMORIES)])


def test_phases(verify):
    """Each phase has the rows of its GEMMs between fences; clocks before the first are phase 0."""
    p = Program(TINY, 6)
    x, w = p.bfp(16, 8), p.bfp(8, 8)
    for phase in (3, 31, 3, 0, 7):
        p.gemm(x, w, p.room(16, 8, False), phase=phase)
        p.fence()
        p.vector(UNARY[phase % 5], p.normal(3, 3), y=p.room(3, 3, False), phase=(phase + 1) % 32)
        p.fence()
    at = p.end()
    for _ in range(3):
        p.fence()
    empty = p.end()
    _, result, again, none = (r.registers for r in verify(TINY, [
        p.job(at, latency=20), p.job(at, fresh=False), p.job(at, fresh=False),
        p.job(empty, fresh=False)]))
    assert again == result  # counters were cleared
    busy = 16 * 2 * 2
    assert {n: result[f"PHASE_BUSY_{n}"] for n in range(32) if result[f"PHASE_BUSY_{n}"]} == {
        0: busy, 3: 2 * busy, 7: busy, 31: busy}
    used = {n for n in range(32) if result[f"PHASE_CYCLES_{n}"]}
    assert used == {0, 1, 3, 4, 7, 8, 31}
    assert none["PHASE_CYCLES_0"] == none["CYCLES_TOTAL"] > 0


def test_phases_that_change_while_the_array_works(verify):
    """No clock and no busy clock is lost or counted twice; the scoreboard adds them up."""
    p = Program(TINY, 11)
    x, w = p.bfp(32, 32), p.bfp(32, 8)
    fields = {"x_window": window(0, 3, 3), "w_window": window(quarter(TINY, 1)[0], 3, 1),
              "y_window": window(0, 3, 1), "x_independent": 1, "w_independent": 1}
    for number in range(48):
        p.gemm(x, w, p.room(32, 8, True), phase=(1, 2, 17)[number % 3], **fields)
    registers = verify(TINY, [p.job(p.end(), latency=2)])[0].registers
    busy = [registers[f"PHASE_BUSY_{n}"] for n in (1, 2, 17)]
    assert sum(busy) == registers["ARRAY_BUSY"] == 48 * 128 * 4
    assert 3 * registers["ARRAY_BUSY"] > registers["CYCLES_TOTAL"]


def test_an_error_lets_the_other_stream_finish(verify):
    """Refused or outside the region, while the other stream works; then all is well."""
    p = Program(TINY, 7)
    x, w, values = p.bfp(20, 20), p.bfp(20, 20), p.normal(20, 20)
    p.gemm(x, w, p.room(20, 20, False))
    p.vector(Function.EXP, values, y=p.room(20, 20, False), overlap=1)
    good = p.end()
    bad = []
    for change in ({"m": 0}, {"y_addr": 1 << 30}, {"opcode": 77}, {"y_addr": 2**32 - 4096}):
        for last in (0, 1):
            steps = [lambda **f: p.gemm(x, w, p.room(20, 20, False), overlap=1, **f),
                     lambda **f: p.vector(Function.EXP, values, y=p.room(20, 20, False), overlap=1,
                                          **f)]
            steps[1 - last]()
            steps[last]()
            p.instructions[-1] |= change
            bad.append(p.end())
    jobs = [p.job(good, latency=30)]
    for at in bad:
        jobs += [p.job(at, fresh=False), p.job(good, fresh=False)]
    results = verify(TINY, jobs)
    assert all(r.registers["STATUS"] == 2 for r in results[::2])
    assert all(r.registers["STATUS"] == 4 for r in results[1::2])
    assert all(r.registers["WRITE_Y"] >= 25 * TINY.fp32_bytes for r in results[1::2])


@pytest.mark.parametrize("how", ["stop_after", "reset_after"])
def test_stop_while_both_work(verify, how):
    p = Program(TINY, 8)
    beside(p, MOST_OVERLAP, Function.SGD, 3, {"function": Function.RELU})
    at = p.end()
    beside(p, 0, Function.SOFTMAX, 2, {})
    good = p.end()
    jobs = []
    for clock in (*range(1, 60, 5), *range(60, 2400, 57)):
        jobs += [p.job(at, fresh=not jobs, latency=9, stall=0.3, **{how: clock}),
                 p.job((at, good)[clock % 2], fresh=False)]
    results = verify(TINY, jobs)
    if how == "stop_after":
        assert [r.registers["STATUS"] for r in results[::2]].count(0) > 30
    assert all(r.registers["STATUS"] == 2 for r in results[1::2])


def test_errors_of_the_memory(verify):
    """SLVERR on images of either stream, while both work."""
    p = Program(TINY, 9)
    results = beside(p, MOST_OVERLAP, Function.SGD, 2, {"function": Function.RELU})
    at = p.end()
    written = [m.addr for m in results]
    read = [m.addr for m in results[2:4]] + [at + 128, at + 256, at + 512]
    jobs = [p.job(at, region_base=1 << 20, **memory, **{name: (begin, begin + 64)})
            for memory in MEMORIES
            for name, places in (("read_errors", read), ("write_errors", written))
            for begin in places]
    found = {r.registers["ERROR_CODE"] for r in verify(TINY, jobs)}
    assert found == {Error.READ_ERROR.value, Error.WRITE_ERROR.value}


def test_the_array_stream_runs_ahead(verify):
    """Sixteen products while one long function works, and the other way round."""
    p = Program(TINY, 10)
    values, x, w = p.normal(40, 40), p.bfp(4, 4), p.bfp(4, 4)
    p.vector(Function.SOFTMAX, values, w=p.normal(40, 40), y=p.room(40, 40, False))
    for _ in range(40):
        p.gemm(x, w, p.room(4, 4, False), overlap=1)
    ahead = p.end()
    big, y = p.bfp(40, 40), p.room(40, 40, False)
    p.gemm(big, big, y)
    for _ in range(40):
        p.vector(Function.RELU, p.normal(4, 4), y=p.room(4, 4, False), overlap=1)
    behind = p.end()
    results = verify(TINY, [p.job(at, latency=3) for at in (ahead, behind)])
    assert all(r.registers["INSTRUCTIONS"] == 42 for r in results)
    assert results[0].registers["VECTOR_OVERLAP"] > 50
