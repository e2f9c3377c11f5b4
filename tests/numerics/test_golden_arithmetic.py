"""Arithmetic of the golden model against exact fractions and ml_dtypes."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sw.golden import arithmetic

WIDTHS = [4, 6, 8, 12, 16]
TINY = 2.0**-126


def floats(bits):
    return np.array(bits, np.uint32).view(np.float32)


def bits(values):
    return np.asarray(values, np.float32).view(np.uint32)


def fraction24(value):
    """A Fraction rounded to 24 bits with unbounded exponent, then flushed or infinite."""
    if not value:
        return 0.0
    exponent = 0
    magnitude = abs(value)
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while magnitude < Fraction(2) ** exponent:
        exponent -= 1
    step = Fraction(2) ** (exponent - 23)
    rounded = round(magnitude / step) * step
    if rounded < Fraction(2) ** -126:
        return 0.0
    result = float(rounded) if rounded < Fraction(2) ** 128 else float("inf")
    return result if value > 0 else -result


def quantise_one(values, m, random=None):
    """One tile by the letter of the specification: integers only."""
    words = [int(b) for b in bits(values).reshape(-1)]
    fields = [w >> 23 & 255 for w in words]
    top = max(fields)
    if top in (0, 255):
        return [0] * len(words), top
    result = []
    for index, (word, e) in enumerate(zip(words, fields, strict=True)):
        s = ((1 << 23) + (word & 0x7FFFFF)) if e else 0
        shift = 25 - m + top - e
        if random is None:
            q = round(Fraction(s, 1 << shift))
        else:
            f = (s << 16 >> shift) % 65536
            q = (s >> shift) + (f + int(random.reshape(-1)[index]) >= 65536)
        q = min(q, 2 ** (m - 1) - 1)
        result.append(-q if word >> 31 else q)
    return result, top


def quantise(values, m, random=None):
    values = np.asarray(values, np.float32).reshape(1, -1)
    q, exponent = arithmetic.quantise(values, m, (0, 1), random)
    return q.astype(int).reshape(-1).tolist(), int(exponent[0, 0])


# --- reading, rounding, adding ----------------------------------------------------------------

def test_reading_makes_one_nan_and_no_subnormals():
    read = arithmetic.canonical(floats([0x7F800001, 0xFFC12345, 0xFF800000, 0x80000000, 0x007FFFFF,
                                        0x807FFFFF, 0x00800000, 0x3F800000]))
    assert bits(read).tolist() == [0x7FC00000, 0x7FC00000, 0xFF800000, 0, 0, 0, 0x00800000,
                                   0x3F800000]


@given(st.integers(-2**39, 2**39), st.integers(-300, 140))
@settings(max_examples=400)
def test_round24_is_one_rounding_of_the_exact_value(integer, exponent):
    value = np.ldexp(float(integer), exponent)
    expected = fraction24(Fraction(integer) * Fraction(2) ** exponent)
    got = arithmetic.round24(np.array([value]))
    assert bits(got)[0] == bits(np.float32(expected))


@pytest.mark.parametrize(("value", "expected"), [
    ((2.0**24 - 1) * 2.0**-150, 0.0),             # has 24 bits: below 2**-126 after rounding
    ((2.0**25 - 1) * 2.0**-151, TINY),            # rounds up to 2**-126
    (-(2.0**25 - 1) * 2.0**-151, -TINY),
    ((2.0**26 - 3) * 2.0**-152, 0.0),
    (2.0**128 - 2.0**103, np.inf),                # the tie goes to even, which is 2**128
    (2.0**128 - 2.0**103 - 2.0**76, np.finfo(np.float32).max),
    (-0.0, 0.0),
])
def test_round24_at_the_edges(value, expected):
    with np.errstate(over="ignore"):
        assert bits(arithmetic.round24(np.array([value])))[0] == bits(np.float32(expected))


def finite():
    """Bits of normal FP32 numbers."""
    return st.builds(lambda sign, exponent, fraction: sign << 31 | exponent << 23 | fraction,
                     st.integers(0, 1), st.integers(1, 254), st.integers(0, 2**23 - 1))


@given(finite(), finite(), st.integers(-30, 30))
@settings(max_examples=400)
def test_add_rounds_the_exact_sum_once(a, b, near):
    exponent = min(max((a >> 23 & 255) + near, 1), 254)
    b = b & 0x807FFFFF | exponent << 23
    x, y = floats([a]), floats([b])
    total, overflow = arithmetic.add(x, y)
    expected = fraction24(Fraction(float(x[0])) + Fraction(float(y[0])))
    assert bits(total)[0] == bits(np.float32(expected))
    assert overflow == np.isinf(expected)


def test_add_of_specials():
    one, inf, nan, big = (np.float32([v]) for v in (1, np.inf, np.nan, 2.0**127))
    for a, b, expected, overflows in ((inf, -inf, 0x7FC00000, False), (nan, one, 0x7FC00000, False),
                                      (inf, one, 0x7F800000, False), (one, -one, 0, False),
                                      (big, big, 0x7F800000, True), (-big, -big, 0xFF800000, True)):
        total, overflow = arithmetic.add(a, b)
        assert bits(total)[0] == expected
        assert overflow is overflows


# --- quantising -------------------------------------------------------------------------------

@pytest.mark.parametrize("m", WIDTHS)
@given(words=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=9), spread=st.integers(0, 40))
@settings(max_examples=150)
def test_quantise_to_the_letter(m, words, spread):
    top = words[0] >> 23 & 255
    close = [w & 0x807FFFFF | max(0, top - (w >> 23 & 255) % (spread + 1)) << 23 for w in words]
    assert quantise(floats(close), m) == quantise_one(floats(close), m)
    random = (np.array(close) * 40503 >> 8 & 0xFFFF).astype(np.uint16).reshape(1, -1)
    assert quantise(floats(close), m, random) == quantise_one(floats(close), m, random)


@pytest.mark.parametrize("m", WIDTHS)
def test_exact_halves_go_to_even(m):
    unit = 2.0 ** -(m - 2)
    halves = np.array([0.5, 1.5, 2.5, 3.5, -0.5, -1.5, -2.5, -3.5]) * unit
    q, exponent = quantise([1.0, *halves], m)
    assert (q, exponent) == ([2 ** (m - 2), 0, 2, 2, 4, 0, -2, -2, -4], 127)


@pytest.mark.parametrize("m", WIDTHS)
@pytest.mark.parametrize("power", [-126, -1, 0, 1, 127])
@pytest.mark.parametrize("sign", [1, -1])
def test_around_powers_of_two(m, power, sign):
    at = np.float32(2.0**power)
    largest = 2 ** (m - 1) - 1
    assert quantise([sign * at], m) == ([sign * 2 ** (m - 2)], 127 + power)
    above = np.nextafter(at, np.float32(np.inf))
    assert quantise([sign * above], m) == ([sign * 2 ** (m - 2)], 127 + power)
    below = np.nextafter(at, np.float32(0))
    if power > -126:  # the maximum's field is one less and its mantissa is clamped
        assert quantise([sign * below], m) == ([sign * largest], 126 + power)
    else:
        assert quantise([sign * below], m) == ([0], 0)


@pytest.mark.parametrize("m", WIDTHS)
def test_special_tiles(m):
    largest = np.finfo(np.float32).max
    assert quantise(np.zeros(4), m) == ([0] * 4, 0)
    assert quantise([-0.0, 0.0], m) == ([0, 0], 0)
    assert quantise(floats([1, 0x7FFFFF, 0x80000001]), m) == ([0] * 3, 0)
    assert quantise([TINY, -TINY], m) == ([2 ** (m - 2), -(2 ** (m - 2))], 1)
    assert quantise([largest, -largest, 0], m) == \
        ([2 ** (m - 1) - 1, -(2 ** (m - 1) - 1), 0], 254)
    for special in ([np.nan], [np.inf], [-np.inf], [np.nan, np.inf, -np.nan]):
        assert quantise([1, *special, -3], m) == ([0] * (len(special) + 2), 255)


@pytest.mark.parametrize("m", WIDTHS)
@pytest.mark.parametrize("axes", [(1,), (0, 1)])
def test_quantising_twice_changes_nothing(m, axes):
    rng = np.random.default_rng(m)
    values = (rng.standard_normal((64, 64)) * 10.0 ** rng.integers(-20, 20)).astype(np.float32)
    q, exponents = arithmetic.quantise(values, m, axes)
    again, same = arithmetic.quantise(arithmetic.dequantise(q, exponents, m), m, axes)
    assert (again == q).all()
    assert (same == exponents).all()


@pytest.mark.parametrize("m", WIDTHS)
def test_one_rounding_never_two(m):
    """A value just above a half must go up though its 24-bit neighbour is the half itself."""
    unit = np.float32(2.0 ** -(m - 2))
    half = np.float32(0.5) * unit
    q, _ = quantise([1.0, np.nextafter(half, np.float32(1)), np.nextafter(half, np.float32(0)),
                     np.nextafter(2.5 * unit, np.float32(9), dtype=np.float32)], m)
    assert q[1:] == [1, 0, 3]


def test_eight_bits_are_the_grid_of_mxint8():
    """Away from the clamp, on a tile whose exponent is 0: ml_dtypes' fixed-point steps of 1/64."""
    rng = np.random.default_rng(1)
    values = np.append(np.float32(1.0), rng.uniform(-1.98, 1.98, 4095).astype(np.float32))
    q, exponent = quantise(values, 8)
    assert exponent == 127
    # bfloat16 has the same 8 significant bits in [1, 2): an independent rounding to 1/64 steps.
    top = np.abs(values) >= 1
    reference = (values[top].astype(np.float64) * 2).astype(np.float32)
    seven = (reference / 2).astype(ml_dtypes.bfloat16).astype(np.float64)
    assert np.abs(np.array(q)[top] / 64 - seven).max() <= 1 / 128


