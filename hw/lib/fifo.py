"""Stream FIFO on the design's RAM."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.lib.ram import Ram


class Fifo(wiring.Component):
    """FIFO of `depth` payloads behind an output register, so it holds up to `depth` + 1.

    Latency 2 clocks, one payload per clock. `valid` never waits for `ready`.

    Members
    -------
    i : In(stream.Signature(shape))
    o : Out(stream.Signature(shape))
    level : Out(range(depth + 2)), payloads inside, the output register included
    """

    def __init__(self, shape, depth: int):
        self.shape, self.depth = shape, depth
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape)),
                          "level": Out(range(depth + 2))})

    def elaborate(self, platform):
        m = Module()
        width = len(self.i.payload.as_value()) if hasattr(self.i.payload, "as_value") \
            else len(self.i.payload)
        m.submodules.ram = ram = Ram(width, self.depth)
        write = Signal(range(self.depth))
        read = Signal(range(self.depth))
        stored = Signal(range(self.depth + 1))
        push = Signal()
        pull = Signal()

        def advance(pointer):
            last = pointer == self.depth - 1
            with m.If(last):
                m.d.sync += pointer.eq(0)
            with m.Else():
                m.d.sync += pointer.eq(pointer + 1)

        m.d.comb += [
            self.i.ready.eq(stored != self.depth),
            push.eq(self.i.valid & self.i.ready),
            pull.eq((stored != 0) & (~self.o.valid | self.o.ready)),
            ram.w_en.eq(push), ram.w_addr.eq(write), ram.w_data.eq(self.i.payload),
            ram.r_en.eq(pull), ram.r_addr.eq(read), self.o.payload.eq(ram.r_data),
            self.level.eq(stored + self.o.valid),
        ]
        m.d.sync += [stored.eq(stored + push - pull),
                     self.o.valid.eq(pull | (self.o.valid & ~self.o.ready))]
        with m.If(push):
            advance(write)
        with m.If(pull):
            advance(read)
        return m
