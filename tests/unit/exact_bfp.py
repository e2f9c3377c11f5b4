"""Quantising as docs/numerics.md defines it, on integers."""


def stochastic_bits(row, col, seed, salt):
    x, y = row & 0xFFFF, col & 0xFFFF
    for key in (seed & 0xFFFF ^ row >> 16, salt & 0xFFFF ^ col >> 16, seed >> 16, salt >> 16,
                seed & 0xFFFF ^ 0x9E37, salt & 0xFFFF ^ 0x79B9):
        x = ((x >> 7 | x << 9) + y & 0xFFFF) ^ key
        y = ((y << 2 | y >> 14) & 0xFFFF) ^ x
    return x


def mantissa(m, x, exponent, r):
    """Mantissa of one element; `r` None rounds to nearest even."""
    size = x >> 23 & 255
    if exponent in (0, 255) or size == 0:
        return 0
    scaled, shift = ((1 << 23) + (x & 0x7FFFFF)) << 16, 25 - m + exponent - size
    whole, part = scaled >> shift >> 16, scaled >> shift & 0xFFFF
    if r is not None:
        whole += part + r >= 1 << 16
    else:
        rest = scaled - (whole << shift + 16)
        half = 1 << shift + 15
        whole += rest > half or (rest == half and whole & 1)
    whole = min(whole, (1 << m - 1) - 1)
    return -whole if x >> 31 else whole
