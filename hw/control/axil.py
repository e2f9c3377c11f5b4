"""AXI4-Lite slave of the registers."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import clog2
from hw.control.block import BUS
from hw.regs import BLOCK, SPACE

#: AXI responses.
OKAY, SLVERR = 0, 2
#: Blocks of registers: the training context's, the inference context's, the shared one.
BLOCKS = 3


class AxiLiteSlave(wiring.Component):
    """AXI4-Lite slave that hands accesses to blocks of registers.

    One access at a time, 32-bit words, all strobes set. An access to no register, a write to a
    read-only one or with a strobe missing answers SLVERR and changes nothing. An answer comes in
    the clock after the block's; `arready` waits for that.

    Members
    -------
    awaddr .. rready : AXI4-Lite
    block : Out(BUS).array(BLOCKS), see `hw.control.block`
    """

    def __init__(self):
        address = clog2(SPACE)
        super().__init__({
            "awaddr": In(address), "awvalid": In(1), "awready": Out(1),
            "wdata": In(32), "wstrb": In(4), "wvalid": In(1), "wready": Out(1),
            "bresp": Out(2), "bvalid": Out(1), "bready": In(1),
            "araddr": In(address), "arvalid": In(1), "arready": Out(1),
            "rdata": Out(32), "rresp": Out(2), "rvalid": Out(1), "rready": In(1),
            "block": Out(BUS).array(BLOCKS),
        })

    def elaborate(self, platform):
        m = Module()
        write = Signal()
        write_ok = Signal()
        asked = Signal()
        read = Signal()
        read_ok = Signal()
        word = Signal(32)
        offset_bits = clog2(BLOCK)
        m.d.comb += [
            write.eq(self.awvalid & self.wvalid & ~self.bvalid),
            self.awready.eq(write), self.wready.eq(write),
            asked.eq(self.arvalid & ~self.rvalid), self.arready.eq(read),
        ]
        for bus in self.block:
            m.d.comb += [bus.w_offset.eq(self.awaddr[:offset_bits]), bus.w_data.eq(self.wdata),
                         bus.r_offset.eq(self.araddr[:offset_bits])]
        with m.Switch(self.awaddr[offset_bits:]):
            for n, bus in enumerate(self.block):
                with m.Case(n):
                    m.d.comb += [write_ok.eq(bus.w_ok & self.wstrb.all()),
                                 bus.w_en.eq(write & write_ok)]
        with m.Switch(self.araddr[offset_bits:]):
            for n, bus in enumerate(self.block):
                with m.Case(n):
                    m.d.comb += [bus.r_valid.eq(asked), read.eq(asked & bus.r_ready),
                                 Cat(word, read_ok).eq(Cat(bus.r_data, bus.r_ok))]
            with m.Default():
                m.d.comb += read.eq(asked)
        with m.If(write):
            m.d.sync += [self.bvalid.eq(1), self.bresp.eq(Mux(write_ok, OKAY, SLVERR))]
        with m.Elif(self.bready):
            m.d.sync += self.bvalid.eq(0)
        with m.If(read):
            m.d.sync += [self.rvalid.eq(1), self.rresp.eq(Mux(read_ok, OKAY, SLVERR)),
                         self.rdata.eq(word)]
        with m.Elif(self.rready):
            m.d.sync += self.rvalid.eq(0)
        return m
