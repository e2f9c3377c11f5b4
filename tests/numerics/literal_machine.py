"""docs/architecture.md word by word: one instruction, tile by tile, on a copy of the memory.

Residency comes from dictionaries of slots, values from `literal`. Shares no code with sw.golden.
"""

import itertools
from fractions import Fraction

import numpy as np
from literal import NAN, Checked, exact, relu, relu_grad, round24, speck, to_bits

from hw.isa import Function, Kind, Opcode, Order

#: Dimensions of the operands of GEMM and GRAD.
SHAPES = {"x": "mk", "w": "kn", "dy": "mn"}


class Memory:
    """Tile images of one instruction: reads and writes, with the log of all that is counted.

    A tile is a list of T rows of T numbers; `valid` are its (rows, columns).
    """

    def __init__(self, cfg, memory, fields, seed=0):
        self.cfg, self.memory, self.f, self.seed = cfg, memory, fields, seed
        self.t, self.check = cfg.tile, Checked()
        self.bytes = dict.fromkeys(((w, k) for w in (False, True) for k in Kind), 0)
        self.log, self.nonfinite, self.operations, self.vector_operations = [], 0, 0, 0
        self.size = {d: -(-fields[d] // self.t) for d in "mnk"}

    def valid(self, i, j, dims):
        """Valid rows and columns of tile (i, j) of a matrix; "1" is one row or column."""
        return tuple(1 if d == "1" else min(self.t, self.f[d] - index * self.t)
                     for index, d in zip((i, j), dims, strict=True))

    def address(self, name, i, j, bfp):
        """Offset of an image."""
        size = self.cfg.bfp_bytes if bfp else self.cfg.fp32_bytes
        return self.f[f"{name}_addr"] + (i * self.f[f"{name}_pitch"] + j) * size

    def touch(self, write, kind, name, i, j, bfp):
        """Count an access; its address."""
        self.bytes[write, kind] += self.cfg.bfp_bytes if bfp else self.cfg.fp32_bytes
        addr = self.address(name, i, j, bfp)
        self.log.append((write, kind, addr))
        return addr

    def codes(self, name, i, j, valid, row_exp):
        """(q, exponent bytes by row) of a BFP image."""
        cfg, t = self.cfg, self.t
        start = self.address(name, i, j, True)
        image = self.memory[start:start + cfg.bfp_bytes].tolist()
        mants = image[cfg.exp_beats * cfg.beat_bytes:]
        q = [[0] * t for _ in range(t)]
        exponents = [image[r if row_exp else 0] for r in range(t)]
        for r, c in itertools.product(range(valid[0]), range(valid[1])):
            e = r * t + c
            if cfg.container == 4:
                code = mants[e // 2] >> 4 * (e % 2) & 15
            elif cfg.container == 8:
                code = mants[e]
            else:
                code = mants[2 * e] | mants[2 * e + 1] << 8
            code -= (code >> cfg.container - 1) << cfg.container
            q[r][c] = max(code, -cfg.q_max) if exponents[r] else 0
        return q, exponents

    def values(self, name, i, j, valid, bfp, row_exp=False):
        """Numbers of an image."""
        t = self.t
        tile = [[Fraction(0)] * t for _ in range(t)]
        if bfp:
            q, exponents = self.codes(name, i, j, valid, row_exp)
        else:
            addr = self.address(name, i, j, False)
            words = self.memory[addr:addr + 4 * t * t].view("<u4").reshape(t, t).tolist()
        for r, c in itertools.product(range(valid[0]), range(valid[1])):
            if not bfp:
                tile[r][c] = exact(words[r][c])
            elif exponents[r] == 255:
                tile[r][c] = NAN
            else:
                power = exponents[r] - 127 - (self.cfg.mant_width - 2)
                tile[r][c] = round24(q[r][c] * Fraction(2) ** power)
        return tile

    def store(self, out, where, i, j, tile, kind, bfp, valid, final):
        """Write a tile of matrix `out` to the images of `where`."""
        addr = self.touch(True, kind, where, i, j, bfp)
        words = np.zeros((self.t, self.t), np.uint32)
        for r, c in itertools.product(range(valid[0]), range(valid[1])):
            words[r, c] = to_bits(tile[r][c])
        bad = ((words >> 23 & 255) == 255).any()
        self.nonfinite += bool(final and bad)
        if not bfp:
            image = np.zeros(self.cfg.fp32_bytes, np.uint8)
            image[:words.nbytes] = words.reshape(-1).view(np.uint8)
        else:
            image = self.quantised(words, out, i, j)
        self.memory[addr:addr + len(image)] = image

    def quantised(self, words, out, i, j):
        """BFP image of FP32 bits."""
        cfg, t, f = self.cfg, self.t, self.f
        exps, mants = [0] * t, []
        by_row = out == "y" and f["y_row"]
        top = int((words >> 23 & 255).max())
        for r in range(t):
            exps[r] = byte = int((words[r] >> 23 & 255).max()) if by_row else top
            for c in range(t):
                word = int(words[r, c])
                q = 0
                if 0 < byte < 255 and word >> 23 & 255:
                    scaled = abs(exact(word)) * Fraction(2) ** (125 + cfg.mant_width - byte)
                    if f["stochastic"]:
                        salt = f["salt"] + (out == "dw")
                        R = speck(self.seed, salt, f[f"{out}_row0"] + i * t + r,
                                  f[f"{out}_col0"] + j * t + c)
                        q = (int(scaled * 65536) + R) >> 16
                    else:
                        q = round(scaled)
                    q = min(q, cfg.q_max) * (-1 if word >> 31 else 1)
                mants.append(q & (1 << cfg.container) - 1)
        packed = sum(q << cfg.container * e for e, q in enumerate(mants))
        head = bytes(exps).ljust(cfg.exp_beats * cfg.beat_bytes, b"\0")
        body = packed.to_bytes(cfg.mant_beats * cfg.beat_bytes, "little")
        return np.frombuffer(head + body, np.uint8)


class ArrayInstruction(Memory):
    """GEMM or GRAD."""

    def blocks(self, d):
        size = self.size[d]
        step = min(self.f[f"b{d}"] or size, size)
        return [range(s, min(s + step, size)) for s in range(0, size, step)]

    def run(self):
        """Execute it."""
        f = self.f
        self.tags = {w: {} for w in ("x", "w", "dy", "dy2", "y", "dw")}
        self.last_operand = None
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
        return self

    def slot(self, name, i, j):
        w = self.f[f"{name}_window"]
        return (i % 2 ** w["h_log2"]) * 2 ** w["w_log2"] + j % 2 ** w["w_log2"]

    def lookup(self, name, i, j, is_dx):
        windows = ["dy", "dy2"] if name == "dy" and self.f["order"] == Order.INTERLEAVED.value \
            else [name]
        if any(self.tags[w].get(self.slot(w, i, j)) == (i, j) for w in windows):
            return
        fill = windows[0] if is_dx or len(windows) == 1 else windows[1]
        self.tags[fill][self.slot(fill, i, j)] = (i, j)
        self.touch(False, Kind[name.upper()], name, i, j, True)

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
            self.store(out, out, i, j, here[2], kind, bool(self.f[f"{out}_bfp"]), valid, True)

    def product(self, a, b, a_transposed, b_transposed):
        cfg, t = self.cfg, self.t
        (rows, cols), b_valid = (self.valid(*v[1:], SHAPES[v[0]]) for v in (a, b))
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
        self.touch(False, kind, where, i, j, False)
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
            if self.last_operand != (y, x):
                self.touch(False, kind, name, y, x, bfp)
            self.last_operand = (y, x)
            w = self.values(name, y, x, limits, bfp)
        for r, c in itertools.product(range(valid[0]), range(valid[1])):
            if function in (Function.BIAS, Function.BIAS_RELU):
                tile[r][c] = self.check.plus(tile[r][c], w[0][c])
            if function in (Function.RELU, Function.BIAS_RELU):
                tile[r][c] = relu(tile[r][c])
            if function is Function.RELU_GRAD:
                tile[r][c] = relu_grad(tile[r][c], w[r][c])
