"""Times of requests: every one counted, at any rate, while the host reads and clears."""

import random

from amaranth.sim import Simulator

from hw.control.times import Times
from hw.regs import BINS, COUNTER_BITS, TIMES

NAMES = [name.lower() for name, _ in TIMES]


def number(rng):
    """A time: small ones often, every length."""
    if rng.random() < 0.5:
        return rng.randrange(4)
    return rng.getrandbits(rng.randrange(COUNTER_BITS + 1))


def test_bursts_reads_and_clears():
    dut, rng = Times(), random.Random(2)

    async def requests(ctx):
        for _ in range(20):
            for _ in range(rng.choice([0, 1, 3, 128])):
                times = [number(rng) for _ in NAMES]
                for name, time in zip(NAMES, times, strict=True):
                    ctx.set(getattr(dut, name), time)
                ctx.set(dut.time_valid, 1)
                clear = rng.random() < 0.005
                ctx.set(dut.clear, clear)
                taken.append(times)
                if clear:
                    taken.clear()
                await ctx.tick()
                ctx.set(dut.clear, 0)
                if rng.random() < 0.1:
                    ctx.set(dut.time_valid, 0)
                    await ctx.tick().repeat(rng.randrange(1, 4))
            ctx.set(dut.time_valid, 0)
            await ctx.tick().repeat(2)
            assert ctx.get(dut.count) == len(taken)
            for n in range(len(NAMES)):
                column = [t[n] for t in taken]
                assert ctx.get(dut.sum[n]) == sum(column) % (1 << COUNTER_BITS)
                assert ctx.get(dut.min[n]) == min(column, default=(1 << COUNTER_BITS) - 1)
                assert ctx.get(dut.max[n]) == max(column, default=0)
            await reads(ctx)

    async def reads(ctx):
        for n in range(len(NAMES)):
            expected = [0] * BINS
            for times in taken:
                expected[min(BINS - 1, times[n].bit_length())] += 1
            for b in range(BINS):
                assert await read(ctx, n, b) == expected[b]

    async def read(ctx, n, b):
        ctx.set(dut.r_time, n)
        ctx.set(dut.r_bin, b)
        ctx.set(dut.r_valid, 1)
        while not ctx.get(dut.r_ready):
            await ctx.tick()
        value = ctx.get(dut.r_data)
        await ctx.tick()
        ctx.set(dut.r_valid, 0)
        return value

    taken = []
    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(requests)
    sim.run()


def test_reads_while_requests_come():
    """A read waits for a clock without a request, and gives what was counted before it."""
    dut, rng = Times(), random.Random(3)

    async def bench(ctx):
        counted, before, reads = 0, [0, 0], 0
        ctx.set(dut.r_time, 2)
        ctx.set(dut.r_bin, 2)
        ctx.set(dut.r_valid, 1)
        for _ in range(2000):
            valid = rng.random() < 0.5
            ctx.set(dut.time_valid, valid)
            latency = rng.choice([3, 100])
            ctx.set(dut.latency, latency)
            if ctx.get(dut.r_ready):
                reads += 1
                assert before[-2] == ctx.get(dut.r_data)
            before.append(counted)
            counted += valid and latency == 3
            await ctx.tick()
        assert reads > 300

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
