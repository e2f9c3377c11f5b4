"""Two contexts on one stream: nothing lost, priority, turns, hold, no lost clock."""

import random
from itertools import pairwise

import pytest
from amaranth.sim import Simulator

from hw.lib.context_arbiter import ContextArbiter


def run(rng, offer, take=1.0, fair=0.0, hold=0.0, clocks=400):
    """Contexts offer with chance `offer[n]`; `take`, `fair` and `hold` are chances too.

    Returns the context of every payload that came out; payloads are {context, number}.
    """
    dut = ContextArbiter(32)
    grants = []

    async def bench(ctx):
        offered, count = [False, False], [0, 0]
        for _ in range(clocks):
            turns, held, ready = (rng.random() < chance for chance in (fair, hold, take))
            for n in range(2):
                offered[n] = offered[n] or rng.random() < offer[n]
                ctx.set(dut.i[n].valid, offered[n])
                ctx.set(dut.i[n].payload, n << 16 | count[n])
            ctx.set(dut.fair, turns)
            ctx.set(dut.hold, held)
            ctx.set(dut.o.ready, ready)
            asks = [offered[0] and not held, offered[1]]
            in_turn = 1 - grants[-1] if grants else 1
            want = in_turn if all(asks) and turns else int(asks[1])
            assert ctx.get(dut.o.valid) == any(asks), "no lost clock"
            taken = [n for n in range(2) if offered[n] and ctx.get(dut.i[n].ready)]
            assert taken == ([want] if any(asks) and ready else [])
            if any(asks):
                assert ctx.get(dut.context).value == want
                assert ctx.get(dut.o.payload) == want << 16 | count[want]
            for n in taken:
                grants.append(n)
                offered[n] = False
                count[n] += 1
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    return grants


@pytest.mark.parametrize("take", [1.0, 0.4])
def test_random_traffic(take):
    rng = random.Random(take)
    for offer in (0.1, 0.5, 1.0):
        assert len(run(rng, [offer, offer], take, fair=0.5, hold=0.3)) > 30


def test_priority():
    rng = random.Random(1)
    assert run(rng, [1, 1], clocks=20) == [1] * 20
    assert run(rng, [1, 0], clocks=20) == [0] * 20


def test_turns():
    grants = run(random.Random(2), [1, 1], take=0.5, fair=1)
    assert all(a != b for a, b in pairwise(grants))


def test_hold():
    rng = random.Random(3)
    assert run(rng, [1, 0], hold=1) == []
    assert set(run(rng, [1, 0.3], fair=1, hold=1)) == {1}
