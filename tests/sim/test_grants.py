"""Commands that the units take 0 to 7 clocks late: the same memory, nothing lost, nothing stuck."""

import numpy as np
import pytest

from tb.colocation import HalfProgram, Pair
from tb.fuzz import Fuzz
from tb.runner import simulate
from tests.patched import LATE, TINY


@pytest.mark.parametrize("policy", [0, 1], ids=["priority", "fair"])
def test_random_programs(patched_verilog, policy):
    pairs = []
    for seed in range(12):
        rng = np.random.default_rng(50 * policy + seed)
        programs = []
        for second in (False, True):
            program = HalfProgram(TINY, 90_000 + 2 * (50 * policy + seed) + second, second)
            programs.append((program, Fuzz(TINY, seed, program).programs[0]))
        starts = tuple(int(c) for c in rng.integers(0, 100, 2))
        pairs.append(Pair(TINY, programs, starts, [(0, "POLICY", policy)] if policy else [],
                          {"POLICY": policy}, {"latency": int(rng.choice([1, 20]))}))
    results = simulate(TINY, [pair.job for pair in pairs], patched_verilog, [LATE])
    problems = [f"pair {n}: {text}" for n, (pair, result) in
                enumerate(zip(pairs, results, strict=True)) for text in pair.check(result)]
    assert not problems, "\n".join(problems)
    assert sum(all(r.registers[f"{p}OPERATIONS"] for p in ("", "INFERENCE_"))
               for r in results) > 3