# --- stochastic rounding ----------------------------------------------------------------------

def test_bits_depend_on_seed_salt_and_place_only():
    rows, cols = np.arange(48)[:, None], np.arange(48)
    whole = arithmetic.random_bits(0x12345678, 9, rows, cols)
    for t in (4, 5, 16):
        for i, j in ((0, 0), (1, 2)):
            part = arithmetic.random_bits(0x12345678, 9, np.arange(t)[:, None] + i * t,
                                          np.arange(t) + j * t)
            assert (part == whole[i * t:i * t + t, j * t:j * t + t]).all()
    assert (arithmetic.random_bits(1, 2, rows + 2**20, cols) ==
            arithmetic.random_bits(1, 2, rows, cols)).all()
    for changed in (arithmetic.random_bits(0x92345678, 9, rows, cols),
                    arithmetic.random_bits(0x12345678, 10, rows, cols),
                    arithmetic.random_bits(0x12345678, 9 | 1 << 31, rows, cols),
                    arithmetic.random_bits(0x12345678, 9, rows + 2**16, cols),
                    arithmetic.random_bits(0x12345678, 9, rows, cols + 2**16)):
        assert (changed != whole).mean() > 0.99


def test_bits_are_six_rounds_of_the_cipher():
    """Against the specification on Python's integers."""
    rng = np.random.default_rng(2)
    for _ in range(50):
        seed, salt = (int(v) for v in rng.integers(2**32, size=2))
        row, col = (int(v) for v in rng.integers(2**21, size=2))
        x, y, high = row & 0xFFFF, col & 0xFFFF, (row >> 16 & 15, col >> 16 & 15)
        for key in (seed & 0xFFFF ^ high[0], salt & 0xFFFF ^ high[1], seed >> 16, salt >> 16,
                    seed & 0xFFFF ^ 0x9E37, salt & 0xFFFF ^ 0x79B9):
            x = (x >> 7 | x << 9 & 0xFFFF) + y & 0xFFFF ^ key
            y = (y << 2 & 0xFFFF | y >> 14) ^ x
        assert arithmetic.random_bits(seed, salt, np.array([row]), np.array([col])) == [x]


@pytest.mark.parametrize("m", [4, 8, 16])
def test_stochastic_rounding_is_unbiased(m):
    """A million draws at one fraction of a step: the mean is within 4 standard errors."""
    rows, cols = np.arange(1000)[:, None], np.arange(1000)
    random = arithmetic.random_bits(77, m, rows, cols)
    for fraction in (0.1, 0.37, 0.5, 0.93):
        value = np.float32((2 ** (m - 3) + fraction) * 2.0 ** -(m - 2))
        values = np.full((1000, 1000), value)
        values[0, 0] = 1
        q, _ = arithmetic.quantise(values, m, (0, 1), random)
        q = q.reshape(-1)[1:].astype(np.float64)
        exact = float(value) * 2.0 ** (m - 2)
        error = np.sqrt(fraction * (1 - fraction) / len(q))
        assert abs(q.mean() - exact) < 4 * error + 2.0**-16
        assert set(np.unique(q)) == {np.floor(exact), np.ceil(exact)}
