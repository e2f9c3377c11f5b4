"""Products, functions and reductions of the golden model against exact fractions; their errors."""

import literal
import numpy as np
import pytest
from literal import Checked, exact, to_bits

from sw.golden import arithmetic, functions

#: Numbers around everything that a function treats by itself.
CORNERS = [0, 0x7F800000, 0xFF800000, 0x7FC00000, 0x00800000, 0x80800000, 0x00800001, 0x00FFFFFF,
           0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000, 0xBF800000, 0x3F7FFFFF, 0x40000000, 0x3FFFFFFF,
           0x42FE0000, 0x42FFFFFF, 0x43000000, 0xC2FC0000, 0xC2FC0001, 0xC2FBFFFF, 0xC3000000,
           0x7E800000, 0x7E800001, 0x7E7FFFFF, 0x7F000000, 0xFE800000, 0xFE800001, 0x42B17218,
           0x42B17219, 0xC2AEAC50, 0xC2AEAC51, 0x80000001, 0x33000000, 0xB3000000, 0x3F810000]


def numbers(seed, count):
    """Canonical numbers of all kinds: corners, random bits, and exponents near 0."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 2**32, count, np.uint32)
    near = rng.random(count) < 0.5
    words[near] = words[near] & 0x80FFFFFF | rng.integers(60, 67, near.sum(), np.uint32) << 24
    words[:len(CORNERS)] = CORNERS
    return arithmetic.canonical(words.view(np.float32))


def bits(values):
    return np.asarray(values, np.float32).view(np.uint32).tolist()


def exacts(values):
    return [exact(word) for word in bits(values)]


def agree(got, expected):
    """Compare an array with exact numbers, bit for bit."""
    assert bits(got) == [to_bits(value) for value in expected]


# --- arithmetic -------------------------------------------------------------------------------

def test_product():
    a, b = numbers(0, 4000), np.random.default_rng(1).permutation(numbers(0, 4000))
    check = Checked()
    got, overflow = arithmetic.mul(a, b)
    agree(got, [check.times(x, y) for x, y in zip(exacts(a), exacts(b), strict=True)])
    assert overflow is check.overflow is True


def test_product_of_corners():
    a, b = (v.reshape(-1) for v in np.meshgrid(numbers(0, len(CORNERS)), numbers(0, len(CORNERS))))
    for x, y, product in zip(a, b, arithmetic.mul(a, b)[0], strict=True):
        check = Checked()
        expected = check.times(exact(bits(x)), exact(bits(y)))
        got, overflow = arithmetic.mul(np.array([x]), np.array([y]))
        assert bits(got) == [to_bits(expected)] == bits([product])
        assert overflow is check.overflow


@pytest.mark.parametrize(("a", "b"), [
    (0x1FFFFFFF, 0x20000000), (0x1F800001, 0x207FFFFF), (0x1F7FFFFF, 0x20800000),
    (0x1F800001, 0x207FFFFE), (0x1FFFFFFF, 0x1FFFFFFF)])
def test_product_just_below_the_smallest_normal(a, b):
    got, overflow = arithmetic.mul(*(np.array([w], np.uint32).view(np.float32) for w in (a, b)))
    assert bits(got) == [to_bits(literal.times(exact(a), exact(b)))]
    assert not overflow


def test_many_products_near_the_smallest_normal():
    """Against one rounding of the float64 product, which is exact."""
    rng = np.random.default_rng(2)
    a = (rng.integers(2**23, 2**24, 300000) * 2.0**-86).astype(np.float32)
    b = (2.0**-126 * (1 - rng.integers(0, 8, 300000) * 2.0**-25) / a).astype(np.float32)
    got, _ = arithmetic.mul(a, b)
    expected = arithmetic.round24(np.multiply(a, b, dtype=np.float64))
    assert bits(got) == bits(expected)
    assert 0 < (got == 0).sum() < len(got)


def test_maximum_and_relu():
    a, b = numbers(3, 2000), np.random.default_rng(3).permutation(numbers(3, 2000))
    x, y = exacts(a), exacts(b)
    agree(arithmetic.maximum(a, b), [literal.larger(*pair) for pair in zip(x, y, strict=True)])
    agree(arithmetic.relu(a), [literal.relu(v) for v in x])
    agree(arithmetic.relu_grad(a, b), [literal.relu_grad(*pair) for pair in zip(x, y, strict=True)])


# --- functions --------------------------------------------------------------------------------

def test_tables_are_the_nearest_integers():
    assert {name: table.tolist() for name, table in functions.TABLES.items()} == literal.TABLES
    assert exacts([functions.LOG2E, functions.LN2]) == [literal.LOG2E, literal.LN2]


@pytest.mark.parametrize("name", literal.TABLES)
def test_interpolation(name):
    t = np.append(np.random.default_rng(4).integers(0, 2**23, 300000), [0, 2**17 - 1, 2**23 - 1])
    table, i, d = np.array(literal.TABLES[name]), t // 2**17, t % 2**17
    got = functions.interp(name, t)
    assert (got == table[i] + (table[i + 1] - table[i]) * d // 2**17).all()
    assert got[-100:].tolist() == [literal.interp(name, v) for v in t[-100:].tolist()]


@pytest.mark.parametrize("name", ["recip", "rsqrt", "log2"])
def test_function(name):
    x = numbers(5, 4000)
    agree(getattr(functions, name)(x), [getattr(literal, name)(v) for v in exacts(x)])


@pytest.mark.parametrize("name", ["exp2", "exp"])
def test_exponential(name):
    x = numbers(6, 4000)
    checks = [Checked() for _ in x]
    values = exacts(x)
    if name == "exp":
        values = [c.times(v, literal.LOG2E) for c, v in zip(checks, values, strict=True)]
    expected = [c.exp2(v) for c, v in zip(checks, values, strict=True)]
    got, overflow = getattr(functions, name)(x)
    agree(got, expected)
    assert overflow
    calm = np.array([not c.overflow for c in checks])
    got, overflow = getattr(functions, name)(x[calm])
    assert not overflow
    for value in x[~calm][:50]:
        assert getattr(functions, name)(np.array([value]))[1]


@pytest.mark.parametrize(("name", "octaves", "log2_error"), [
    ("exp2", [0], -16.05), ("exp", [0, 6], -15.88), ("recip", [0], -14.02),
    ("rsqrt", [0, 1], -15.43)])
def test_largest_relative_error(name, octaves, log2_error):
    """Over every number of an octave, against float64: at most 2**-12, and not worse than it was.

    exp's octaves are of its argument, [1, 2) and [64, 128).
    """
    reference = {"exp2": np.exp2, "exp": np.exp, "recip": lambda x: 1 / x,
                 "rsqrt": lambda x: 1 / np.sqrt(x)}[name]
    worst = 0.0
    for octave in octaves:
        for part in np.split(np.arange(2**23, dtype=np.uint32), 32):
            x = (part | np.uint32(127 + octave << 23)).view(np.float32)
            got = getattr(functions, name)(x)
            got = got[0] if isinstance(got, tuple) else got
            exactly = reference(x.astype(np.float64))
            live = exactly < 2.0**127
            worst = max(worst, float(np.abs(got[live] / exactly[live] - 1).max(initial=0)))
    print(f"{name}: 2**{np.log2(worst):.2f}")
    assert worst <= 2.0**-12
    assert np.log2(worst) <= log2_error


# --- reductions -------------------------------------------------------------------------------

@pytest.mark.parametrize("t", [2, 3, 4, 5, 8, 16, 31])
@pytest.mark.parametrize("wild", [False, True])
def test_reductions(t, wild):
    rng = np.random.default_rng(t)
    for size in {1, 2, t - 1, t, t + 1, 2 * t - 1, 3 * t + 2} - {0}:
        x = rng.permutation(numbers(t, max(4 * size, len(CORNERS))))[:4 * size].reshape(4, size) \
            if wild else rng.standard_normal((4, size)).astype(np.float32)
        check, rows = Checked(), [exacts(row) for row in x]
        sums = [check.reduce(check.plus, row, t) for row in rows]
        got, overflow = functions.row_sum(x, t)
        assert got.shape == (4, 1)
        agree(got[:, 0], sums)
        assert overflow is check.overflow
        agree(functions.row_max(x, t)[:, 0], [check.reduce(literal.larger, row, t) for row in rows])
        got, overflow = functions.column_sum(np.ascontiguousarray(x.T), t)
        assert got.shape == (1, 4)
        agree(got[0], sums)
        assert overflow is check.overflow


def test_sum_overflows_on_the_way_only():
    """1: big + big, 2: -big - big, then Inf - Inf."""
    big = np.float32(3e38)
    total, overflow = functions.row_sum(np.array([[big, -big, big, -big]], np.float32), 4)
    assert bits(total) == [[0x7FC00000]]
    assert overflow
