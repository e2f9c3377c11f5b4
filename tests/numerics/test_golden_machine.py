"""The golden machine against a literal, tile-by-tile reading of the specification.

Values come from exact fractions, residency from dictionaries of slots; both share no code with
sw.golden but the instruction's fields.
"""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from hw.config import Config, load
from hw.isa import Error, Kind, Opcode, Order
from sw.compiler.assembler import assemble, instruction, window
from sw.golden.decode import decode
from sw.golden.machine import Machine
from sw.golden.traffic import trace

NAN, INF = "nan", "inf"


# --- exact values -----------------------------------------------------------------------------

def exact(bits):
    """FP32 bits as read from DRAM: Fraction, or "nan", or a signed infinity."""
    sign, exponent, fraction = bits >> 31, bits >> 23 & 255, bits & 0x7FFFFF
    if exponent == 255:
        return NAN if fraction else (-1) ** sign * float(INF)
    return (-1) ** sign * Fraction((1 << 23) + fraction) * Fraction(2) ** (exponent - 150) \
        if exponent else Fraction(0)


def to_bits(value):
    if value == NAN:
        return 0x7FC00000
    if isinstance(value, float):
        return 0x7F800000 if value > 0 else 0xFF800000
    return int(np.array(float(value), np.float32).view(np.uint32))


def round24(value):
    """Fraction rounded once to 24 bits, flushed or made infinite."""
    if value == 0:
        return Fraction(0)
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    step = Fraction(2) ** (exponent - 23)
    rounded = Fraction(round(magnitude / step)) * step  # round() of a Fraction is half to even
    if rounded < Fraction(2) ** -126:
        return Fraction(0)
    sign = 1 if value > 0 else -1
    return sign * float(INF) if rounded >= Fraction(2) ** 128 else sign * rounded


def plus(a, b):
    if NAN in (a, b):
        return NAN
    if isinstance(a, float) or isinstance(b, float):
        total = float(a if isinstance(a, float) else 0) + float(b if isinstance(b, float) else 0)
        return NAN if total != total else total
    return round24(a + b)


# --- the machine, tile by tile ----------------------------------------------------------------

