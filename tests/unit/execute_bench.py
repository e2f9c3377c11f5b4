"""The array with its memories, fed by both contexts, and what it must write."""

from dataclasses import dataclass, field
from fractions import Fraction

from amaranth.hdl import Module
from amaranth.sim import Simulator
from exact_fp32 import NAN, add, round24

from hw.array.arbiter import ArrayArbiter
from hw.array.execute import ExecuteUnit
from hw.config import Config
from hw.memory.accumulator import Accumulator
from hw.memory.scratchpad import Scratchpad

STALLS = ("stall_bank", "stall_weights", "stall_acc")
#: Outputs by context; at most one of a pair is high.
PAIRS = ("busy", "exec_read", "exec_done", "overflow", "occupied", *STALLS)


@dataclass
class Run:
    """What was seen: per clock, per operation taken, and per row written to the accumulator."""

    latency: int
    bound: int
    clocks: list[dict] = field(default_factory=list)
    #: (context, operation, whether B is reused), as they were taken.
    order: list[tuple] = field(default_factory=list)
    writes: list[tuple] = field(default_factory=list)  # slot, row, words, (overflows)

    def total(self, name):
        return sum(clock[name] for clock in self.clocks)


def config(tile, dot_width=1, mant_width=8, **kw):
    return Config(**{"tile": tile, "dot_width": dot_width, "mant_width": mant_width,
                     "spad_kib": 1, "acc_kib": 1, **kw})


def system(cfg):
    m = Module()
    m.submodules.arbiter = arbiter = ArrayArbiter(cfg)
    m.submodules.unit = unit = ExecuteUnit(cfg)
    m.submodules.spad = spad = Scratchpad(cfg)
    m.submodules.acc = acc = Accumulator(cfg)
    m.d.comb += [unit.cmd.valid.eq(arbiter.o.valid), unit.cmd.payload.eq(arbiter.o.payload),
                 arbiter.o.ready.eq(unit.cmd.ready), arbiter.inside.eq(unit.inside[0])]
    for port in "ab":
        m.d.comb += [getattr(spad, f"{port}_{n}").eq(getattr(unit, f"{port}_{n}"))
                     for n in ("en", "slot", "index", "col")]
        m.d.comb += [getattr(unit, f"{port}_{n}").eq(getattr(spad, f"{port}_{n}"))
                     for n in ("data", "exp")]
    m.d.comb += [getattr(acc, n).eq(getattr(unit, n)) for n in (
        "x_r_en", "x_r_slot", "x_r_row", "x_w_en", "x_w_slot", "x_w_row", "x_w_data")]
    m.d.comb += unit.x_r_data.eq(acc.x_r_data)
    return m, arbiter, unit, spad


def run(cfg, tiles, training, inference=(), *, gaps=None, after=0, fair=None, hold=None):
    """Write `tiles` (slot -> rows of (mantissas, exponent)), do the operations, watch.

    `gaps()` clocks lie before an operation's offer, inference's first one waits until `after`
    operations of training have been taken; `fair()` and `hold()` are drawn in every clock.
    """
    m, arbiter, unit, spad = system(cfg)
    seen = Run(unit.LATENCY, unit.HOLD_BOUND)

    async def bench(ctx):
        sign = 1 << cfg.mant_width - 1
        for slot, rows in tiles.items():
            for r, (mantissas, exponent) in enumerate(rows):
                ctx.set(spad.w_valid[0], 1)
                ctx.set(spad.w_slot[0], slot)
                ctx.set(spad.w_row[0], r)
                ctx.set(spad.w_data[0], [abs(q) | (q < 0) * sign for q in mantissas])
                ctx.set(spad.w_exp[0], exponent)
                await ctx.tick()
        ctx.set(spad.w_valid[0], 0)
        todo, gap, done, written = [list(training), list(inference)], [0, 0], 0, None
        count = len(training) + len(inference)
        while done < count or written:
            ready = len(seen.order) >= after
            offers = [bool(todo[n]) and gap[n] == 0 and (ready or not n) for n in (0, 1)]
            for port, operations, offer in zip(arbiter.i, todo, offers, strict=True):
                ctx.set(port.valid, offer)
                if operations:
                    ctx.set(port.payload, operations[0])
            ctx.set(arbiter.fair, fair() if fair else 0)
            ctx.set(arbiter.hold, held := hold() if hold else 0)
            pairs = {name: tuple(map(ctx.get, getattr(unit, name))) for name in PAIRS}
            clock = {name: sum(pair) for name, pair in pairs.items()} | {
                name: ctx.get(getattr(unit, name)) for name in ("a_en", "b_en", "x_r_en", "x_w_en")}
            taken = [n for n in (0, 1) if offers[n] and ctx.get(arbiter.i[n].ready)]
            clock |= {"pairs": pairs, "taken": len(taken), "offers": offers,
                      "inside": tuple(map(ctx.get, unit.inside)), "held": ctx.get(arbiter.held)}
            seen.clocks.append(clock)
            assert len(taken) <= 1
            assert not (held and 0 in taken)
            assert all(clock[name] <= 1 for name in PAIRS)
            assert len(seen.clocks) < 100 * (count + 10) * cfg.tile, "no progress"
            if written:
                seen.writes.append((*written, pairs["overflow"]))
            else:
                assert not clock["overflow"]
            written = clock["x_w_en"] and (ctx.get(unit.x_w_slot), ctx.get(unit.x_w_row),
                                           [ctx.get(w) for w in unit.x_w_data])
            for n in (0, 1):
                if n in taken:
                    seen.order.append((n, todo[n].pop(0), ctx.get(arbiter.o.payload.b_reuse)))
                    gap[n] = gaps() if gaps else 0
                elif gap[n]:
                    gap[n] -= 1
            done += clock["exec_done"]
            await ctx.tick()

    sim = Simulator(m)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    return seen


