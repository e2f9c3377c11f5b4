"""Address registers and loops, against plain Python."""

import random

from amaranth.sim import Simulator

from hw.control.index import INDEXED, AddressRegisters, LoopStack
from hw.isa import ADDRESS_REGISTERS, INSTRUCTION, LOOP_DEPTH, Opcode


def simulate(dut, bench):
    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()


async def pulse(ctx, signal):
    ctx.set(signal, 1)
    await ctx.tick()
    ctx.set(signal, 0)


def test_address_registers():
    dut, rng = AddressRegisters(), random.Random(1)

    async def bench(ctx):
        registers = [0] * ADDRESS_REGISTERS
        for _ in range(400):
            opcode = rng.choice([Opcode.ADDRESS, Opcode.GRAD])
            fields = {name: rng.getrandbits(32) for name in INDEXED}
            fields |= {name: rng.randrange(ADDRESS_REGISTERS) for name in INDEXED.values()}
            fields |= {"opcode": opcode, "m": rng.getrandbits(20), "function": 31}
            ctx.set(dut.i, INSTRUCTION.const(fields))
            await pulse(ctx, dut.start)
            clocks = 1
            while not ctx.get(dut.done):
                await ctx.tick()
                clocks += 1
            assert clocks == 8
            o = ctx.get(dut.o)
            assert (o.m, o.function) == (fields["m"], 31)
            if opcode is Opcode.ADDRESS:
                total = (fields["x_addr"] + registers[fields["w_reg"]]) % 2**32
                assert o.x_addr == total
                await pulse(ctx, dut.write)
                if fields["x_reg"]:
                    registers[fields["x_reg"]] = total
            else:
                for name, reg in INDEXED.items():
                    assert o[name] == (fields[name] + registers[fields[reg]]) % 2**32, name
            if rng.random() < 0.02:
                await pulse(ctx, dut.clear)
                registers = [0] * ADDRESS_REGISTERS

    simulate(dut, bench)


def test_loops():
    dut, rng = LoopStack(), random.Random(2)

    async def bench(ctx):
        loops = []
        for _ in range(2000):
            assert ctx.get(dut.full) == (len(loops) == LOOP_DEPTH)
            assert ctx.get(dut.empty) == (not loops)
            if loops:
                assert ctx.get(dut.again) == (loops[-1][1] > 1)
                assert ctx.get(dut.begin) == loops[-1][0]
            if len(loops) < LOOP_DEPTH and rng.random() < 0.4:
                loops.append([rng.getrandbits(32), rng.choice([1, 2, 3, 2**20 - 1])])
                ctx.set(dut.body, loops[-1][0])
                ctx.set(dut.turns, loops[-1][1])
                await pulse(ctx, dut.open)
            elif loops:
                await pulse(ctx, dut.next)
                loops[-1][1] -= 1
                if not loops[-1][1]:
                    loops.pop()
            if rng.random() < 0.05:
                await pulse(ctx, dut.clear)
                loops = []

    simulate(dut, bench)
