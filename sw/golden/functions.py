"""Functions of one number and reductions, of docs/numerics.md, on numpy arrays, bit for bit.

Arguments are canonical FP32. What can raise `OVERFLOW` returns (values, whether it did).
"""

from collections.abc import Callable

import numpy as np

from sw.golden.arithmetic import NAN, add, maximum, mul, round24

LOG2E = np.uint32(0x3FB8AA3B).view(np.float32)
LN2 = np.uint32(0x3F317218).view(np.float32)

_POINTS = 1 + np.arange(65) / 64
#: The interpolated functions at 65 points of an octave.
TABLES = {name: np.rint(values).astype(np.int64) for name, values in {
    "EXP2": 2.0**23 * 2.0 ** (np.arange(65) / 64),
    "RECIP": 2.0**24 / _POINTS,
    "RSQRT0": 2.0**24 / np.sqrt(_POINTS),
    "RSQRT1": 2.0**24 / np.sqrt(2 * _POINTS),
    "LOG2": 2.0**24 * np.log2(_POINTS),
}.items()}
_STEPS = {name: np.append(np.diff(table), 0) for name, table in TABLES.items()}


def interp(name: str, t: np.ndarray) -> np.ndarray:
    """Table `name` at the 23-bit fractions `t` (int64), between its points by straight lines."""
    i = t >> 17
    return TABLES[name][i] + (_STEPS[name][i] * (t & 0x1FFFF) >> 17)


def _fields(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Exponent e and fraction t of x = +-2**e * (1 + t / 2**23), as int64; x = 0 has e = -127."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.int64)
    return (bits >> 23 & 255) - 127, bits & 0x7FFFFF


def exp2(x: np.ndarray) -> tuple[np.ndarray, bool]:
    """2 to the power of x."""
    low, high, nan = x < -126, x >= 128, np.isnan(x)
    inside = np.where(low | high | nan, np.float32(0), x)
    z = np.floor(inside.astype(np.float64) * 2.0**23).astype(np.int64)
    result = np.ldexp(interp("EXP2", z & 0x7FFFFF).astype(np.float32), (z >> 23) - 23)
    result[low] = 0
    result[high] = np.inf
    result[nan] = NAN
    return result, bool((high & np.isfinite(x)).any())


def exp(x: np.ndarray) -> tuple[np.ndarray, bool]:
    """The power of e with exponent x."""
    scaled, over_mul = mul(x, LOG2E)
    result, over_exp2 = exp2(scaled)
    return result, over_mul or over_exp2


def recip(x: np.ndarray) -> np.ndarray:
    """1 / x."""
    e, t = _fields(x)
    with np.errstate(under="ignore"):
        result = np.ldexp(interp("RECIP", t).astype(np.float32), -e - 24)
    result[e >= 126 + (t == 0)] = 0  # below 2**-126
    result = np.where(x < 0, -result, result) + np.float32(0)
    result[x == 0] = np.inf
    result[np.isnan(x)] = NAN
    return result


def rsqrt(x: np.ndarray) -> np.ndarray:
    """1 / square root of x."""
    e, t = _fields(x)
    odd = e & 1
    table = np.where(odd, interp("RSQRT1", t), interp("RSQRT0", t))
    result = np.ldexp(table.astype(np.float32), -(e - odd) // 2 - 24)
    result[x == np.inf] = 0
    result[x == 0] = np.inf
    result[(x < 0) | np.isnan(x)] = NAN
    return result


def log2(x: np.ndarray) -> np.ndarray:
    """Logarithm of x to the base of 2."""
    e, t = _fields(x)
    result = round24(((e << 24) + interp("LOG2", t)) * 2.0**-24)
    result[x == np.inf] = np.inf
    result[x == 0] = -np.inf
    result[(x < 0) | np.isnan(x)] = NAN
    return result


def _fold(x: np.ndarray, tile: int, combine: Callable, nothing: float) -> np.ndarray:
    """Columns 0 .. of `x`, combined in the order of "Reductions"; a column vector.

    `nothing` changes no operand that it is combined with, so it stands for what does not exist.
    """
    rows, cols = x.shape
    width = 1 << (tile - 1).bit_length()
    parts = -(-cols // tile)
    padded = np.full((rows, parts, width), nothing, np.float32)
    whole = cols // tile
    padded[:, :whole, :tile] = x[:, :whole * tile].reshape(rows, whole, tile)
    if whole < parts:
        padded[:, whole, :cols - whole * tile] = x[:, whole * tile:]
    v = padded[:, 0]
    for part in range(1, parts):
        v = combine(v, padded[:, part])
    while width > 1:
        width //= 2
        v = combine(v[:, :width], v[:, width:])
    return v


def row_sum(x: np.ndarray, tile: int) -> tuple[np.ndarray, bool]:
    """Sums of the rows of `x` (all elements valid), shape (rows, 1)."""
    overflow = False

    def combine(a, b):
        nonlocal overflow
        total, over = add(a, b)
        overflow |= over
        return total

    return _fold(x, tile, combine, 0.0), overflow


def row_max(x: np.ndarray, tile: int) -> np.ndarray:
    """Maxima of the rows of `x` (all elements valid), shape (rows, 1)."""
    return _fold(x, tile, maximum, -np.inf)


def column_sum(x: np.ndarray, tile: int) -> tuple[np.ndarray, bool]:
    """Sums of the columns of `x` (all elements valid), shape (1, columns)."""
    total, overflow = row_sum(x.T, tile)
    return total.T, overflow
