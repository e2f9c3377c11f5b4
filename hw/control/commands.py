"""Commands from a context to the shared units, and the numbers that order them.

A command is issued only when all it needs is there and its destination is free, so a unit that
has taken one waits for nothing outside itself. Units finish commands in the order they took them.
"""

from amaranth.hdl import unsigned
from amaranth.lib import data, enum

from hw.config import DIM_BITS, OFFSET_BITS, Config
from hw.isa import Function, Kind


class ContextId(enum.Enum, shape=unsigned(1)):
    """The contexts; also their AXI IDs, and their index in every pair of ports."""

    TRAINING = 0
    INFERENCE = 1


class Destination(enum.Enum, shape=unsigned(2)):
    """Where a load puts a tile image."""

    SPAD = 0  #: BFP image to a scratchpad slot.
    ACC = 1  #: FP32 image, or BFP image converted to FP32, to an accumulator slot.
    PROGRAM = 2  #: One instruction (INSTRUCTION_BYTES) to the decoder.
    DESCRIPTOR = 3  #: One request descriptor (`Config.entry_bytes`) to the request unit.


class Source(enum.Enum, shape=unsigned(2)):
    """Stream of commands; each has its own numbers (docs/architecture.md, "Ordering")."""

    ARRAY = 0  #: GEMM and GRAD, with their epilogues.
    VECTOR = 1  #: VECTOR and CONVERT.
    REQUEST = 2  #: The request unit: descriptors, gathers, scatters, completions.


def load_command(cfg: Config) -> data.StructLayout:
    """Read one tile image (or instruction, or descriptor) from DRAM.

    Only the beats that hold the exponents and the first `rows` rows are read. Rows at or beyond
    `rows` and columns at or beyond `cols` are written as zero, whatever DRAM holds. A gather writes
    row r of the image, r < `rows`, to row `row` of slot `slot` + r, and nothing else; to ACC it has
    one row.
    """
    return data.StructLayout({
        "source": Source,
        "dest": Destination,
        "kind": Kind,                # counter that the bytes go to
        "fp32": 1,                   # FP32 image (ACC only); else BFP
        "row_exp": 1,                # BFP: exponent byte r for row r; else byte 0 for all rows
        "slot": max(cfg.spad_slot_bits, cfg.acc_slot_bits),
        "gather": 1,
        "row": cfg.row_bits,
        "rows": cfg.count_bits,      # valid rows, 1 .. T
        "cols": cfg.count_bits,      # valid columns, 1 .. T
        "addr": OFFSET_BITS,         # byte offset in the region, a multiple of a beat
    })


def exec_command(cfg: Config) -> data.StructLayout:
    """One tile operation: acc = (overwrite ? 0 : acc) + A B on the array.

    A is streamed: its rows 0 .. rows-1 (or columns, if `a_col`). B is stationary: its T rows (or
    columns, if `b_col`) become the rows 0 .. T-1 of the array.
    """
    return data.StructLayout({
        "context": ContextId,
        "a_slot": cfg.spad_slot_bits,
        "a_col": 1,
        "b_slot": cfg.spad_slot_bits,
        "b_col": 1,
        "b_reuse": 1,                # the array already holds this B
        "acc_slot": cfg.acc_slot_bits,
        "overwrite": 1,
        "rows": cfg.count_bits,      # 1 .. T
    })


def store_command(cfg: Config) -> data.StructLayout:
    """Write one accumulator tile to DRAM as an FP32 or BFP image, or to the scratchpad.

    Elements at or beyond `rows` and `cols` count as +0. Only the beats that hold the exponents and
    the first `rows` rows are written. A scatter (DRAM only) takes row r of the image from row `row`
    of slot `slot` + r. With `spad` the first `rows` rows of the BFP tile go to slot `spad_slot`.
    """
    return data.StructLayout({
        "source": Source,
        "slot": cfg.acc_slot_bits,
        "scatter": 1,
        "row": cfg.row_bits,
        "spad": 1,
        "spad_slot": cfg.spad_slot_bits,
        "kind": Kind,                # counter that the bytes go to
        "bfp": 1,                    # BFP image; else FP32
        "row_exp": 1,                # BFP: one exponent per row; else one for the tile
        "stochastic": 1,
        "final": 1,                  # a result, not a partial sum: NaN and Inf are counted
        "rows": cfg.count_bits,      # 1 .. T
        "cols": cfg.count_bits,      # 1 .. T
        "addr": OFFSET_BITS,         # byte offset in the region, a multiple of a beat
        "salt": 32,
        "row0": DIM_BITS,            # global row and column of the tile's first element (hash)
        "col0": DIM_BITS,
    })


def vector_command(cfg: Config) -> data.StructLayout:
    """One function on accumulator tiles (docs/architecture.md, "Vector unit").

    Results replace operands: tile `a`, for SGD tiles `b` and `c`, for the functions that reduce
    tile `t0` (losses: `t1`).
    """
    slot = cfg.acc_slot_bits
    return data.StructLayout({
        "source": Source,
        "function": Function,
        "turn": 2,                   # SOFTMAX: 0 maximum, 1 sum, 2 gradient and loss; else 0
        "first": 1,                  # first tile of a reduction
        "last": 1,                   # last tile of a reduction
        "a": slot,                   # X
        "b": slot,                   # W
        "b_row": cfg.row_bits,       # its row, of functions of which W is one row
        "c": slot,                   # dY (SGD)
        "t0": slot,                  # state of functions that reduce
        "t1": slot,                  # more of it: SOFTMAX, MSE
        "rows": cfg.count_bits,      # 1 .. T
        "cols": cfg.count_bits,      # 1 .. T
        "scalar": 32,
    })
