"""Instruction bytes to fields, and the checks that the decoder makes."""

from dataclasses import dataclass

import numpy as np
from amaranth.lib import data

from hw.config import Config
from hw.isa import (
    FIELDS,
    INSTRUCTION,
    WINDOW,
    Error,
    Function,
    Kind,
    Opcode,
    Order,
    XSource,
    YTarget,
)
from sw.golden.sets import LOSSES, ONE_ROW, REDUCING, TWO_OPERANDS, sets

LAYER_OPS = (Opcode.GEMM, Opcode.GRAD, Opcode.CONVERT, Opcode.VECTOR)
_OPCODES = {o.value for o in Opcode}
#: Fields that are for GEMM only (docs/serving.md, "On-chip operands").
ON_CHIP = ("x_source", "y_target", "run_m", "w_keep")


@dataclass(frozen=True)
class Context:
    """What the decoder knows beside the instruction.

    Is it the inference context, with a batch of how many requests running (0: none), and the first
    and last of its scratchpad and accumulator slots (None: all are).
    """

    inference: bool = False
    rows: int = 0
    spad_region: tuple[int, int] | None = None
    acc_region: tuple[int, int] | None = None


def _bits(word: int, layout: data.Layout, name: str) -> int:
    field = layout[name]
    return word >> field.offset & ((1 << field.width) - 1)


def decode(raw: np.ndarray) -> dict:
    """Fields of an instruction by name; a window is a dictionary of its own fields."""
    word = int.from_bytes(raw.tobytes(), "little")
    fields = {}
    for name, (shape, _) in FIELDS.items():
        value = _bits(word, INSTRUCTION, name)
        fields[name] = {part: _bits(value, WINDOW, part) for part in dict(WINDOW)} \
            if shape is WINDOW else value
    return fields


def spad_window_fits(cfg: Config, window: dict[str, int]) -> bool:
    """Whether a scratchpad window exists."""
    bits = window["h_log2"] + window["w_log2"]
    last, index_bits = window["base"] + (1 << bits) - 1, cfg.slot_index_bits
    if bits > 16:
        return False
    if cfg.bank_slots == 1 << index_bits:
        return last < cfg.spad_slots
    index = window["base"] & ((1 << index_bits) - 1)
    return window["base"] >> index_bits < cfg.spad_banks and \
        index + (1 << bits) - 1 < cfg.bank_slots


def acc_window_fits(cfg: Config, window: dict[str, int]) -> bool:
    """Whether an accumulator window exists."""
    bits = window["h_log2"] + window["w_log2"]
    return bits <= 16 and window["base"] + (1 << bits) - 1 < cfg.acc_slots


#: Functions that an opcode takes.
_FUNCTIONS = {
    Opcode.GEMM: {Function.NONE, Function.BIAS, Function.RELU, Function.BIAS_RELU},
    Opcode.GRAD: {Function.NONE, Function.RELU_GRAD},
    Opcode.CONVERT: {Function.NONE},
    Opcode.VECTOR: set(Function) - {Function.NONE},
}


def _windows(fields: dict) -> tuple[list[str], list[str]]:
    """Scratchpad and accumulator windows that an instruction uses."""
    opcode, function = Opcode(fields["opcode"]), Function(fields["function"])
    spad, acc = ["x_window", "w_window"], ["y_window"]
    if opcode in (Opcode.CONVERT, Opcode.VECTOR):
        spad = []
    elif opcode is Opcode.GRAD:
        spad += ["dy_window"] + ["dy2_window"] * (fields["order"] == Order.INTERLEAVED.value)
        acc = [w for w, off in (("y_window", "y_off"), ("dw_window", "dw_off")) if not fields[off]]
    elif fields["y_target"] == YTarget.CHIP.value:
        spad.append("dw_window")
    if opcode in (Opcode.GEMM, Opcode.GRAD) and function in TWO_OPERANDS:
        acc.append("e_window")
    return spad, acc


def _size(window: dict[str, int]) -> int:
    return 1 << window["h_log2"] + window["w_log2"]


def _windows_fit(cfg: Config, fields: dict) -> bool:
    """Whether all windows that an instruction uses exist."""
    function, (spad, acc) = Function(fields["function"]), _windows(fields)
    if fields["opcode"] in (Opcode.CONVERT.value, Opcode.VECTOR.value) and \
            sets(function, fields["y_window"]) < 1 + (function in REDUCING):
        return False
    return ("e_window" not in acc or _size(fields["e_window"]) <= 4) \
        and all(spad_window_fits(cfg, fields[w]) for w in spad) \
        and all(acc_window_fits(cfg, fields[w]) for w in acc)


