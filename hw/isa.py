"""Instruction set: one description that hardware, assembler, golden model and docs share.

An instruction is 128 bytes long, little-endian, and describes a whole layer operation. Addresses
are byte offsets in the context's DRAM region and multiples of a beat; pitches count tile images.
"""

from amaranth.hdl import unsigned
from amaranth.lib import data, enum

from hw.config import DIM_BITS, OFFSET_BITS

INSTRUCTION_BYTES = 128
#: Address registers; register 0 is always 0.
ADDRESS_REGISTERS = 16
#: Loops that can be open at a time.
LOOP_DEPTH = 4
#: Phases by which clocks are counted.
PHASES = 32


class Opcode(enum.Enum, shape=unsigned(8)):
    """What an instruction does. Every other code is refused."""

    GEMM = 1  #: Y = X W.
    GRAD = 2  #: dX = dY W^T and dW = X^T dY of one layer, expanded by the gradient sequencer.
    CONVERT = 3  #: Y = X tile by tile, quantising, dequantising, requantising or copying.
    FENCE = 4  #: Wait until everything before it has finished, writes acknowledged.
    END = 5  #: As FENCE, then stop and raise the done interrupt.
    VECTOR = 6  #: A function of FP32 tiles on the vector unit (Function).
    LOOP = 7  #: Run the instructions up to the matching NEXT `m` times; 0 skips them.
    NEXT = 8  #: End of a loop's body.
    ADDRESS = 9  #: Address register `x_reg` = address register `w_reg` + `x_addr`.


class Function(enum.Enum, shape=unsigned(5)):
    """What VECTOR computes, or the epilogue of a GEMM or GRAD (docs/numerics.md)."""

    NONE = 0  #: GEMM, GRAD: no epilogue.
    ADD = 1  #: Y = X + W, element by element.
    SUB = 2  #: Y = X - W.
    MUL = 3  #: Y = X * W.
    SCALE = 4  #: Y = X * scalar.
    RELU = 5  #: Y = max(X, 0). Also an epilogue of GEMM.
    RELU_GRAD = 6  #: Y = X where W > 0, else 0. Epilogue of GRAD: dX where the layer's X > 0.
    BIAS = 7  #: Y = X + W, W one row. Epilogue of GEMM: the row is at dy_addr.
    BIAS_RELU = 8  #: Y = max(X + W, 0), W one row. Epilogue of GEMM: the row is at dy_addr.
    EXP = 9  #: Y = e to the power of X.
    RECIP = 10  #: Y = 1 / X.
    RSQRT = 11  #: Y = 1 / square root of X.
    COLUMN_SUM = 12  #: Y, one row, = sums of the columns of X.
    ROW_MEAN = 13  #: Y, one column, = sums of the rows of X, times scalar.
    ROW_MAX = 14  #: Y, one column, = maxima of the rows of X.
    SOFTMAX = 15  #: Y = (softmax of X's rows - W) * scalar; dW, one column, = cross-entropy.
    MSE = 16  #: Y = (X - W) * scalar; dW, one column, = sums of (X - W)**2.
    SGD = 17  #: Momentum W and weights dY from gradient X, both in place; Y is a copy of dY.


class Order(enum.Enum, shape=unsigned(4)):
    """Order of a GRAD's tile operations (IGO, MICRO 2023)."""

    SEQUENTIAL = 0  #: All of dX, then all of dW.
    INTERLEAVED = 1  #: dX in row-major and dW in column-major walks of dY, alternating.
    DX_MAJOR = 2  #: Both follow one row-major walk over blocks of dY.
    DW_MAJOR = 3  #: Both follow one column-major walk over blocks of dY.


class Kind(enum.Enum, shape=unsigned(4)):
    """Tensor kinds by which DRAM bytes are counted."""

    PROGRAM = 0  #: Instructions.
    X = 1  #: Layer input.
    W = 2  #: Weights.
    Y = 3  #: Layer output.
    DY = 4  #: Gradient of the output.
    DX = 5  #: Gradient of the input.
    DW = 6  #: Gradient of the weights.
    PARTIAL = 7  #: Partial sums that leave the accumulator.
    BIAS = 8  #: Biases (epilogue of GEMM).
    STATE = 9  #: Optimizer state: FP32 master weights and momentum.
    TARGET = 10  #: Targets of the loss.
    LOSS = 11  #: Losses.
    REQUEST = 12  #: Request descriptors and completions.


