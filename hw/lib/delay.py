"""Delay lines."""

from amaranth.hdl import Cat, Module, Signal, Value


def delay(m: Module, value: Value, clocks: int, *, name: str, reset: bool = False) -> Value:
    """`value` as it was `clocks` clocks ago, as bits, from one shift register.

    Until that many clocks after reset it is zero if `reset`, else undefined.
    """
    value = Value.cast(value)
    if clocks == 0:
        return value
    line = Signal(len(value) * clocks, name=name, reset_less=not reset)
    m.d.sync += line.eq(Cat(value, line))
    return line[-len(value):]
