import random

import pytest
from amaranth.sim import Simulator

from hw import config
from hw.control.directory import EPOCH_BITS, GENERATION_BITS, AccDirectory, SpadDirectory
from hw.control.epilogue import EpilogueOperand
from hw.control.numbers import NUMBER_BITS, Fence

CFG = config.load("tiny", ["tile=2", "spad_kib=1", "acc_kib=1"])
NUMBERS = ("load_issued", "load_done", "exec_issued", "exec_read")


def simulate(dut, bench):
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    sim.add_testbench(bench)
    sim.run()


async def pulse(ctx, *signals):
    for s in signals:
        ctx.set(s, 1)
    await ctx.tick()
    for s in signals:
        ctx.set(s, 0)


async def wait_ready(ctx, dut):
    clocks = 0
    while not ctx.get(dut.ready):
        await ctx.tick()
        clocks += 1
    return clocks


class Slots:
    """What the directory must know: tiles of this instruction and kept ones, and numbers."""

    def __init__(self):
        self.tile, self.exec, self.load = {}, {}, {}

    def start(self):
        self.tile = {s: t for s, t in self.tile.items() if t[0]}

    def drop(self):
        self.tile = {s: t for s, t in self.tile.items() if not t[0]}


def check_number(got, reached, number):
    """`got` waits for `number` unless that is reached, or for one that looks like it."""
    assert got >= max(reached, number)
    assert got in (reached, number) or (got - number) % 256 == 0


async def operation(ctx, dut, slots, rng, numbers, slot, tile, use=True):
    """Look `tile`, (keep, row, column), up in `slot`, and use it there."""
    for signal, value in ((dut.read_slot, slot), (dut.slot, slot), (dut.keep, tile[0]),
                          (dut.row, tile[1]), (dut.col, tile[2])):
        ctx.set(signal, value)
    await pulse(ctx, dut.read)
    hit = slots.tile.get(slot) == tile
    assert ctx.get(dut.hit) == hit
    check_number(ctx.get(dut.wait_exec), numbers["exec_read"], slots.exec.get(slot, 0))
    check_number(ctx.get(dut.wait_load), numbers["load_done"], slots.load.get(slot, 0))
    if not use:
        return
    numbers["exec_issued"] += 1
    slots.exec[slot] = numbers["exec_issued"]
    if hit:
        await pulse(ctx, dut.write)
    else:
        numbers["load_issued"] += 1
        slots.tile[slot], slots.load[slot] = tile, numbers["load_issued"]
        await pulse(ctx, dut.write, dut.load)
    for done, issued in ("exec_read", "exec_issued"), ("load_done", "load_issued"):
        if rng.random() < 0.6:
            numbers[done] = max(numbers[done], numbers[issued] - rng.randrange(1, 100))
    for name, value in numbers.items():
        ctx.set(getattr(dut, name), value)


@pytest.mark.parametrize("chance", [0, 0.15])
def test_tags_last_for_one_instruction_and_kept_ones_until_drop(chance):
    """Also when the counters behind the tags come round, which leaves all numbers."""
    dut = SpadDirectory(CFG)

    async def bench(ctx):
        rng, slots = random.Random(1), Slots()
        numbers = dict.fromkeys(NUMBERS, 0)
        seen, drops, starts, used = set(), 0, 0, False
        assert await wait_ready(ctx, dut) == 1 << CFG.spad_slot_bits
        # Written every so many instructions, looked for in all.
        old = [(50, 100, (0, 5, 5)), (50, 101, (3, 5, 5)), (270, 102, (0, 6, 6))]
        for instruction in range(1, 3 * (1 << EPOCH_BITS)):
            if rng.random() < chance:
                await pulse(ctx, dut.drop)
                slots.drop()
                drops += 1
                assert ctx.get(dut.ready) == (drops % (1 << GENERATION_BITS) != 0)
                await wait_ready(ctx, dut)
            await pulse(ctx, dut.start)
            slots.start()
            starts += used  # of instructions behind one with tiles that are not kept
            round_ = used and starts % (1 << EPOCH_BITS) == 0
            used = False
            assert ctx.get(dut.ready) == (not round_)
            clocks = await wait_ready(ctx, dut)
            assert clocks == (2 << CFG.spad_slot_bits if round_ else 0)
            for every, slot, tile in old:
                if instruction % every == every - 10:
                    await operation(ctx, dut, slots, rng, numbers, slot, tile)
                    used |= not tile[0]
            for _, slot, tile in old:
                await operation(ctx, dut, slots, rng, numbers, slot, tile,
                                slots.tile.get(slot) == tile)
            for _ in range(4):
                slot, keep, tile = rng.randrange(4), rng.choice([0, 0, 1, 15]), rng.randrange(2)
                here = slots.tile.get(slot)
                seen.add((here and here[0], keep, here == (keep, tile, 7 - tile)))
                use = rng.random() < 0.8
                used |= use and not keep
                await operation(ctx, dut, slots, rng, numbers, slot, (keep, tile, 7 - tile), use)
        assert starts > 2 << EPOCH_BITS
        assert not chance or drops > 2 << GENERATION_BITS
        assert {(0, 1, False), (1, 0, False), (1, 1, True), (15, 1, False), (0, 0, True)} <= seen

    simulate(dut, bench)


def test_instructions_with_kept_tiles_only_are_never_held_up():
    dut = SpadDirectory(CFG)

    async def bench(ctx):
        numbers = dict.fromkeys(NUMBERS, 0)
        slots, rng = Slots(), random.Random(1)
        await wait_ready(ctx, dut)
        await operation(ctx, dut, slots, rng, numbers, 1, (0, 2, 3))
        for _ in range(3 << EPOCH_BITS):
            await pulse(ctx, dut.start)
            slots.start()
            assert ctx.get(dut.ready)
            await operation(ctx, dut, slots, rng, numbers, 0, (1, 2, 3))
            await operation(ctx, dut, slots, rng, numbers, 1, (0, 2, 3), use=False)

    simulate(dut, bench)


def test_a_kept_tile_is_not_found_after_sixteen_drops():
    dut = SpadDirectory(CFG)

    async def bench(ctx):
        numbers = dict.fromkeys(NUMBERS, 0)
        slots, rng = Slots(), random.Random(1)
        await wait_ready(ctx, dut)
        for slot in range(8):
            await operation(ctx, dut, slots, rng, numbers, slot, (1 + slot, 0, 0))
        for _ in range(1 << GENERATION_BITS):
            await pulse(ctx, dut.drop)
        await wait_ready(ctx, dut)
        slots.drop()
        for slot in range(8):
            await operation(ctx, dut, slots, rng, numbers, slot, (1 + slot, 0, 0))

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
