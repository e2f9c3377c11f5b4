import random

import pytest
from execute_bench import (
    STALLS,
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
    config(2, 1, 8), config(2, 2, 12, spad_banks=1), config(3, 1, 16), config(3, 3, 4),
    config(4, 1, 12), config(4, 2, 8), config(4, 4, 16, spad_banks=1),
    config(4, 1, 4, spad_banks=2), config(6, 2, 8), config(4, 2, 8, spad_banks=16),
]


@pytest.mark.parametrize("gaps", [False, True], ids=["dense", "gaps"])
@pytest.mark.parametrize("cfg", SYSTEMS,
                         ids=lambda c: f"t{c.tile}w{c.dot_width}m{c.mant_width}b{c.spad_banks}")
def test_random_operations(cfg, gaps):
    rng = random.Random(f"{cfg.hash} {gaps}")
    tiles, (operations,) = random_job(rng, cfg, 30)
    pause = (lambda: rng.choice([0, 0, 1, 2, 5, 3 * cfg.tile, 30])) if gaps else None
    seen = run(cfg, tiles, operations, gaps=pause)
    for got, want in zip(seen.writes, model(cfg, tiles, operations), strict=True):
        assert got == want
    check_protocol(cfg, seen)


def stretch(seen):
    """Clocks from the first to the last row that is read."""
    busy = [i for i, clock in enumerate(seen.clocks) if clock["busy"]]
    return busy[-1] - busy[0] + 1


def stalls(seen):
    """Stalls by cause after the first row."""
    first = next(i for i, clock in enumerate(seen.clocks) if clock["busy"])
    return tuple(sum(clock[s] for clock in seen.clocks[first:]) for s in STALLS)


@pytest.mark.parametrize(("tile", "dot_width"), [(4, 1), (4, 2), (4, 4), (5, 1), (5, 5)])
def test_no_bubble(tile, dot_width):
    cfg = config(tile, dot_width)
    operations = [operation(slot(cfg, 0, 0), slot(cfg, 1, 0), n % 2, tile) for n in range(12)]
    seen = run(cfg, zero_tiles(cfg), operations)
    assert stretch(seen) == seen.total("busy") == 12 * tile
    assert stalls(seen) == (0, 0, 0)


@pytest.mark.parametrize("dot_width", [1, 2, 4])
def test_short_passes(dot_width):
    """New weights take T clocks; weights that stay take `rows`."""
    cfg = config(4, dot_width)
    a, b = slot(cfg, 0, 0), slot(cfg, 1, 0)
    changing = [operation(a, b, n, 2, overwrite=1) for n in range(8)]
    seen = run(cfg, zero_tiles(cfg), changing)
    assert stretch(seen) == 7 * 4 + 2
    assert stalls(seen) == (0, 7 * 2, 0)
    staying = [operation(a, b, n, 2, overwrite=1, b_reuse=n > 0) for n in range(8)]
    assert stretch(run(cfg, zero_tiles(cfg), staying)) == 8 * 2


@pytest.mark.parametrize("dot_width", [1, 4])
def test_one_bank(dot_width):
    """B of T rows is read before A of T rows."""
    cfg = config(4, dot_width)
    operations = [operation(slot(cfg, 0, 0), slot(cfg, 0, 0), n, 4, overwrite=1) for n in range(6)]
    seen = run(cfg, zero_tiles(cfg), operations)
    assert stretch(seen) == 6 * 8 - 4
    assert stalls(seen) == (5 * 4, 0, 0)


def test_bank_of_the_pass_before():
    """w = T reads B while the pass before streams: not from the bank of that pass."""
    cfg = config(4, 4)
    operations = [operation(slot(cfg, n % 2, 0), slot(cfg, 1 - n % 2, 0), n, 4, overwrite=1)
                  for n in range(6)]
    seen = run(cfg, zero_tiles(cfg), operations)
    assert stalls(seen) == (5 * 3, 0, 0)


def test_adder_interlock():
    cfg = config(2)
    a, b = slot(cfg, 0, 0), slot(cfg, 1, 0)
    same = [operation(a, b, 3, 2, overwrite=n == 0) for n in range(5)]
    seen = run(cfg, zero_tiles(cfg), same)
    assert stretch(seen) == 4 * 6 + 2
    assert stalls(seen) == (0, 0, 4 * 4)
    assert seen.total("x_r_en") == 4 * 2
    overwriting = [operation(a, b, 3, 2, overwrite=1) for _ in range(5)]
    assert stretch(run(cfg, zero_tiles(cfg), overwriting)) == 5 * 2


def test_latency():
    cfg = config(3)
    seen = run(cfg, zero_tiles(cfg), [operation(0, slot(cfg, 1, 0), 0, 1, overwrite=1)])
    row = [i for i, clock in enumerate(seen.clocks) if clock["busy"]]
    written = [i for i, clock in enumerate(seen.clocks) if clock["x_w_en"]]
    assert written == [row[0] + seen.latency]
