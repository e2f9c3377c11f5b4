"""The NPU at instruction level: same memory, counters, flags and errors as the hardware."""

from dataclasses import dataclass, replace

import numpy as np

from hw.config import Config
from hw.isa import INSTRUCTION_BYTES, Error, Function, Kind, Opcode, XSource, YTarget
from sw.golden import arithmetic, images
from sw.golden.chip import Chip
from sw.golden.decode import Context
from sw.golden.kept import Kept
from sw.golden.product import Operand, multiply
from sw.golden.program import Step, steps
from sw.golden.sets import LOSSES, ONE_ROW, TWO_OPERANDS
from sw.golden.traffic import Trace
from sw.golden.vector import Rates, VectorUnit

#: Counters that do not depend on time.
COUNTERS = ("INSTRUCTIONS", "NONFINITE_TILES", "OPERATIONS", "VECTOR_OPERATIONS",
            *(f"{d}_{k.name}" for d in ("READ", "WRITE") for k in Kind))
#: Instructions that the program cache holds, by address.
CACHE = 16


def _number(word: int) -> np.float32:
    """FP32 number of a register or field."""
    return arithmetic.canonical(np.array([word], np.uint32).view(np.float32))[0]


@dataclass(frozen=True)
class Result:
    """What a program left behind beside the memory. After an error only `error*` are meant."""

    counters: dict[str, int]
    nonfinite: bool
    overflow: bool
    error: Error
    error_addr: int


