"""FP32 as docs/numerics.md defines it, on exact fractions."""

from fractions import Fraction

NAN, INF, SIGN = 0x7FC00000, 0x7F800000, 0x80000000


def exact(word):
    """A finite FP32 word as a fraction, subnormals as zero."""
    exponent = word >> 23 & 255
    if exponent == 0:
        return Fraction(0)
    value = Fraction(2**23 + (word & 0x7FFFFF)) * Fraction(2) ** (exponent - 150)
    return -value if word >> 31 else value


def log2(value):
    """Exponent of the leading bit of a fraction with a power of two as denominator."""
    return abs(value.numerator).bit_length() - value.denominator.bit_length()


def round24(value):
    """(word, overflow) of an exact value."""
    if value == 0:
        return 0, 0
    size, unit = abs(value), Fraction(2) ** (log2(value) - 23)
    size = round(size / unit) * unit  # Fraction's round is to nearest even
    sign = SIGN if value < 0 else 0
    if size >= Fraction(2) ** 128:
        return sign | INF, 1
    if size < Fraction(2) ** -126:
        return 0, 0
    exponent = log2(size)
    return sign | (exponent + 126 << 23) + int(size * Fraction(2) ** (23 - exponent)), 0


def add(a, b):
    nan = any(w & 0x7FFFFFFF > INF for w in (a, b))
    infs = [w for w in (a, b) if w & 0x7FFFFFFF == INF]
    if nan or len(set(infs)) == 2:
        return NAN, 0
    if infs:
        return infs[0], 0
    return round24(exact(a) + exact(b))
