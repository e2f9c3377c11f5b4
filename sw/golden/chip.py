"""Tiles that instructions and requests leave in the on-chip memories.

Written from docs/serving.md, "On-chip operands" and "Requests". What loads put there is not kept
here: those tiles are known from memory.
"""

import numpy as np

from hw.config import Config
from sw.golden import images
from sw.golden.traffic import slots


class Chip:
    """Scratchpad tiles (mantissas, exponent byte of every row) and accumulator tiles, by slot."""

    def __init__(self, cfg: Config):
        t = cfg.tile
        self.cfg = cfg
        self._q = np.zeros((1 << cfg.spad_slot_bits, t, t), np.float32)
        self._exponents = np.zeros((1 << cfg.spad_slot_bits, t), np.uint8)
        self._acc = np.zeros((cfg.acc_slots, t, t), np.float32)

    def _slots(self, window: dict, rows: int, cols: int, buffer: int = 0) -> np.ndarray:
        """Slots of the tiles of a matrix."""
        i, j = (np.arange(images.tiles(self.cfg, size)) for size in (rows, cols))
        base = window["base"] + (buffer << window["h_log2"] + window["w_log2"])
        return base + slots(window, i[:, None], j).astype(np.int64)

    def _rows(self, window: dict, row: int, cols: int, buffer: int = 0) -> tuple[np.ndarray, int]:
        """Slots and row inside them of one row of a matrix."""
        return self._slots(window, row + 1, cols, buffer)[-1], row % self.cfg.tile

    def put(self, window: dict, q: np.ndarray, exponents: np.ndarray, rows: int, cols: int):
        """Store the `rows` valid rows of a BFP matrix; arguments as of `images.pack_bfp`."""
        t = self.cfg.tile
        exponents = exponents.reshape(-1, t, exponents.shape[1]).transpose(0, 2, 1)
        for i, where in enumerate(self._slots(window, rows, cols)):
            valid = min(t, rows - i * t)
            self._q[where, :valid] = images.split(q, t)[i, :, :valid]
            self._exponents[where, :valid] = exponents[i, :, :valid]

    def get(self, window: dict, rows: int, cols: int,
            buffer: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """BFP matrix, as of `images.unpack_bfp` with row exponents."""
        where = self._slots(window, rows, cols, buffer)
        exponents = self._exponents[where].transpose(0, 2, 1).reshape(-1, where.shape[1])
        exponents[rows:] = 0
        return images.mask(images.join(self._q[where], np.float32), rows, cols), exponents

    def put_acc(self, window: dict, values: np.ndarray, rows: int, cols: int):
        """Store the `rows` valid rows of an FP32 matrix of whole tiles."""
        t = self.cfg.tile
        for i, where in enumerate(self._slots(window, rows, cols)):
            valid = min(t, rows - i * t)
            self._acc[where, :valid] = images.split(values, t)[i, :, :valid]

    def gather(self, window: dict, buffer: int, row: int, q: np.ndarray, exponents: np.ndarray):
        """Store row `row` of a batch's inputs: T mantissas and an exponent byte per tile."""
        where, row = self._rows(window, row, q.size, buffer)
        self._q[where, row], self._exponents[where, row] = q, exponents

    def scatter(self, window: dict, row: int, cols: int) -> np.ndarray:
        """Row `row` of a batch's outputs: T numbers per tile."""
        where, row = self._rows(window, row, cols)
        return self._acc[where, row]
