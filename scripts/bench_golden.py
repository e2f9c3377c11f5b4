"""Time of the golden model against numpy's own float32 product: one GEMM, values and traffic."""

import argparse
import time

import numpy as np

from hw.config import Config
from hw.isa import Opcode
from sw.compiler.assembler import assemble, window
from sw.golden import arithmetic, images
from sw.golden.machine import Machine


def _best(runs, repeats: int) -> list[float]:
    """Least time of each of `runs`, taken in turn so that all see the same machine."""
    times = [[] for _ in runs]
    for _ in range(repeats):
        for run, taken in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            taken.append(time.perf_counter() - start)
    return [min(taken) for taken in times]


def main(argv=None):
    """Print both times and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024, help="M = K = N (default 1024)")
    parser.add_argument("--tile", type=int, default=32, help="T (default 32)")
    parser.add_argument("--repeats", type=int, default=10, help="best of so many (default 10)")
    args = parser.parse_args(argv)
    cfg = Config(tile=args.tile)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((args.size, args.size), np.float32) for _ in range(2))
    count = images.tiles(cfg, args.size)
    size = count * cfg.tile
    program = assemble(cfg, [{
        "opcode": Opcode.GEMM, "m": args.size, "n": args.size, "k": args.size, "bm": 4, "bn": 4,
        "x_addr": 4096, "w_addr": 4096 + count**2 * cfg.bfp_bytes,
        "y_addr": 4096 + 2 * count**2 * cfg.bfp_bytes,
        "x_pitch": count, "w_pitch": count, "y_pitch": count,
        "x_window": window(0, 2, 5), "w_window": window(128, 5, 2), "y_window": window(0, 2, 2)}])
    memory = np.zeros(4096 + count**2 * (2 * cfg.bfp_bytes + cfg.fp32_bytes), np.uint8)
    memory[:len(program)] = np.frombuffer(program, np.uint8)
    for index, matrix in enumerate((x, w)):
        padded = np.zeros((size, size), np.float32)
        padded[:args.size, :args.size] = matrix
        tiled = padded.reshape(count, cfg.tile, count, cfg.tile)
        q, exponents = arithmetic.quantise(tiled, cfg.mant_width, (1, 3))
        exponents = np.broadcast_to(exponents[..., 0], tiled.shape[:3]).reshape(size, count)
        grid = images.grid(memory, 4096 + index * count**2 * cfg.bfp_bytes, count,
                           (count, count), cfg.bfp_bytes)
        grid[...] = images.pack_bfp(cfg, q.reshape(size, size), exponents)
    golden, plain = _best([lambda: Machine(cfg, memory).run(0), lambda: x @ w], args.repeats)
    print(f"golden {golden * 1e3:.1f} ms, numpy {plain * 1e3:.1f} ms, "
          f"ratio {golden / plain:.2f}")


if __name__ == "__main__":
    main()
