"""Instruction bytes to fields, and the checks that the decoder makes."""

import numpy as np
from amaranth.lib import data

from hw.config import Config
from hw.isa import FIELDS, INSTRUCTION, WINDOW, Error, Function, Kind, Opcode, Order
from sw.golden.sets import LOSSES, REDUCING, TWO_OPERANDS, sets

LAYER_OPS = (Opcode.GEMM, Opcode.GRAD, Opcode.CONVERT, Opcode.VECTOR)
_OPCODES = {o.value for o in Opcode}


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


def _spad_window_fits(cfg: Config, window: dict[str, int]) -> bool:
    bits = window["h_log2"] + window["w_log2"]
    last, index_bits = window["base"] + (1 << bits) - 1, cfg.slot_index_bits
    if bits > 16:
        return False
    if cfg.bank_slots == 1 << index_bits:
        return last < cfg.spad_slots
    index = window["base"] & ((1 << index_bits) - 1)
    return window["base"] >> index_bits < cfg.spad_banks and \
        index + (1 << bits) - 1 < cfg.bank_slots


def _acc_window_fits(cfg: Config, window: dict[str, int]) -> bool:
    bits = window["h_log2"] + window["w_log2"]
    return bits <= 16 and window["base"] + (1 << bits) - 1 < cfg.acc_slots


#: Functions that an opcode takes.
_FUNCTIONS = {
    Opcode.GEMM: {Function.NONE, Function.BIAS, Function.RELU, Function.BIAS_RELU},
    Opcode.GRAD: {Function.NONE, Function.RELU_GRAD},
    Opcode.CONVERT: {Function.NONE},
    Opcode.VECTOR: set(Function) - {Function.NONE},
}


def _windows_fit(cfg: Config, fields: dict) -> bool:
    """Whether all windows that an instruction uses exist."""
    opcode, function = Opcode(fields["opcode"]), Function(fields["function"])
    spad, acc = ["x_window", "w_window"], ["y_window"]
    if opcode in (Opcode.CONVERT, Opcode.VECTOR):
        spad = []
        if sets(function, fields["y_window"]) < 1 + (function in REDUCING):
            return False
    elif opcode is Opcode.GRAD:
        spad += ["dy_window"] + ["dy2_window"] * (fields["order"] == Order.INTERLEAVED.value)
        acc = [w for w, off in (("y_window", "y_off"), ("dw_window", "dw_off")) if not fields[off]]
    if opcode in (Opcode.GEMM, Opcode.GRAD) and function in TWO_OPERANDS:
        acc.append("e_window")
        if fields["e_window"]["h_log2"] + fields["e_window"]["w_log2"] > 2:
            return False
    return all(_spad_window_fits(cfg, fields[w]) for w in spad) \
        and all(_acc_window_fits(cfg, fields[w]) for w in acc)


def _vector_legal(fields: dict) -> bool:
    function = Function(fields["function"])
    return not (
        fields["y_accumulate"] or fields["dw_accumulate"] or fields["dw_bfp"]
        or (function is Function.SGD and not fields["w_fp32"])
        or (function in LOSSES and fields["y_off"] and fields["dw_off"]))


def _legal(cfg: Config, fields: dict) -> bool:
    opcode = Opcode(fields["opcode"])
    windows = [v for v in fields.values() if isinstance(v, dict)]
    if any(v for name, v in fields.items() if name.startswith("unused")) or \
            any(w["unused"] for w in windows):
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
    ) and _windows_fit(cfg, fields)


def check(cfg: Config, fields: dict) -> Error:
    """What the decoder says to an instruction: the first of its checks that fails.

    `fields` have the address registers added already. Loops are checked by `sw.golden.program`.
    """
    if fields["opcode"] not in _OPCODES:
        return Error.BAD_OPCODE
    if fields["config_hash"] != cfg.hash:
        return Error.WRONG_CONFIG
    return Error.NONE if _legal(cfg, fields) else Error.BAD_FIELD
