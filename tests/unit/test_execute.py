import random
from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from amaranth.hdl import Module
from amaranth.sim import Simulator
from exact_fp32 import NAN, add, round24

from hw.array.execute import ExecuteUnit
from hw.config import Config
from hw.memory.accumulator import Accumulator
from hw.memory.scratchpad import Scratchpad

STALLS = ("stall_bank", "stall_weights", "stall_acc")


@dataclass
class Run:
    """What was seen: one entry per clock, and per row written to the accumulator."""

    latency: int
    clocks: list[dict[str, int]] = field(default_factory=list)
    writes: list[tuple] = field(default_factory=list)  # slot, row, words, overflow

    def total(self, name):
        return sum(clock[name] for clock in self.clocks)


def config(tile, dot_width=1, mant_width=8, **kw):
    return Config(**{"tile": tile, "dot_width": dot_width, "mant_width": mant_width,
                     "spad_kib": 1, "acc_kib": 1, **kw})


def system(cfg):
    m = Module()
    m.submodules.unit = unit = ExecuteUnit(cfg)
    m.submodules.spad = spad = Scratchpad(cfg)
    m.submodules.acc = acc = Accumulator(cfg)
    for port in "ab":
        m.d.comb += [getattr(spad, f"{port}_{n}").eq(getattr(unit, f"{port}_{n}"))
                     for n in ("en", "slot", "index", "col")]
        m.d.comb += [getattr(unit, f"{port}_{n}").eq(getattr(spad, f"{port}_{n}"))
                     for n in ("data", "exp")]
    m.d.comb += [getattr(acc, n).eq(getattr(unit, n)) for n in (
        "x_r_en", "x_r_slot", "x_r_row", "x_w_en", "x_w_slot", "x_w_row", "x_w_data")]
    m.d.comb += unit.x_r_data.eq(acc.x_r_data)
    return m, unit, spad


def run(cfg, tiles, operations, gaps=None):
    """Write `tiles` (slot -> rows of (mantissas, exponent)), do the operations, watch."""
    m, unit, spad = system(cfg)
    seen = Run(unit.LATENCY)

    async def bench(ctx):
        sign = 1 << cfg.mant_width - 1
        for slot, rows in tiles.items():
            for r, (mantissas, exponent) in enumerate(rows):
                ctx.set(spad.w_en, 1)
                ctx.set(spad.w_slot, slot)
                ctx.set(spad.w_row, r)
                ctx.set(spad.w_data, [abs(q) | (q < 0) * sign for q in mantissas])
                ctx.set(spad.w_exp, exponent)
                await ctx.tick()
        ctx.set(spad.w_en, 0)
        todo, gap, done, written = list(operations), 0, 0, None
        while done < len(operations) or written:
            ctx.set(unit.cmd.valid, bool(todo) and gap == 0)
            if todo:
                ctx.set(unit.cmd.payload, todo[0])
            clock = {name: ctx.get(getattr(unit, name)) for name in (
                "busy", "a_en", "b_en", "exec_read", "exec_done", "x_r_en", "x_w_en", *STALLS)}
            clock["taken"] = bool(todo) and gap == 0 and ctx.get(unit.cmd.ready)
            seen.clocks.append(clock)
            assert len(seen.clocks) < 100 * (len(operations) + 10) * cfg.tile, "no progress"
            if written:
                seen.writes.append((*written, ctx.get(unit.overflow)))
            else:
                assert not ctx.get(unit.overflow)
            written = clock["x_w_en"] and (ctx.get(unit.x_w_slot), ctx.get(unit.x_w_row),
                                           [ctx.get(w) for w in unit.x_w_data])
            if clock["taken"]:
                todo.pop(0)
                gap = gaps() if gaps else 0
            elif gap:
                gap -= 1
            done += clock["exec_done"]
            await ctx.tick()

    sim = Simulator(m)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    return seen


def model(cfg, tiles, operations):
    """Rows that the operations write: (slot, row, words, overflow)."""
    memory, expected, b, b_exp = {}, [], None, None

    def product(total, a_exp):
        if 255 in (a_exp, b_exp):
            return NAN, 0
        if 0 in (a_exp, b_exp):
            return 0, 0
        return round24(total * Fraction(2) ** (a_exp + b_exp - 254 - 2 * (cfg.mant_width - 2)))

    for op in operations:
        if not op["b_reuse"]:
            rows = tiles[op["b_slot"]]
            b = [q for q, _ in rows]
            if op["b_col"]:
                b = [list(column) for column in zip(*b, strict=True)]
            b_exp = rows[0][1]
        rows = tiles[op["a_slot"]]
        a = [q for q, _ in rows]
        if op["a_col"]:
            a = [list(column) for column in zip(*a, strict=True)]
        for r in range(op["rows"]):
            words, overflows = [], 0
            for c in range(cfg.tile):
                total = sum(x * row[c] for x, row in zip(a[r], b, strict=True))
                word, overflow = product(total, rows[r][1])
                overflows |= overflow
                if not op["overwrite"]:
                    word, overflow = add(memory[op["acc_slot"], r][c], word)
                    overflows |= overflow
                words.append(word)
            memory[op["acc_slot"], r] = words
            expected.append((op["acc_slot"], r, words, overflows))
    return expected


