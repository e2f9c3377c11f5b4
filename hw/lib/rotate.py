"""Rotation of a row of lanes by a variable amount, for any number of lanes."""

from amaranth.hdl import Module, Mux, Signal, Value


def _rotate(m, value, amount, turn, name):
    for bit, select in enumerate(amount):
        stage = Signal(len(value), name=f"{name}_by_{1 << bit}")
        m.d.comb += stage.eq(Mux(select, turn(value, 1 << bit), value))
        value = stage
    return value


def rotate_up(m: Module, value: Value, lane: int, amount: Value, name: str) -> Value:
    """Lane l of the result is lane (l - amount) mod n of `value`, n lanes of `lane` bits.

    `amount` is less than n.
    """
    return _rotate(m, value, amount, lambda v, n: v.rotate_left(n * lane), name)


def rotate_down(m: Module, value: Value, lane: int, amount: Value, name: str) -> Value:
    """Lane l of the result is lane (l + amount) mod n of `value`, n lanes of `lane` bits.

    `amount` is less than n.
    """
    return _rotate(m, value, amount, lambda v, n: v.rotate_right(n * lane), name)
