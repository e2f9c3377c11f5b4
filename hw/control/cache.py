"""Program cache: the last instructions that were fetched."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import OFFSET_BITS, clog2
from hw.isa import INSTRUCTION, INSTRUCTION_BYTES
from hw.lib.ram import Ram

#: Instructions.
ENTRIES = 16


class ProgramCache(wiring.Component):
    """Direct-mapped cache of `ENTRIES` instructions: entry addr / INSTRUCTION_BYTES mod `ENTRIES`.

    Empty after reset. From the clock after `read` on, until the next `read`, the outputs tell about
    its `addr`. Not to be read and written in one clock.

    Members
    -------
    clear : In(1), forget all
    addr : In(32)
    read : In(1)
    write : In(1), i : In(INSTRUCTION), the one at `addr`
    hit : Out(1)
    o : Out(INSTRUCTION), the instruction, if `hit`
    """

    def __init__(self):
        super().__init__({
            "clear": In(1), "addr": In(OFFSET_BITS), "read": In(1), "write": In(1),
            "i": In(INSTRUCTION), "hit": Out(1), "o": Out(INSTRUCTION),
        })

    def elaborate(self, platform):
        m = Module()
        low, bits = clog2(INSTRUCTION_BYTES), clog2(ENTRIES)
        index = self.addr[low:low + bits]
        tag = Cat(self.addr[:low], self.addr[low + bits:])  # programs begin anywhere
        layout = data.StructLayout({"tag": len(tag), "instr": INSTRUCTION})
        m.submodules.ram = ram = Ram(layout.size, ENTRIES)
        entry = data.View(layout, ram.r_data)
        valid = Signal(ENTRIES)
        known = Signal()  # the entry that was read is valid
        wanted = Signal(len(tag), reset_less=True)
        m.d.comb += [
            ram.r_en.eq(self.read), ram.r_addr.eq(index),
            ram.w_en.eq(self.write), ram.w_addr.eq(index),
            ram.w_data.eq(Cat(tag, self.i.as_value())),
            self.hit.eq(known & (entry.tag == wanted)), self.o.eq(entry.instr),
        ]
        with m.If(self.read):
            m.d.sync += [known.eq(valid.bit_select(index, 1)), wanted.eq(tag)]
        with m.If(self.clear):
            m.d.sync += valid.eq(0)
        with m.Elif(self.write):
            m.d.sync += valid.bit_select(index, 1).eq(1)
        return m
