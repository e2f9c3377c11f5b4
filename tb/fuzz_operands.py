"""Random operands: matrices, address registers, windows, numbers, values of unused fields."""

from dataclasses import dataclass

import numpy as np

from hw.config import Config
from hw.isa import INSTRUCTION, Kind
from sw.compiler.assembler import window
from sw.compiler.layout import Matrix
from tb.program import Program, fitting_window, word

#: Scalars and rates.
NUMBERS = (0.1, 0.5, 0.9, -2.0, 1.0, 0.0, 1e-3, 3e38, 1e-38, float("nan"), float("inf"))


class _Slots:
    """Hands out windows in banks of slots, one behind the other; the last slots are never reached.

    Parameters
    ----------
    banks : list of (first slot, slots)
    """

    def __init__(self, banks: list[tuple[int, int]]):
        self.banks = banks

    def take(self, log2: int) -> int | None:
        """First slot of 2**log2 free ones of a bank, if there are as many."""
        for n, (base, free) in enumerate(self.banks):
            if free >= 1 << log2:
                self.banks[n] = base + (1 << log2), free - (1 << log2)
                return base
        return None


@dataclass
class Stepper:
    """An address register that steps by `step` bytes in each of the `turns` of an open loop."""

    register: int
    turns: int
    step: int = 0


