"""Programs in both contexts at once: each leaves what its run alone leaves."""

from dataclasses import replace

import numpy as np
import pytest

from hw.config import load
from hw.isa import Function, XSource, YTarget
from sw.compiler.assembler import window
from tb.colocation import HalfProgram, Pair, SharedProgram, over_bounds, step
from tb.fuzz import Fuzz
from tb.job import CHANNELS
from tb.program import Program
from tb.runner import simulate

TINY = load("tiny")
#: Larger tiles, of which a row takes the vector unit four clocks.
LARGE = replace(TINY, tile=8, vector_lanes=2)
#: Clock in which training goes on under the exclusive policy.
RELEASED = 4000


def run(pairs, source=None):
    """Simulate pairs of one configuration, assert that nothing is wrong; their results."""
    results = simulate(pairs[0].cfg, [pair.job for pair in pairs], source)
    problems = [f"pair {n}: {text}" for n, (pair, result) in
                enumerate(zip(pairs, results, strict=True)) for text in pair.check(result)]
    assert not problems, "\n".join(problems)
    return results


def memory(rng):
    """Random behaviour of the memory."""
    stall = float(rng.choice([0.0, 0.3, 0.8]))
    if rng.random() < 0.5:
        stall = {c: float(rng.choice([0.0, 0.3, 0.9])) for c in CHANNELS}
    return {"latency": int(rng.choice([1, 5, 20, 60])), "stall": stall,
            "bytes_per_cycle": int(rng.choice([0, 0, 3, 8])),
            "outstanding": int(rng.choice([1, 2, 64])), "seed": int(rng.integers(2**32))}


@pytest.mark.parametrize("policy", range(3), ids=["priority", "fair", "exclusive"])
def test_random_programs(policy):
    """Both contexts share all banks; any memory, burst length and number of credits."""
    pairs = []
    for seed in range(16):
        rng = np.random.default_rng(1000 * policy + seed)
        programs = []
        for second in (False, True):
            program = HalfProgram(TINY, 2 * (1000 * policy + seed) + second, second)
            programs.append((program, Fuzz(TINY, seed, program).programs[0]))
        writes = [(RELEASED, "POLICY", 0 if policy == 2 else policy)] if policy else []
        registers = {"POLICY": policy, "MAX_BURST_BEATS": int(rng.choice([0, 1, 3, 16, 256])),
                     "READ_CREDITS": int(rng.choice([0, 1, 7, 32, 65535])),
                     "READ_CREDITS_IDLE": int(rng.choice([0, 32, 65535]))}
        starts = tuple(int(c) for c in rng.integers(0, 400, 2))
        pairs.append(Pair(TINY, programs, starts, writes, registers, memory(rng)))
    results = run(pairs)
    assert 0 in {r.registers["ERROR_CODE"] for r in results}
    both = [r for r in results if all(r.registers[f"{p}OPERATIONS"] for p in ("", "INFERENCE_"))]
    assert len(both) > 3
    if policy == 0:
        assert not [text for r in results for text in over_bounds(r)]
    if policy == 2:
        for result in results:
            trace = result.log.trace
            training = trace[:, 1] & 0b0001010101 != 0
            late = np.flatnonzero(training & (trace[:, 0] < RELEASED) & (trace[:, 0] > 20))
            reads = trace[late, 1] & 1 << 6  # read data may still come
            assert (trace[late, 1] & 0b0100010101 == 0).all()
            assert not reads.all() or len(late) == 0


def equal_programs(p):
    """A program that keeps all units busy."""
    for _ in range(2):
        step(p, 9, 8, 7)
    return p, p.end()


