"""Results on their way to the accumulator."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.lib.ram import Ram


class RowQueue(wiring.Component):
    """FIFO of up to `depth` rows that takes a row in any clock; the parent counts them.

    Latency 1 clock when it is empty. `o.valid` never waits for `o.ready`.

    Members
    -------
    push : In(1), row : In(width)
    o : Out(stream.Signature(width))
    """

    def __init__(self, width: int, depth: int):
        self.width, self.depth = width, depth
        super().__init__({"push": In(1), "row": In(width), "o": Out(stream.Signature(width))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = Ram(self.width, self.depth)
        # A row that meets nobody goes to `direct`; the others wait in the RAM, behind it.
        direct = Signal(self.width, reset_less=True)
        direct_valid = Signal()
        head_valid = Signal()
        stored = Signal(range(self.depth + 1))
        write = Signal(range(self.depth))
        read = Signal(range(self.depth))
        overtake = Signal()
        pull = Signal()
        m.d.comb += [
            self.o.valid.eq(direct_valid | head_valid),
            self.o.payload.eq(Mux(direct_valid, direct, ram.r_data)),
            overtake.eq((stored == 0) & ~head_valid & (~direct_valid | self.o.ready)),
            pull.eq((stored != 0) & (~head_valid | self.o.ready & ~direct_valid)),
            ram.w_en.eq(self.push & ~overtake), ram.w_addr.eq(write), ram.w_data.eq(self.row),
            ram.r_en.eq(pull), ram.r_addr.eq(read),
        ]
        with m.If(~direct_valid | self.o.ready):
            m.d.sync += [direct_valid.eq(self.push & overtake), direct.eq(self.row)]
        m.d.sync += [
            head_valid.eq(pull | head_valid & ~(self.o.ready & ~direct_valid)),
            stored.eq(stored + ram.w_en - pull),
        ]
        for enable, pointer in (ram.w_en, write), (pull, read):
            with m.If(enable):
                m.d.sync += pointer.eq(Mux(pointer == self.depth - 1, 0, pointer + 1))
        return m
