"""Programs to verify with: matrices in memory that is full of rubbish, and instructions on them."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from hw.config import Config
from hw.isa import Function, Kind, Opcode, Order
from sw.compiler.assembler import assemble, window
from sw.compiler.layout import Matrix
from sw.golden import images
from tb.job import Job

#: Bytes before the region, if it does not begin at address 0, and behind it.
GUARD = 4096
#: FP32 words that memory holds where nothing is stored: NaN, Inf, large and small numbers.
RUBBISH = (0xFFFFFFFF, 0x7F800001, 0x7FC00000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x80000001)


#: Registers of SGD, FP32 words, unless a job says otherwise: 0.1, 0.9 and 0.01.
RATES = {"LEARNING_RATE": 0x3DCCCCCD, "MOMENTUM": 0x3F666666, "WEIGHT_DECAY": 0x3C23D70A}
#: Functions by what they take and give.
UNARY = (Function.SCALE, Function.RELU, Function.EXP, Function.RECIP, Function.RSQRT)
BINARY = (Function.ADD, Function.SUB, Function.MUL, Function.RELU_GRAD)
BIASES = (Function.BIAS, Function.BIAS_RELU)
ROWS = (Function.ROW_MEAN, Function.ROW_MAX)
LOSSES = (Function.SOFTMAX, Function.MSE)


def word(value: float) -> int:
    """The 32 bits of an FP32 number."""
    return int(np.float32(value).view(np.uint32))


def slots_of_set(function: Function) -> int:
    """Staging slots of one set of a VECTOR."""
    return 4 if function is Function.SGD else 1 if function in UNARY else 2


def rubbish(rng: np.random.Generator, count: int) -> np.ndarray:
    """`count` bytes, half of them random, half of words of `RUBBISH`."""
    words = rng.choice(np.array(RUBBISH, np.uint32), -(-count // 4))
    noise = rng.integers(0, 1 << 32, len(words), np.uint32)
    return np.where(rng.random(len(words)) < 0.5, noise, words).view(np.uint8)[:count].copy()


def part(cfg: Config, matrix: Matrix, i: int, j: int, rows: int, cols: int) -> Matrix:
    """Sub-matrix of `matrix` from tile (i, j) on."""
    image = cfg.image_bytes(matrix.bfp)
    return Matrix(rows, cols, matrix.bfp, matrix.addr + (i * matrix.pitch + j) * image,
                  matrix.pitch)


def contents(cfg: Config, memory: np.ndarray, matrix: Matrix) -> np.ndarray:
    """Images of `matrix` in a region, uint8 of shape (tile rows, tile columns, bytes).

    Bytes of rows beyond the matrix, which are not transferred, are 0.
    """
    shape = images.tiles(cfg, matrix.rows), images.tiles(cfg, matrix.cols)
    found = images.grid(memory, matrix.addr, matrix.pitch, shape,
                        cfg.image_bytes(matrix.bfp)).copy()
    rest = matrix.rows - (shape[0] - 1) * cfg.tile
    found[-1, :, cfg.image_beats(matrix.bfp, rest) * cfg.beat_bytes:] = 0
    return found


def quarter(cfg: Config, number: int) -> tuple[int, int]:
    """(base slot, slots) of one of four parts of the scratchpad, in banks of its own if there are.

    No part spans banks.
    """
    share = max(1, 4 // cfg.spad_banks)
    bank = number * cfg.spad_banks // 4
    slots = cfg.bank_slots // share
    return bank << cfg.slot_index_bits | number % share * slots, slots


def fitting_window(base: int, slots: int, high: int, wide: int) -> dict[str, int]:
    """Window of up to 2**high x 2**wide tiles; smaller if `slots` asks for it."""
    room = slots.bit_length() - 1
    wide = min(wide, room)
    return window(base, min(high, room - wide), wide)


class Program:
    """Matrices and programs of one region.

    Matrices and programs are placed one after the other, on a beat, with random gaps. Whatever is
    no valid element of a matrix is rubbish: padding of tiles, images without a matrix, gaps.

    Parameters
    ----------
    cfg : Config
    seed : int
        Of all that is random; also the SEED register.
    """

    def __init__(self, cfg: Config, seed: int = 0):
        self.cfg, self.seed, self.rng = cfg, seed, np.random.default_rng(seed)
        self.instructions: list[dict] = []
        self._contents: list[tuple[int, np.ndarray]] = []
        self._size = 0

    # --- memory ---------------------------------------------------------------------------

    def _put(self, content: np.ndarray) -> int:
        """Place bytes; their offset."""
        beat = self.cfg.beat_bytes
        addr = self._size + int(self.rng.integers(0, 4)) * beat
        self._contents.append((addr, content))
        self._size = addr + -(-len(content) // beat) * beat
        return addr

    def _matrix(self, rows, cols, bfp, pitch, fill) -> Matrix:
        cfg = self.cfg
        tm, tn = images.tiles(cfg, rows), images.tiles(cfg, cols)
        pitch, image = pitch or tn, cfg.image_bytes(bfp)
        content = rubbish(self.rng, ((tm - 1) * pitch + tn) * image)
        fill(images.grid(content, 0, pitch, (tm, tn), image))
        return Matrix(rows, cols, bfp, self._put(content), pitch)

    def bfp(self, rows: int, cols: int, *, exponents: tuple[int, int] = (120, 134),
            pitch: int = 0) -> Matrix:
        """A random BFP matrix for either exponent mode; now and then a tile of zeros.

        Mantissas are any code. A square image is read by its first exponent byte.
        """
        def fill(grid):
            t, rng = self.cfg.tile, self.rng
            grid[...] = rng.integers(0, 256, grid.shape, np.uint8)
            grid[..., :t] = rng.integers(*exponents, (*grid.shape[:2], t), np.uint8, endpoint=True)
            grid[rng.random(grid.shape[:2]) < 0.05, :t] = 0

        return self._matrix(rows, cols, True, pitch, fill)

    def fp32(self, values: np.ndarray, *, pitch: int = 0) -> Matrix:
        """A matrix of the given FP32 values."""
        def fill(grid):
            t = self.cfg.tile
            words = rubbish(self.rng, 4 * t * t * grid.shape[0] * grid.shape[1]).view(np.float32)
            words = words.reshape(grid.shape[0] * t, grid.shape[1] * t)
            words[:values.shape[0], :values.shape[1]] = values
            grid[...] = images.pack_fp32(self.cfg, words)

        return self._matrix(*values.shape, False, pitch, fill)

    def normal(self, rows: int, cols: int, **place) -> Matrix:
        """A matrix of normally distributed FP32 values."""
        return self.fp32(self.rng.standard_normal((rows, cols), np.float32), **place)

    def wild(self, rows: int, cols: int, **place) -> Matrix:
        """A matrix of random FP32 codes, of which one in sixteen is NaN, Inf, subnormal or zero."""
        codes = self.rng.integers(0, 1 << 32, (rows, cols), np.uint32)
        special = np.array([*RUBBISH, 0, 0x80000000, 1, 0x007FFFFF, 0x00800000], np.uint32)
        rare = self.rng.random(codes.shape) < 1 / 16
        codes = np.where(rare, self.rng.choice(special, codes.shape), codes)
        return self.fp32(codes.view(np.float32), **place)

    def room(self, rows: int, cols: int, bfp: bool, *, pitch: int = 0) -> Matrix:
        """Room for a result; rubbish."""
        return self._matrix(rows, cols, bfp, pitch, lambda grid: None)

    def memory(self) -> np.ndarray:
        """The region before any program has run."""
        memory = rubbish(np.random.default_rng(self.seed), self._size)
        for addr, content in self._contents:
            memory[addr:addr + len(content)] = content
        return memory

    # --- instructions ---------------------------------------------------------------------

    def _operands(self, operands: dict[str, Matrix]) -> dict:
        return {key: value for name, matrix in operands.items()
                for key, value in matrix.fields(name).items()}

    def windows(self, high: int = 1, wide: int = 1) -> dict[str, dict]:
        """Windows of up to 2**high x 2**wide tiles for all operands, without overlap."""
        half = self.cfg.acc_slots // 2
        ring = max(1, min(4, half // 2))
        return {**{f"{name}_window": fitting_window(*quarter(self.cfg, n), high, wide)
                   for n, name in enumerate(("x", "w", "dy", "dy2"))},
                "y_window": fitting_window(0, max(1, half - ring), high, wide),
                "dw_window": fitting_window(half, half, high, wide),
                "e_window": fitting_window(half - ring, ring, 1, 1)}

    def staging(self, slots: int = 8) -> dict[str, int]:
        """Window of the last `slots` of the accumulator memory, a power of two; fewer if need be.

        It has none of those of `windows()` if the memory has at least 8 more, and 4 times as many.
        """
        slots = min(slots, 1 << self.cfg.acc_slots.bit_length() - 1)
        return fitting_window(self.cfg.acc_slots - slots, slots, 0, 16)

    def add(self, opcode: Opcode, **fields):
        """Append any instruction."""
        self.instructions.append({"opcode": opcode, **fields})

    def gemm(self, x: Matrix, w: Matrix, y: Matrix, partial: Matrix | None = None,
             bias: Matrix | None = None, **fields):
        """Append Y = X W; `partial` is room for partial sums (by default fresh).

        An FP32 row `bias` is for the epilogues BIAS (the default with it) and BIAS_RELU.
        """
        partial = partial or self.room(y.rows, y.cols, False)
        given = {"dy": bias} if bias else {}
        self.add(Opcode.GEMM, **{
            "m": x.rows, "k": x.cols, "n": w.cols, "y_bfp": y.bfp, **self.windows(),
            "function": Function.BIAS if bias else Function.NONE,
            **self._operands({"x": x, "w": w, "y": y, "y_part": partial, **given}), **fields})

    def grad(self, x: Matrix, w: Matrix, dy: Matrix, dx: Matrix, dw: Matrix, order: Order,
             partials: tuple[Matrix, Matrix] | None = None, **fields):
        """Append dX = dY W^T and dW = X^T dY."""
        dx_part, dw_part = partials or (self.room(dx.rows, dx.cols, False),
                                        self.room(dw.rows, dw.cols, False))
        self.add(Opcode.GRAD, **{
            "m": dy.rows, "k": x.cols, "n": dy.cols, "order": order, "y_bfp": dx.bfp,
            "dw_bfp": dw.bfp, **self.windows(),
            **self._operands({"x": x, "w": w, "dy": dy, "y": dx, "dw": dw, "y_part": dx_part,
                              "dw_part": dw_part}), **fields})

    def convert(self, x: Matrix, y: Matrix, **fields):
        """Append Y = X tile by tile."""
        self.add(Opcode.CONVERT, **{
            "m": x.rows, "n": x.cols, "x_fp32": not x.bfp, "y_bfp": y.bfp, "x_kind": Kind.X,
            "y_kind": Kind.Y, **self.windows(), **self._operands({"x": x, "y": y}), **fields})

    def vector(self, function: Function, x: Matrix, *, w: Matrix | None = None,
               dy: Matrix | None = None, y: Matrix | None = None, dw: Matrix | None = None,
               **fields):
        """Append a function of X (and W, dY); Y and dW (the losses) are off unless given.

        SGD: X is the gradient, W the momentum, dY the weights.
        """
        given = {name: matrix for name, matrix in (("x", x), ("w", w), ("dy", dy), ("y", y),
                                                   ("dw", dw)) if matrix}
        kinds = {f"{name}_kind": Kind[name.upper()] for name in ("x", "w", "dy", "y")}
        self.add(Opcode.VECTOR, **{
            "function": function, "m": x.rows, "n": x.cols, "x_fp32": not x.bfp,
            "w_fp32": bool(w and not w.bfp), "y_bfp": bool(y and y.bfp), "y_off": y is None,
            "dw_off": dw is None, **kinds, "y_window": self.staging(),
            **self._operands(given), **fields})

    def function(self, function: Function, rows: int, cols: int, *, make=None, w_bfp: bool = False,
                 x_bfp: bool = False, y_bfp: bool = False, **fields) -> dict[str, Matrix]:
        """Append a function of fresh operands, with all its results; its matrices by name.

        `make(rows, cols)` makes the FP32 ones, by default `normal`.
        """
        make = make or self.normal
        operands = {"x": self.bfp(rows, cols) if x_bfp else make(rows, cols)}
        if function is Function.SGD:
            operands |= {"w": make(rows, cols), "dy": make(rows, cols)}
        elif function in (*BINARY, *BIASES, *LOSSES):
            height = 1 if function in BIASES else rows
            operands["w"] = self.bfp(height, cols) if w_bfp else make(height, cols)
        height = 1 if function is Function.COLUMN_SUM else rows
        operands["y"] = self.room(height, 1 if function in ROWS else cols, y_bfp)
        if function in LOSSES:
            operands["dw"] = self.room(rows, 1, False)
        self.vector(function, **operands, **fields)
        return operands

    @contextmanager
    def loop(self, turns: int) -> Iterator[None]:
        """LOOP and NEXT around the instructions that are appended inside."""
        first = len(self.instructions)
        self.add(Opcode.LOOP, m=turns)
        yield
        self.add(Opcode.NEXT)
        self.instructions[first]["bm"] = len(self.instructions) - first - 1

    def address(self, register: int, offset: int, source: int = 0):
        """Append R[register] = R[source] + offset; the offset may be negative."""
        self.add(Opcode.ADDRESS, x_reg=register, w_reg=source, x_addr=offset % 2**32)

    def fence(self):
        """Append a FENCE."""
        self.add(Opcode.FENCE)

    def code(self, code: bytes) -> int:
        """Place a program that is given in bytes; its offset."""
        return self._put(np.frombuffer(code, np.uint8).copy())

    def end(self) -> int:
        """Place the instructions so far, with END, as a program; its offset."""
        code, self.instructions = assemble(self.cfg, self.instructions), []
        return self.code(code)

    # --- jobs -----------------------------------------------------------------------------

    def job(self, program: int, *, fresh: bool = True, region_base: int = 0,
            rates: dict[str, int] | None = None, **settings) -> Job:
        """Job that runs the program at offset `program`.

        With `fresh` it brings the memory and resets the NPU, else it goes on from the job before.
        There is rubbish before and behind the region. `rates` replace those of `RATES`;
        `settings` are those of `Job`, ranges of errors counted in the region.
        """
        lead = GUARD if region_base else 0
        for name in ("read_errors", "write_errors"):
            if name in settings:
                settings[name] = tuple(lead + limit for limit in settings[name])
        memory = self.memory()
        registers = {"REGION_BASE_LO": region_base % 2**32, "REGION_BASE_HI": region_base >> 32,
                     "REGION_SIZE": len(memory), "SEED": self.seed, "PROGRAM_ADDR": program,
                     **RATES, **(rates or {}), "EXCEPTIONS": 3, "COUNTERS_CLEAR": 1}
        guards = rubbish(np.random.default_rng(self.seed + 1), lead + GUARD)
        image = np.concatenate([guards[:lead], memory, guards[lead:]]) if fresh else None
        return Job(memory=image, registers=registers, base=region_base - lead, **settings)