class Operands:
    """Random operands of the instructions of `program`.

    Attributes
    ----------
    sizes : list of int
        Sizes of all matrices.
    matrices : list of Matrix
        Those that exist but for those of loops.
    steppers : list of Stepper
        Of the open loops.
    registers : dict
        Register of each operand of the present instruction that has a stepper's.
    """

    array_slots: tuple[int, int]  #: Accumulator slots of GEMM and GRAD: the first, and how many.
    vector_slots: tuple[int, int]  #: Those of VECTOR and CONVERT.

    def __init__(self, cfg: Config, rng: np.random.Generator, program: Program):
        self.cfg, self.rng, self.program = cfg, rng, program
        t = cfg.tile
        self.sizes = [int(s) for s in rng.choice([1, t - 1, t, t + 1, 2 * t, 2 * t + 1, 3 * t], 3)]
        self.matrices: list[Matrix] = []
        self.steppers: list[Stepper] = []
        self.registers: dict[str, int] = {}

    def chance(self, probability: float) -> bool:
        """Whether it happens."""
        return self.rng.random() < probability

    def integer(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        return int(self.rng.integers(low, high, endpoint=True))

    # --- operands -------------------------------------------------------------------------

    def size(self) -> int:
        """One of the sizes."""
        return self.sizes[self.integer(0, 2)]

    def _new(self, rows: int, cols: int, bfp: bool) -> Matrix:
        pitch = -(-cols // self.cfg.tile) + self.integer(0, 2)
        if bfp:
            low = self.integer(1, 254) if self.chance(0.2) else self.integer(110, 130)
            return self.program.bfp(rows, cols, pitch=pitch,
                                    exponents=(low, min(255, low + self.integer(0, 12))))
        if self.chance(0.3):
            return self.program.wild(rows, cols, pitch=pitch)
        return self.program.normal(rows, cols, pitch=pitch)

    def _stepped(self, name: str, rows: int, cols: int, bfp: bool) -> Matrix | None:
        """A matrix of its own for each turn of an open loop, if there is a register for it."""
        free = [s for s in self.steppers if not s.step]
        if not free or self.chance(0.5):
            return None
        stepper = free[self.integer(0, len(free) - 1)]
        height = -(-rows // self.cfg.tile)
        stack = self._new((max(stepper.turns, 1) - 1) * height * self.cfg.tile + rows, cols, bfp)
        stepper.step = height * stack.pitch * self.cfg.image_bytes(bfp)
        self.registers[name] = stepper.register
        return Matrix(rows, cols, bfp, stack.addr, stack.pitch)

    def source(self, name: str, rows: int, cols: int, bfp: bool, *others: Matrix) -> Matrix:
        """A matrix that holds something, not one of `others`: one of those that exist, or new."""
        known = [p for p in self.matrices if (p.rows, p.cols, p.bfp) == (rows, cols, bfp)
                 and all(p.addr != o.addr for o in others)]
        if stepped := self._stepped(name, rows, cols, bfp):
            return stepped
        if known and self.chance(0.8):
            return known[self.integer(0, len(known) - 1)]
        self.matrices.append(self._new(rows, cols, bfp))
        return self.matrices[-1]

    def target(self, name: str, rows: int, cols: int, *others: Matrix) -> Matrix:
        """A matrix to write, not one of `others`."""
        bfp = self.chance(0.5)
        known = [p for p in self.matrices if (p.rows, p.cols, p.bfp) == (rows, cols, bfp)
                 and all(p.addr != o.addr for o in others)]
        if stepped := self._stepped(name, rows, cols, bfp):
            return stepped
        if known and self.chance(0.5):
            return known[self.integer(0, len(known) - 1)]
        pitch = -(-cols // self.cfg.tile) + self.integer(0, 2)
        self.matrices.append(self.program.room(rows, cols, bfp, pitch=pitch))
        return self.matrices[-1]

    # --- windows --------------------------------------------------------------------------

    def divide(self):
        """Divide the accumulator between the streams, or give all of it to both."""
        slots = self.cfg.acc_slots
        self.array_slots = self.vector_slots = 0, slots
        if slots >= 8 and self.chance(0.7):
            half = slots // 2
            self.array_slots, self.vector_slots = (0, half), (half, half)
            if self.chance(0.5):
                self.array_slots, self.vector_slots = self.vector_slots, self.array_slots

    def windows(self) -> dict[str, dict]:
        """Windows of a GEMM or GRAD, without overlap, often in one bank, now and then large."""
        cfg, bits = self.cfg, self.cfg.slot_index_bits
        most = min(4, (cfg.spad_slots // 4).bit_length() - 1)
        large = self.chance(0.4)
        banks = self.rng.permutation(cfg.spad_banks)
        if self.chance(0.5) and cfg.spad_banks >= 4:
            banks = banks[:4]  # one for each
        spad = _Slots([(int(b) << bits, cfg.bank_slots) for b in banks])
        base, slots = self.array_slots
        ring = self.integer(0, min(2, (slots - 2).bit_length() - 1)) if slots > 2 else 0
        windows = {"e_window": fitting_window(base, 1 << ring, self.integer(0, ring), 2)}
        if slots > 2:
            base, slots = base + (1 << ring), slots - (1 << ring)
        half = slots // 2
        acc = _Slots([(base, half), (base + half, half)])
        for names, free, largest in ((("x", "w", "dy", "dy2"), spad, most),
                                     (("y", "dw"), acc, min(3, half.bit_length() - 1))):
            for name in self.rng.permutation(names):
                log2 = largest if large else self.integer(0, largest)
                base = free.take(log2)
                while base is None:  # there is room for four single slots
                    log2 -= 1
                    base = free.take(log2)
                high = log2 // 2 if large else self.integer(0, log2)
                windows[f"{name}_window"] = window(base, high, log2 - high)
        return windows

    def staging(self, least: int) -> dict[str, int]:
        """Window of a VECTOR or CONVERT of at least `least` slots."""
        base, slots = self.vector_slots
        log2 = self.integer(least.bit_length() - 1, min(6, slots.bit_length() - 1))
        base += self.integer(0, slots - (1 << log2))
        return window(base, high := self.integer(0, log2), log2 - high)

    def noise(self, fields: set[str]) -> dict:
        """Values of those of `fields` that the instruction does not use."""
        result = {}
        for name in sorted(fields):
            if name.endswith("_addr"):
                result[name] = self.integer(0, 2**32 // self.cfg.beat_bytes - 1) \
                    * self.cfg.beat_bytes
            elif name.endswith("_window"):
                result[name] = window(self.integer(0, 2**16 - 1), self.integer(0, 15),
                                      self.integer(0, 15))
            elif name.endswith("_kind"):
                result[name] = self.integer(0, len(Kind) - 1)
            else:
                result[name] = self.integer(0, 2**INSTRUCTION[name].width - 1)
        return result

    def number(self) -> int:
        """An FP32 word."""
        if self.chance(0.1):
            return self.integer(0, 2**32 - 1)
        return word(NUMBERS[self.integer(0, len(NUMBERS) - 1)])
