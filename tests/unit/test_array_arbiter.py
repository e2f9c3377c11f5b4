"""Operations of two contexts on one array."""

import random

import pytest
from execute_bench import (
    check_protocol,
    config,
    model,
    operation,
    random_job,
    run,
    slot,
    zero_tiles,
)

SYSTEMS = [
    config(2, 2, 12, spad_banks=1), config(3, 1, 16), config(4, 2, 8), config(4, 1, 4),
    config(6, 2, 8, acc_kib=2),
]
each_config = pytest.mark.parametrize(
    "cfg", SYSTEMS, ids=lambda c: f"t{c.tile}w{c.dot_width}b{c.spad_banks}")


def check(cfg, tiles, jobs, seen):
    """Each context's results are those it would get alone."""
    for n, operations in enumerate(jobs):
        slots = {op["acc_slot"] for op in operations}
        writes = [write for write in seen.writes if write[0] in slots]
        assert writes == model(cfg, tiles, operations, n)
    check_protocol(cfg, seen)


@pytest.mark.parametrize("policy", ["priority", "fair", "mixed"])
@each_config
def test_random_operations(cfg, policy):
    rng = random.Random(f"{cfg.hash} {policy}")
    tiles, jobs = random_job(rng, cfg, 30, 2)
    mixed = policy == "mixed"
    seen = run(cfg, tiles, *jobs,
               gaps=lambda: rng.choice([0, 0, 0, 1, 2, 5, 3 * cfg.tile]),
               fair=lambda: rng.random() < 0.5 if mixed else policy == "fair",
               hold=lambda: mixed and rng.random() < 0.3)
    check(cfg, tiles, jobs, seen)
    if policy == "priority":
        assert max(clock["held"] for clock in seen.clocks) <= seen.bound


def longest(cfg, training, after=2):
    """Longest hold of one operation of inference that comes when training's second is taken."""
    one = operation(slot(cfg, 0, 0), slot(cfg, cfg.spad_banks - 1, 0), 3, cfg.tile, overwrite=1)
    seen = run(cfg, zero_tiles(cfg), training, [one], after=after)
    assert [context for context, *_ in seen.order].index(1) == after, "priority"
    return max(clock["held"] for clock in seen.clocks), seen.bound


@pytest.mark.parametrize(("tile", "dot_width"), [(4, 1), (4, 4), (6, 2), (5, 5)])
def test_bound_is_reached(tile, dot_width):
    """Training's second operation has A and B in the bank of the A before it."""
    cfg = config(tile, dot_width, acc_kib=2)
    training = [operation(slot(cfg, 0, 0), slot(cfg, bank, 0), n, tile, overwrite=1)
                for n, bank in enumerate((1, 0, 0))]
    assert longest(cfg, training) == (2 * tile - 1, 2 * tile - 1)


def test_bound_of_the_interlock():
    """Tiles so small that the adder is what an operation waits for."""
    cfg = config(2)
    training = [operation(slot(cfg, 0, 0), slot(cfg, 1, 0), 0, 2, b_reuse=n, overwrite=1 - n)
                for n in (0, 1, 1)]
    assert longest(cfg, training) == (5, 5)


@each_config
def test_bound_of_random_streams(cfg):
    """Offers of inference at any time into a dense stream of training."""
    rng = random.Random(cfg.hash)
    tiles, (training, inference) = random_job(rng, cfg, 60, 2)
    seen = run(cfg, tiles, training, inference[:40],
               gaps=lambda: rng.choice([0, 0, rng.randrange(3 * cfg.tile)]))
    held = max(clock["held"] for clock in seen.clocks)
    assert seen.bound / 2 <= held <= seen.bound


def test_policies():
    cfg = config(4)
    a, b = slot(cfg, 0, 0), slot(cfg, 1, 0)
    jobs = [[operation(a, b, 2 * n + c, 4, b_reuse=n > 0, overwrite=1) for n in (0, 1)] * 4
            for c in (0, 1)]

    def order(**policy):
        seen = run(cfg, zero_tiles(cfg), *jobs, **policy)
        check_protocol(cfg, seen)
        return "".join(str(context) for context, *_ in seen.order)

    assert order() == "1" * 8 + "0" * 8
    assert order(fair=lambda: 1) in ("01" * 8, "10" * 8)
    held = iter([1] * 100)
    assert order(hold=lambda: next(held, 0), fair=lambda: 1) == "1" * 8 + "0" * 8


@pytest.mark.parametrize("context", [0, 1])
def test_reuse(context):
    """The first operation after reset loads its B; the next may end while that is read."""
    cfg = config(6, 2)
    operations = [operation(slot(cfg, 0, 0), slot(cfg, 1, 0), n, 1, b_reuse=1, overwrite=1)
                  for n in range(4)]
    jobs = [(), operations] if context else [operations, ()]
    seen = run(cfg, zero_tiles(cfg), *jobs)
    assert [reuses for *_, reuses in seen.order] == [0, 1, 1, 1]
    check_protocol(cfg, seen)
