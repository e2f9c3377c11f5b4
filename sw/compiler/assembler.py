"""Instructions to bytes and back, and to text."""

from collections.abc import Iterable

from hw.config import Config
from hw.isa import (
    FIELDS,
    INSTRUCTION,
    INSTRUCTION_BYTES,
    WINDOW,
    Function,
    Kind,
    Opcode,
    Order,
    XSource,
    YTarget,
)

_NAMES = {"opcode": Opcode, "order": Order, "function": Function,
          "x_source": XSource, "y_target": YTarget,
          **{f"{operand}_kind": Kind for operand in ("x", "w", "dy", "y")}}


class AssemblyError(ValueError):
    """A field that does not exist, or a value that does not fit it."""


def window(base: int = 0, h_log2: int = 0, w_log2: int = 0) -> dict[str, int]:
    """Value of a window field."""
    return {"base": base, "h_log2": h_log2, "w_log2": w_log2}


def _width(layout, name: str) -> int:
    return layout[name].width


def _number(where: str, value, width: int) -> int:
    value = getattr(value, "value", value)
    if isinstance(value, bool):
        value = int(value)
    if not isinstance(value, int) or not 0 <= value < 1 << width:
        raise AssemblyError(f"{where} must be 0..{(1 << width) - 1}, not {value!r}")
    return value


def instruction(cfg: Config, opcode: Opcode, **fields) -> bytes:
    """One instruction; fields that are not given are 0, `config_hash` is that of `cfg`.

    Raises
    ------
    AssemblyError
        Unknown field, or a value outside its bits.
    """
    fields = {"opcode": opcode, "config_hash": cfg.hash, **fields}
    word = 0
    for name, value in fields.items():
        if name not in FIELDS:
            raise AssemblyError(f"instructions have no field {name!r}; "
                                f"fields are {', '.join(FIELDS)}")
        offset = INSTRUCTION[name].offset
        if FIELDS[name][0] is not WINDOW:
            word |= _number(name, value, _width(INSTRUCTION, name)) << offset
            continue
        if not isinstance(value, dict) or not value.keys() <= dict(WINDOW).keys():
            raise AssemblyError(f"{name} must be a window(base, h_log2, w_log2), not {value!r}")
        for part, number in value.items():
            word |= _number(f"{name}.{part}", number, _width(WINDOW, part)) \
                << offset + WINDOW[part].offset
    return word.to_bytes(INSTRUCTION_BYTES, "little")


def assemble(cfg: Config, instructions: Iterable[dict]) -> bytes:
    """A program: each instruction a dictionary of fields with at least `opcode`; END is added."""
    parts = [instruction(cfg, **fields) for fields in instructions]
    return b"".join([*parts, instruction(cfg, Opcode.END)])


def disassemble(program: bytes) -> str:
    """Readable text, one instruction a line: its name, then every field that is not zero.

    Raises
    ------
    AssemblyError
        If the program is no whole number of instructions.
    """
    if len(program) % INSTRUCTION_BYTES:
        raise AssemblyError(f"a program must be a multiple of {INSTRUCTION_BYTES} bytes, "
                            f"not {len(program)}")
    lines = []
    for start in range(0, len(program), INSTRUCTION_BYTES):
        word = int.from_bytes(program[start:start + INSTRUCTION_BYTES], "little")
        parts = []
        for name in FIELDS:
            value = word >> INSTRUCTION[name].offset & (1 << _width(INSTRUCTION, name)) - 1
            if name == "opcode" or value:
                parts.append(_text(name, value))
        lines.append(f"{start:#06x}  {' '.join(parts)}")
    return "\n".join(lines)


def _text(name: str, value: int) -> str:
    if FIELDS[name][0] is WINDOW:
        base, high, wide, unused = (
            value >> WINDOW[p].offset & (1 << _width(WINDOW, p)) - 1
            for p in ("base", "h_log2", "w_log2", "unused"))
        return f"{name}={base}+{1 << high}x{1 << wide}" + (f"?{unused:#x}" if unused else "")
    if name in _NAMES:
        known = {e.value: e.name for e in _NAMES[name]}
        text = known.get(value, f"{value}?")
        return text if name == "opcode" else f"{name}={text}"
    if name == "config_hash" or name.endswith("addr"):
        return f"{name}={value:#x}"
    return f"{name}={value}"
