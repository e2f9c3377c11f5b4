"""DRAM traffic of the orders, and the bus: slow, stalled and narrow memories change no result."""

from itertools import product

import numpy as np
import pytest

from hw.config import load
from hw.isa import Order
from sw.compiler.assembler import window
from tb.job import CHANNELS
from tb.program import Program, quarter

TINY = load("tiny")
#: First slots of banks of their own.
W, DY = quarter(TINY, 1)[0], quarter(TINY, 2)[0]


def gradient(p, m, k, n, order, **fields):
    x, w, dy = p.bfp(m, k), p.bfp(k, n), p.bfp(m, n)
    p.grad(x, w, dy, p.room(m, k, False), p.room(k, n, False), order, **fields)
    return p.end()


@pytest.mark.parametrize("order", [Order.DX_MAJOR, Order.DW_MAJOR])
def test_fused_orders_read_dy_once(verify, order):
    """When a block covers K, each dY tile is read exactly once, down to a window of one tile."""
    m, k, n = 15, 19, 21
    tiles = 4 * 5 * 6
    p = Program(TINY, 1)
    cases = []
    for bm, bn, high, wide in ((1, 1, 0, 0), (2, 2, 1, 1), (2, 4, 1, 2), (4, 1, 2, 0)):
        at = gradient(p, m, k, n, order, bm=bm, bn=bn, dy_window=window(DY, high, wide))
        cases.append((at, 1))
    cases.append((gradient(p, m, k, n, order, bm=1, bn=1, bk=2, dy_window=window(DY)), 3))
    results = verify(TINY, [p.job(at) for at, _ in cases])
    for (_, times), result in zip(cases, results, strict=True):
        assert result.registers["READ_DY"] == times * tiles // 5 * TINY.bfp_bytes
        assert result.registers["OPERATIONS"] == 2 * tiles


def test_every_order_has_its_own_traffic(verify):
    """The scoreboard compares all byte counters with golden; here they are not all the same."""
    p = Program(TINY, 2)
    starts = [gradient(p, 15, 19, 22, order, bm=2, bn=2, bk=bk)
              for order, bk in product(Order, (0, 2))]
    results = verify(TINY, [p.job(at) for at in starts])
    for kind in ("READ_DY", "READ_X", "READ_W", "READ_PARTIAL", "WRITE_PARTIAL"):
        assert len({r.registers[kind] for r in results}) > 1, kind
    for kind in ("WRITE_DX", "WRITE_DW", "OPERATIONS"):
        assert len({r.registers[kind] for r in results}) == 1, kind


MEMORIES = [
    *({"stall": stall, "latency": latency} for stall, latency in product((0.0, 0.5, 0.9),
                                                                         (1, 20, 200))),
    *({"bytes_per_cycle": rate, "latency": 7} for rate in (1, 3, 8, 12)),
    {"outstanding": 1, "latency": 1}, {"outstanding": 1, "latency": 50, "stall": 0.5},
    *({"stall": {channel: 0.9}, "latency": 3, "seed": 5} for channel in CHANNELS),
]


def test_the_memory_changes_no_result(verify):
    cfg = TINY
    p = Program(cfg, 3)
    x, w, dy = p.room(13, 11, True), p.bfp(11, 9), p.bfp(13, 9)
    p.convert(p.normal(13, 11), x)
    p.gemm(x, w, p.room(13, 9, True), stochastic=1, bk=1)
    for order in Order:
        p.grad(x, w, dy, p.normal(13, 11), p.room(11, 9, True), order, y_accumulate=1, bm=1, bn=2,
               w_independent=1)
    at = p.end()
    results = verify(cfg, [p.job(at, **memory) for memory in MEMORIES])
    for result in results[1:]:
        assert np.array_equal(result.memory, results[0].memory)
    clocks = [r.registers["CYCLES_TOTAL"] for r in results]
    assert clocks[0] < clocks[1] < clocks[2] < clocks[8]
    slow = results[MEMORIES.index({"bytes_per_cycle": 1, "latency": 7})].registers
    assert slow["CYCLES_TOTAL"] > sum(slow[name] for name in slow if name.startswith("READ_"))


def test_operations_without_a_load_between(verify):
    """Everything resident, one accumulator tile after the other: the adder is waited for."""
    p = Program(TINY, 5)
    x, w, dy = p.bfp(13, 31), p.bfp(31, 30), p.bfp(13, 30)
    fields = {"bm": 1, "bn": 1, **p.windows(2, 3), "w_window": window(W, 3, 3)}
    p.gemm(x, w, p.room(13, 30, False), **fields)
    starts = [p.end()]
    for order in Order:
        p.grad(x, w, dy, p.room(13, 31, False), p.room(31, 30, False), order, bk=1, **fields)
        starts.append(p.end())
    gemm, sequential, *_ = verify(TINY, [p.job(at, latency=1) for at in starts])
    for result in (gemm, sequential):
        assert result.registers["ARRAY_STALL_ACC"] > 100


def test_the_array_works_while_the_memory_is_fast(verify):
    """Every clock is counted once; most are busy when operands fit and rows are many."""
    p = Program(TINY, 4)
    x, w = p.bfp(128, 8), p.bfp(8, 8)
    p.gemm(x, w, p.room(128, 8, True), x_window=window(0, 5, 1), w_window=window(W, 1, 1),
           y_window=window(0, 4, 1))
    registers = verify(TINY, [p.job(p.end(), latency=5)])[0].registers
    assert registers["ARRAY_BUSY"] == 128 * 4
    assert registers["ARRAY_IDLE"] < registers["CYCLES_TOTAL"]
