"""docs/numerics.md word by word, on exact fractions.

A number is a Fraction, a float that is an infinity, or "nan". Shares no code with sw.golden.
"""

from decimal import Decimal, getcontext
from fractions import Fraction

import numpy as np

getcontext().prec = 60

NAN, INF = "nan", float("inf")


def exact(bits):
    """Number of FP32 bits as read from DRAM."""
    sign, exponent, fraction = bits >> 31, bits >> 23 & 255, bits & 0x7FFFFF
    if exponent == 255:
        return NAN if fraction else (-1) ** sign * INF
    return (-1) ** sign * Fraction((1 << 23) + fraction) * Fraction(2) ** (exponent - 150) \
        if exponent else Fraction(0)


def to_bits(value):
    """FP32 bits of a number that has 24 bits."""
    if value == NAN:
        return 0x7FC00000
    if isinstance(value, float):
        return 0x7F800000 if value > 0 else 0xFF800000
    return int(np.array(float(value), np.float32).view(np.uint32))


def _log2(magnitude):
    """Exponent of the power of two at or below a positive fraction."""
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return exponent - (magnitude < Fraction(2) ** exponent)


def round24(value):
    """Fraction rounded once to 24 bits, flushed or made infinite."""
    if value == 0:
        return Fraction(0)
    magnitude = abs(value)
    step = Fraction(2) ** (_log2(magnitude) - 23)
    rounded = Fraction(round(magnitude / step)) * step  # round() of a Fraction is half to even
    if rounded < Fraction(2) ** -126:
        return Fraction(0)
    sign = 1 if value > 0 else -1
    return sign * INF if rounded >= Fraction(2) ** 128 else sign * rounded


def plus(a, b):
    """Sum."""
    if NAN in (a, b):
        return NAN
    if isinstance(a, float) or isinstance(b, float):
        total = float(a if isinstance(a, float) else 0) + float(b if isinstance(b, float) else 0)
        return NAN if total != total else total
    return round24(a + b)


def times(a, b):
    """Product."""
    if NAN in (a, b):
        return NAN
    if isinstance(a, float) or isinstance(b, float):
        if 0 in (a, b):
            return NAN
        return INF if (a > 0) == (b > 0) else -INF
    return round24(a * b)


def negative(a):
    """Change of sign."""
    return a if a == NAN else -a


def larger(a, b):
    """The maximum."""
    return NAN if NAN in (a, b) else max(a, b)


def relu(a):
    """Maximum with 0."""
    return larger(a, Fraction(0))


def relu_grad(a, b):
    """Number `a` where b > 0."""
    if b == NAN:
        return NAN
    return a if b > 0 else Fraction(0)


# --- tables -----------------------------------------------------------------------------------

def _nearest(value):
    return int(value.to_integral_value())


def _points(function):
    return [_nearest(function(Decimal(i) / 64)) for i in range(65)]


TABLES = {
    "EXP2": _points(lambda p: Decimal(2)**23 * Decimal(2)**p),
    "RECIP": _points(lambda p: Decimal(2)**24 / (1 + p)),
    "RSQRT0": _points(lambda p: Decimal(2)**24 / (1 + p).sqrt()),
    "RSQRT1": _points(lambda p: Decimal(2)**24 / (2 * (1 + p)).sqrt()),
    "LOG2": _points(lambda p: Decimal(2)**24 * (1 + p).ln() / Decimal(2).ln()),
}
LOG2E, LN2 = exact(0x3FB8AA3B), exact(0x3F317218)


def interp(name, t):
    """Value of a table at the fraction t."""
    table, i, d = TABLES[name], t >> 17, t % 2**17
    return table[i] + (table[i + 1] - table[i]) * d // 2**17


def split(x):
    """Exponent e and fraction t of |x| = 2**e * (1 + t / 2**23)."""
    e = _log2(abs(x))
    t = (abs(x) / Fraction(2) ** e - 1) * 2**23
    assert t.denominator == 1
    return e, int(t)


def exp2(x):
    """2 to the power of x."""
    if x == NAN:
        return NAN
    if x < -126:
        return Fraction(0)
    if x >= 128:
        return INF
    z = x * 2**23
    z = z.numerator // z.denominator
    return interp("EXP2", z % 2**23) * Fraction(2) ** ((z >> 23) - 23)


def recip(x):
    """1 / x."""
    if x == NAN or x == 0:
        return NAN if x == NAN else INF
    if isinstance(x, float):
        return Fraction(0)
    e, t = split(x)
    value = interp("RECIP", t) * Fraction(2) ** (-e - 24)
    if value < Fraction(2) ** -126:
        return Fraction(0)
    return value if x > 0 else -value


def rsqrt(x):
    """1 / square root of x."""
    if x == NAN or x < 0:
        return NAN
    if x == 0 or isinstance(x, float):
        return INF if x == 0 else Fraction(0)
    e, t = split(x)
    if e % 2 == 0:
        return interp("RSQRT0", t) * Fraction(2) ** (-e // 2 - 24)
    return interp("RSQRT1", t) * Fraction(2) ** (-(e - 1) // 2 - 24)


def log2(x):
    """Logarithm to the base of 2."""
    if x == NAN or x < 0:
        return NAN
    if x == 0 or isinstance(x, float):
        return -INF if x == 0 else INF
    e, t = split(x)
    return round24((e * 2**24 + interp("LOG2", t)) * Fraction(2) ** -24)


class Checked:
    """The same operations, watching for `overflow`: a finite operation that gives Inf."""

    def __init__(self):
        self.overflow = False

    def _watch(self, result, *operands):
        if isinstance(result, float) and not any(isinstance(o, float) for o in operands):
            self.overflow = True
        return result

    def plus(self, a, b):
        """Sum."""
        return self._watch(plus(a, b), a, b)

    def times(self, a, b):
        """Product."""
        return self._watch(times(a, b), a, b)

    def exp2(self, x):
        """2 to the power of x."""
        return self._watch(exp2(x), x)

    def reduce(self, op, elements, t):
        """Elements 0 .. in the order of "Reductions"."""
        v = dict(enumerate(elements[:t]))
        for start in range(t, len(elements), t):
            for j, x in enumerate(elements[start:start + t]):
                v[j] = op(v[j], x)
        return self.fold(op, v, t)

    def fold(self, op, v, t):
        """Elements of a tile's row, those that exist by number."""
        v, h = dict(v), 1
        while 2 * h < t:
            h *= 2
        while h:
            for j in range(h):
                if j + h < t and j + h in v:
                    v[j] = op(v[j], v[j + h])
            h //= 2
        return v[0]


# --- stochastic rounding ----------------------------------------------------------------------

def speck(seed, salt, row, col):
    """R of docs/numerics.md on Python integers."""
    row, col, salt = row % 2**20, col % 2**20, salt % 2**32
    x, y = row & 0xFFFF, col & 0xFFFF
    for key in (seed & 0xFFFF ^ row >> 16, salt & 0xFFFF ^ col >> 16, seed >> 16, salt >> 16,
                seed & 0xFFFF ^ 0x9E37, salt & 0xFFFF ^ 0x79B9):
        x = ((x >> 7 | x << 9) + y & 0xFFFF) ^ key
        y = (y << 2 | y >> 14) & 0xFFFF ^ x
    return x