class Error(enum.Enum, shape=unsigned(8)):
    """Why a context stopped. The ERROR_ADDR register holds what the comment names."""

    NONE = 0  #: No error.
    BAD_OPCODE = 1  #: Unknown opcode; offset of the instruction.
    WRONG_CONFIG = 2  #: The program is for another configuration; offset of the instruction.
    BAD_FIELD = 3  #: A field or a combination of fields is illegal; offset of the instruction.
    BAD_ADDRESS = 4  #: An access would leave the region; offset of the tile image or instruction.
    READ_ERROR = 5  #: The memory answered a read with an error; offset of the image being read.
    WRITE_ERROR = 6  #: The memory answered a write with an error; offset of the burst.
    BAD_WINDOW = 7  #: A window reaches outside the context's slots; offset of the instruction.


class XSource(enum.Enum, shape=unsigned(2)):
    """Where a GEMM finds X."""

    DRAM = 0  #: Tile images at x_addr.
    CHIP = 1  #: All of X is in x_window already, written there by an earlier GEMM's Y.
    REQUEST = 2  #: All of X is in x_window already: the inputs of the running batch of requests.


class YTarget(enum.Enum, shape=unsigned(2)):
    """Where a GEMM leaves Y."""

    DRAM = 0  #: Tile images at y_addr.
    CHIP = 1  #: BFP tiles in the scratchpad window dw_window.
    ACC = 2  #: FP32 tiles in y_window; the requests' outputs are taken from there.


#: Direct-mapped window of tile slots: tile (i, j) lives in slot
#: base + (i mod 2**h_log2) * 2**w_log2 + (j mod 2**w_log2).
WINDOW = data.StructLayout({"base": 16, "h_log2": 4, "w_log2": 4, "unused": 8})

