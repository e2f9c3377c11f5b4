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

    With widths of which one divides the other this is a shift register, else a barrel shifter
    places the input.

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
        # Units at or beyond `count` are zero: placing is an OR, and a flushed word is padded.
        buffer, count = Signal(capacity * unit), Signal(range(capacity + 1))
        ending = Signal()  # the buffer holds the end of an image
        push, pull, left = Signal(), Signal(), Signal.like(count)
        whole, final = Signal(), Signal()
        kept, placed = Signal.like(buffer), Signal.like(buffer)

        m.d.comb += [
            whole.eq(count >= given),
            final.eq(ending & (count <= given) if capacity > given else ending),
            self.o.valid.eq(whole | final),
            self.o.payload.data.eq(buffer),
            self.o.payload.last.eq(final),
            pull.eq(self.o.valid & self.o.ready),
            left.eq(count), kept.eq(buffer),
            self.i.ready.eq(Mux(ending, pull & final, left < given)),
            push.eq(self.i.valid & self.i.ready),
        ]
        with m.If(pull & (final | self.drop)):
            m.d.comb += [left.eq(0), kept.eq(0)]
        with m.Elif(pull):
            m.d.comb += [left.eq(count - given), kept.eq(buffer[self.out_bits:])]

        if taken == 1:
            m.d.comb += placed.eq(Cat(Mux(left == k, self.i.payload.data, 0)
                                      for k in range(given)))
        elif given == 1:
            m.d.comb += placed.eq(self.i.payload.data)
        else:
            shifted = self.i.payload.data
            for k in range((given - 1).bit_length()):
                shifted = Mux(left[k], Cat(Const(0, unit << k), shifted), shifted)
            m.d.comb += placed.eq(shifted)

        with m.If(push):
            m.d.sync += [buffer.eq(kept | placed), count.eq(left + taken),
                         ending.eq(self.i.payload.last)]
        with m.Elif(pull):
            m.d.sync += [buffer.eq(kept), count.eq(left), ending.eq(ending & ~final)]
        return m
