"""Normalisation and rounding: the last stages of every FP32 result, as in docs/numerics.md."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed

from hw.config import clog2

#: The only NaN.
NAN = 0x7FC00000
#: Of an exponent.
BIAS = 127


def normalise(m: Module, value: Value) -> tuple[Value, Value]:
    """Shift `value` left until its top bit is set; the result and the number of places."""
    width = len(value)
    places = []
    for bit in reversed(range(clog2(width))):
        step = 1 << bit
        empty = Signal(name=f"empty{step}")
        shifted = Signal(width, name=f"shifted{step}")
        m.d.comb += [empty.eq(~value[-step:].any()),
                     shifted.eq(Mux(empty, value << step, value))]
        value = shifted
        places.insert(0, empty)
    return value, Cat(places)


def round_to_fp32(m: Module, significand: Value, exponent: Value, sign: Value, inf: Value,
                  nan: Value) -> tuple[Value, Value]:
    """FP32 word and overflow, both registered, of a significand that is normalised or zero.

    `exponent` is the signed biased exponent of its top bit.
    """
    width = len(significand)
    if width > 24:
        guard, sticky = significand[width - 25], significand[:width - 25].any()
        top, up = significand[width - 24:], guard & (sticky | significand[width - 24])
    else:
        top, up = Cat(Const(0, 24 - width), significand), Const(0, 1)
    rounded = Signal(signed(23 + len(exponent)))
    large = Signal()
    field = rounded[23:].as_signed()
    m.d.comb += [rounded.eq(Cat(top[:23], exponent).as_signed() + up),
                 large.eq(top[-1] & (field >= 255) & ~inf & ~nan)]
    word = Signal(32, reset_less=True)
    overflow = Signal(reset_less=True)
    m.d.sync += overflow.eq(large)
    with m.If(nan):
        m.d.sync += word.eq(NAN)
    with m.Elif(inf | large):
        m.d.sync += word.eq(Cat(Const(0, 23), Const(255, 8), sign))
    with m.Elif(~top[-1] | (field <= 0)):
        m.d.sync += word.eq(0)
    with m.Else():
        m.d.sync += word.eq(Cat(rounded[:31], sign))
    return word, overflow
