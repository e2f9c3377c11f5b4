"""Balanced trees and the adder that they are made of."""

from amaranth.hdl import Cat, Const, Value


def add_carry(a: Value, b: Value, carry: Value) -> Value:
    """`a + b + carry` as one adder, for two's-complement values; one bit wider than the wider."""
    return (Cat(Const(1, 1), a).as_signed() + Cat(carry, b).as_signed())[1:].as_signed()


def reduce_pairs(values, join):
    """Combine `values` pairwise with `join(a, b)`, in a tree of logarithmic depth."""
    values = list(values)
    while len(values) > 1:
        pairs = [join(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + values[2 * len(pairs):]
    return values[0]
