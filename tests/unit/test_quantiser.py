import random
from collections import deque

import pytest
from amaranth.sim import Simulator
from exact_bfp import mantissa, stochastic_bits

from hw.config import Config
from hw.memory.quantiser import Quantiser

CFG = Config(tile=3, mant_width=8, axi_width=64, spad_kib=1, acc_kib=1, spad_banks=1, acc_banks=2)


def random_request(rng):
    exp = rng.choice([0, 255, rng.randrange(1, 255)])
    row = [rng.getrandbits(1) << 31 | max(0, exp - rng.randrange(12)) << 23 | rng.getrandbits(23)
           for _ in range(CFG.tile)]
    return dict(x=sum(word << 32 * c for c, word in enumerate(row)), exp=exp,
                stochastic=rng.randrange(2), seed=rng.getrandbits(32), salt=rng.getrandbits(32),
                row=rng.getrandbits(20), col=rng.choice([2**20 - 2, rng.getrandbits(20)]))


def expected(request):
    result = []
    for c in range(CFG.tile):
        r = stochastic_bits(request["row"], (request["col"] + c) % 2**20, request["seed"],
                            request["salt"]) if request["stochastic"] else None
        q = mantissa(CFG.mant_width, request["x"] >> 32 * c & 0xFFFFFFFF, request["exp"], r)
        result.append((q < 0) << CFG.mag_width | abs(q))
    return result


def run(clocks, asks, fair, hold):
    """Rows of both contexts with chances `asks`; `fair`, `hold`: chances too.

    Demands every result in its clock. Returns the rows of each context in each clock.
    """
    rng = random.Random(f"{asks}{fair}{hold}")
    dut = Quantiser(CFG)
    log = []

    async def bench(ctx):
        offers, pipeline = [None, None], deque([None] * dut.LATENCY)
        waited, last = 0, 0
        for _ in range(clocks):
            now_fair, now_hold = rng.random() < fair, rng.random() < hold
            ctx.set(dut.fair, now_fair)
            ctx.set(dut.hold, now_hold)
            for context, port in enumerate(dut.i):
                if offers[context] is None and rng.random() < asks[context]:
                    offers[context] = random_request(rng)
                ctx.set(port.valid, offers[context] is not None)
                ctx.set(port.payload, offers[context] or random_request(rng))

            training, inference = (offer is not None for offer in offers)
            training &= not now_hold
            winner = (1 - last if now_fair else 1) if training and inference else int(inference)
            use = [training and winner == 0, inference and winner == 1]
            taken = [port.valid & port.ready for port in dut.i]
            assert [ctx.get(t) for t in taken] == [ctx.get(u) for u in dut.use] == use
            assert [ctx.get(a) for a in dut.asks] == [offer is not None for offer in offers]
            assert ctx.get(dut.held) == waited <= (fair > 0)
            result = pipeline.popleft()
            assert [ctx.get(v) for v in dut.valid] == [
                result is not None and result[0] == context for context in range(2)]
            if result is not None:
                assert list(ctx.get(dut.mant)) == result[1]

            waited = waited + 1 if inference and not use[1] else 0
            log.append(use)
            if any(use):
                last = winner
                pipeline.append((winner, expected(offers[winner])))
                offers[winner] = None
            else:
                pipeline.append(None)
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    return [sum(use) for use in zip(*log, strict=True)]


@pytest.mark.parametrize("fair", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("hold", [0.0, 0.3])
def test_rows_of_both_contexts(fair, hold):
    assert min(run(300, (0.6, 0.5), fair, hold)) > 50


def test_one_context_alone_has_every_clock():
    assert run(50, (1, 0), 0, 0) == [50, 0]
    assert run(50, (0, 1), 1, 0) == [0, 50]


def test_priority_gives_training_what_is_left():
    assert run(50, (1, 1), 0, 0) == [0, 50]
    training, inference = run(100, (1, 0.5), 0, 0)
    assert training + inference == 100


def test_fair_takes_turns():
    assert run(50, (1, 1), 1, 0) == [25, 25]


def test_hold_keeps_training_back():
    assert run(50, (1, 0), 0, 1) == [0, 0]
    assert run(50, (1, 1), 1, 1) == [0, 50]
