"""Instruction bytes to fields, and the checks that the decoder makes."""

import numpy as np
from amaranth.lib import data

from hw.config import Config
from hw.isa import FIELDS, INSTRUCTION, WINDOW, Error, Opcode, Order

LAYER_OPS = (Opcode.GEMM, Opcode.GRAD, Opcode.CONVERT)
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


def _windows(fields: dict) -> tuple[list[str], list[str]]:
    """Scratchpad and accumulator windows that an instruction uses."""
    opcode = Opcode(fields["opcode"])
    if opcode is Opcode.CONVERT:
        return [], ["y_window"]
    if opcode is Opcode.GEMM:
        return ["x_window", "w_window"], ["y_window"]
    pair = ["dy2_window"] if fields["order"] == Order.INTERLEAVED.value else []
    outputs = [w for w, off in (("y_window", "y_off"), ("dw_window", "dw_off")) if not fields[off]]
    return ["x_window", "w_window", "dy_window", *pair], outputs


def _legal(cfg: Config, fields: dict) -> bool:
    opcode = Opcode(fields["opcode"])
    windows = [v for v in fields.values() if isinstance(v, dict)]
    if any(v for name, v in fields.items() if name.startswith("unused")) or \
            any(w["unused"] for w in windows):
        return False
    if opcode not in LAYER_OPS:
        return True
    sizes = "mn" if opcode is Opcode.CONVERT else "mnk"
    spad, acc = _windows(fields)
    return not (
        fields["order"] > max(o.value for o in Order)
        or any(fields[d] == 0 for d in sizes)
        or any(v % cfg.beat_bytes for name, v in fields.items() if name.endswith("_addr"))
        or (fields["y_accumulate"] and fields["y_bfp"])
        or (fields["dw_accumulate"] and fields["dw_bfp"])
        or (opcode is Opcode.GRAD and (fields["x_row"] or fields["y_row"]))
        or (opcode is Opcode.GRAD and fields["y_off"] and fields["dw_off"])
    ) and all(_spad_window_fits(cfg, fields[w]) for w in spad) \
        and all(_acc_window_fits(cfg, fields[w]) for w in acc)


def check(cfg: Config, fields: dict) -> Error:
    """What the decoder says to an instruction: the first of its checks that fails."""
    if fields["opcode"] not in _OPCODES:
        return Error.BAD_OPCODE
    if fields["config_hash"] != cfg.hash:
        return Error.WRONG_CONFIG
    return Error.NONE if _legal(cfg, fields) else Error.BAD_FIELD