#: Fields in order, lowest bit first: name -> (shape, documentation).
FIELDS = {
    "opcode": (8, "operation (Opcode)"),
    "order": (4, "GRAD: order of the tile operations (Order)"),
    "x_row": (1, "GEMM, CONVERT, VECTOR: BFP images of X carry one exponent per row"),
    "y_row": (1, "GEMM, CONVERT, VECTOR: a BFP result gets one exponent per row"),
    "x_fp32": (1, "CONVERT, VECTOR: X is FP32, not BFP"),
    "y_bfp": (1, "Y (dX in GRAD) is written as BFP, not FP32"),
    "dw_bfp": (1, "GRAD: dW is written as BFP, not FP32"),
    "stochastic": (1, "BFP results are rounded stochastically, not to nearest even"),
    "y_off": (1, "GRAD: do not compute dX; SOFTMAX, MSE, SGD: do not write Y"),
    "dw_off": (1, "GRAD: do not compute dW; SOFTMAX, MSE: do not write the losses"),
    "y_accumulate": (1, "GEMM, GRAD: add to the FP32 Y (dX) that is in DRAM; needs y_bfp = 0"),
    "dw_accumulate": (1, "GRAD: add to the FP32 dW that is in DRAM; needs dw_bfp = 0"),
    "x_independent": (1, "X is not written by earlier instructions: load it without waiting"),
    "w_independent": (1, "the same of W"),
    "dy_independent": (1, "the same of dY"),
    "function": (5, "VECTOR: what is computed; GEMM, GRAD: epilogue (Function)"),
    "w_fp32": (1, "VECTOR: W is FP32, not BFP"),
    "unused0": (1, "zero"),
    "config_hash": (32, "CONFIG_HASH of the configuration that the program is for"),
    "m": (DIM_BITS, "M: rows of X, Y, dY, dX (LOOP: turns)"),
    "phase": (5, "phase under which clocks are counted from here on"),
    "x_source": (2, "GEMM: where X is (XSource)"),
    "y_target": (2, "GEMM: where Y goes (YTarget)"),
    "run_m": (1, "M is not `m` but the rows of the running batch of requests"),
    "unused1": (22 - DIM_BITS, "zero"),
    "n": (DIM_BITS, "N: columns of W, Y, dY, dW (CONVERT, VECTOR: columns of X and Y)"),
    "overlap": (4, "latest instructions of the other stream before this one that may be unfinished "
                   "when it starts"),
    "unused2": (28 - DIM_BITS, "zero"),
    "k": (DIM_BITS, "K: columns of X and dX, rows of W and dW (CONVERT, VECTOR: unused)"),
    "unused3": (32 - DIM_BITS, "zero"),
    "bm": (16, "block of M in tiles; 0 is all of it (LOOP: instructions of the body, NEXT "
               "included)"),
    "bn": (16, "block of N in tiles; 0 is all of it"),
    "bk": (16, "block of K in tiles; 0 is all of it"),
    "x_kind": (4, "CONVERT, VECTOR: tensor kind that X's bytes count as (Kind)"),
    "w_kind": (4, "VECTOR: the same of W"),
    "dy_kind": (4, "VECTOR: the same of dY"),
    "y_kind": (4, "CONVERT, VECTOR: the same of Y"),
    "salt": (32, "stochastic rounding: salt of Y's (dX's) hash; dW's is this plus 1"),
    "x_addr": (OFFSET_BITS, "first tile image of X"),
    "w_addr": (OFFSET_BITS, "first tile image of W"),
    "dy_addr": (OFFSET_BITS, "first tile image of dY (GEMM: of the bias)"),
    "y_addr": (OFFSET_BITS, "first tile image of Y (dX in GRAD)"),
    "dw_addr": (OFFSET_BITS, "first tile image of dW"),
    "y_part_addr": (OFFSET_BITS, "first FP32 image of Y's (dX's) spilled partial sums"),
    "dw_part_addr": (OFFSET_BITS, "first FP32 image of dW's spilled partial sums"),
    "x_pitch": (16, "tile images from one tile row of X to the next"),
    "w_pitch": (16, "the same of W"),
    "dy_pitch": (16, "the same of dY"),
    "y_pitch": (16, "the same of Y (dX)"),
    "dw_pitch": (16, "the same of dW"),
    "y_part_pitch": (16, "the same of Y's (dX's) partial sums"),
    "dw_part_pitch": (16, "the same of dW's partial sums"),
    "unused5": (16, "zero"),
    "x_window": (WINDOW, "scratchpad window of X"),
    "w_window": (WINDOW, "scratchpad window of W"),
    "dy_window": (WINDOW, "scratchpad window of dY (interleaved: row panel, loaded by dX)"),
    "dy2_window": (WINDOW, "interleaved: scratchpad window of dY's column panel, loaded by dW"),
    "y_window": (WINDOW, "accumulator window of Y (dX); staging slots in CONVERT and VECTOR"),
    "dw_window": (WINDOW, "accumulator window of dW (y_target CHIP: scratchpad window of Y)"),
    "y_row0": (DIM_BITS, "stochastic rounding: global row of Y's (dX's) first element"),
    "unused6": (32 - DIM_BITS, "zero"),
    "y_col0": (DIM_BITS, "stochastic rounding: global column of Y's (dX's) first element"),
    "unused7": (32 - DIM_BITS, "zero"),
    "dw_row0": (DIM_BITS, "stochastic rounding: global row of dW's first element"),
    "unused8": (32 - DIM_BITS, "zero"),
    "dw_col0": (DIM_BITS, "stochastic rounding: global column of dW's first element"),
    "unused9": (32 - DIM_BITS, "zero"),
    "e_window": (WINDOW, "accumulator slots for the epilogue's operand, at most 4 in all"),
    "scalar": (32, "VECTOR: FP32 scalar"),
    "x_reg": (4, "address register that is added to x_addr (ADDRESS: the one that is written)"),
    "w_reg": (4, "the same of w_addr (ADDRESS: the one that is read)"),
    "dy_reg": (4, "the same of dy_addr"),
    "y_reg": (4, "the same of y_addr"),
    "dw_reg": (4, "the same of dw_addr"),
    "salt_reg": (4, "address register that is added to salt"),
    "w_keep": (4, "GEMM: not 0: tiles of W that a GEMM with the same number has loaded are found "
                   "again"),
    "unused4": (4, "zero"),
}

INSTRUCTION = data.StructLayout({name: shape for name, (shape, _) in FIELDS.items()})
assert INSTRUCTION.size == INSTRUCTION_BYTES * 8
