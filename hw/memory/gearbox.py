"""Stream width converter for tile images, whose rows are packed without gaps."""

from math import gcd

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out


def word(bits: int) -> data.StructLayout:
    """Payload of a gearbox stream: `bits` of data and the flag that ends a packed image."""
    return data.StructLayout({"data": bits, "last": 1})


class Gearbox(wiring.Component):
    """Words of `in_bits` to words of `out_bits`, the same bits in the same order, lowest first.

    Latency 1 clock. One input and one output per clock, as far as the widths allow: the narrower
    side never waits for the converter. `i.ready` follows `o.ready` and `drop` in the same clock;
    `o.valid` and `o.payload` come from registers.

    Packing: an input with `last` ends an image. What is left then becomes one more output, padded
    with zeros; the image's last output has `last` set, and the next input begins a new word.

    Unpacking: hold `i.payload.last` at 0. Raise `drop` together with the `o.ready` that takes the
    last row of an image: all bits behind that row are thrown away, and the next input (which may
    be taken in the same clock) begins a new row. No input is taken while a whole row is still
    inside, hence `drop` can never hit bits of the next image.

    Widths of which one divides the other need a register as wide as the wider; others need one as
    wide as both together and a barrel shifter.

    Members
    -------
    i : In(stream.Signature(word(in_bits)))
    o : Out(stream.Signature(word(out_bits)))
    drop : In(1), looked at only in a clock in which an output is taken

    Raises
    ------
    ValueError
        If a width is not positive.
    """

    LATENCY = 1

    def __init__(self, in_bits: int, out_bits: int):
        for name, bits in ("in_bits", in_bits), ("out_bits", out_bits):
            if bits < 1:
                raise ValueError(f"{name} must be positive, not {bits!r}")
        self.in_bits, self.out_bits = in_bits, out_bits
        super().__init__({"i": In(stream.Signature(word(in_bits))),
                          "o": Out(stream.Signature(word(out_bits))),
                          "drop": In(1)})

    def elaborate(self, platform):
        m = Module()
        unit = gcd(self.in_bits, self.out_bits)
        taken, given = self.in_bits // unit, self.out_bits // unit
        capacity = taken + given - 1
        buffer = Signal(capacity * unit)
        count = Signal(range(capacity + 1))
        ending = Signal()  # the buffer holds the end of an image
        push = Signal()
        pull = Signal()
        empties = Signal()
        whole = Signal()
        final = Signal()
        left = Signal.like(count)

        m.d.comb += [
            whole.eq(count >= given),
            final.eq(ending & (count <= given) if capacity > given else ending),
            self.o.valid.eq(whole | final),
            self.o.payload.data.eq(buffer),
            self.o.payload.last.eq(final),
            pull.eq(self.o.valid & self.o.ready),
            empties.eq(pull & (final | self.drop)),
            left.eq(Mux(empties, 0, Mux(pull, count - given, count))),
            self.i.ready.eq(Mux(ending, pull & final, left < given)),
            push.eq(self.i.valid & self.i.ready),
        ]
        with m.If(push):
            m.d.sync += [count.eq(left + taken), ending.eq(self.i.payload.last)]
        with m.Elif(pull):
            m.d.sync += [count.eq(left), ending.eq(ending & ~final)]

        if given == 1:  # an input comes only when nothing is left
            with m.If(push):
                m.d.sync += buffer.eq(self.i.payload.data)
            with m.Elif(pull):
                m.d.sync += buffer.eq(buffer[self.out_bits:])
        elif taken == 1:  # an output takes all; zero pads the next one
            for k in range(given):
                with m.If(push & (left == k)):
                    m.d.sync += buffer.word_select(k, unit).eq(self.i.payload.data)
                with m.Elif(pull):
                    m.d.sync += buffer.word_select(k, unit).eq(0)
        else:  # what is not used is zero: placing is an OR, and the last word is padded
            kept = Signal.like(buffer)
            placed = self.i.payload.data
            for k in range((given - 1).bit_length()):
                placed = Mux(left[k], Cat(Const(0, unit << k), placed), placed)
            with m.If(pull & ~empties):
                m.d.comb += kept.eq(buffer[self.out_bits:])
            with m.Elif(~pull):
                m.d.comb += kept.eq(buffer)
            with m.If(push):
                m.d.sync += buffer.eq(kept | placed)
            with m.Elif(pull):
                m.d.sync += buffer.eq(kept)
        return m
