"""Accesses of CONVERT and VECTOR, which work through sets of slots of `y_window`.

Written from docs/architecture.md, "Vector sequencer".
"""

import numpy as np

from hw.config import Config
from hw.isa import Function, Kind, Opcode
from sw.golden.accesses import (
    LOAD_DY,
    LOAD_W,
    LOAD_X,
    STEPS,
    STORE,
    STORE_DW,
    STORE_DY,
    STORE_W,
    Recorder,
    Trace,
)

#: Functions with a second operand W.
TWO_OPERANDS = frozenset({
    Function.ADD, Function.SUB, Function.MUL, Function.RELU_GRAD, Function.BIAS,
    Function.BIAS_RELU, Function.SOFTMAX, Function.MSE, Function.SGD})
#: Functions of which W is one row.
ONE_ROW = frozenset({Function.BIAS, Function.BIAS_RELU})
#: Functions that keep a state from tile to tile.
REDUCING = frozenset({
    Function.COLUMN_SUM, Function.ROW_MEAN, Function.ROW_MAX, Function.SOFTMAX, Function.MSE})
#: Functions whose reduction is all that they give.
ONLY_REDUCING = frozenset({Function.COLUMN_SUM, Function.ROW_MEAN, Function.ROW_MAX})
#: Functions that give losses.
LOSSES = frozenset({Function.SOFTMAX, Function.MSE})
#: Most sets that are used.
MOST_SETS = 8


def set_slots(function: Function) -> int:
    """Slots of one set; CONVERT's function is NONE."""
    if function is Function.SGD:
        return 4
    return 2 if function in TWO_OPERANDS | REDUCING else 1


def sets(function: Function, window: dict[str, int]) -> int:
    """Sets that fit a window; one of them is the state of functions that reduce."""
    slots = 1 << min(window["h_log2"] + window["w_log2"], 16)
    return min(slots // set_slots(function), MOST_SETS)


def _walk(function: Function, tm: int, tn: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Operations in order: their tiles m and n, and the turn of SOFTMAX."""
    if function is Function.SOFTMAX:
        m, rest = np.divmod(np.arange(3 * tm * tn), 3 * tn)
        turn, n = np.divmod(rest, tn)
        return m, n, turn
    if function is Function.COLUMN_SUM:
        n, m = np.divmod(np.arange(tm * tn), tm)
    else:
        m, n = np.divmod(np.arange(tm * tn), tn)
    return m, n, np.zeros(tm * tn, int)


class _Stream(Recorder):
    """Builds the accesses of one CONVERT or VECTOR."""

    def __init__(self, cfg: Config, fields: dict, function: Function, tm: int, tn: int):
        super().__init__(cfg, fields)
        self.m, self.n, self.turn = _walk(function, tm, tn)
        count, first = len(self.m), int(function in REDUCING)
        used = max(sets(function, fields["y_window"]) - first, 1)
        number = first + np.arange(count) % used
        self.slot = (number * set_slots(function)).astype(np.uint16)

    def kind(self, name: str) -> Kind:
        """Kind of operand `name` by the instruction."""
        return Kind(self.fields[f"{name}_kind"])

    def move(self, name, kind, bfp, step, chosen, *, i=None, j=None, slot=None):
        """One access each of the operations `chosen` (indices), to tile (m, n) unless told."""
        def pick(column, otherwise):
            return np.zeros_like(chosen) if column == 0 else otherwise[chosen]

        where = self.slot[chosen] if slot is None else np.full(len(chosen), slot, np.uint16)
        rows = 1 if i == 0 else self.fields["m"]
        self.note(name, kind, step >= STORE_W, bfp, rows, chosen * STEPS + step,
                  pick(i, self.m), pick(j, self.n), where, "y")


def trace(cfg: Config, fields: dict, sizes: dict[str, int]) -> Trace:
    """Trace of a CONVERT or VECTOR whose addresses are all 0; `sizes` in tiles."""
    convert = fields["opcode"] == Opcode.CONVERT.value
    function = Function.NONE if convert else Function(fields["function"])
    tm, tn = sizes["m"], sizes["n"]
    s = _Stream(cfg, fields, function, tm, tn)
    everything = np.arange(len(s.m))
    last = everything[s.turn == s.turn.max()]
    s.move("x", s.kind("x"), not fields["x_fp32"], LOAD_X, everything)
    if function in TWO_OPERANDS:
        s.move("w", s.kind("w"), not fields["w_fp32"], LOAD_W, last,
               i=0 if function in ONE_ROW else None)
    if function is Function.SGD:
        s.move("dy", s.kind("dy"), False, LOAD_DY, everything)
        s.move("w", s.kind("w"), False, STORE_W, everything)
        s.move("dy", s.kind("dy"), False, STORE_DY, everything)
    y, bfp = s.kind("y"), fields["y_bfp"]
    if function is Function.COLUMN_SUM:
        s.move("y", y, bfp, STORE, last[s.m[last] == tm - 1], i=0, slot=0)
    elif function in ONLY_REDUCING:
        s.move("y", y, bfp, STORE, last[s.n[last] == tn - 1], j=0, slot=0)
    elif convert or not (fields["y_off"] and function in LOSSES | {Function.SGD}):
        s.move("y", y, bfp, STORE, last)
    if function in LOSSES and not fields["dw_off"]:
        s.move("dw", Kind.LOSS, False, STORE_DW, last[s.n[last] == tn - 1], j=0, slot=1)
    none = np.zeros(0, np.int32)
    return Trace(none.astype(bool), none, none, none, 0 if convert else len(s.m),
                 tuple(s.accesses), {}, s.total())