@pytest.mark.parametrize("policy", range(3), ids=["priority", "fair", "exclusive"])
def test_in_lock_step(policy):
    """The same program, started one or a few clocks apart, in neighbouring slots of all banks."""
    banks = tuple(bank * TINY.bank_slots for bank in range(4))
    pairs = []
    for apart in range(-8, 9):
        programs = [equal_programs(SharedProgram(TINY, 5, tuple(b + 4 * c for b in banks), 32 * c))
                    for c in range(2)]
        starts = max(-apart, 0), max(apart, 0)
        writes = [(5000, "POLICY", 0 if policy == 2 else policy)] if policy else []
        pairs.append(Pair(TINY, programs, starts, writes, {"POLICY": policy}, {"latency": 3}))
    results = run(pairs)
    for result in results:
        registers = result.registers
        assert registers["OPERATIONS"] == registers["INFERENCE_OPERATIONS"] > 0
        if policy == 0:
            assert not over_bounds(result)
            assert registers["INFERENCE_CYCLES_TOTAL"] < registers["CYCLES_TOTAL"]
    if policy == 0:
        assert max(r.registers["ARRAY_TRAINING_HELD"] for r in results) > 0
    if policy == 1:
        assert max(r.registers["ARRAY_INFERENCE_HELD"] for r in results) > 0


def test_held_training_begins_no_operation():
    """The array ends what is inside, though all operands of a thousand clocks are on chip."""
    pairs, clocks = [], range(2100, 2500, 37)
    for clock in clocks:
        p, q = Program(TINY, 7), HalfProgram(TINY, 8, second=True)
        w, y, chip = p.bfp(32, 32), p.room(16, 32, False), window(2 * TINY.bank_slots, 2, 3)
        p.gemm(p.bfp(16, 4), p.bfp(4, 32), p.room(16, 32, True), y_target=YTarget.CHIP,
               dw_window=chip, y_window=window(0, 2, 3))
        for _ in range(2):  # the second one finds W
            p.gemm(y, w, y, k=32, x_source=XSource.CHIP, x_window=chip, w_keep=1,
                   w_window=window(TINY.bank_slots, 3, 3), y_target=YTarget.ACC,
                   y_window=window(0, 2, 3))
        q.function(Function.ADD, 4, 4)
        writes = [(clock, "POLICY", 2), (clock + 400, "POLICY", 0)]
        pairs.append(Pair(TINY, [(p, p.end()), (q, q.end())], (0, 0), writes, {}, {"latency": 4}))
    for clock, result in zip(clocks, run(pairs), strict=True):
        trace = result.log.trace
        works = [trace[np.searchsorted(trace[:, 0], at, "right") - 1, 1] & 1
                 for at in (clock, *range(clock + 50, clock + 400), clock + 450)]
        assert works == [1] + 350 * [0] + [1]


def test_bounds_are_met():
    """Rows of several clocks, operations longer than the sequencer's: holds as long as the bounds.

    X and W of training lie in one bank, for which its operations wait.
    """
    pairs = []
    for seed in range(12):
        programs = []
        for second in range(2):
            p = Program(LARGE, 2 * seed + second)
            x, w, y = p.bfp(16, 32), p.bfp(32, 16), p.room(16, 16, False)
            windows = {"x_window": window(8 * second, 1, 2),
                       "w_window": window(40 if second else 16, 2, 1),
                       "y_window": window(8 * second, 1, 1)}
            for function in (Function.MUL, Function.SOFTMAX, Function.SGD, Function.EXP):
                with p.loop(3):
                    p.gemm(x, w, y, **windows, bn=1 + second, bm=1 + second)
                p.function(function, 17, 9, y_window=window(8 * second, 0, 3))
            programs.append((p, p.end()))
        pairs.append(Pair(LARGE, programs, (0, 97 * seed), [], {}, {"latency": 4}))
    results = run(pairs)
    assert not [text for r in results for text in over_bounds(r)]
    for unit in ("ARRAY", "VECTOR", "QUANTISER"):
        [bound] = {r.registers[f"{unit}_HOLD_BOUND"] for r in results}
        assert max(r.registers[f"{unit}_HOLD_MAX"] for r in results) == bound, unit
