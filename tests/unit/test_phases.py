"""Counters by phase: every clock under its phase, while the host reads."""

import random

from amaranth.sim import Simulator

from hw.control.phases import PhaseCounters
from hw.isa import PHASES


def test_random_phases():
    dut, rng = PhaseCounters(), random.Random(1)

    async def bench(ctx):
        totals = [[0, 0] for _ in range(PHASES)]
        phase, reads = 0, 0
        for clock in range(6000):
            if rng.random() < rng.choice([0.02, 0.6]):
                phase = rng.choice([0, 1, rng.randrange(PHASES)])
            cycles, busy, clear = rng.randrange(2), rng.randrange(2), rng.random() < 0.001
            read = rng.choice([phase, 1, rng.randrange(PHASES)])
            for name, value in (("phase", phase), ("cycles", cycles), ("busy", busy),
                                ("clear", clear), ("r_valid", 1), ("r_phase", read)):
                ctx.set(getattr(dut, name), value)
            ready = ctx.get(dut.r_ready)
            expected = [list(t) for t in totals]  # the clock's own counts come later
            if clear:
                totals = [[0, 0] for _ in range(PHASES)]
                expected = totals
            else:
                totals[phase][0] += cycles
                totals[phase][1] += busy
            await ctx.tick()
            if ready:
                reads += 1
                assert [ctx.get(dut.r_cycles), ctx.get(dut.r_busy)] == expected[read], clock
        assert reads > 2000
        ctx.set(dut.cycles, 0)
        ctx.set(dut.busy, 0)
        await ctx.tick().repeat(3)
        for p in range(PHASES):
            ctx.set(dut.r_phase, p)
            await ctx.tick()
            assert [ctx.get(dut.r_cycles), ctx.get(dut.r_busy)] == totals[p]

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
