import random

from amaranth.sim import Simulator

from hw import config
from hw.control.directory import EPOCH_BITS, AccDirectory, SpadDirectory
from hw.control.epilogue import EpilogueOperand
from hw.control.numbers import NUMBER_BITS, Fence

CFG = config.load("tiny", ["tile=2", "spad_kib=1", "acc_kib=1"])


def simulate(dut, bench):
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    sim.add_testbench(bench)
    sim.run()


def test_tags_last_for_one_instruction_even_when_the_epoch_comes_round():
    dut = SpadDirectory(CFG)

    async def pulse(ctx, *signals):
        for s in signals:
            ctx.set(s, 1)
        await ctx.tick()
        for s in signals:
            ctx.set(s, 0)

    async def bench(ctx):
        rng = random.Random(1)
        issued = 0
        while not ctx.get(dut.ready):
            await ctx.tick()
        written = {}  # slot -> number of its last operation
        for instruction in range(1, 2 * (1 << EPOCH_BITS) + 5):
            await pulse(ctx, dut.start)
            for _ in range(30):  # the last operation is not read
                if not ctx.get(dut.ready):
                    await ctx.tick()
            assert ctx.get(dut.ready) == (instruction % (1 << EPOCH_BITS) != 0)
            if not ctx.get(dut.ready):
                ctx.set(dut.exec_read, issued)
                clocks = 0
                while not ctx.get(dut.ready):
                    await ctx.tick()
                    clocks += 1
                assert clocks > 1 << CFG.spad_slot_bits
                written = {}  # forgotten: number 0
            ctx.set(dut.read_slot, 100)  # written in the first instruction only
            ctx.set(dut.slot, 100)
            ctx.set(dut.row, 5)
            ctx.set(dut.col, 5)
            await pulse(ctx, dut.read)
            assert not ctx.get(dut.hit)
            if instruction == 1:
                await pulse(ctx, dut.write, dut.load)
                await pulse(ctx, dut.read)
                assert ctx.get(dut.hit)
            present = {}
            for _ in range(4):
                slot, tile = rng.randrange(4), rng.randrange(2)
                ctx.set(dut.read_slot, slot)
                ctx.set(dut.slot, slot)
                ctx.set(dut.row, tile)
                ctx.set(dut.col, 7 - tile)
                await pulse(ctx, dut.read)
                hit = present.get(slot) == tile
                assert ctx.get(dut.hit) == hit
                read = ctx.get(dut.exec_read)
                number = ctx.get(dut.wait_exec)  # at least that of the last operation
                assert number >= max(written.get(slot, 0), read)
                assert number in (read, written.get(slot, 0)) or number % 256 == 0
                await pulse(ctx, dut.write, *([] if hit else [dut.load]))
                issued += 1
                ctx.set(dut.exec_issued, issued)
                present[slot], written[slot] = tile, issued
                if rng.random() < 0.8:
                    ctx.set(dut.exec_read, max(read, issued - rng.randrange(1, 100)))

    simulate(dut, bench)


def test_an_accumulator_slot_holds_one_unfinished_tile():
    dut = AccDirectory(CFG)

    async def bench(ctx):
        clocks = 0
        while not ctx.get(dut.ready):
            await ctx.tick()
            clocks += 1
        assert clocks == CFG.acc_slots
        ctx.set(dut.exec_issued, 9)
        ctx.set(dut.store_issued, 9)
        for row, unfinished in ((1, 1), (2, 0), (1, 1)):
            ctx.set(dut.row, row)
            ctx.set(dut.unfinished, unfinished)
            for name, number in (("exec", 5), ("store", 6), ("spill", 7)):
                ctx.set(getattr(dut, f"last_{name}"), number)
            ctx.set(dut.write, 1)
            await ctx.tick()
            ctx.set(dut.write, 0)
            ctx.set(dut.read, 1)
            await ctx.tick()
            ctx.set(dut.read, 0)
            assert ctx.get(dut.match) == unfinished
            assert not ctx.get(dut.other)
            assert ctx.get(dut.old_row) == row
            ctx.set(dut.row, 3)
            assert not ctx.get(dut.match)
            assert ctx.get(dut.other) == unfinished
            assert [ctx.get(getattr(dut, f"wait_{n}")) for n in ("exec", "store", "spill")] \
                == [5, 6, 7]

    simulate(dut, bench)


def test_epilogue_operands_go_round_the_ring():
    for high in range(3):
        dut = EpilogueOperand(CFG)
        slots = 1 << high

        async def bench(ctx, dut=dut, high=high, slots=slots):
            ctx.set(dut.window, {"base": 10, "h_log2": high, "w_log2": 0})
            ctx.set(dut.vector_issued, 3)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            used = [3] * slots
            for turn in range(9):
                vector, load = 3 + turn, 20 + turn
                ctx.set(dut.vector_issued, vector)
                ctx.set(dut.load_issued, load)
                ctx.set(dut.col, turn)
                assert not ctx.get(dut.hit)
                assert ctx.get(dut.slot) == 10 + turn % slots
                assert ctx.get(dut.wait_vector) == used[turn % slots]
                ctx.set(dut.load, 1)
                await ctx.tick()
                ctx.set(dut.load, 0)
                ctx.set(dut.load_issued, load + 1)
                assert ctx.get(dut.hit)
                assert ctx.get(dut.slot) == 10 + turn % slots
                assert ctx.get(dut.wait_load) == load + 1
                ctx.set(dut.use, 1)
                await ctx.tick()
                ctx.set(dut.use, 0)
                used[turn % slots] = vector + 1

        simulate(dut, bench)


def test_a_fence_stays_passed_however_far_the_numbers_go():
    dut = Fence()
    ahead = [1000, 1000 + (1 << NUMBER_BITS - 2), 1000 + (3 << NUMBER_BITS - 2), 999]

    async def bench(ctx):
        ctx.set(dut.done, 998)
        ctx.set(dut.issued, 1000)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        ctx.set(dut.issued, 1005)
        for done in (998, 999):
            ctx.set(dut.done, done)
            await ctx.tick()
            assert ctx.get(dut.number) == 1000
        for done in ahead:
            ctx.set(dut.done, done)
            await ctx.tick()
            assert ctx.get(dut.number) == done

    simulate(dut, bench)
