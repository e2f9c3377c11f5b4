"""Program control: which instructions a program executes, with their addresses worked out.

Written from docs/architecture.md, "Fetch and program control" and "Checks".
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hw.config import Config
from hw.isa import ADDRESS_REGISTERS, INSTRUCTION_BYTES, LOOP_DEPTH, Error, Opcode
from sw.golden.decode import LAYER_OPS, Context, check, decode, effective
from sw.golden.kept import Kept
from sw.golden.traffic import Trace, trace

#: Addresses that count with an address register added.
ADDRESSED = ("x", "w", "dy", "y", "dw")
_WORD = 0xFFFFFFFF
_LAYER_OPS = {o.value for o in LAYER_OPS}


@dataclass(frozen=True)
class Step:
    """One instruction in the order of execution.

    `pc` is its offset, `error` why it is refused and `error_addr` what ERROR_ADDR then holds.
    `fields` have the address registers added, and the batch's rows as M with `run_m`; None if
    nothing was fetched. `walk` is the trace of a GEMM, GRAD, CONVERT or VECTOR that the decoder
    accepts; it is the same object for the same instruction at the same addresses, unless kept
    tiles come into it.
    """

    pc: int
    error: Error
    error_addr: int
    fields: dict | None
    walk: Trace | None


@lru_cache(maxsize=1024)
def _decoded(raw: bytes) -> dict:
    return decode(np.frombuffer(raw, np.uint8))


@lru_cache(maxsize=4096)
def _examined(cfg: Config, raw: bytes, added: tuple[int, ...],
              context: Context) -> tuple[dict, Error, Trace | None]:
    """Fields, error and trace of an instruction with `added` added to its addresses.

    The trace takes no tile to be in the scratchpad.
    """
    fields = effective(dict(_decoded(raw)), context)
    if fields["opcode"] in _LAYER_OPS:
        for name, value in zip(ADDRESSED, added, strict=True):
            fields[f"{name}_addr"] = fields[f"{name}_addr"] + value & _WORD
    error = check(cfg, fields, context)
    accepted = error is Error.NONE and fields["opcode"] in _LAYER_OPS
    return fields, error, trace(cfg, fields) if accepted else None


def _loop_error(fields: dict, depth: int) -> bool:
    """Whether an instruction opens one loop too many, or closes one that is not open."""
    return (fields["opcode"] == Opcode.LOOP.value and fields["m"] > 0 and depth == LOOP_DEPTH) or \
        (fields["opcode"] == Opcode.NEXT.value and depth == 0)


def steps(cfg: Config, memory: np.ndarray, pc: int, context: Context | None = None,
          kept: Kept | None = None) -> Iterator[Step]:
    """Instructions of the program at offset `pc` up to END, or the first that the decoder refuses.

    Parameters
    ----------
    cfg : Config
    memory : np.ndarray
        The region, uint8; read as the program goes on.
    pc : int
    context : Context, optional
        What the decoder knows beside the program; if not given, a training context with all slots.
    kept : Kept, optional
        Kept tiles at the start; changed as the program goes on. None if not given.

    Yields
    ------
    Step
        After one with an access outside the region (BAD_ADDRESS and a trace) the program goes on.
    """
    context, kept = context or Context(), kept or Kept()
    registers = [0] * ADDRESS_REGISTERS
    loops: list[list[int]] = []  # offset of the body and turns left, outermost first
    while True:
        if pc + INSTRUCTION_BYTES > len(memory):
            yield Step(pc, Error.BAD_ADDRESS, pc & _WORD, None, None)
            return
        raw = memory[pc:pc + INSTRUCTION_BYTES].tobytes()
        plain = _decoded(raw)
        opcode = plain["opcode"]
        fields, error, walk = _examined(
            cfg, raw, tuple(registers[plain[f"{name}_reg"]] for name in ADDRESSED), context)
        if error is Error.NONE and _loop_error(fields, len(loops)):
            error = Error.BAD_FIELD
        if walk is None:
            yield Step(pc, error, pc, fields, None)
            if error is not Error.NONE or opcode == Opcode.END.value:
                return
        else:
            if registers[plain["salt_reg"]]:
                fields = fields | {"salt": fields["salt"] + registers[plain["salt_reg"]] & _WORD}
            walk = kept.follow(fields, walk)
            outside = walk.first_outside(len(memory))
            if outside is None:
                yield Step(pc, Error.NONE, pc, fields, walk)
            else:
                yield Step(pc, Error.BAD_ADDRESS, outside & _WORD, fields, walk)
        pc = pc + INSTRUCTION_BYTES & _WORD
        if opcode == Opcode.ADDRESS.value:
            registers[plain["x_reg"]] = registers[plain["w_reg"]] + plain["x_addr"] & _WORD
            registers[0] = 0
        elif opcode == Opcode.LOOP.value:
            if plain["m"]:
                loops.append([pc, plain["m"]])
            else:
                pc = pc + plain["bm"] * INSTRUCTION_BYTES & _WORD
        elif opcode == Opcode.NEXT.value:
            loops[-1][1] -= 1
            if loops[-1][1]:
                pc = loops[-1][0]
            else:
                loops.pop()