def model(cfg, tiles, operations, context=0):
    """Rows that a context's operations write: (slot, row, words, overflow by context)."""
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
            pair = (0, overflows) if context else (overflows, 0)
            expected.append((op["acc_slot"], r, words, pair))
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


def random_job(rng, cfg, count, contexts=1):
    """Tiles in every bank; per context operations, often on one accumulator slot in turn."""
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
    free = rng.sample(range(cfg.acc_slots), 4 if contexts == 1 else cfg.acc_slots)
    jobs = []
    for n in range(contexts):
        slots = free[n::contexts][:4]
        # every row is defined before anything is added to it
        operations = [operation(square[0], square[0], s, cfg.tile, overwrite=1) for s in slots]
        for _ in range(count):
            a = rng.choice(square + by_row)
            last = operations[-1]
            reuse = rng.random() < 0.3
            b = last["b_slot"], last["b_col"]
            if not reuse:
                b = rng.choice(square), rng.random() < 0.5
            operations.append(operation(
                a, b[0], rng.choice([last["acc_slot"], *slots]),
                rng.choice([cfg.tile, rng.randint(1, cfg.tile)]),
                a_col=a in square and rng.random() < 0.5, b_col=b[1],
                b_reuse=reuse, overwrite=rng.random() < 0.3))
        jobs.append(operations)
    return tiles, jobs


def zero_tiles(cfg):
    rows = [([0] * cfg.tile, 127)] * cfg.tile
    return {slot(cfg, bank, 0): rows for bank in range(cfg.spad_banks)}


def check_protocol(cfg, seen):
    """Pulses, counters and their order."""
    operations = [op for _, op, _ in seen.order]
    assert seen.total("busy") == sum(op["rows"] for op in operations)
    assert seen.total("exec_read") == seen.total("exec_done") == len(operations)
    a_needed = b_needed = written = 0
    reads, dones = iter(seen.order), iter(seen.order)
    so_far = dict.fromkeys(("a_en", "b_en", "x_w_en", "busy", "taken"), 0)
    ends, end = [], 0
    for op in operations:
        end += op["rows"]
        ends.append(end)
    before = None
    for context, op, reuses in seen.order:
        assert reuses == (op["b_reuse"] and context == before)
        before = context
    started = left = owner = held = 0
    for clock in seen.clocks:
        pairs = clock["pairs"]
        # operations whose command was taken before this clock and that have rows left to read
        pending = so_far["taken"] and so_far["busy"] < ends[so_far["taken"] - 1]
        assert clock["busy"] + sum(clock[s] for s in STALLS) == bool(pending)
        if clock["busy"] and so_far["busy"] == sum(op["rows"] for op in operations[:started]):
            owner, op, reuses = seen.order[started]
            left = max(left, op["rows"] if reuses else cfg.tile)
            started += 1
        waiting = started < so_far["taken"]
        for n in (0, 1):
            assert pairs["occupied"][n] == (left > 0 and owner == n)
            assert clock["inside"][n] == (pairs["occupied"][n]
                                          or (waiting and seen.order[started][0] == n))
        assert not clock["busy"] or pairs["busy"][owner]
        for name in STALLS:
            assert not clock[name] or pairs[name][seen.order[started][0]]
        left -= left > 0
        assert clock["held"] == held
        waits = clock["offers"][1] and clock["inside"][0]
        for name in so_far:
            so_far[name] += clock[name]
        taken = clock["taken"] and seen.order[so_far["taken"] - 1][0]
        held = held + 1 if waits and not taken else 0
        if clock["exec_read"]:
            context, op, reuses = next(reads)
            assert pairs["exec_read"][context]
            a_needed += op["rows"]
            b_needed += cfg.tile * (not reuses)
            assert so_far["a_en"] >= a_needed
            assert so_far["b_en"] >= b_needed
        if clock["exec_done"]:
            context, op, _ = next(dones)
            assert pairs["exec_done"][context]
            written += op["rows"]
            assert so_far["x_w_en"] == written
