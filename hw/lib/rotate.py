"""Rotation of a row of lanes by a variable amount, for any number of lanes."""

from amaranth.hdl import Mux, Value


def _rotate(value, amount, turn):
    for bit, select in enumerate(amount):
        value = Mux(select, turn(value, 1 << bit), value)
    return value


def rotate_up(value: Value, lane: int, amount: Value) -> Value:
    """Lane l of the result is lane (l - amount) mod n of `value`, n lanes of `lane` bits.

    `amount` is less than n.
    """
    return _rotate(value, amount, lambda v, n: v.rotate_left(n * lane))


def rotate_down(value: Value, lane: int, amount: Value) -> Value:
    """Lane l of the result is lane (l + amount) mod n of `value`, n lanes of `lane` bits.

    `amount` is less than n.
    """
    return _rotate(value, amount, lambda v, n: v.rotate_right(n * lane))
