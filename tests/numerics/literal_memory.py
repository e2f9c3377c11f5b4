"""Tile images of one instruction in a copy of the memory, and what is counted of it.

Word by word from docs/numerics.md. Shares no code with sw.golden.
"""

import itertools
from fractions import Fraction

import numpy as np
from literal import NAN, Checked, exact, round24, speck, to_bits

from hw.isa import Kind


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

    def moved(self, bfp, rows):
        """Bytes of an image that are transferred: beats of exponents and of valid rows."""
        cfg = self.cfg
        bits = rows * self.t * (cfg.container if bfp else 32)
        beats = cfg.exp_beats * bfp + (bits + cfg.axi_width - 1) // cfg.axi_width
        return beats * cfg.axi_width // 8

    def touch(self, write, kind, name, i, j, bfp, rows):
        """Count an access to an image with so many valid rows; its address."""
        self.bytes[write, kind] += self.moved(bfp, rows)
        addr = self.address(name, i, j, bfp)
        self.log.append((write, kind, addr, self.moved(bfp, rows)))
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
        addr = self.touch(True, kind, where, i, j, bfp, valid[0])
        words = self.words(tile, valid, final)
        if not bfp:
            image = np.zeros(self.cfg.fp32_bytes, np.uint8)
            image[:words.nbytes] = words.reshape(-1).view(np.uint8)
        else:
            image = self.packed(*self.quantised(words, out, i, j))
        count = self.moved(bfp, valid[0])
        self.memory[addr:addr + count] = image[:count]

    def words(self, tile, valid, final):
        """FP32 bits of a tile, zero beyond what is valid; counts results that are not finite."""
        words = np.zeros((self.t, self.t), np.uint32)
        for r, c in itertools.product(range(valid[0]), range(valid[1])):
            words[r, c] = to_bits(tile[r][c])
        bad = ((words >> 23 & 255) == 255).any()
        self.nonfinite += bool(final and bad)
        return words

    def quantised(self, words, out, i, j):
        """Exponent bytes by row and mantissas of a tile of FP32 bits."""
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
                mants.append(q)
        return exps, mants

    def packed(self, exps, mants):
        """BFP image."""
        cfg = self.cfg
        packed = sum((q & (1 << cfg.container) - 1) << cfg.container * e
                     for e, q in enumerate(mants))
        head = bytes(exps).ljust(cfg.exp_beats * cfg.beat_bytes, b"\0")
        body = packed.to_bytes(cfg.mant_beats * cfg.beat_bytes, "little")
        return np.frombuffer(head + body, np.uint8)
