"""Random chains of GEMMs whose activations stay on chip, with their memory."""

import itertools

import numpy as np
from cases import CONFIGS, random_bfp, random_fp32

from hw.isa import Function, Opcode, XSource, YTarget
from sw.compiler.assembler import assemble, window

#: Bytes for the program.
ROOM = 1024
FUNCTIONS = (Function.NONE, Function.BIAS, Function.RELU, Function.BIAS_RELU)


def log2_up(count):
    """Smallest power of two that is at least `count`."""
    return (count - 1).bit_length()


class Chain:
    """Layers of one network; `layers` are fields, the first X is in DRAM, the rest on chip.

    Windows of all W and activations lie apart; `memory` has room at the end for what callers
    `place`.
    """

    def __init__(self, seed, *, most_rows=3, special=None):
        rng = self.rng = np.random.default_rng(seed)
        cfg = self.cfg = CONFIGS[seed % len(CONFIGS)]
        most = {2: 9, 3: 12}.get(cfg.tile, 2 * cfg.tile)
        self.sizes = [int(rng.integers(1, most + 1)) for _ in range(int(rng.integers(3, 5)))]
        self.m = int(rng.integers(1, most_rows * cfg.tile + 1))
        self.special = bool(rng.random() < 0.5) if special is None else special
        self.low, self.high = [(118, 130), (60, 66), (120, 135), (1, 254)][rng.integers(4)]
        self.tiles = [-(-s // cfg.tile) for s in self.sizes]
        self.tm, self._taken, self._banks = -(-self.m // cfg.tile), ROOM, [0] * cfg.spad_banks
        self.chunks = [np.zeros(ROOM, np.uint8)]
        self.layers = [self._layer(n) for n in range(len(self.sizes) - 1)]
        first = self.layers[0]
        first |= {"x_addr": self.bfp(self.tm * self.tiles[0]), "x_pitch": self.tiles[0],
                  "x_window": self.spad(self.tm, self.tiles[0], 2)}
        for before, after in itertools.pairwise(self.layers):
            tn = -(-before["n"] // cfg.tile)
            place = self.spad(self.tm, tn)
            before |= {"y_bfp": 1, "y_target": YTarget.CHIP, "dw_window": place}
            after |= {"x_source": XSource.CHIP, "x_window": place, "x_row": before["y_row"]}

    def _layer(self, number):
        k, n = self.sizes[number:number + 2]
        tk, tn = self.tiles[number:number + 2]
        rng = self.rng
        return {
            "opcode": Opcode.GEMM, "m": self.m, "k": k, "n": n, "function": rng.choice(FUNCTIONS),
            "bm": int(rng.integers(3)), "bn": int(rng.integers(3)), "bk": int(rng.integers(3)),
            "w_addr": self.bfp(tk * tn), "w_pitch": tn, "w_window": self.spad(tk, tn),
            "dy_addr": self.place(random_fp32(rng, self.cfg, tn, self.low, self.high, False)),
            "y_window": window(4, int(rng.integers(2)), int(rng.integers(2))),
            "e_window": window(0, 1, 1), "y_part_addr": self.fp32(self.tm * tn),
            "y_part_pitch": tn, "y_row": int(rng.integers(2)), "x_row": 1,
            "stochastic": int(rng.integers(2)), "salt": int(rng.integers(2**32)),
            "y_row0": int(rng.integers(2**20)), "y_col0": int(rng.integers(2**20))}

    # --- places ---------------------------------------------------------------------------

    def place(self, data):
        """Offset of `data` in memory."""
        addr = self._taken
        self.chunks.append(data)
        self._taken += len(data)
        return addr

    def bfp(self, count):
        return self.place(random_bfp(self.rng, self.cfg, count, self.low, self.high, self.special))

    def fp32(self, count):
        return self.place(random_fp32(self.rng, self.cfg, count, 0, 0, True))

    def spad(self, rows, cols, copies=1):
        """Scratchpad window of fresh slots that holds rows x cols tiles `copies` times."""
        h, w = log2_up(rows), log2_up(cols)
        bank = self._banks.index(min(self._banks))
        index = self._banks[bank]
        self._banks[bank] += copies << h + w
        assert self._banks[bank] <= self.cfg.bank_slots
        return window(bank << self.cfg.slot_index_bits | index, h, w)

    def acc(self, rows, cols):
        """Accumulator window that holds rows x cols tiles."""
        return window(4, log2_up(rows), log2_up(cols))

    def to_dram(self):
        """Send the last Y to memory; its address."""
        last = self.layers[-1]
        bfp = int(self.rng.integers(2))
        last |= {"y_bfp": bfp, "y_pitch": self.tiles[-1],
                 "y_addr": (self.bfp if bfp else self.fp32)(self.tm * self.tiles[-1])}

    def memory(self, instructions=None):
        """The region with the program of `instructions` (default: the layers) at offset 0."""
        memory = np.concatenate(self.chunks)
        code = assemble(self.cfg, instructions or self.layers)
        assert len(code) <= ROOM
        memory[:len(code)] = np.frombuffer(code, np.uint8)
        return memory
