"""Arithmetic of docs/numerics.md on numpy arrays, bit for bit."""

import numpy as np

#: The NaN of every result.
NAN = np.uint32(0x7FC00000).view(np.float32)
#: Smallest normal FP32 number.
TINY = np.float32(2.0**-126)

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_EXPONENT = np.uint32(0x7F800000)


def canonical(values: np.ndarray) -> np.ndarray:
    """FP32 as it is read from DRAM: the one NaN; subnormals and -0 become +0."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    exponent = bits & _EXPONENT
    bits = np.where(exponent == 0, np.uint32(0), bits)
    special = exponent == _EXPONENT
    if special.any():
        bits[special & ((bits & _MAGNITUDE) > _EXPONENT)] = NAN.view(np.uint32)
    return bits.view(np.float32)


def round24(values: np.ndarray) -> np.ndarray:
    """float64 rounded once to 24 bits, to nearest even, then flushed to +0 or made Inf; as FP32."""
    magnitude = np.abs(values)
    with np.errstate(over="ignore", under="ignore"):
        result = values.astype(np.float32)
    small = magnitude < TINY
    # Below 2**-126 the last place is 2**-150 or less: only what rounds up to 2**-126 survives.
    rises = small & (magnitude >= (2.0**25 - 1) * 2.0**-151)
    result[small] = 0
    result[rises] = np.copysign(TINY, values[rises])
    result[np.isnan(values)] = NAN
    return result


def add(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, bool]:
    """FP32 sum of canonical numbers, and whether a finite sum overflowed.

    A sum of two FP32 numbers below 2**-126 is exact, so flushing the IEEE sum is `round24`.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        result = np.asarray(a + b)
    return _finished(result, np.abs(result), a, b)


def mul(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, bool]:
    """FP32 product of canonical numbers, and whether a finite product overflowed."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        result = np.asarray(a * b)
    magnitude = np.abs(result)
    if (magnitude == TINY).any():  # IEEE 754 rounds up to it from 2**-150 below, round24 from half
        with np.errstate(invalid="ignore"):
            result = np.asarray(round24(np.multiply(a, b, dtype=np.float64)))
        magnitude = np.abs(result)
    return _finished(result, magnitude, a, b)


def _finished(result, magnitude, a, b) -> tuple[np.ndarray, bool]:
    """IEEE result with small numbers flushed and the one NaN; whether finite a, b gave Inf."""
    result[magnitude < TINY] = 0
    if np.isfinite(magnitude.max(initial=0)):
        return result, False
    result[np.isnan(magnitude)] = NAN
    return result, bool((np.isinf(magnitude) & np.isfinite(a) & np.isfinite(b)).any())


def maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The larger of canonical numbers; NaN if one is NaN."""
    return np.maximum(a, b)


def relu(a: np.ndarray) -> np.ndarray:
    """max(a, 0)."""
    return np.maximum(a, np.float32(0))


def relu_grad(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`a` where b > 0, NaN where b is NaN, else +0."""
    return np.where(b > 0, a, np.where(np.isnan(b), NAN, np.float32(0)))


def random_bits(seed: int, salt: int, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """The 16 stochastic bits R (uint16) of the elements at global `rows` and `cols` (broadcast)."""
    def half(value, shift):
        return np.uint16(value >> shift & 0xFFFF)

    rows, cols = (np.asarray(v, np.int64) & 0xFFFFF for v in (rows, cols))
    x, y = rows.astype(np.uint16), cols.astype(np.uint16)
    row_high, col_high = ((v >> 16).astype(np.uint16) for v in (rows, cols))
    keys = (half(seed, 0) ^ row_high, half(salt, 0) ^ col_high, half(seed, 16), half(salt, 16),
            half(seed, 0) ^ np.uint16(0x9E37), half(salt, 0) ^ np.uint16(0x79B9))
    for key in keys:
        x = ((x >> np.uint16(7) | x << np.uint16(9)) + y) ^ key
        y = (y << np.uint16(2) | y >> np.uint16(14)) ^ x
    return x


def quantise(values: np.ndarray, mant_width: int, axes: tuple[int, ...],
             random: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Mantissas (as float32) and exponent bytes of FP32 `values`; elements along `axes` share one.

    Elements outside the matrix must be zero already; subnormals count as zero. `random` (uint16,
    the shape of `values`) rounds stochastically. The exponents keep `axes` with length 1.
    """
    magnitude = np.ascontiguousarray(values).view(np.uint32) & _MAGNITUDE
    exponents = magnitude.max(axes, keepdims=True) >> np.uint32(23)
    live = (exponents > 0) & (exponents < 255)
    # |q| is |value| * 2**scale; two exact factors of like sign reach the whole range.
    scale = np.where(live, 125 + mant_width - exponents.astype(np.int32), 0)
    first = scale // 2
    factors = [np.ldexp(np.float32(1), e) for e in (first, scale - first)]
    if not live.all():
        values = np.where(live, values, np.float32(0))
    if exponents.min() < 32:  # else subnormals are too small to count
        values = np.where(magnitude < 0x00800000, np.float32(0), values)
    if random is None:
        q = np.rint(values * factors[0] * factors[1])
    else:
        fixed = np.abs(values).astype(np.float64) * factors[0] * factors[1] * 2.0**16
        q = np.copysign((np.floor(fixed).astype(np.int64) + random) >> 16, values)
    limit = float((1 << (mant_width - 1)) - 1)
    return np.clip(q, -limit, limit, out=q).astype(np.float32, copy=False), \
        exponents.astype(np.uint8)


def dequantise(q: np.ndarray, exponents: np.ndarray, mant_width: int) -> np.ndarray:
    """FP32 values of mantissas `q` (float32) with broadcast exponent bytes."""
    exponents = exponents.astype(np.int32)
    values = round24(q * np.ldexp(1.0, exponents - 127 - (mant_width - 2)))
    values[np.broadcast_to(exponents == 0, values.shape)] = 0
    values[np.broadcast_to(exponents == 255, values.shape)] = NAN
    return values + np.float32(0)
