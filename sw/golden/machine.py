"""The NPU at instruction level: same memory, counters, flags and errors as the hardware."""

from dataclasses import dataclass

import numpy as np

from hw.config import Config
from hw.isa import INSTRUCTION_BYTES, Error, Kind, Opcode
from sw.golden import arithmetic, images
from sw.golden.decode import check, decode
from sw.golden.product import Operand, multiply
from sw.golden.traffic import Trace, trace

#: Counters that do not depend on time.
COUNTERS = ("INSTRUCTIONS", "NONFINITE_TILES", "OPERATIONS",
            *(f"{d}_{k.name}" for d in ("READ", "WRITE") for k in Kind))


@dataclass(frozen=True)
class Result:
    """What a program left behind beside the memory. After an error only `error*` are meant."""

    counters: dict[str, int]
    nonfinite: bool
    overflow: bool
    error: Error
    error_addr: int


class _Stop(Exception):
    def __init__(self, error: Error, addr: int):
        self.error, self.addr = error, addr & 0xFFFFFFFF


class Machine:
    """Golden model of one NPU with its DRAM region.

    Parameters
    ----------
    cfg : Config
    memory : np.ndarray
        The region, uint8; programs change it in place. Its length is REGION_SIZE.
    seed : int
        SEED register.
    """

    def __init__(self, cfg: Config, memory: np.ndarray, *, seed: int = 0):
        self.cfg, self.memory, self.seed = cfg, memory, seed

    def run(self, program_addr: int = 0) -> Result:
        """Run the program at `program_addr` until END or an error."""
        self._counters = dict.fromkeys(COUNTERS, 0)
        self._overflow = False
        error, addr = Error.NONE, 0
        try:
            self._program(program_addr)
        except _Stop as stop:
            error, addr = stop.error, stop.addr
        return Result(self._counters, self._counters["NONFINITE_TILES"] > 0, self._overflow,
                      error, addr)

    def _program(self, pc: int):
        while True:
            if pc + INSTRUCTION_BYTES > len(self.memory):
                raise _Stop(Error.BAD_ADDRESS, pc)
            fields = decode(self.memory[pc:pc + INSTRUCTION_BYTES])
            self._counters["READ_PROGRAM"] += INSTRUCTION_BYTES
            error = check(self.cfg, fields)
            if error is not Error.NONE:
                raise _Stop(error, pc)
            self._counters["INSTRUCTIONS"] += 1
            opcode = Opcode(fields["opcode"])
            if opcode is Opcode.END:
                return
            if opcode is not Opcode.FENCE:
                self._execute(opcode, fields)
            pc += INSTRUCTION_BYTES

    def _execute(self, opcode: Opcode, f: dict):
        walk = trace(self.cfg, f)
        outside = walk.first_outside(len(self.memory))
        if outside is not None:
            raise _Stop(Error.BAD_ADDRESS, outside)
        self._counters["OPERATIONS"] += len(walk.m)
        for name, count in walk.counters().items():
            self._counters[name] += count
        m, n, k = f["m"], f["n"], f["k"]
        if opcode is Opcode.CONVERT:
            self._finish(f, "y", self._convert_source(f), m, n, f["salt"])
            return
        x = self._operand(f, "x", m, k, bool(f["x_row"])) \
            if opcode is Opcode.GEMM or not f["dw_off"] else None
        w = self._operand(f, "w", k, n) if opcode is Opcode.GEMM or not f["y_off"] else None
        if opcode is Opcode.GEMM:
            self._output(f, walk, "y", x, w, m, n, f["salt"])
            return
        dy = self._operand(f, "dy", m, n)
        if not f["y_off"]:
            self._output(f, walk, "y", dy, w.T, m, k, f["salt"])
        if not f["dw_off"]:
            self._output(f, walk, "dw", x.T, dy, k, n, f["salt"] + 1)

    # --- operands -------------------------------------------------------------------------

    def _grid(self, f: dict, name: str, rows: int, cols: int, bfp: bool) -> np.ndarray:
        shape = images.tiles(self.cfg, rows), images.tiles(self.cfg, cols)
        return images.grid(self.memory, f[f"{name}_addr"], f[f"{name}_pitch"], shape,
                           self.cfg.bfp_bytes if bfp else self.cfg.fp32_bytes)

    def _operand(self, f: dict, name: str, rows: int, cols: int, row_exp=False) -> Operand:
        grid = self._grid(f, name, rows, cols, True)
        return Operand(self.cfg, *images.unpack_bfp(self.cfg, grid, rows, cols, row_exp))

    def _convert_source(self, f: dict) -> np.ndarray:
        cfg, m, n = self.cfg, f["m"], f["n"]
        grid = self._grid(f, "x", m, n, not f["x_fp32"])
        if f["x_fp32"]:
            return images.unpack_fp32(cfg, grid, m, n)
        q, exponents = images.unpack_bfp(cfg, grid, m, n, bool(f["x_row"]))
        return images.decode(cfg, q, exponents, m, n)

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
            grid[spilled >= 0] = packed[spilled >= 0]
        self._finish(f, name, images.mask(acc, rows, cols), rows, cols, salt)

    def _finish(self, f: dict, name: str, values: np.ndarray, rows: int, cols: int, salt: int):
        """Write final FP32 values (zero beyond the valid rows and columns) as the result."""
        cfg, t = self.cfg, self.cfg.tile
        tiled = values.reshape(len(values) // t, t, -1, t)
        if not np.isfinite(values).all():
            self._counters["NONFINITE_TILES"] += int((~np.isfinite(tiled)).any((1, 3)).sum())
        grid = self._grid(f, name, rows, cols, bool(f[f"{name}_bfp"]))
        if not f[f"{name}_bfp"]:
            grid[...] = images.pack_fp32(cfg, values)
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
        grid[...] = images.pack_bfp(cfg, q.reshape(values.shape), exponents)