class Literal:
    """One instruction on a copy of the memory, following docs/architecture.md word by word."""

    def __init__(self, cfg, memory, fields, seed=0):
        self.cfg, self.memory, self.f, self.seed = cfg, memory, fields, seed
        self.t = cfg.tile
        self.bytes = dict.fromkeys(((w, k) for w in (False, True) for k in Kind), 0)
        self.log, self.overflow, self.nonfinite, self.operations = [], False, 0, 0
        self.size = {d: -(-fields[d] // self.t) for d in "mnk"}
        self.tags = {w: {} for w in ("x", "w", "dy", "dy2", "y", "dw")}

    def blocks(self, d):
        size = self.size[d]
        step = min(self.f[f"b{d}"] or size, size)
        return [range(s, min(s + step, size)) for s in range(0, size, step)]

    def run(self):
        f = self.f
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

    def touch(self, write, kind, name, i, j, bfp):
        size = self.cfg.bfp_bytes if bfp else self.cfg.fp32_bytes
        self.bytes[write, kind] += size
        addr = self.f[f"{name}_addr"] + (i * self.f[f"{name}_pitch"] + j) * size
        self.log.append((write, kind, addr))
        return addr

    def lookup(self, name, i, j, is_dx):
        windows = ["dy", "dy2"] if name == "dy" and self.f["order"] == Order.INTERLEAVED.value \
            else [name]
        if any(self.tags[w].get(self.slot(w, i, j)) == (i, j) for w in windows):
            return
        fill = windows[0] if is_dx or len(windows) == 1 else windows[1]
        self.tags[fill][self.slot(fill, i, j)] = (i, j)
        self.touch(False, Kind[name.upper()], name, i, j, True)

    def limits(self, i, j, rows, cols):
        return min(self.t, self.f[rows] - i * self.t), min(self.t, self.f[cols] - j * self.t)

    def read_bfp(self, name, i, j, row_exp=False):
        """(q, exponent bytes by row) of an operand tile, without counting it."""
        cfg, t = self.cfg, self.t
        start = self.f[f"{name}_addr"] + (i * self.f[f"{name}_pitch"] + j) * cfg.bfp_bytes
        rows, cols = self.limits(i, j, *{"x": "mk", "w": "kn", "dy": "mn"}[name])
        image = self.memory[start:start + cfg.bfp_bytes].tolist()
        mants = image[cfg.exp_beats * cfg.beat_bytes:]
        q = [[0] * t for _ in range(t)]
        exponents = [image[r if row_exp else 0] for r in range(t)]
        for r in range(rows):
            for c in range(cols):
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

    def operation(self, a, b, b_transposed, out, kind, i, j, r, depth):
        self.operations += 1
        is_dx = b_transposed
        self.lookup(*a, is_dx)
        self.lookup(*b, is_dx)
        tags, slot = self.tags[out], self.slot(out, i, j)
        here = tags.get(slot)
        if here and here[:2] != (i, j):
            self.store(out, *here[:2], here[2], Kind.PARTIAL, False)
            here = None
        if here is None:
            values = [[Fraction(0)] * self.t for _ in range(self.t)]
            if r > 0:
                values = self.fill(f"{out}_part", out, i, j, Kind.PARTIAL)
            elif self.f[f"{out}_accumulate"]:
                values = self.fill(out, out, i, j, kind)
            here = (i, j, values)
        for row, products in enumerate(self.product(a, b, out == "dw", b_transposed)):
            for c, p in enumerate(products):
                total = plus(here[2][row][c], p)
                self.overflow |= isinstance(p, float) or (isinstance(total, float) and not any(
                    isinstance(v, float) for v in (p, here[2][row][c])))
                here[2][row][c] = total
        tags[slot] = here
        if r == depth - 1:
            del tags[slot]
            self.store(out, i, j, here[2], kind, bool(self.f[f"{out}_bfp"]), final=True)

    def product(self, a, b, a_transposed, b_transposed):
        cfg, t = self.cfg, self.t
        qa, ea = self.read_bfp(*a, row_exp=bool(self.f["x_row"]))
        qb, eb = self.read_bfp(*b)
        if a_transposed:
            qa = list(zip(*qa, strict=True))
        if b_transposed:
            qb = list(zip(*qb, strict=True))
        rows = self.limits(a[1], a[2], *{"x": "mk", "dy": "mn"}[a[0]])[1 if a_transposed else 0]
        for row in range(rows):
            scale = Fraction(2) ** (ea[row] + eb[0] - 254 - 2 * (cfg.mant_width - 2))
            nan = 255 in (ea[row], eb[0])
            yield [NAN if nan else round24(sum(qa[row][x] * qb[x][c] for x in range(t)) * scale)
                   for c in range(t)]

    def shape(self, out):
        if out == "dw":
            return "kn"
        return "mk" if self.f["opcode"] == Opcode.GRAD.value else "mn"

    def fill(self, where, out, i, j, kind):
        addr = self.touch(False, kind, where, i, j, False)
        rows, cols = self.limits(i, j, *self.shape(out))
        words = self.memory[addr:addr + 4 * self.t**2].view("<u4").reshape(self.t, self.t).tolist()
        return [[exact(words[r][c]) if r < rows and c < cols else Fraction(0)
                 for c in range(self.t)] for r in range(self.t)]

    def store(self, out, i, j, values, kind, bfp, final=False):
        where = out if final else f"{out}_part"
        addr = self.touch(True, kind, where, i, j, bfp)
        rows, cols = self.limits(i, j, *self.shape(out))
        words = np.zeros((self.t, self.t), np.uint32)
        for r, c in itertools.product(range(rows), range(cols)):
            words[r, c] = to_bits(values[r][c])
        bad = ((words >> 23 & 255) == 255).any()
        self.nonfinite += bool(final and bad)
        if not bfp:
            image = np.zeros(self.cfg.fp32_bytes, np.uint8)
            image[:words.nbytes] = words.reshape(-1).view(np.uint8)
        else:
            image = self.quantised(words, out, i, j)
        self.memory[addr:addr + len(image)] = image

    def quantised(self, words, out, i, j):
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


def speck(seed, salt, row, col):
    """R of docs/numerics.md on Python integers."""
    row, col, salt = row % 2**20, col % 2**20, salt % 2**32
    x, y = row & 0xFFFF, col & 0xFFFF
    for key in (seed & 0xFFFF ^ row >> 16, salt & 0xFFFF ^ col >> 16, seed >> 16, salt >> 16,
                seed & 0xFFFF ^ 0x9E37, salt & 0xFFFF ^ 0x79B9):
        x = ((x >> 7 | x << 9) + y & 0xFFFF) ^ key
        y = (y << 2 | y >> 14) & 0xFFFF ^ x
    return x


# --- random instructions ----------------------------------------------------------------------

CONFIGS = [
    load("tiny"),
    Config(tile=3, mant_width=5, axi_width=32, spad_kib=4, acc_kib=4),
    Config(tile=2, mant_width=4, axi_width=64, spad_kib=4, acc_kib=4),
    Config(tile=5, mant_width=12, axi_width=128, spad_kib=4, acc_kib=4),
    Config(tile=4, mant_width=16, axi_width=256, spad_kib=4, acc_kib=4),
]


def random_bfp(rng, cfg, count, low, high, special):
    """Images with exponent bytes in low..high, zero and NaN now and then, rubbish in padding."""
    images = rng.integers(0, 256, (count, cfg.bfp_bytes), np.uint8)
    images[:, :cfg.tile] = rng.integers(low, high + 1, (count, cfg.tile))
    if special:
        images[:, :cfg.tile][rng.random((count, cfg.tile)) < 0.1] = 0
        images[:, :cfg.tile][rng.random((count, cfg.tile)) < 0.05] = 255
    start = cfg.exp_beats * cfg.beat_bytes
    codes = rng.integers(-1 << cfg.mant_width - 1, 1 << cfg.mant_width - 1, (count, cfg.tile**2))
    if cfg.container == 4:
        padded = np.zeros((count, -(-cfg.tile**2 // 2) * 2), np.int64)
        padded[:, :cfg.tile**2] = codes & 15
        data = (padded[:, ::2] | padded[:, 1::2] << 4).astype(np.uint8)
    else:
        data = np.ascontiguousarray(codes.astype(f"<i{cfg.container // 8}")).view(np.uint8)
    images[:, start:start + data.shape[1]] = data
    return images.reshape(-1)


def random_case(seed):
    """Configuration, memory, fields of a random GEMM or GRAD."""
    rng = np.random.default_rng(seed)
    cfg = CONFIGS[seed % len(CONFIGS)]
    grad = bool(rng.integers(2))
    m, n, k = (int(rng.integers(1, 4 * cfg.tile)) for _ in range(3))
    tm, tn, tk = (-(-d // cfg.tile) for d in (m, n, k))
    low, high = [(100, 140), (1, 254), (60, 70), (180, 254), (63, 66),
                 (66, 70), (70, 76)][rng.integers(7)]
    special = rng.random() < 0.5
    f = {"opcode": Opcode.GRAD if grad else Opcode.GEMM, "m": m, "n": n, "k": k,
         "bm": int(rng.integers(0, 4)), "bn": int(rng.integers(0, 4)),
         "bk": int(rng.integers(0, 4)), "salt": int(rng.integers(2**32)),
         "stochastic": int(rng.integers(2))}
    f |= {f"{w}_window": window(0, int(rng.integers(3)), int(rng.integers(3)))
          for w in ("x", "w", "dy", "dy2", "y", "dw")}
    f |= {name: int(rng.integers(2**20)) for name in ("y_row0", "y_col0", "dw_row0", "dw_col0")}
    f |= {"y_bfp": int(rng.integers(2)), "dw_bfp": int(rng.integers(2))}
    f |= {"y_accumulate": int(rng.integers(2)) & ~f["y_bfp"],
          "dw_accumulate": int(rng.integers(2)) & ~f["dw_bfp"]}
    if grad:
        f |= {"order": int(rng.integers(4))}
        if rng.random() < 0.3:
            f[["y_off", "dw_off"][rng.integers(2)]] = 1
    else:
        f |= {"x_row": int(rng.integers(2)), "y_row": int(rng.integers(2))}
    chunks, addr = [np.zeros(1024, np.uint8)], 1024
    for name, (rows, cols) in {"x": (tm, tk), "w": (tk, tn), "dy": (tm, tn)}.items():
        pitch = cols + int(rng.integers(2))
        f |= {f"{name}_addr": addr, f"{name}_pitch": pitch}
        chunks.append(random_bfp(rng, cfg, rows * pitch, low, high, special))
        addr += len(chunks[-1])
    for name, (rows, cols) in {"y": (tm, tk if grad else tn), "dw": (tk, tn)}.items():
        for part in ("", "_part"):
            f |= {f"{name}{part}_addr": addr, f"{name}{part}_pitch": cols}
            words = rng.integers(0, 2**32, rows * cols * cfg.fp32_bytes // 4, np.uint32)
            if not special:
                words = words & 0x807FFFFF | rng.integers(low, high + 1, len(words),
                                                          np.uint32) << 23
            chunks.append(words.view(np.uint8))
            addr += len(chunks[-1])
    return cfg, np.concatenate(chunks), f


@pytest.mark.parametrize("seed", range(120))
def test_random_instruction_is_executed_to_the_letter(seed):
    cfg, memory, f = random_case(seed)
    raw = instruction(cfg, **f)
    memory[:len(raw)] = np.frombuffer(raw, np.uint8)
    end = instruction(cfg, Opcode.END)
    memory[len(raw):len(raw) + len(end)] = np.frombuffer(end, np.uint8)
    fields = decode(memory[:128])
    expected = memory.copy()
    literal = Literal(cfg, expected, fields, seed).run()
    result = Machine(cfg, memory, seed=seed).run(0)
    assert result.error is Error.NONE
    different = np.flatnonzero(memory != expected)
    assert not len(different), f"first at {different[0]:#x}: {fields}"
    assert result.overflow == literal.overflow
    assert result.counters["NONFINITE_TILES"] == literal.nonfinite
    assert result.counters["OPERATIONS"] == literal.operations
    assert result.counters["INSTRUCTIONS"] == 2
    literal.bytes[False, Kind.PROGRAM] = 256
    for (write, kind), count in literal.bytes.items():
        assert result.counters[f"{'WRITE' if write else 'READ'}_{kind.name}"] == count, kind
    events = sorted((int(when), a.write, a.kind, int(addr)) for a in trace(cfg, fields).accesses
                    for when, addr in zip(a.when, a.addr, strict=True))
    assert [e[1:] for e in events] == literal.log


def test_random_cases_reach_every_corner():
    """Guards the generator: spills, overflows, flushes, NaN and both paths are in it."""
    seen = set()
    for seed in range(120):
        cfg, memory, f = random_case(seed)
        raw = assemble(cfg, [f])
        memory[:len(raw)] = np.frombuffer(raw, np.uint8)
        result = Machine(cfg, memory, seed=seed).run(0)
        seen |= {"overflow"} if result.overflow else set()
        seen |= {"nonfinite" if result.nonfinite else "finite"}
        seen |= {name for name, count in result.counters.items() if count}
    assert {"overflow", "nonfinite", "finite", "READ_PARTIAL", "WRITE_PARTIAL", "READ_DX",
            "READ_DW", "READ_Y"} <= seen