class Machine:
    """Golden model of one context of an NPU with its DRAM region.

    `chip` holds the tiles that programs leave in the on-chip memories; `regions` are `spad_region`
    and `acc_region`.

    Parameters
    ----------
    cfg : Config
    memory : np.ndarray
        The region, uint8; programs change it in place. Its length is REGION_SIZE.
    seed, learning_rate, momentum, weight_decay : int
        Registers SEED, LEARNING_RATE, MOMENTUM and WEIGHT_DECAY, 32 bits each.
    inference : bool
        Whether it is the inference context, also for the host's programs.
    spad_region, acc_region : tuple of int, optional
        First and last of the context's scratchpad and accumulator slots; all if not given.
    """

    def __init__(self, cfg: Config, memory: np.ndarray, *, seed: int = 0, learning_rate: int = 0,
                 momentum: int = 0, weight_decay: int = 0, inference: bool = False,
                 spad_region: tuple[int, int] | None = None,
                 acc_region: tuple[int, int] | None = None):
        self.cfg, self.memory, self.seed = cfg, memory, seed
        self._rates = Rates(_number(learning_rate), _number(momentum), _number(weight_decay))
        self._context = Context(inference, 0, spad_region, acc_region)
        self.regions = spad_region, acc_region
        self.chip = Chip(cfg)
        self.enable()

    def enable(self):
        """Set ENABLE of the request unit: forget kept tiles and cached instructions."""
        self._kept, self._cache = Kept(), {}

    def run(self, program_addr: int = 0, keep: bool = False, rows: int = 0,
            buffer: int = 0) -> Result:
        """Run the program at `program_addr` until END or an error.

        Parameters
        ----------
        program_addr : int
        keep : bool
            Launch by the request unit, so of the inference context: kept tiles are still there, and
            instructions that earlier launches have fetched may be cached. Else a START by the host.
        rows, buffer : int
            Requests of the running batch (0: none), and the buffer of their inputs.
        """
        if not keep:
            self._kept.forget()
        self._buffer = buffer
        context = replace(self._context, rows=rows, inference=keep or self._context.inference)
        self._counters = dict.fromkeys(COUNTERS, 0)
        self._overflow = False
        self._unit = VectorUnit(self.cfg.tile, self._rates)
        error, addr = Error.NONE, 0
        for step in steps(self.cfg, self.memory, program_addr, context, self._kept):
            if not (keep and self._cached(step.pc)):
                self._counters["READ_PROGRAM"] += INSTRUCTION_BYTES
            if step.error is not Error.NONE:
                error, addr = step.error, step.error_addr
                break
            self._counters["INSTRUCTIONS"] += 1
            if step.walk:
                self._execute(step)
        overflow = self._overflow or self._unit.overflow
        return Result(self._counters, self._counters["NONFINITE_TILES"] > 0, overflow, error, addr)

    def _cached(self, pc: int) -> bool:
        """Whether the instruction at offset `pc` is in the cache; from now on it is."""
        place = pc // INSTRUCTION_BYTES % CACHE
        hit = self._cache.get(place) == pc
        self._cache[place] = pc
        return hit

    def _execute(self, step: Step):
        f, walk = step.fields, step.walk
        self._counters["OPERATIONS"] += len(walk.m)
        self._counters["VECTOR_OPERATIONS"] += walk.vector_operations
        for name, count in walk.bytes.items():
            self._counters[name] += count
        opcode, m, n, k = Opcode(f["opcode"]), f["m"], f["n"], f["k"]
        if opcode is Opcode.CONVERT:
            self._store(f, "y", self._values(f, "x", m, n, not f["x_fp32"]))
        elif opcode is Opcode.VECTOR:
            self._vector(f, Function(f["function"]))
        elif opcode is Opcode.GEMM:
            self._output(f, walk, "y", self._gemm_x(f), self._operand(f, "w", k, n), m, n,
                         f["salt"])
        else:
            dy = self._operand(f, "dy", m, n)
            if not f["y_off"]:
                self._output(f, walk, "y", dy, self._operand(f, "w", k, n).T, m, k, f["salt"])
            if not f["dw_off"]:
                self._output(f, walk, "dw", self._operand(f, "x", m, k).T, dy, k, n, f["salt"] + 1)

    def _vector(self, f: dict, function: Function):
        """A function of matrices in memory; docs/architecture.md, "Vector sequencer"."""
        m, n, unit, scalar = f["m"], f["n"], self._unit, _number(f["scalar"])
        x, w = self._values(f, "x", m, n, not f["x_fp32"]), None
        if function in TWO_OPERANDS:
            w = self._values(f, "w", 1 if function in ONE_ROW else m, n, not f["w_fp32"])
        if function is Function.SGD:
            momentum, y = unit.sgd(x, w, self._values(f, "dy", m, n, False))
            self._store(f, "w", momentum)
            self._store(f, "dy", y)
        elif function in LOSSES:
            y, losses = (unit.softmax if function is Function.SOFTMAX else unit.mse)(x, w, scalar)
            if not f["dw_off"]:
                self._store(f, "dw", losses)
        else:
            y = unit.apply(function, x, w, scalar)
        if not (f["y_off"] and function in LOSSES | {Function.SGD}):
            self._store(f, "y", y)

    # --- operands -------------------------------------------------------------------------

    def _grid(self, f: dict, name: str, rows: int, cols: int, bfp: bool) -> np.ndarray:
        shape = images.tiles(self.cfg, rows), images.tiles(self.cfg, cols)
        return images.grid(self.memory, f[f"{name}_addr"], f[f"{name}_pitch"], shape,
                           self.cfg.image_bytes(bfp))

    def _operand(self, f: dict, name: str, rows: int, cols: int, row_exp=False) -> Operand:
        grid = self._grid(f, name, rows, cols, True)
        return Operand(self.cfg, *images.unpack_bfp(self.cfg, grid, rows, cols, row_exp))

    def _gemm_x(self, f: dict) -> Operand:
        if f["x_source"] == XSource.DRAM.value:
            return self._operand(f, "x", f["m"], f["k"], bool(f["x_row"]))
        buffer = self._buffer if f["x_source"] == XSource.REQUEST.value else 0
        return Operand(self.cfg, *self.chip.get(f["x_window"], f["m"], f["k"], buffer))

    def _values(self, f: dict, name: str, rows: int, cols: int, bfp: bool) -> np.ndarray:
        """FP32 values of a matrix, valid elements only."""
        cfg, grid = self.cfg, self._grid(f, name, rows, cols, bfp)
        if bfp:
            row_exp = name == "x" and bool(f["x_row"])
            values = images.decode(cfg, *images.unpack_bfp(cfg, grid, rows, cols, row_exp),
                                   rows, cols)
        else:
            values = images.unpack_fp32(cfg, grid, rows, cols)
        return values[:rows, :cols]

    # --- results --------------------------------------------------------------------------

    def _output(self, f: dict, walk: Trace, name: str, a: Operand, b: Operand, rows: int, cols: int,
                salt: int):
        """Sum A B, leave the spilled partial sums and the result in memory."""
        cfg, t = self.cfg, self.cfg.tile
        if f[f"{name}_accumulate"]:
            acc = images.unpack_fp32(cfg, self._grid(f, name, rows, cols, False), rows, cols)
        else:
            acc = np.zeros((len(a.q), b.q.shape[1]), np.float32)
        spilled = walk.spilled[name]
        any_spilled = bool((spilled >= 0).any())
        partial = np.zeros(acc.shape if any_spilled else 0, np.float32)

        def keep(top, r, block):
            height = len(block) // t
            i, j = np.nonzero(spilled[top // t:top // t + height] == r)
            source = block.reshape(height, t, -1, t)
            partial[top:top + len(block)].reshape(source.shape)[i, :, j] = source[i, :, j]

        self._overflow |= multiply(cfg, a, b, acc, keep if any_spilled else None)
        if any_spilled:
            grid = self._grid(f, f"{name}_part", rows, cols, False)
            packed = images.pack_fp32(cfg, images.mask(partial, rows, cols))
            images.store(cfg, grid, packed, rows, False, spilled >= 0)
        if name == "y" and f["function"] != Function.NONE.value:
            self._epilogue(f, Function(f["function"]), acc[:rows, :cols])
            acc[:, cols:] = 0
        if f["y_target"] == YTarget.ACC.value:
            self.chip.put_acc(f["y_window"], acc, rows, cols)
        else:
            self._finish(f, name, images.mask(acc, rows, cols), rows, cols, salt)

    def _epilogue(self, f: dict, function: Function, values: np.ndarray):
        """Apply a function to finished results, valid elements only, in place."""
        operand = None
        if function in ONE_ROW:
            operand = self._values(f, "dy", 1, values.shape[1], False)
        elif function is Function.RELU_GRAD:
            operand = self._values(f, "x", *values.shape, True)
        values[...] = self._unit.apply(function, values, operand, np.float32(0))

    def _store(self, f: dict, name: str, values: np.ndarray):
        """Write the valid elements of a result of VECTOR or CONVERT."""
        rows, cols = values.shape
        t = self.cfg.tile
        padded = np.zeros((-(-rows // t) * t, -(-cols // t) * t), np.float32)
        padded[:rows, :cols] = values
        self._finish(f, name, padded, rows, cols, f["salt"])

    def _finish(self, f: dict, name: str, values: np.ndarray, rows: int, cols: int, salt: int):
        """Write final FP32 values (zero beyond the valid rows and columns) as the result."""
        cfg, t = self.cfg, self.cfg.tile
        tiled = values.reshape(len(values) // t, t, -1, t)
        if not np.isfinite(values).all():
            self._counters["NONFINITE_TILES"] += int((~np.isfinite(tiled)).any((1, 3)).sum())
        if not f.get(f"{name}_bfp"):
            grid = self._grid(f, name, rows, cols, False)
            images.store(cfg, grid, images.pack_fp32(cfg, values), rows, False)
            return
        random = None
        if f["stochastic"]:
            row, col = (np.arange(size) + f[f"{name}_{start}0"]
                        for size, start in zip(values.shape, ("row", "col"), strict=True))
            random = arithmetic.random_bits(self.seed, salt & 0xFFFFFFFF, row[:, None], col)
            random = random.reshape(tiled.shape)
        axes = (3,) if f["y_row"] else (1, 3)
        q, exponents = arithmetic.quantise(tiled, cfg.mant_width, axes, random)
        exponents = np.broadcast_to(exponents[..., 0], tiled.shape[:3]).reshape(len(values), -1)
        q = q.reshape(values.shape)
        if f["y_target"] == YTarget.CHIP.value:
            self.chip.put(f["dw_window"], q, exponents, rows, cols)
        else:
            grid = self._grid(f, name, rows, cols, True)
            images.store(cfg, grid, images.pack_bfp(cfg, q, exponents), rows, True)
