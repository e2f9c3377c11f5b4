"""The vector stream's commands against a reference written from docs/architecture.md."""

import itertools
import random

import pytest
from sequencer_bench import CFG, Bench, compare

from hw.control.commands import Destination, Source
from hw.control.vector_sequencer import VectorSequencer
from hw.isa import Function, Kind, Opcode
from sw.compiler.assembler import window

T = CFG.tile
X_ONLY = {Function.NONE, Function.SCALE, Function.RELU, Function.EXP, Function.RECIP,
          Function.RSQRT, Function.COLUMN_SUM, Function.ROW_MEAN, Function.ROW_MAX}
STATE = {Function.COLUMN_SUM, Function.ROW_MEAN, Function.ROW_MAX, Function.SOFTMAX, Function.MSE}
ROW = {Function.ROW_MEAN, Function.ROW_MAX}
LOSS = {Function.SOFTMAX, Function.MSE}
ALL = list(Function)  # NONE: CONVERT


class Reference:
    """All commands in order, as (queue, fields); `instruction` may be called several times."""

    def __init__(self):
        self.issued = {"load": 0, "vector": 0, "store": 0}

    def instruction(self, f):
        self.f, self.function = f, Function(f["function"])
        self.log, self.accesses = {q: [] for q in self.issued}, []
        w = f["y_window"]
        slots = 1 << w["h_log2"] + w["w_log2"]
        size = 4 if self.function is Function.SGD else \
            1 if self.function in X_ONLY - STATE else 2
        state = self.function in STATE
        sets = min(8, slots // size)
        before = dict(self.issued)
        self.before = before["store"]
        last = {s: (before["vector"], before["store"]) for s in range(sets)}
        self.state_store = before["store"]
        turns = itertools.cycle(range(1 if state else 0, sets))
        for m, n, turn, first, end in self.tiles():
            self.set = next(turns)
            self.base = w["base"] + self.set * size
            last[self.set] = self.operation(m, n, turn, first, end, last[self.set])
        return self.log

    def tiles(self):
        f = self.f
        rows, cols = (range(-(-f[d] // T)) for d in "mn")
        if self.function is Function.COLUMN_SUM:
            return [(m, n, 0, m == 0, m == rows[-1]) for n in cols for m in rows]
        turns = range(3 if self.function is Function.SOFTMAX else 1)
        return [(m, n, t, n == 0, n == cols[-1]) for m in rows for t in turns for n in cols]

    def give(self, queue, **fields):
        self.issued[queue] += 1
        self.log[queue].append(fields)
        if "addr" in fields:
            self.accesses.append((queue, fields["addr"], self.bytes_of(fields)))

    @staticmethod
    def bytes_of(fields):
        fp32 = fields["fp32"] if "fp32" in fields else not fields["bfp"]
        return CFG.fp32_bytes if fp32 else CFG.bfp_bytes

    def image(self, name, i, j, fp32):
        size = CFG.fp32_bytes if fp32 else CFG.bfp_bytes
        return self.f[f"{name}_addr"] + (i * self.f[f"{name}_pitch"] + j) * size

    def load(self, name, i, j, place, fp32, rows, cols, last, row_exp=0):
        vector, store = last
        self.give("load", source=Source.VECTOR.value, dest=Destination.ACC.value,
                  kind=self.f[f"{name}_kind"], fp32=fp32, row_exp=row_exp,
                  slot=self.base + place, rows=rows, cols=cols,
                  addr=self.image(name, i, j, fp32), vector_done=vector, store_read=store,
                  store_done=0 if self.f[f"{name}_independent"] else self.before)

    def store(self, name, i, j, slot, rows, cols, kind=None, bfp=0):
        f = self.f
        extra = {"row_exp": f["y_row"], "stochastic": f["stochastic"], "salt": f["salt"],
                 "row0": (f["y_row0"] + i * T) % 2**20,
                 "col0": (f["y_col0"] + j * T) % 2**20} if name == "y" else {}
        waits = {"load_done": self.issued["load"]} if self.function is Function.NONE else \
            {"vector_done": self.issued["vector"]}
        self.give("store", source=Source.VECTOR.value, slot=slot, bfp=bfp, final=1, rows=rows,
                  cols=cols, kind=f[f"{name}_kind"] if kind is None else kind,
                  addr=self.image(name, i, j, not bfp), **extra, **waits)
        return self.issued["store"]

    def operation(self, m, n, turn, first, end, last):
        f, fn, base = self.f, self.function, self.f["y_window"]["base"]
        rows, cols = (min(T, f[d] - T * t) for d, t in (("m", m), ("n", n)))
        final_turn = fn is not Function.SOFTMAX or turn == 2
        self.load("x", m, n, 0, f["x_fp32"], rows, cols, last, f["x_row"])
        if fn not in X_ONLY and final_turn:
            bias = fn in (Function.BIAS, Function.BIAS_RELU)
            self.load("w", 0 if bias else m, n, 1, f["w_fp32"], 1 if bias else rows, cols, last)
        if fn is Function.SGD:
            self.load("dy", m, n, 2, 1, rows, cols, last)
        vector, store = last
        if fn is not Function.NONE:
            slots = {"a": self.base}
            if fn not in X_ONLY and final_turn:
                slots["b"] = self.base + 1
            if fn is Function.SGD:
                slots["c"] = self.base + 2
            if fn in STATE:
                slots |= {"t0": base, "first": first, "last": end}
            if fn in LOSS:
                slots["t1"] = base + 1
            self.give("vector", source=Source.VECTOR.value, function=fn.value, turn=turn,
                      rows=rows, cols=cols, scalar=f["scalar"], **slots,
                      load_done=self.issued["load"],
                      store_read=self.state_store if fn in STATE else 0)
            vector = self.issued["vector"]
        if fn is Function.SGD:
            self.store("w", m, n, self.base + 1, rows, cols)
            store = self.store("dy", m, n, self.base + 2, rows, cols)
        if fn is Function.COLUMN_SUM:
            if end:
                self.state_store = self.store("y", 0, n, base, 1, cols, bfp=f["y_bfp"])
        elif fn in ROW:
            if end:
                self.state_store = self.store("y", m, 0, base, rows, 1, bfp=f["y_bfp"])
        elif final_turn and not (f["y_off"] and fn in LOSS | {Function.SGD}):
            store = self.store("y", m, n, self.base + 2 * (fn is Function.SGD), rows, cols,
                               bfp=f["y_bfp"])
        if fn in LOSS and final_turn and end and not f["dw_off"]:
            self.state_store = self.store("dw", m, 0, base + 1, rows, 1, Kind.LOSS.value)
        return vector, store


def fields(function, shape, seed, slots_log2=None, **extra):
    rng = random.Random(seed)
    m, n = (s * T - rng.randrange(T) for s in shape)
    least = 2 if function in STATE | {Function.SGD} else 1 if function not in X_ONLY else 0
    if slots_log2 is None:
        slots_log2 = rng.randrange(least, 6)
    slots_log2 = max(least, slots_log2)
    high = rng.randrange(slots_log2 + 1)
    y_off = rng.randrange(2)
    return {
        "opcode": (Opcode.CONVERT if function is Function.NONE else Opcode.VECTOR).value,
        "function": function.value, "m": m, "n": n, "k": 0,
        "x_addr": 0x00000, "w_addr": 0x10000, "dy_addr": 0x20000, "y_addr": 0x30000,
        "dw_addr": 0x40000, **{f"{t}_pitch": rng.randrange(8, 12) for t in ("x", "w", "dy", "y",
                                                                            "dw")},
        **{f"{t}_kind": rng.randrange(len(Kind)) for t in ("x", "w", "dy", "y")},
        **{f: rng.randrange(2) for f in ("x_row", "y_row", "x_fp32", "y_bfp", "stochastic",
                                         "x_independent", "w_independent", "dy_independent")},
        "w_fp32": 1 if function is Function.SGD else rng.randrange(2),
        "y_off": y_off, "dw_off": rng.randrange(2) if not y_off else 0,
        "salt": rng.getrandbits(32), "scalar": rng.getrandbits(32),
        "y_row0": rng.getrandbits(20), "y_col0": rng.getrandbits(20),
        "y_window": window(rng.randrange(64 - (1 << slots_log2) + 1), high, slots_log2 - high),
        **extra,
    }


def check(programs, seed, **options):
    bench = Bench(VectorSequencer(CFG), programs, seed, **options).run()
    reference = Reference()
    for f, log in zip(programs, bench.logs, strict=True):
        expected = reference.instruction(f)
        for queue, got in log.items():
            compare(got, expected[queue])
    return bench


@pytest.mark.parametrize("function", ALL, ids=lambda f: f.name.lower())
def test_commands_equal_the_reference(function):
    programs = [fields(function, shape, seed)
                for seed, shape in enumerate([(1, 1), (3, 2), (1, 3), (2, 1), (3, 3)])]
    check(programs, 1)


@pytest.mark.parametrize("slots_log2", range(6))
def test_sets_from_one_to_eight(slots_log2):
    programs = [fields(function, (3, 3), function.value, slots_log2)
                for function in (Function.MSE, Function.RELU, Function.SGD, Function.ADD,
                                 Function.SOFTMAX, Function.NONE, Function.COLUMN_SUM)]
    check(programs, 2)


@pytest.mark.parametrize("depth", [1, 8])
@pytest.mark.parametrize("pace", [0.2, 0.9])
def test_functions_at_random(depth, pace):
    rng = random.Random(depth)
    programs = [fields(rng.choice(ALL), (rng.randrange(1, 4), rng.randrange(1, 4)), seed)
                for seed in range(10)]
    check(programs, 3, depth=depth, pace=pace)


def test_loads_run_ahead_by_the_sets():
    """With units that do nothing, all sets but no more are loaded, and quickly."""
    f = fields(Function.ADD, (3, 3), 0, slots_log2=4)
    reference = Reference()
    reference.instruction(f)
    loads = reference.log["load"]
    assert [c["slot"] for c in loads[:16]] == list(range(loads[0]["slot"], loads[0]["slot"] + 16))
    assert all(c["vector_done"] == 0 for c in loads[:16])
    assert all(c["vector_done"] for c in loads[16:])
    bench = check([f], 4, depth=64, pace=1)
    commands = sum(len(c) for c in bench.logs[0].values())
    assert bench.clocks < 5 * commands


@pytest.mark.parametrize("function", [Function.NONE, Function.BIAS, Function.SGD,
                                      Function.COLUMN_SUM, Function.SOFTMAX],
                         ids=lambda f: f.name.lower())
def test_the_first_image_outside_the_region_is_refused(function):
    f = fields(function, (2, 3), 1, y_off=0, dw_off=0)
    for name in ("x", "w", "dy", "y", "dw"):  # one operand or result after the other comes last
        f[f"{name}_addr"] += 0x80000
        reference = Reference()
        reference.instruction(f)
        accesses = reference.accesses
        ends = [addr + size for _, addr, size in accesses]
        region = max(ends) - 1
        position = next(i for i, end in enumerate(ends) if end > region)
        bench = Bench(VectorSequencer(CFG), [f], 5, region=region).run()
        assert bench.refused == accesses[position][1]
        for queue in ("load", "store"):
            count = sum(q == queue for q, *_ in accesses[:position])
            compare(bench.logs[0][queue], reference.log[queue][:count])
        f[f"{name}_addr"] -= 0x80000