def inside(window: dict[str, int], region: tuple[int, int] | None) -> bool:
    """Whether a window is made of the slots `region`, the first and last of them (None: all)."""
    return region is None or (region[0] <= window["base"]
                              and window["base"] + _size(window) - 1 <= region[1])


def _windows_inside(fields: dict, context: Context) -> bool:
    """Whether all windows that an instruction uses are made of the context's slots."""
    regions = (context.spad_region, context.acc_region)
    return all(inside(fields[w], region)
               for names, region in zip(_windows(fields), regions, strict=True) for w in names)


def _on_chip_legal(cfg: Config, fields: dict, context: Context) -> bool:
    """The checks of a GEMM's operands on chip."""
    def holds(name, rows, cols):
        window = fields[name]
        return 1 << window["h_log2"] >= -(-fields[rows] // cfg.tile) \
            and 1 << window["w_log2"] >= -(-fields[cols] // cfg.tile)

    def keeps_bias():
        return fields["w_keep"] and Function(fields["function"]) in ONE_ROW

    source, target = fields["x_source"], fields["y_target"]
    if source not in {s.value for s in XSource} or target not in {t.value for t in YTarget}:
        return False
    return not (
        (source and not holds("x_window", "m", "k"))
        or (source == XSource.REQUEST.value and not context.inference)
        or (target == YTarget.CHIP.value and not (fields["y_bfp"] and holds("dw_window", "m", "n")))
        or (target == YTarget.ACC.value and (fields["y_bfp"] or not holds("y_window", "m", "n")))
        or (target and fields["y_accumulate"])
        or (keeps_bias() and fields["n"] > cfg.tile * cfg.tile * _size(fields["e_window"])))


def _vector_legal(fields: dict) -> bool:
    function = Function(fields["function"])
    return not (
        fields["y_accumulate"] or fields["dw_accumulate"] or fields["dw_bfp"]
        or (function is Function.SGD and not fields["w_fp32"])
        or (function in LOSSES and fields["y_off"] and fields["dw_off"]))


def _legal(cfg: Config, fields: dict, context: Context) -> bool:
    opcode = Opcode(fields["opcode"])
    windows = [v for v in fields.values() if isinstance(v, dict)]
    if any(v for name, v in fields.items() if name.startswith("unused")) or \
            any(w["unused"] for w in windows):
        return False
    if opcode is not Opcode.GEMM and any(fields[name] for name in ON_CHIP):
        return False
    if opcode not in LAYER_OPS:
        return True
    known = [(fields["order"], Order), (fields["function"], Function),
             *((v, Kind) for name, v in fields.items() if name.endswith("_kind"))]
    sizes = "mnk" if opcode in (Opcode.GEMM, Opcode.GRAD) else "mn"
    return not (
        any(value > max(e.value for e in names) for value, names in known)
        or any(fields[d] == 0 for d in sizes)
        or any(v % cfg.beat_bytes for name, v in fields.items() if name.endswith("_addr"))
        or Function(fields["function"]) not in _FUNCTIONS[opcode]
        or (fields["y_accumulate"] and fields["y_bfp"])
        or (fields["dw_accumulate"] and fields["dw_bfp"])
        or (opcode is Opcode.GRAD and (fields["x_row"] or fields["y_row"]))
        or (opcode is Opcode.GRAD and fields["y_off"] and (fields["dw_off"] or fields["function"]))
        or (opcode is Opcode.VECTOR and not _vector_legal(fields))
        or (opcode is Opcode.GEMM and not _on_chip_legal(cfg, fields, context))
    ) and _windows_fit(cfg, fields)


def effective(fields: dict, context: Context) -> dict:
    """`fields` with the rows of the running batch as M, if the instruction asks for it."""
    return fields | {"m": context.rows} if fields["run_m"] else fields


def check(cfg: Config, fields: dict, context: Context | None = None) -> Error:
    """What the decoder says to an instruction: the first of its checks that fails.

    `fields` have the address registers added already. Loops are checked by `sw.golden.program`.
    """
    context = context or Context()
    fields = effective(fields, context)
    if fields["opcode"] not in _OPCODES:
        return Error.BAD_OPCODE
    if fields["config_hash"] != cfg.hash:
        return Error.WRONG_CONFIG
    if not _legal(cfg, fields, context):
        return Error.BAD_FIELD
    if fields["opcode"] in {o.value for o in LAYER_OPS} and not _windows_inside(fields, context):
        return Error.BAD_WINDOW
    return Error.NONE
