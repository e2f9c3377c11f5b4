"""Scheduling registers: policies, limits and the spike guard."""

import itertools

from amaranth.sim import Simulator

from hw.control.policy import Policy


def test_all_settings():
    dut = Policy()

    async def bench(ctx):
        numbers = (0, 1, 2, 16, 255, 256, 257, 65535, 65536, 1 << 31)
        for policy, threshold, queue in itertools.product((0, 1, 2, 3, 1 << 31), (0, 1, 7, 1 << 20),
                                                          (0, 1, 2, 7, 8, 65535)):
            for name, value in ("policy", policy), ("spike_threshold", threshold), ("queue", queue):
                ctx.set(getattr(dut, name), value)
            spike = queue > threshold > 0
            assert [ctx.get(getattr(dut, n)) for n in ("priority", "fair", "spike", "hold")] == [
                policy not in (1, 2), policy == 1, spike, spike or policy == 2]
        for beats in numbers:
            ctx.set(dut.max_burst_beats, beats)
            assert ctx.get(dut.max_beats) == min(max(beats, 1), 256)
        for busy, idle, active in itertools.product(numbers, numbers, (0, 1)):
            ctx.set(dut.read_credits, busy)
            ctx.set(dut.read_credits_idle, idle)
            ctx.set(dut.active, active)
            assert ctx.get(dut.credits) == min(busy if active else idle, 65535)
            assert ctx.get(dut.most_credits) == min(max(busy, idle), 65535)

    sim = Simulator(dut)
    sim.add_testbench(bench)
    sim.run()
