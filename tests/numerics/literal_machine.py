"""docs/architecture.md word by word: one GEMM or GRAD, tile by tile, on a copy of the memory.

Residency comes from dictionaries of slots, values from `literal`. Shares no code with sw.golden.
"""

import itertools
from fractions import Fraction

from literal import NAN, relu, relu_grad, round24
from literal_memory import Memory

from hw.isa import Function, Kind, Opcode, Order, XSource, YTarget

#: Dimensions of the operands of GEMM and GRAD.
SHAPES = {"x": "mk", "w": "kn", "dy": "mn"}


class Chip:
    """What stays on chip from instruction to instruction, by slot.

    Tags (w_keep, row, column) of kept tiles; rows (exponent byte, T mantissas) of BFP tiles by
    (slot, row); rows of T numbers of FP32 tiles; `w_keep` of kept biases.
    """

    def __init__(self):
        self.kept, self.spad, self.acc, self.biases = {}, {}, {}, set()

    def forget(self):
        """What is kept."""
        self.kept.clear()
        self.biases.clear()


class ArrayInstruction(Memory):
    """GEMM or GRAD. `rows` are those of the running batch, `buffer` is where its inputs are."""

    def __init__(self, cfg, memory, fields, seed=0, chip=None, rows=0, buffer=0):
        super().__init__(cfg, memory, {**fields, "m": rows} if fields["run_m"] else fields, seed)
        self.chip, self.buffer = chip or Chip(), buffer

    def blocks(self, d):
        size = self.size[d]
        step = min(self.f[f"b{d}"] or size, size)
        return [range(s, min(s + step, size)) for s in range(0, size, step)]

    def run(self):
        """Execute it."""
        f = self.f
        self.tags = {w: {} for w in ("x", "w", "dy", "dy2", "y", "dw")}
        self.last_operand, self.bias_tiles = None, set()
        opcode, order = Opcode(f["opcode"]), Order(f["order"])
        bm, bn, bk = (self.blocks(d) for d in "mnk")
        if opcode is Opcode.GEMM:
            ops = [("y", m, n, k) for K, M, N in itertools.product(bk, bm, bn)
                   for k in K for n in N for m in M]
        elif order in (Order.SEQUENTIAL, Order.INTERLEAVED):
            dx = [("dx", m, n, k) for M, K, N in itertools.product(bm, bk, bn)
                  for n in N for k in K for m in M]
            dw = [("dw", m, n, k) for N, K, M in itertools.product(bn, bk, bm)
                  for m in M for n in N for k in K]
            ops = dx + dw if order is Order.SEQUENTIAL else \
                [o for pair in zip(dx, dw, strict=True) for o in pair]
        else:
            outer = [(K, M, N) for K, M, N in itertools.product(bk, bm, bn)] \
                if order is Order.DX_MAJOR else \
                [(K, M, N) for K, N, M in itertools.product(bk, bn, bm)]
            ops = []
            for K, M, N in outer:
                for k in K:
                    ops += [("dw", m, n, k) for m in M for n in N]
                    ops += [("dx", m, n, k) for n in N for m in M]
        for what, m, n, k in ops:
            if what == "y":
                self.operation(("x", m, k), ("w", k, n), False, "y", Kind.Y, m, n, k,
                               self.size["k"])
            elif what == "dx" and not f["y_off"]:
                self.operation(("dy", m, n), ("w", k, n), True, "y", Kind.DX, m, k, n,
                               self.size["n"])
            elif what == "dw" and not f["dw_off"]:
                self.operation(("x", m, k), ("dy", m, n), False, "dw", Kind.DW, k, n, m,
                               self.size["m"])
        if f["w_keep"] and Function(f["function"]) in (Function.BIAS, Function.BIAS_RELU):
            self.chip.biases.add(f["w_keep"])
        return self

    def slot(self, name, i, j):
        w = self.f[f"{name}_window"]
        return (i % 2 ** w["h_log2"]) * 2 ** w["w_log2"] + j % 2 ** w["w_log2"]

    def place(self, name, i, j):
        """Slot counted from the first one of the memory."""
        return self.f[f"{name}_window"]["base"] + self.slot(name, i, j)

    def lookup(self, name, i, j, is_dx):
        if name == "x" and self.f["x_source"]:
            return
        if name == "w" and self.f["w_keep"]:
            tag = (self.f["w_keep"], i, j)
            if self.chip.kept.get(self.place(name, i, j)) != tag:
                self.load(name, name, i, j)
            self.chip.kept[self.place(name, i, j)] = tag
            return
        windows = ["dy", "dy2"] if name == "dy" and self.f["order"] == Order.INTERLEAVED.value \
            else [name]
        if any(self.tags[w].get(self.slot(w, i, j)) == (i, j) for w in windows):
            return
        fill = windows[0] if is_dx or len(windows) == 1 else windows[1]
        self.tags[fill][self.slot(fill, i, j)] = (i, j)
        self.load(name, fill, i, j)

    def load(self, name, fill, i, j):
        """Read an operand's tile into window `fill`."""
        self.chip.kept.pop(self.place(fill, i, j), None)
        self.touch(False, Kind[name.upper()], name, i, j, True, self.valid(i, j, SHAPES[name])[0])

    def shape(self, out):
        if out == "dw":
            return "kn"
        return "mk" if self.f["opcode"] == Opcode.GRAD.value else "mn"

    def operation(self, a, b, b_transposed, out, kind, i, j, r, depth):
        self.operations += 1
        is_dx = b_transposed
        self.lookup(*a, is_dx)
        self.lookup(*b, is_dx)
        tags, slot = self.tags[out], self.slot(out, i, j)
        valid = self.valid(i, j, self.shape(out))
        here = tags.get(slot)
        if here and here[:2] != (i, j):
            self.store(out, f"{out}_part", *here[:3], Kind.PARTIAL, False,
                       self.valid(*here[:2], self.shape(out)), False)
            here = None
        if here is None:
            tile = [[Fraction(0)] * self.t for _ in range(self.t)]
            if r > 0:
                tile = self.fill(f"{out}_part", i, j, Kind.PARTIAL, valid)
            elif self.f[f"{out}_accumulate"]:
                tile = self.fill(out, i, j, kind, valid)
            here = (i, j, tile)
        for row, products in enumerate(self.product(a, b, out == "dw", b_transposed)):
            for c, p in enumerate(products):
                self.check.overflow |= isinstance(p, float)
                here[2][row][c] = self.check.plus(here[2][row][c], p)
        tags[slot] = here
        if r == depth - 1:
            del tags[slot]
            if out == "y":
                self.epilogue(i, j, here[2], valid)
            if self.f["y_target"] == YTarget.CHIP.value:
                exps, mants = self.quantised(self.words(here[2], valid, True), out, i, j)
                for row in range(valid[0]):
                    self.chip.spad[self.place("dw", i, j), row] = \
                        (exps[row], mants[row * self.t:(row + 1) * self.t])
            elif self.f["y_target"] == YTarget.ACC.value:
                for row in range(valid[0]):
                    self.chip.acc[self.place("y", i, j), row] = here[2][row]
            else:
                self.store(out, out, i, j, here[2], kind, bool(self.f[f"{out}_bfp"]), valid, True)

    def on_chip(self, i, j, rows):
        """Mantissas and exponent bytes of the valid rows of a tile of X that is on chip."""
        slot = self.place("x", i, j)
        if self.f["x_source"] == XSource.REQUEST.value:
            w = self.f["x_window"]
            slot += self.buffer * 2 ** (w["h_log2"] + w["w_log2"])
        found = [self.chip.spad[slot, row] for row in range(rows)]
        return [q for _, q in found], [e for e, _ in found]

    def product(self, a, b, a_transposed, b_transposed):
        cfg, t = self.cfg, self.t
        (rows, cols), b_valid = (self.valid(*v[1:], SHAPES[v[0]]) for v in (a, b))
        if a[0] == "x" and self.f["x_source"]:
            qa, ea = self.on_chip(*a[1:], rows)
        else:
            qa, ea = self.codes(*a, (rows, cols), bool(self.f["x_row"]))
        qb, eb = self.codes(*b, b_valid, False)
        if a_transposed:
            qa = list(zip(*qa, strict=True))
        if b_transposed:
            qb = list(zip(*qb, strict=True))
        for row in range(cols if a_transposed else rows):
            scale = Fraction(2) ** (ea[row] + eb[0] - 254 - 2 * (cfg.mant_width - 2))
            nan = 255 in (ea[row], eb[0])
            yield [NAN if nan else round24(sum(qa[row][x] * qb[x][c] for x in range(t)) * scale)
                   for c in range(t)]

    def fill(self, where, i, j, kind, valid):
        self.touch(False, kind, where, i, j, False, valid[0])
        return self.values(where, i, j, valid, False)

    def epilogue(self, i, j, tile, valid):
        function = Function(self.f["function"])
        self.vector_operations += function is not Function.NONE
        operand = None
        if function in (Function.BIAS, Function.BIAS_RELU):
            operand = ("dy", Kind.BIAS, 0, j, (1, valid[1]), False)
        elif function is Function.RELU_GRAD:
            operand = ("x", Kind.X, i, j, valid, True)
        if operand:
            name, kind, y, x, limits, bfp = operand
            if kind is Kind.BIAS and self.f["w_keep"]:
                there = self.f["w_keep"] in self.chip.biases or x in self.bias_tiles
                self.bias_tiles.add(x)
            else:
                there = self.last_operand == (y, x)
            if not there:
                self.touch(False, kind, name, y, x, bfp, limits[0])
            self.last_operand = (y, x)
            w = self.values(name, y, x, limits, bfp)
        for r, c in itertools.product(range(valid[0]), range(self.t)):
            if function is not Function.NONE and c >= valid[1]:
                tile[r][c] = Fraction(0)
                continue
            if function in (Function.BIAS, Function.BIAS_RELU):
                tile[r][c] = self.check.plus(tile[r][c], w[0][c])
            if function in (Function.RELU, Function.BIAS_RELU):
                tile[r][c] = relu(tile[r][c])
            if function is Function.RELU_GRAD:
                tile[r][c] = relu_grad(tile[r][c], w[r][c])
