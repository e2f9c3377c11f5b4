import random

import pytest
from amaranth.sim import Simulator

from hw.array.systolic import SystolicArray
from hw.config import Config

SHAPES = [(2, 1), (2, 2), (3, 1), (3, 3), (4, 1), (4, 2), (4, 4), (5, 1), (5, 5), (6, 2), (6, 3)]


def config(tile, dot_width, mant_width=8):
    return Config(tile=tile, dot_width=dot_width, mant_width=mant_width, spad_kib=64)


def encode(q, mant_width):
    return abs(q) | (q < 0) << (mant_width - 1)


def run(cfg, schedule, tiles, rows):
    """Sums after each streamed row; `schedule` is per clock (row to stream, swap, tile to load)."""
    dut, results, loading = SystolicArray(cfg), [], []
    m = cfg.mant_width

    async def bench(ctx):
        streamed = []
        for clock in range(len(schedule) + dut.LATENCY):
            row, swap, tile = schedule[clock] if clock < len(schedule) else (None, 0, None)
            if tile is not None:
                loading[:] = [*tiles[tile]]
            ctx.set(dut.load, tile is not None)
            ctx.set(dut.w, [encode(q, m) for q in loading.pop(0)] if loading else [7] * cfg.tile)
            ctx.set(dut.a, [5] * cfg.tile if row is None else [encode(q, m) for q in rows[row]])
            ctx.set(dut.swap, swap)
            streamed.append(row)
            if clock >= dut.LATENCY and streamed[clock - dut.LATENCY] is not None:
                results.append([ctx.get(s) for s in dut.sums])
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    return results


def values(rng, cfg, count):
    q = cfg.q_max
    return [[rng.choice([q, -q, 0, rng.randint(-q, q)]) for _ in range(cfg.tile)]
            for _ in range(count)]


def schedule_passes(rng, cfg, passes, gaps):
    """Per-clock schedule, row values and the expected sums of `passes` (rows, reuse)."""
    lead, hold = cfg.tile - cfg.pe_rows, cfg.pe_rows
    streams, loads = {}, {}
    clock, swap, tiles, rows, expected = 0, -10**9, [], [], []
    for count, reuse in passes:
        wait = rng.randrange(4) if gaps and rng.random() < 0.5 else 0
        first = clock + wait
        if not reuse:
            load = max(swap + hold, 0)
            if gaps:
                load += rng.randrange(3)
            first = max(first, load + lead)
            loads[load] = len(tiles)
            tiles.append(values(rng, cfg, cfg.tile))
            swap = first
        for r, row in enumerate(values(rng, cfg, count)):
            streams[first + r] = (len(rows), not reuse and r == 0)
            rows.append(row)
            expected.append([sum(x * y for x, y in zip(row, column, strict=True))
                             for column in zip(*tiles[-1], strict=True)])
        clock = first + count
    clocks = max(clock, max(loads) + cfg.tile)
    schedule = [(*streams.get(t, (None, 0)), loads.get(t)) for t in range(clocks)]
    return schedule, tiles, rows, expected


@pytest.mark.parametrize(("tile", "dot_width"), SHAPES)
def test_passes_without_a_gap(tile, dot_width):
    cfg, rng = config(tile, dot_width), random.Random(tile)
    schedule, tiles, rows, expected = schedule_passes(rng, cfg, [(tile, False)] * 8, gaps=False)
    assert len(schedule) == tile - cfg.pe_rows + 8 * tile
    assert run(cfg, schedule, tiles, rows) == expected


@pytest.mark.parametrize("mant_width", [4, 8, 16])
@pytest.mark.parametrize(("tile", "dot_width"), SHAPES)
def test_random_passes(tile, dot_width, mant_width):
    cfg, rng = config(tile, dot_width, mant_width), random.Random(tile * mant_width)
    passes = [(tile, False)] + [(rng.randint(1, tile), rng.random() < 0.4) for _ in range(25)]
    schedule, tiles, rows, expected = schedule_passes(rng, cfg, passes, gaps=True)
    assert run(cfg, schedule, tiles, rows) == expected


@pytest.mark.parametrize(("tile", "dot_width"), SHAPES)
def test_largest_sums(tile, dot_width):
    cfg = config(tile, dot_width, 16)
    q = cfg.q_max
    tiles = [[[q if c % 2 else -q for c in range(tile)]] * tile]
    rows = [[q] * tile, [-q] * tile]
    schedule = [(None, 0, 0 if t == 0 else None) for t in range(tile - cfg.pe_rows)]
    schedule += [(0, 1, None if schedule else 0), (1, 0, None)] + [(None, 0, None)] * tile
    top = tile * q * q
    assert run(cfg, schedule, tiles, rows) == [[top if c % 2 else -top for c in range(tile)],
                                               [-top if c % 2 else top for c in range(tile)]]


@pytest.mark.parametrize(("tile", "dot_width"), SHAPES)
def test_too_close(tile, dot_width):
    cfg = config(tile, dot_width)
    zero = [[0] * tile]
    lead, hold = tile - cfg.pe_rows, cfg.pe_rows
    late = [(None, 0, 0 if t == 0 else None) for t in range(lead - 1)] + [(0, 1, None)]
    if lead:
        late[0] = (late[0][0], late[0][1], 0)
        with pytest.raises(AssertionError):
            run(cfg, late, [zero * tile], zero)
    good = [(None, 0, 0 if t == 0 else None) for t in range(lead)]
    good += [(0, 1, None if good else 0)] + [(None, 0, None)] * (tile + hold)
    run(cfg, good, [zero * tile], zero)
    early = good[:lead + 1] + [(None, 0, None)] * (hold - 2) + [(None, 0, 0)]
    if hold > 1:
        with pytest.raises(AssertionError):
            run(cfg, early, [zero * tile], zero)
