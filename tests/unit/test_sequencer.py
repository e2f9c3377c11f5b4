"""The array stream's commands against a reference written from docs/architecture.md."""

import random
from dataclasses import dataclass

import pytest
from sequencer_bench import CFG, FORGET, Bench, compare

from hw.control.commands import Destination, Source
from hw.control.sequencer import Sequencer
from hw.isa import Function, Kind, Opcode, Order, XSource, YTarget
from sw.compiler.assembler import window

T = CFG.tile
GEMM_FUNCTIONS = (Function.NONE, Function.BIAS, Function.RELU, Function.BIAS_RELU)
BIASED = (Function.BIAS, Function.BIAS_RELU)


def slot(w, i, j):
    return w["base"] + ((i % (1 << w["h_log2"])) << w["w_log2"]) + j % (1 << w["w_log2"])


@dataclass
class Entry:
    """A slot: its tile (None: none, or finished) and the numbers of its last commands."""

    tile: tuple | None = None
    exec: int = 0
    load: int = 0
    store: int = 0
    spill: int = 0


class Reference:
    """All commands in order, as (queue, fields); `instruction` may be called several times."""

    def __init__(self):
        self.issued = {"load": 0, "exec": 0, "vector": 0, "store": 0}
        self.spad, self.acc, self.biases, self.loaded = {}, {}, set(), 0
        self.f, self.on_chip = None, 0  # number of the last operation that found X on chip

    def instruction(self, f):
        if self.f and self.f.get("x_source"):
            self.on_chip = self.issued["exec"]
        self.f = f
        self.log, self.accesses = {q: [] for q in self.issued}, []
        self.count = {d: -(-f[d] // T) for d in "mnk"}
        self.stores, self.vectors = self.issued["store"], self.issued["vector"]
        for entry in self.spad.values():
            if entry.tile and not entry.tile[0]:
                entry.tile = None
        w = f["e_window"]
        self.ring = [self.vectors] * (1 << w["h_log2"] + w["w_log2"])
        self.following, self.operand, self.previous = 0, None, None
        self.bias_tiles = set()
        for op in self.operations():
            self.operation(*op)
        if f.get("w_keep") and Function(f["function"]) in BIASED:
            self.biases.add(f["w_keep"])
        return self.log

    def forget(self):
        """Kept tiles; the others are forgotten before each instruction."""
        for entry in self.spad.values():
            entry.tile = None
        self.biases.clear()

    # --- loops: (is it dW, m, n, k) -------------------------------------------------------------
    def nest(self, names, done=None):
        """Positions of a nest of loops: capitals over blocks, small letters over their tiles."""
        done = done or {}
        if not names:
            yield done["m"], done["n"], done["k"]
            return
        name, d = names[0], names[0].lower()
        size = self.f[f"b{d}"] or self.count[d]
        if name.isupper():
            values = range(0, self.count[d], size)
        else:
            begin = done[d.upper()]
            values = range(begin, min(begin + size, self.count[d]))
        for v in values:
            yield from self.nest(names[1:], {**done, name: v})

    def operations(self):
        f = self.f
        if Opcode(f["opcode"]) is Opcode.GEMM:
            return [(None, *p) for p in self.nest("KMNknm")]
        order = Order(f["order"])
        if order in (Order.SEQUENTIAL, Order.INTERLEAVED):
            dx = [(False, *p) for p in self.nest("MKNnkm")]
            dw = [(True, *p) for p in self.nest("NKMmnk")]
            ops = dx + dw if order is Order.SEQUENTIAL else \
                [op for pair in zip(dx, dw, strict=True) for op in pair]
        else:
            blocks = "KMNk" if order is Order.DX_MAJOR else "KNMk"
            size = {d: f[f"b{d}"] or self.count[d] for d in "mnk"}
            steps = {}  # of one block and k: all of dW, then all of dX
            for is_dw, inner in ((True, "mn"), (False, "nm")):
                for m, n, k in self.nest(blocks + inner):
                    step = (m // size["m"], n // size["n"], k)
                    steps.setdefault(step, []).append((is_dw, m, n, k))
            ops = [op for step in steps.values() for op in step]
        return [op for op in ops if not f["dw_off" if op[0] else "y_off"]]

    # --- commands ------------------------------------------------------------------------------
    def give(self, queue, **fields):
        self.issued[queue] += 1
        if queue != "exec":
            fields["source"] = Source.ARRAY.value
        if queue == "load":
            fields = {"gather": 0, "row": 0, **fields}
        if queue == "store":
            fields = {"spad": 0, "scatter": 0, "row": 0, **fields}
        self.log[queue].append(fields)
        if "addr" in fields and not fields.get("spad"):
            fp32 = fields["fp32"] if "fp32" in fields else not fields["bfp"]
            self.accesses.append((queue, fields["addr"],
                                  CFG.fp32_bytes if fp32 else CFG.bfp_bytes))
        return self.issued[queue]

    def address(self, name, i, j, fp32):
        size = CFG.fp32_bytes if fp32 else CFG.bfp_bytes
        return self.f[f"{name}_addr"] + (i * self.f[f"{name}_pitch"] + j) * size

    def valid(self, d, tile):
        return min(T, self.f[d] - tile * T)

    def after_stores(self, name):
        return 0 if self.f[f"{name}_independent"] else self.stores

    def lookup(self, name, i, j, dims, windows):
        """Entry of an operand, loaded into the first of `windows` if it is in none of them."""
        f = self.f
        if name == "x" and f.get("x_source"):  # it lies there, whatever the slot is known to hold
            w = f["x_window"]
            behind = f.get("buffer", 0) if f["x_source"] == XSource.REQUEST.value else 0
            where = slot(w, i, j) + (behind << w["h_log2"] + w["w_log2"])
            return where, Entry(), True
        tile = (f.get("w_keep", 0) if name == "w" else 0, name, i, j)
        for w in windows:
            entry = self.spad.setdefault(slot(self.f[w], i, j), Entry())
            if entry.tile == tile:
                return slot(self.f[w], i, j), entry, True
        where = slot(self.f[windows[0]], i, j)
        entry = self.spad[where]
        entry.load = self.give(
            "load", dest=Destination.SPAD.value, kind=Kind[name.upper()].value, fp32=0,
            row_exp=name == "x" and self.f["x_row"], slot=where, rows=self.valid(dims[0], i),
            cols=self.valid(dims[1], j), addr=self.address(name, i, j, False),
            exec_read=max(entry.exec, self.on_chip), store_done=self.after_stores(name))
        entry.tile = tile
        return where, entry, False

    def operation(self, is_dw, m, n, k):
        f = self.f
        dy = ["dy_window"]
        if f["order"] == Order.INTERLEAVED.value:
            dy = ["dy2_window", "dy_window"] if is_dw else ["dy_window", "dy2_window"]
        operands = {"x": ("x", m, k, "mk", ["x_window"]), "w": ("w", k, n, "kn", ["w_window"]),
                    "dy": ("dy", m, n, "mn", dy)}
        a, b, out, i, j, r, dims, depth, kind = {
            None: ("x", "w", "y", m, n, k, "mn", "k", Kind.Y),
            False: ("dy", "w", "y", m, k, n, "mk", "n", Kind.DX),
            True: ("x", "dy", "dw", k, n, m, "kn", "m", Kind.DW)}[is_dw]
        on_chip = bool(f.get("x_source"))
        slot_a, entry_a, _ = self.lookup(*operands[a])
        entry_a.exec = self.issued["exec"] + 1
        slot_b, entry_b, hit_b = self.lookup(*operands[b])
        entry_b.exec = self.issued["exec"] + 1

        where = slot(f[f"{out}_window"], i, j)
        acc = self.acc.setdefault(where, Entry())
        fp32_waits = {"vector_done": self.vectors}
        spilled_before = acc.spill
        if acc.tile not in (None, (i, j)):
            oi, oj = acc.tile
            acc.store = acc.spill = self.give(
                "store", slot=where, kind=Kind.PARTIAL.value, bfp=0, final=0,
                rows=self.valid(dims[0], oi), cols=self.valid(dims[1], oj),
                addr=self.address(f"{out}_part", oi, oj, True), exec_done=acc.exec)
        loads = [0 if on_chip else entry_a.load, entry_b.load]
        rows, cols = self.valid(dims[0], i), self.valid(dims[1], j)
        overwrite = acc.tile != (i, j)
        if overwrite and (r or f[f"{out}_accumulate"]):
            source, k_, done = (f"{out}_part", Kind.PARTIAL, spilled_before) if r else \
                (out, kind, self.stores)
            loads.append(self.give(
                "load", dest=Destination.ACC.value, kind=k_.value, fp32=1, slot=where, rows=rows,
                cols=cols, addr=self.address(source, i, j, True), store_read=acc.store,
                store_done=done, **fp32_waits))
            overwrite = False
        b_key = (slot_b, is_dw is False)
        acc.exec = self.give(
            "exec", a_slot=slot_a, a_col=is_dw is True, b_slot=slot_b, b_col=is_dw is False,
            b_reuse=hit_b and self.previous == b_key, acc_slot=where, overwrite=overwrite,
            rows=rows, load_done=max(loads), store_read=acc.store,
            store_done=self.stores if on_chip else 0, **fp32_waits)
        self.previous = b_key
        acc.tile = (i, j)
        if r == self.count[depth] - 1:
            acc.tile = None
            vector = 0
            if f["function"] and not is_dw:
                vector = self.epilogue(i, j, where, rows, cols)
            if f.get("y_target") == YTarget.ACC.value:
                return
            bfp = f[f"{out}_bfp"]
            place = {"addr": self.address(out, i, j, not bfp)}
            if f.get("y_target") == YTarget.CHIP.value:
                place = {"addr": 0, "spad": 1, "spad_slot": slot(f["dw_window"], i, j)}
            acc.store = self.give(
                "store", slot=where, kind=kind.value, bfp=bfp, row_exp=f["y_row"], final=1,
                stochastic=f["stochastic"], rows=rows, cols=cols, **place,
                salt=(f["salt"] + bool(is_dw)) % 2**32,
                row0=(f[f"{out}_row0"] + i * T) % 2**20, col0=(f[f"{out}_col0"] + j * T) % 2**20,
                exec_done=acc.exec, vector_done=vector)

    def epilogue(self, i, j, where, rows, cols):
        f = self.f
        function = Function(f["function"])
        waits = {"exec_done": self.issued["exec"]}
        fields = {"function": function.value, "a": where, "rows": rows, "cols": cols, "b_row": 0}
        if function in BIASED and f.get("w_keep"):
            place = {"slot": f["e_window"]["base"] + j // T, "row": j % T}
            if f["w_keep"] not in self.biases and j not in self.bias_tiles:
                self.bias_tiles.add(j)
                self.loaded = self.give(
                    "load", dest=Destination.ACC.value, fp32=1, row_exp=0, gather=1, **place,
                    kind=Kind.BIAS.value, rows=1, cols=cols, addr=self.address("dy", 0, j, True),
                    vector_done=self.vectors, store_read=self.stores,
                    store_done=self.after_stores("dy"))
            fields |= {"b": place["slot"], "b_row": place["row"]}
            waits["load_done"] = self.loaded
        elif function is not Function.RELU:
            bias = function in BIASED
            tile = (0, j) if bias else (i, j)
            name = "dy" if bias else "x"
            if self.operand != tile:
                self.operand, self.present = tile, self.following
                self.following = (self.following + 1) % len(self.ring)
                self.loaded = self.give(
                    "load", dest=Destination.ACC.value, fp32=bias, row_exp=0,
                    kind=(Kind.BIAS if bias else Kind.X).value,
                    slot=f["e_window"]["base"] + self.present, rows=1 if bias else rows,
                    cols=cols, addr=self.address(name, *tile, bias),
                    vector_done=self.ring[self.present], store_read=self.stores,
                    store_done=self.after_stores(name))
            self.ring[self.present] = self.issued["vector"] + 1
            fields["b"] = f["e_window"]["base"] + self.present
            waits["load_done"] = self.loaded
        return self.give("vector", **fields, **waits)


def fields(opcode, shape, seed, **extra):
    rng = random.Random(seed)
    m, n, k = (s * T - rng.randrange(T) for s in shape)

    def win(base, most=3):
        return window(base, rng.randrange(most), rng.randrange(most))

    return {
        "opcode": opcode.value, "order": 0, "function": 0, "m": m, "n": n, "k": k,
        "bm": rng.randrange(4), "bn": rng.randrange(4), "bk": rng.randrange(4),
        "x_addr": 0x0000, "w_addr": 0x10000, "dy_addr": 0x20000, "y_addr": 0x30000,
        "dw_addr": 0x40000, "y_part_addr": 0x50000, "dw_part_addr": 0x60000,
        **{f"{t}_pitch": rng.randrange(8, 12) for t in ("x", "w", "dy", "y", "dw", "y_part",
                                                        "dw_part")},
        **{f: rng.randrange(2) for f in ("y_bfp", "dw_bfp", "stochastic", "x_independent",
                                         "w_independent", "dy_independent")},
        "x_row": rng.randrange(2) if opcode is Opcode.GEMM else 0,
        "y_row": rng.randrange(2) if opcode is Opcode.GEMM else 0,
        "y_off": 0, "dw_off": 0, "y_accumulate": 0, "dw_accumulate": 0,
        "salt": rng.getrandbits(32),
        **{f: rng.getrandbits(20) for f in ("y_row0", "y_col0", "dw_row0", "dw_col0")},
        "x_window": win(0), "w_window": win(64), "dy_window": win(128), "dy2_window": win(192),
        "y_window": win(rng.randrange(16)), "dw_window": win(32),
        "e_window": window(rng.randrange(48, 60), rng.randrange(2), rng.randrange(2)), **extra,
    }


def check(programs, seed, **options):
    bench = Bench(Sequencer(CFG), programs, seed, **options).run()
    reference = Reference()
    logs = iter(bench.logs)
    for f in programs:
        if f is FORGET:
            reference.forget()
            continue
        expected, log = reference.instruction(f), next(logs)
        for queue, got in log.items():
            compare(got, expected[queue])
    assert next(logs, None) is None
    return bench


SHAPES = [(1, 1, 1), (3, 2, 3), (2, 3, 2), (3, 3, 3)]


@pytest.mark.parametrize("order", Order, ids=lambda o: o.name.lower())
def test_gradients_equal_the_reference(order):
    check([fields(Opcode.GRAD, shape, seed, order=order.value, y_off=seed == 1, dw_off=seed == 2,
                  dw_accumulate=seed == 3, dw_bfp=0, function=0 if seed < 2 else
                  Function.RELU_GRAD.value) for seed, shape in enumerate(SHAPES)], 1)


@pytest.mark.parametrize("function", GEMM_FUNCTIONS, ids=lambda f: f.name.lower())
def test_products_equal_the_reference(function):
    check([fields(Opcode.GEMM, shape, seed, function=function.value, y_accumulate=seed == 2,
                  y_bfp=seed == 3) for seed, shape in enumerate(SHAPES)], 2)


@pytest.mark.parametrize("ring", [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0)])
def test_rings_of_epilogue_operands(ring):
    one = window(60)
    programs = [fields(opcode, (2, 3, 1), seed, function=function.value, bm=1, bn=0, bk=0,
                       e_window=window(40, *ring), y_window=window(0, 1, 1))
                for seed, (opcode, function) in enumerate([
                    (Opcode.GEMM, Function.BIAS), (Opcode.GRAD, Function.RELU_GRAD),
                    (Opcode.GEMM, Function.BIAS_RELU)])]
    # The ring where the results were, and the other way round; a window of one slot.
    programs += [fields(Opcode.GEMM, (2, 2, 2), 7, function=Function.BIAS.value,
                        e_window=window(0, *ring), y_window=window(40, 1, 1)),
                 fields(Opcode.GEMM, (2, 2, 2), 8, function=Function.BIAS.value, e_window=one,
                        **{f"{t}_window": window(s) for t, s in (("x", 0), ("w", 1), ("y", 0))})]
    check(programs, 3, depth=8)


@pytest.mark.parametrize(("depth", "pace"), [(1, 0.2), (16, 0.2), (2, 0.9)])
def test_programs_at_random(depth, pace):
    rng = random.Random(depth)
    programs = []
    for seed in range(6):
        opcode = rng.choice([Opcode.GEMM, Opcode.GRAD])
        functions = GEMM_FUNCTIONS if opcode is Opcode.GEMM else (Function.NONE,
                                                                  Function.RELU_GRAD)
        extra = {"order": rng.randrange(4)} if opcode is Opcode.GRAD else {}
        if rng.random() < 0.3:
            extra |= {f"{t}_window": window(s) for t, s in (
                ("x", 3), ("w", 4), ("dy", 5), ("dy2", 6), ("y", 7), ("dw", 8), ("e", 9))}
        programs.append(fields(opcode, [rng.randrange(1, 4) for _ in range(3)], seed + 20,
                               function=rng.choice(functions).value, **extra))
    check(programs, 4, depth=depth, pace=pace)


@pytest.mark.parametrize(("opcode", "function"), [(Opcode.GEMM, Function.BIAS),
                                                  (Opcode.GRAD, Function.RELU_GRAD)],
                         ids=["gemm", "grad"])
def test_the_first_image_outside_the_region_is_refused(opcode, function):
    one = {f"{t}_window": window(s) for t, s in (
        ("x", 3), ("w", 4), ("dy", 5), ("dy2", 6), ("y", 7), ("dw", 8), ("e", 9))}
    f = fields(opcode, (2, 1, 2), 1, function=function.value, order=2, bm=0, bn=0, bk=0, **one)
    for name in ("x", "w", "dy", "y", "y_part" if opcode is Opcode.GEMM else "dw"):
        f[f"{name}_addr"] += 0x80000  # one tensor after the other lies outside
        reference = Reference()
        reference.instruction(f)
        ends = [addr + size for _, addr, size in reference.accesses]
        region = max(ends) - 1
        position = next(i for i, end in enumerate(ends) if end > region)
        bench = Bench(Sequencer(CFG), [f], 5, region=region).run()
        assert bench.refused == reference.accesses[position][1]
        for queue in ("load", "store"):
            count = sum(q == queue for q, *_ in reference.accesses[:position])
            compare(bench.logs[0][queue], reference.log[queue][:count])
        f[f"{name}_addr"] -= 0x80000
