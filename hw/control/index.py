"""Address registers, and the loops that change them."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import DIM_BITS, OFFSET_BITS
from hw.isa import ADDRESS_REGISTERS, INSTRUCTION, LOOP_DEPTH, Opcode
from hw.lib.ram import Ram

#: Fields that count with an address register added, and the fields that choose it.
INDEXED = {"x_addr": "x_reg", "w_addr": "w_reg", "dy_addr": "dy_reg", "y_addr": "y_reg",
           "dw_addr": "dw_reg", "salt": "salt_reg"}


class AddressRegisters(wiring.Component):
    """Adds address registers to an instruction's addresses and salt, one field per clock.

    In ADDRESS register `w_reg` is added to `x_addr`, and the sum is what `write` writes.

    Members
    -------
    clear : In(1), set all registers to 0
    start : In(1), begin with `i`, which stays until the next `start`
    i : In(INSTRUCTION)
    done : Out(1), `o` is complete, 8 clocks after `start`
    o : Out(INSTRUCTION), `i` with the sums modulo 2**32
    write : In(1), register `x_reg` takes `o.x_addr`; register 0 stays 0
    """

    def __init__(self):
        super().__init__({"clear": In(1), "start": In(1), "i": In(INSTRUCTION), "done": Out(1),
                          "o": Out(INSTRUCTION), "write": In(1)})

    def elaborate(self, platform):
        m = Module()
        i, count = self.i, len(INDEXED)
        m.submodules.registers = registers = Ram(OFFSET_BITS, ADDRESS_REGISTERS)
        written = Signal(ADDRESS_REGISTERS)  # the others are 0
        numbers = [Signal(4, name=f"number_{n}", reset_less=True) for n in INDEXED]
        sums = {n: Signal(OFFSET_BITS, name=f"sum_{n}", reset_less=True) for n in INDEXED}
        left = Signal(range(count + 1))
        adding = Signal()
        known = Signal()
        m.d.comb += [
            registers.r_en.eq(left != 0), registers.r_addr.eq(numbers[0]),
            registers.w_en.eq(self.write), registers.w_addr.eq(i.x_reg),
            registers.w_data.eq(sums["x_addr"]),
            self.done.eq((left == 0) & ~adding), self.o.eq(i),
            *(self.o[name].eq(s) for name, s in sums.items()),
        ]
        m.d.sync += [adding.eq(left != 0), known.eq(written.bit_select(numbers[0], 1))]
        with m.If(self.start):
            first = Mux(i.opcode == Opcode.ADDRESS.value, i.w_reg, i.x_reg)
            m.d.sync += [left.eq(count), Cat(numbers).eq(Cat(
                first, *(i[n] for n in [*INDEXED.values()][1:])))]
            m.d.sync += [s.eq(i[n]) for n, s in sums.items()]
        with m.Elif(left != 0):
            m.d.sync += [left.eq(left - 1), Cat(numbers).eq(Cat(*numbers[1:], numbers[0]))]
        with m.If(adding):  # all of them in turn
            ring = [*sums.values()]
            m.d.sync += Cat(ring).eq(Cat(
                *ring[1:], (ring[0] + Mux(known, registers.r_data, 0))[:OFFSET_BITS]))
        with m.If(self.write & (i.x_reg != 0)):
            m.d.sync += written.bit_select(i.x_reg, 1).eq(1)
        with m.If(self.clear):
            m.d.sync += written.eq(0)
        return m


class LoopStack(wiring.Component):
    """Open loops.

    Members
    -------
    clear : In(1), close all
    open : In(1), open a loop of `turns` (1 ..) whose body begins at `body`; only while not `full`
    turns : In(20), body : In(32)
    next : In(1), the innermost body ends: go `again`, or close the loop; only while not `empty`
    full, empty : Out(1)
    again : Out(1), the innermost body has turns left
    begin : Out(32), its first instruction
    """

    def __init__(self):
        super().__init__({
            "clear": In(1), "open": In(1), "turns": In(DIM_BITS), "body": In(OFFSET_BITS),
            "next": In(1), "full": Out(1), "empty": Out(1), "again": Out(1),
            "begin": Out(OFFSET_BITS),
        })

    def elaborate(self, platform):
        m = Module()
        # The innermost loop is the first.
        lefts = [Signal(DIM_BITS, name=f"left_{k}", reset_less=True) for k in range(LOOP_DEPTH)]
        begins = [Signal(OFFSET_BITS, name=f"begin_{k}", reset_less=True)
                  for k in range(LOOP_DEPTH)]
        level = Signal(range(LOOP_DEPTH + 1))
        m.d.comb += [self.full.eq(level == LOOP_DEPTH), self.empty.eq(level == 0),
                     self.again.eq(lefts[0] != 0), self.begin.eq(begins[0])]
        with m.If(self.clear):
            m.d.sync += level.eq(0)
        with m.Elif(self.open):
            m.d.sync += [level.eq(level + 1),
                         Cat(lefts).eq(Cat((self.turns - 1)[:DIM_BITS], *lefts[:-1])),
                         Cat(begins).eq(Cat(self.body, *begins[:-1]))]
        with m.Elif(self.next & self.again):
            m.d.sync += lefts[0].eq(lefts[0] - 1)
        with m.Elif(self.next):
            m.d.sync += [level.eq(level - 1), Cat(lefts[:-1]).eq(Cat(lefts[1:])),
                         Cat(begins[:-1]).eq(Cat(begins[1:]))]
        return m
