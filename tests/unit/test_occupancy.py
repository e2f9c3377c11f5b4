"""Use of the shared units: counters, holds and their bounds."""

import random

import pytest
from amaranth.sim import Simulator

from hw import config
from hw.control.occupancy import USES, Occupancy
from hw.regs import UNITS

CFG = config.load("tiny")
ARRAY, READ, WRITE = 0, 3, 4


def run(bench):
    dut = Occupancy(CFG, 20, 5)

    async def testbench(ctx):
        ctx.set(dut.max_beats, 16)
        ctx.set(dut.most_credits, 60)
        await bench(ctx, dut)

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(testbench)
    sim.run()


def test_counts():
    async def bench(ctx, dut):
        rng = random.Random(4)
        counts = [[0] * len(USES) for _ in UNITS]
        most, before, first = [0] * len(UNITS), None, True
        for _ in range(2000):
            clear = first or rng.random() < 0.002
            ctx.set(dut.clear, clear)
            if clear:
                counts = [[0] * len(USES) for _ in UNITS]
                most, first = [0] * len(UNITS), False
            activity = 0
            for n in range(len(UNITS)):
                use, asks, held = rng.randrange(4), rng.randrange(4), rng.getrandbits(16)
                held >>= rng.randrange(17)
                for port, value in (dut.use, use), (dut.asks, asks), (dut.held, held):
                    ctx.set(port[n], value)
                activity |= use << 2 * n
                most[n] = max(most[n], held)
                for k, event in enumerate((use & 1, use >> 1, asks & 1 and use >> 1,
                                           asks >> 1 and use & 1, use == 0)):
                    counts[n][k] += bool(event)
            before = activity
            await ctx.tick()
            assert ctx.get(dut.activity) == before
        for n in range(len(UNITS)):
            for port in (dut.use, dut.asks, dut.held):
                ctx.set(port[n], 0)
        await ctx.tick()
        for n in range(len(UNITS)):
            assert ctx.get(dut.hold_max[n]) == most[n]
            assert [ctx.get(c) for c in dut.count[len(USES) * n:len(USES) * (n + 1)]] == counts[n]

    run(bench)


@pytest.mark.parametrize(("beats", "credits", "read"), [
    (16, 60, 60), (1, 65535, CFG.outstanding), (256, 1, 256), (256, 65535, 256 * CFG.outstanding)])
def test_bounds(beats, credits, read):
    async def bench(ctx, dut):
        ctx.set(dut.max_beats, beats)
        ctx.set(dut.most_credits, credits)
        assert [ctx.get(b) for b in dut.hold_bound] == [20, 5, 0, read, 2 * beats]

    run(bench)


async def hold(ctx, dut, unit, clocks):
    for value in (clocks, 0, 0):
        ctx.set(dut.held[unit], value)
        await ctx.tick()


@pytest.mark.parametrize("unit", range(len(UNITS)))
def test_a_hold_at_its_bound_passes_and_a_longer_one_is_found(unit):
    async def bench(ctx, dut):
        longest = ctx.get(dut.hold_bound[unit])
        await hold(ctx, dut, unit, 1000)  # under another policy all is well
        ctx.set(dut.priority, 1)
        await hold(ctx, dut, unit, 0)
        await hold(ctx, dut, unit, longest)
        ctx.set(dut.priority, 0)
        await hold(ctx, dut, unit, longest + 1)
        ctx.set(dut.held[unit], longest + 1)
        await ctx.tick()
        ctx.set(dut.priority, 1)  # the hold began before
        await hold(ctx, dut, unit, longest + 2)
        await hold(ctx, dut, unit, 0)
        passed.append(unit)
        await hold(ctx, dut, unit, longest + 1)

    passed = []
    with pytest.raises(AssertionError):
        run(bench)
    assert passed


def test_bursts_of_earlier_settings_count_until_training_ends():
    async def bench(ctx, dut):
        ctx.set(dut.priority, 1)
        ctx.set(dut.training, 1)
        await ctx.tick().repeat(2)
        ctx.set(dut.max_beats, 1)
        ctx.set(dut.most_credits, 1)
        await hold(ctx, dut, READ, 60)
        await hold(ctx, dut, WRITE, 32)
        ctx.set(dut.held[READ], 60)
        await ctx.tick()
        ctx.set(dut.training, 0)  # inference still waits for the memory
        await hold(ctx, dut, READ, 60)
        await hold(ctx, dut, READ, 1)
        passed.append(READ)
        await hold(ctx, dut, READ, 2)

    passed = []
    with pytest.raises(AssertionError):
        run(bench)
    assert passed
