"""Every number of an octave through exp, reciprocal and its square root on the RTL of `tiny`.

``python -m scripts.functions`` (a few minutes): results are compared with the golden model bit for
bit, and with float64 for the largest relative error, which must be at most 2**-12. The reciprocal
square root has two octaves.
"""

import sys

import numpy as np

from hw.config import load
from hw.isa import Function
from sw.golden import images
from tb.program import Program
from tb.scoreboard import run

CONFIG = load("tiny")
#: Function, exponents of its octaves, and what it approximates.
CASES = ((Function.EXP, (0,), np.exp), (Function.RECIP, (0,), np.reciprocal),
         (Function.RSQRT, (0, 1), lambda x: 1 / np.sqrt(x)))
#: Numbers of a run, as a matrix; input and result fit the simulated memory.
SHAPE = (1 << 11, 1 << 11)
MOST = 2.0**-12


def largest_error(function: Function, exponent: int, reference) -> float:
    """Largest relative error over the numbers [2**exponent, 2**(exponent + 1)).

    Raises
    ------
    SystemExit
        The RTL differs from the golden model.
    """
    worst = 0.0
    for part in np.arange(2**23, dtype=np.uint32).reshape(-1, *SHAPE):
        x = (part | np.uint32(127 + exponent << 23)).view(np.float32)
        program = Program(CONFIG)
        y = program.room(*SHAPE, False)
        program.vector(function, program.fp32(x), y=y)
        job = program.job(program.end(), timeout_cycles=100_000_000)
        verdict = run(CONFIG, [job])[0]
        if verdict.problems:
            raise SystemExit(f"{function.name}: {verdict.problems[0]}")
        tiles = (SHAPE[0] // CONFIG.tile, SHAPE[1] // CONFIG.tile)
        stored = images.grid(verdict.result.memory, y.addr, y.pitch, tiles, CONFIG.fp32_bytes)
        got = images.unpack_fp32(CONFIG, stored, *SHAPE).astype(np.float64)
        worst = max(worst, float(np.abs(got / reference(x.astype(np.float64)) - 1).max()))
    return worst


def main() -> int:
    """Print a line for each octave; returns 1 if an error is too large."""
    failed = 0
    for function, exponents, reference in CASES:
        for exponent in exponents:
            error = largest_error(function, exponent, reference)
            failed += error > MOST
            print(f"{function.name:6} [2**{exponent}, 2**{exponent + 1}): equal to golden, largest "
                  f"relative error 2**{np.log2(error):.2f}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