def operation(a_slot, b_slot, acc_slot, rows, **flags):
    return {"a_slot": a_slot, "b_slot": b_slot, "acc_slot": acc_slot, "rows": rows, "a_col": 0,
            "b_col": 0, "b_reuse": 0, "overwrite": 0, **flags}


def slot(cfg, bank, index):
    return bank << cfg.slot_index_bits | index


def random_tile(rng, cfg, square, centre):
    def exponent():
        return rng.choice([centre, centre, centre, centre + 1, centre - rng.randrange(30),
                           0, 255, 1, 254, 190, 191]) if rng.random() < 0.5 else centre

    q, same = cfg.q_max, exponent()
    return [([rng.choice([q, -q, 0, rng.randint(-q, q), rng.randint(-q, q)])
              for _ in range(cfg.tile)], same if square else exponent())
            for _ in range(cfg.tile)]


def random_job(rng, cfg, count):
    """Tiles in every bank, operations on them, often on one accumulator slot in turn."""
    square, by_row, tiles = [], [], {}
    for bank in range(cfg.spad_banks):
        for index in {0, 1, cfg.bank_slots - 1} & set(range(cfg.bank_slots)):
            number = slot(cfg, bank, index)
            group = rng.choice([square, square, by_row])
            group.append(number)
            tiles[number] = random_tile(rng, cfg, group is square, rng.choice([127, 127, 64, 190]))
    if not square:
        square, by_row = by_row, square
        tiles = {n: random_tile(rng, cfg, True, 127) for n in tiles}
    slots = rng.sample(range(cfg.acc_slots), 4)
    # every row is defined before anything is added to it
    operations = [operation(square[0], square[0], s, cfg.tile, overwrite=1) for s in slots]
    for _ in range(count):
        a = rng.choice(square + by_row)
        last = operations[-1]
        reuse = rng.random() < 0.3
        operations.append(operation(
            a, rng.choice(square), rng.choice([last["acc_slot"], *slots]),
            rng.choice([cfg.tile, rng.randint(1, cfg.tile)]),
            a_col=a in square and rng.random() < 0.5, b_col=rng.random() < 0.5,
            b_reuse=reuse, overwrite=rng.random() < 0.3))
    return tiles, operations


def check_protocol(cfg, operations, seen):
    """Pulses, counters and their order."""
    assert seen.total("busy") == sum(op["rows"] for op in operations)
    assert seen.total("exec_read") == seen.total("exec_done") == len(operations)
    a_needed = b_needed = written = 0
    reads, dones = iter(operations), iter(operations)
    so_far = dict.fromkeys(("a_en", "b_en", "x_w_en", "busy", "taken"), 0)
    ends, held = [], 0
    for op in operations:
        held += op["rows"]
        ends.append(held)
    for clock in seen.clocks:
        # operations whose command was taken before this clock and that have rows left to read
        pending = so_far["taken"] and so_far["busy"] < ends[so_far["taken"] - 1]
        assert clock["busy"] + sum(clock[s] for s in STALLS) == bool(pending)
        for name in so_far:
            so_far[name] += clock[name]
        if clock["exec_read"]:
            op = next(reads)
            a_needed += op["rows"]
            b_needed += cfg.tile * (not op["b_reuse"])
            assert so_far["a_en"] >= a_needed
            assert so_far["b_en"] >= b_needed
        if clock["exec_done"]:
            written += next(dones)["rows"]
            assert so_far["x_w_en"] == written


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
    tiles, operations = random_job(rng, cfg, 50)
    pause = (lambda: rng.choice([0, 0, 1, 2, 5, 3 * cfg.tile, 30])) if gaps else None
    seen = run(cfg, tiles, operations, pause)
    for got, want in zip(seen.writes, model(cfg, tiles, operations), strict=True):
        assert got == want
    check_protocol(cfg, operations, seen)


def zero_tiles(cfg):
    rows = [([0] * cfg.tile, 127)] * cfg.tile
    return {slot(cfg, bank, 0): rows for bank in range(cfg.spad_banks)}


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
