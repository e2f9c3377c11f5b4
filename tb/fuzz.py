"""Seeded random programs: legal instructions that depend on each other, mistakes, disturbances."""

from hw.config import DIM_BITS, Config
from hw.isa import Kind, Order
from sw.compiler.assembler import window
from sw.compiler.layout import Matrix
from tb.job import CHANNELS, Job
from tb.program import Program

#: Share of the jobs that are stopped, reset or answered with an error by the memory, and of the
#: instructions that are illegal.
MISHAPS, MISTAKES = 0.3, 0.04


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


class Fuzz:
    """Two random programs on one set of matrices, the first of them perhaps disturbed."""

    def __init__(self, cfg: Config, seed: int):
        self.cfg, self.program = cfg, Program(cfg, seed)
        self.rng = self.program.rng
        t = cfg.tile
        near = [1, t - 1, t, t + 1, 2 * t, 2 * t + 1, 3 * t]
        self.sizes = [int(s) for s in self.rng.choice(near, 3)]
        self.matrices: list[Matrix] = []
        self.written: set[int] = set()  # addresses, by the present program
        self.programs = [self._program(), self._program()]

    def chance(self, probability: float) -> bool:
        """Whether it happens."""
        return self.rng.random() < probability

    def integer(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        return int(self.rng.integers(low, high, endpoint=True))

    # --- operands -------------------------------------------------------------------------

    def _size(self) -> int:
        return self.sizes[self.integer(0, 2)]

    def _source(self, rows: int, cols: int, bfp: bool) -> Matrix:
        """A matrix that holds something: one of those that exist, or a new one."""
        known = [p for p in self.matrices if (p.rows, p.cols, p.bfp) == (rows, cols, bfp)]
        if known and self.chance(0.8):
            return known[self.integer(0, len(known) - 1)]
        pitch = -(-cols // self.cfg.tile) + self.integer(0, 2)
        if bfp:
            low = self.integer(1, 254) if self.chance(0.2) else self.integer(110, 130)
            new = self.program.bfp(rows, cols, pitch=pitch,
                                   exponents=(low, min(255, low + self.integer(0, 12))))
        elif self.chance(0.3):
            new = self.program.wild(rows, cols, pitch=pitch)
        else:
            new = self.program.normal(rows, cols, pitch=pitch)
        self.matrices.append(new)
        return new

    def _target(self, rows: int, cols: int, others: tuple[Matrix, ...]) -> Matrix:
        """A matrix to write, not one of `others`."""
        bfp = self.chance(0.5)
        known = [p for p in self.matrices if (p.rows, p.cols, p.bfp) == (rows, cols, bfp)
                 and all(p.addr != o.addr for o in others)]
        if known and self.chance(0.5):
            chosen = known[self.integer(0, len(known) - 1)]
        else:
            pitch = -(-cols // self.cfg.tile) + self.integer(0, 2)
            chosen = self.program.room(rows, cols, bfp, pitch=pitch)
            self.matrices.append(chosen)
        self.written.add(chosen.addr)
        return chosen

    # --- instructions ---------------------------------------------------------------------

    def _windows(self) -> dict[str, dict]:
        """Windows of all operands, without overlap, often in one bank, now and then large."""
        cfg, bits = self.cfg, self.cfg.slot_index_bits
        most = min(4, (cfg.spad_slots // 4).bit_length() - 1)
        large = self.chance(0.4)
        banks = self.rng.permutation(cfg.spad_banks)
        if self.chance(0.5) and cfg.spad_banks >= 4:
            banks = banks[:4]  # one for each
        spad = _Slots([(int(b) << bits, cfg.bank_slots) for b in banks])
        half = cfg.acc_slots // 2
        acc = _Slots([(0, half), (half, half)])
        windows = {}
        for names, slots, largest in ((("x", "w", "dy", "dy2"), spad, most),
                                      (("y", "dw"), acc, min(3, half.bit_length() - 1))):
            for name in self.rng.permutation(names):
                log2 = largest if large else self.integer(0, largest)
                base = slots.take(log2)
                while base is None:  # there is room for four single slots
                    log2 -= 1
                    base = slots.take(log2)
                high = log2 // 2 if large else self.integer(0, log2)
                windows[f"{name}_window"] = window(base, high, log2 - high)
        return windows

    def _noise(self, fields: set[str]) -> dict:
        """Values of those of `fields` that the instruction does not use."""
        result = {}
        for name in sorted(fields):
            if name.endswith("_addr"):
                result[name] = self.integer(0, 2**32 // self.cfg.beat_bytes - 1) \
                    * self.cfg.beat_bytes
            elif name.endswith("_pitch"):
                result[name] = self.integer(0, 2**16 - 1)
            elif name.endswith("_window"):
                result[name] = window(self.integer(0, 2**16 - 1), self.integer(0, 15),
                                      self.integer(0, 15))
            else:
                result[name] = self.integer(0, 1)
        return result

    def _common(self) -> dict:
        start = {f"{o}_{d}0": self.integer(0, 2**DIM_BITS - 1) for o in ("y", "dw")
                 for d in ("row", "col")}
        return {**self._windows(), "stochastic": self.integer(0, 1),
                "salt": self.integer(0, 2**32 - 1), **start,
                **{f"b{d}": self.integer(0, 3) for d in "mnk"}}

    def _independent(self, **operands: Matrix) -> dict:
        return {f"{name}_independent": self.integer(0, 1) for name, matrix in operands.items()
                if matrix.addr not in self.written}

    def _accumulate(self, target: Matrix) -> int:
        return 0 if target.bfp else self.integer(0, 1)

    def _gemm(self):
        m, k, n = self._size(), self._size(), self._size()
        x, w = self._source(m, k, True), self._source(k, n, True)
        independent = self._independent(x=x, w=w)
        y = self._target(m, n, (x, w))
        self.program.gemm(x, w, y, **{
            **self._common(), **independent, "y_accumulate": self._accumulate(y),
            "order": self.integer(0, 3), "x_row": self.integer(0, 1), "y_row": self.integer(0, 1),
            **self._noise({"dy_addr", "dw_addr", "dw_part_addr", "dy_pitch", "dw_pitch",
                           "dy_window", "dy2_window", "dw_window", "y_off", "dw_off", "x_fp32",
                           "dy_independent"})})

    def _grad(self):
        m, k, n = self._size(), self._size(), self._size()
        x, w, dy = (self._source(*s, True) for s in ((m, k), (k, n), (m, n)))
        independent = self._independent(x=x, w=w, dy=dy)
        dx = self._target(m, k, (x, w, dy))
        dw = self._target(k, n, (x, w, dy, dx))
        off = self.rng.choice(["", "y", "dw"], p=[0.7, 0.15, 0.15])
        noise = {f"{off}_{f}" for f in ("addr", "pitch", "part_addr", "part_pitch", "window")} \
            if off else set()
        self.program.grad(x, w, dy, dx, dw, Order(self.integer(0, 3)), **{
            **self._common(), **independent, "y_accumulate": self._accumulate(dx),
            "dw_accumulate": self._accumulate(dw), "y_off": int(off == "y"),
            "dw_off": int(off == "dw"), **self._noise(noise | {"x_fp32"})})

    def _convert(self):
        m, n = self._size(), self._size()
        x = self._source(m, n, self.chance(0.5))
        independent = self._independent(x=x)
        y = self._target(m, n, (x,))
        kinds = {f"{o}_kind": Kind(self.integer(0, 7)) for o in "xy"}
        self.program.convert(x, y, **{
            **self._common(), **independent, **kinds, "x_row": self.integer(0, 1),
            "y_row": self.integer(0, 1), "order": self.integer(0, 3), "k": self.integer(0, 99),
            "y_accumulate": self._accumulate(y),
            **self._noise({"w_addr", "dw_part_addr", "w_pitch", "x_window", "w_window",
                           "dy_window", "dw_window", "y_off", "dw_off"})})

    def _program(self) -> int:
        self.written = set()
        for _ in range(self.integer(1, 4)):
            self.rng.choice([self._gemm, self._grad, self._grad, self._convert])()
            if self.chance(MISTAKES):
                self.program.instructions[-1] |= self._mistake()
            if self.chance(0.2):
                self.program.fence()
        return self.program.end()

    # --- jobs -----------------------------------------------------------------------------

    def _mistake(self) -> dict:
        """A change that makes nearly every instruction illegal."""
        cfg = self.cfg
        mistakes = (
            {"opcode": self.integer(6, 255)}, {"config_hash": cfg.hash ^ 1 << self.integer(0, 31)},
            {"unused0": 1 << self.integer(0, 6)}, {"unused10": 1 << self.integer(0, 95)},
            {"order": self.integer(4, 15)}, {"m": 0}, {"n": 0}, {"x_addr": 1},
            {"dw_part_addr": 2}, {"y_bfp": 1, "y_accumulate": 1},
            {"dw_bfp": 1, "dw_accumulate": 1}, {"y_window": window(cfg.acc_slots)},
            {"y_pitch": 0xFFFF}, {"y_addr": 2**32 - cfg.beat_bytes})
        return mistakes[self.integer(0, len(mistakes) - 1)]

    def _memory(self) -> dict:
        """How the memory behaves."""
        stall = self.rng.choice([0.0, 0.3, 0.8])
        if self.chance(0.3):
            stall = {c: float(self.rng.choice([0.0, 0.3, 0.9])) for c in CHANNELS}
        return {"latency": int(self.rng.choice([1, 5, 20, 60])), "stall": stall,
                "bytes_per_cycle": int(self.rng.choice([0, 0, 3, self.cfg.beat_bytes])),
                "outstanding": int(self.rng.choice([1, 2, 64])), "seed": self.integer(0, 2**32 - 1)}

    def jobs(self) -> list[Job]:
        """The first program after a reset, the second one without."""
        program = self.program
        room = (1 << self.cfg.addr_width) - (1 << 26)
        region_base = self.integer(0, room // 4096) * 4096
        settings = self._memory()
        size = len(program.memory())
        if self.chance(MISHAPS):
            kind = self.rng.choice(["stop", "reset", "read", "write"])
            at = self.integer(0, size - 1)
            settings |= {
                "stop": {"stop_after": self.integer(0, 1500)},
                "reset": {"reset_after": self.integer(0, 1500)},
                "read": {"read_errors": (at, at + self.integer(1, 64))},
                "write": {"write_errors": (at, at + self.integer(1, 64))}}[str(kind)]
        first, second = self.programs
        return [program.job(first, region_base=region_base, **settings),
                program.job(second, region_base=region_base, fresh=False)]


def jobs(cfg: Config, seeds: range) -> list[Job]:
    """Jobs of the random programs `seeds`."""
    return [job for seed in seeds for job in Fuzz(cfg, seed).jobs()]
