"""Arbiter: nothing lost or changed, fair turns, priority, no lost clock."""

import random
from itertools import pairwise

import pytest
from amaranth.sim import Simulator

from hw.lib.arbiter import Arbiter


def run(inputs, priority, rng, offer, take, clocks=400):
    """Inputs offer with chance `offer[n]`, the output is taken with chance `take`.

    Returns (clock, input) of every payload that came out; payloads are {input, number}.
    """
    dut = Arbiter(32, inputs, priority=priority)
    taken = []

    async def bench(ctx):
        offered, count, waiting = [False] * inputs, [0] * inputs, None
        for clock in range(clocks):
            for n in range(inputs):
                offered[n] = offered[n] or rng.random() < offer[n]
                ctx.set(dut.i[n].valid, offered[n])
                ctx.set(dut.i[n].payload, n << 16 | count[n])
            ctx.set(dut.o.ready, rng.random() < take)
            valid, payload = ctx.get(dut.o.valid), ctx.get(dut.o.payload)
            assert valid == any(offered), "no lost clock"
            assert waiting in (None, payload), "payload changed while it waited"
            ready = [n for n in range(inputs) if offered[n] and ctx.get(dut.i[n].ready)]
            held = waiting is not None
            waiting = payload if valid else None
            if valid and ctx.get(dut.o.ready):
                source = payload >> 16
                assert ready == [source]
                assert payload & 0xFFFF == count[source]
                assert not (priority and offered[0] and source and not held)
                taken.append((clock, source))
                offered[source], waiting = False, None
                count[source] += 1
            else:
                assert not ready
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    return [n for _, n in taken]


@pytest.mark.parametrize(("inputs", "priority"), [(2, False), (3, False), (3, True), (4, True)])
def test_random_traffic(inputs, priority):
    rng = random.Random(inputs)
    for take in (1.0, 0.4):
        for offer in (0.1, 0.5, 1.0):
            taken = run(inputs, priority, rng, [offer] * inputs, take)
            assert len(taken) > 30
            if not priority:
                assert set(taken) == set(range(inputs))


def test_turns():
    rng = random.Random(1)
    assert run(2, False, rng, [1, 1], 1, 6) in ([0, 1] * 3, [1, 0] * 3)
    assert run(3, False, rng, [0, 1, 1], 1, 6) in ([1, 2] * 3, [2, 1] * 3)
    assert sorted(run(3, True, rng, [0, 1, 1], 0.5, 400))[:1] == [1]
    assert run(3, True, rng, [1, 1, 1], 1, 6) == [0] * 6


def test_turns_go_on_behind_the_priority_input():
    taken = run(3, True, random.Random(2), [0.5, 1, 1], 0.7)
    others = [n for n in taken if n]
    assert taken.count(0) > 50
    assert all(a != b for a, b in pairwise(others)), "turns"
