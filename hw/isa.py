"""Instruction set: one description that hardware, assembler, golden model and docs share.

An instruction is 128 bytes long, little-endian, and describes a whole layer operation. Addresses
are byte offsets in the context's DRAM region and multiples of a beat; pitches count tile images.
"""

from amaranth.hdl import unsigned
from amaranth.lib import data, enum

from hw.config import DIM_BITS, OFFSET_BITS

INSTRUCTION_BYTES = 128


class Opcode(enum.Enum, shape=unsigned(8)):
    """What an instruction does. Every other code is refused."""

    GEMM = 1  #: Y = X W.
    GRAD = 2  #: dX = dY W^T and dW = X^T dY of one layer, expanded by the gradient sequencer.
    CONVERT = 3  #: Y = X tile by tile, quantising, dequantising, requantising or copying.
    FENCE = 4  #: Wait until everything before it has finished, writes acknowledged.
    END = 5  #: As FENCE, then stop and raise the done interrupt.


class Order(enum.Enum, shape=unsigned(4)):
    """Order of a GRAD's tile operations (IGO, MICRO 2023)."""

    SEQUENTIAL = 0  #: All of dX, then all of dW.
    INTERLEAVED = 1  #: dX in row-major and dW in column-major walks of dY, alternating.
    DX_MAJOR = 2  #: Both follow one row-major walk over blocks of dY.
    DW_MAJOR = 3  #: Both follow one column-major walk over blocks of dY.


class Kind(enum.Enum, shape=unsigned(3)):
    """Tensor kinds by which DRAM bytes are counted."""

    PROGRAM = 0  #: Instructions.
    X = 1  #: Layer input.
    W = 2  #: Weights.
    Y = 3  #: Layer output.
    DY = 4  #: Gradient of the output.
    DX = 5  #: Gradient of the input.
    DW = 6  #: Gradient of the weights.
    PARTIAL = 7  #: Partial sums that leave the accumulator.


class Error(enum.Enum, shape=unsigned(8)):
    """Why a context stopped. The ERROR_ADDR register holds what the comment names."""

    NONE = 0  #: No error.
    BAD_OPCODE = 1  #: Unknown opcode; offset of the instruction.
    WRONG_CONFIG = 2  #: The program is for another configuration; offset of the instruction.
    BAD_FIELD = 3  #: A field or a combination of fields is illegal; offset of the instruction.
    BAD_ADDRESS = 4  #: An access would leave the region; offset of the tile image or instruction.
    READ_ERROR = 5  #: The memory answered a read with an error; offset of the image being read.
    WRITE_ERROR = 6  #: The memory answered a write with an error; offset of the burst.


#: Direct-mapped window of tile slots: tile (i, j) lives in slot
#: base + (i mod 2**h_log2) * 2**w_log2 + (j mod 2**w_log2).
WINDOW = data.StructLayout({"base": 16, "h_log2": 4, "w_log2": 4, "unused": 8})

#: Fields in order, lowest bit first: name -> (shape, documentation).
FIELDS = {
    "opcode": (8, "operation (Opcode)"),
    "order": (4, "GRAD: order of the tile operations (Order)"),
    "x_row": (1, "GEMM, CONVERT: BFP images of X carry one exponent per row"),
    "y_row": (1, "GEMM, CONVERT: a BFP result gets one exponent per row"),
    "x_fp32": (1, "CONVERT: X is FP32, not BFP"),
    "y_bfp": (1, "Y (dX in GRAD) is written as BFP, not FP32"),
    "dw_bfp": (1, "GRAD: dW is written as BFP, not FP32"),
    "stochastic": (1, "BFP results are rounded stochastically, not to nearest even"),
    "y_off": (1, "GRAD: do not compute dX"),
    "dw_off": (1, "GRAD: do not compute dW"),
    "y_accumulate": (1, "GEMM, GRAD: add to the FP32 Y (dX) that is in DRAM; needs y_bfp = 0"),
    "dw_accumulate": (1, "GRAD: add to the FP32 dW that is in DRAM; needs dw_bfp = 0"),
    "x_independent": (1, "X is not written by earlier instructions: load it without waiting"),
    "w_independent": (1, "the same of W"),
    "dy_independent": (1, "the same of dY"),
    "unused0": (7, "zero"),
    "config_hash": (32, "CONFIG_HASH of the configuration that the program is for"),
    "m": (DIM_BITS, "M: rows of X, Y, dY, dX"),
    "unused1": (32 - DIM_BITS, "zero"),
    "n": (DIM_BITS, "N: columns of W, Y, dY, dW (CONVERT: columns of X and Y)"),
    "unused2": (32 - DIM_BITS, "zero"),
    "k": (DIM_BITS, "K: columns of X and dX, rows of W and dW (CONVERT: unused)"),
    "unused3": (32 - DIM_BITS, "zero"),
    "bm": (16, "block of M in tiles; 0 is all of it"),
    "bn": (16, "block of N in tiles; 0 is all of it"),
    "bk": (16, "block of K in tiles; 0 is all of it"),
    "x_kind": (3, "CONVERT: tensor kind that X's bytes count as (Kind)"),
    "unused4": (1, "zero"),
    "y_kind": (3, "CONVERT: tensor kind that Y's bytes count as (Kind)"),
    "unused11": (9, "zero"),
    "salt": (32, "stochastic rounding: salt of Y's (dX's) hash; dW's is this plus 1"),
    "x_addr": (OFFSET_BITS, "first tile image of X"),
    "w_addr": (OFFSET_BITS, "first tile image of W"),
    "dy_addr": (OFFSET_BITS, "first tile image of dY"),
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
    "y_window": (WINDOW, "accumulator window of Y (dX); staging slots in CONVERT"),
    "dw_window": (WINDOW, "accumulator window of dW"),
    "y_row0": (DIM_BITS, "stochastic rounding: global row of Y's (dX's) first element"),
    "unused6": (32 - DIM_BITS, "zero"),
    "y_col0": (DIM_BITS, "stochastic rounding: global column of Y's (dX's) first element"),
    "unused7": (32 - DIM_BITS, "zero"),
    "dw_row0": (DIM_BITS, "stochastic rounding: global row of dW's first element"),
    "unused8": (32 - DIM_BITS, "zero"),
    "dw_col0": (DIM_BITS, "stochastic rounding: global column of dW's first element"),
    "unused9": (32 - DIM_BITS, "zero"),
    "unused10": (96, "zero"),
}

INSTRUCTION = data.StructLayout({name: shape for name, (shape, _) in FIELDS.items()})
assert INSTRUCTION.size == INSTRUCTION_BYTES * 8
