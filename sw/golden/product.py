"""Products of BFP matrices: exact tile sums, added in FP32 in ascending order."""

from collections.abc import Callable

import numpy as np

from hw.config import Config
from sw.golden.arithmetic import NAN, add, round24

#: Elements of an output block that is worked on at a time, so that it stays in the cache.
BLOCK = 1 << 19


class Operand:
    """A BFP matrix: mantissas (float32, tm*T x tn*T) and exponent bytes (tm*T x tn)."""

    def __init__(self, cfg: Config, q: np.ndarray, exponents: np.ndarray):
        self.cfg, self.q, self.exponents = cfg, q, exponents

    @property
    def T(self) -> "Operand":
        """The transpose; square tiles only."""
        t = self.cfg.tile
        return Operand(self.cfg, self.q.T, np.repeat(self.exponents[::t].T, t, axis=0))

    def scaled(self, dtype) -> np.ndarray:
        """Values as `dtype`; NaN tiles count as zero."""
        t, shape = self.cfg.tile, self.q.shape
        bytes_ = self.exponents.astype(np.int32)
        factors = np.ldexp(dtype(1), bytes_ - 127 - (self.cfg.mant_width - 2))
        factors[bytes_ == 255] = 0
        return (self.q.reshape(shape[0], -1, t) * factors[:, :, None]).reshape(shape)

    def range(self) -> tuple[int, int]:
        """Least and largest exponent byte of tiles that are not zero; (255, 255) for all zero."""
        live = self.exponents[self.exponents > 0]
        return (int(live.min()), int(live.max())) if live.size else (255, 255)


def _is_plain(cfg: Config, a: Operand, b: Operand, acc: np.ndarray) -> bool:
    """Whether no product and no sum can be NaN, overflow or need flushing, for any rounding.

    Then every number is a multiple of 2**-126, and IEEE arithmetic alone gives the results.
    """
    (a_low, a_high), (b_low, b_high) = a.range(), b.range()
    unit = 127 + cfg.mant_width - 2
    if max(a_high, b_high) == 255 or min(a_low, b_low) - unit < -126:
        return False
    magnitude = np.abs(acc)
    largest = float(magnitude.max())
    if not np.isfinite(largest) or (acc.any() and magnitude[acc != 0].min() < 2.0**-102):
        return False
    depth = a.q.shape[1]
    most = largest + depth * cfg.q_max**2 * 2.0**(a_high + b_high - 2 * unit)
    return a_low + b_low - 2 * unit >= -126 and most < 2.0**127


def multiply(cfg: Config, a: Operand, b: Operand, acc: np.ndarray,
             watch: Callable[[int, int, np.ndarray], None] | None = None) -> bool:
    """Add A B to `acc` (float32) in place, reduction tile by reduction tile.

    `watch(first_row, r, block)` sees every block of rows of `acc` after reduction tile r.
    Returns whether a finite sum or product overflowed.
    """
    t, overflow = cfg.tile, False
    plain = _is_plain(cfg, a, b, acc)
    exact32 = plain and t * cfg.q_max**2 <= 1 << 24
    dtype = np.float32 if exact32 else np.float64
    a_values, b_values = a.scaled(dtype), b.scaled(dtype)
    a_nan, b_nan = a.exponents == 255, b.exponents[::t] == 255
    height = max(1, BLOCK // acc.shape[1] // t) * t
    products = np.empty((min(height, len(acc)), acc.shape[1]), dtype)
    for top in range(0, len(acc), height):
        block = acc[top:top + height]
        p = products[:len(block)]
        for r in range(a_values.shape[1] // t):
            strip = slice(r * t, r * t + t)
            np.matmul(a_values[top:top + height, strip], b_values[strip], out=p)
            if plain:
                np.add(block, p if exact32 else p.astype(np.float32), out=block)
            else:
                nan = a_nan[top:top + height, r, None] | np.repeat(b_nan[r], t)
                overflow |= _add_checked(block, p, nan)
            if watch:
                watch(top, r, block)
    return overflow


def _add_checked(block: np.ndarray, products: np.ndarray, nan: np.ndarray) -> bool:
    """Add exact products (float64) to FP32 sums in place; whether anything finite overflowed."""
    rounded = round24(products)
    overflow = bool(np.isinf(rounded).any())
    rounded[nan] = NAN
    block[...], over = add(block, rounded)
    return overflow or over
