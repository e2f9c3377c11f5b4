"""What an instruction does to DRAM: tile operations in order, and the accesses that each causes.

Written from docs/architecture.md, "Sequencer" and "Vector sequencer". Residency is a function of
program order alone, so a window is solved at once: sorted by slot, an access misses when it
differs from the one before. Tiles that are kept from earlier instructions are left to
`sw.golden.kept`; of `w_keep` only counts here whether it is 0.
"""

from functools import lru_cache

import numpy as np

from hw.config import Config
from hw.isa import FIELDS, Function, Kind, Opcode, Order, XSource, YTarget
from sw.golden import sets
from sw.golden.accesses import (
    FILL,
    LOAD_A,
    LOAD_B,
    LOAD_E,
    SPILL,
    STEPS,
    STORE,
    Recorder,
    Trace,
)
from sw.golden.nest import walk

#: Fields that change no operation and no access but by the addresses.
_PLACE = {name for name in FIELDS if name.endswith(("_addr", "_reg", "_row0", "_col0"))} | {
    "salt", "scalar", "phase", "overlap", "stochastic", "config_hash", "run_m"}


def slots(window: dict[str, int], i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Slots of tiles (i, j) in a window, counted from its base."""
    high, wide = (1 << window["h_log2"]) - 1, (1 << window["w_log2"]) - 1
    return ((i & high) << window["w_log2"] | j & wide).astype(np.uint16)


def _chains(slot: np.ndarray, tile: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each access: the access before it in its slot (-1: none), and whether it misses."""
    order = np.argsort(slot, kind="stable")
    before = np.full(len(slot), -1)
    same = slot[order[1:]] == slot[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    return before, (before < 0) | (tile[before] != tile)


def _paired_misses(dw, tile, row_slot, column_slot) -> np.ndarray:
    """Misses of dY in the two windows of `interleaved`: both are searched, each fills its own."""
    row_panel, column_panel = {}, {}
    misses = []
    for is_dw, t, r, c in zip(dw.tolist(), tile.tolist(), row_slot.tolist(), column_slot.tolist(),
                              strict=True):
        miss = row_panel.get(r) != t and column_panel.get(c) != t
        misses.append(miss)
        if miss:
            if is_dw:
                column_panel[c] = t
            else:
                row_panel[r] = t
    return np.array(misses, bool)


class _Tracer(Recorder):
    """Builds the accesses of one GEMM or GRAD."""

    def __init__(self, cfg: Config, fields: dict, ops: dict[str, np.ndarray]):
        super().__init__(cfg, fields)
        self.dw, self.m, self.n, self.k = (ops[key] for key in ("dw", "m", "n", "k"))
        self.spilled: dict[str, np.ndarray] = {}

    def operand(self, name, kind, rows, ops, step, i, j):
        """Loads of an operand of `rows` rows that operations `ops` read as tile (i, j)."""
        i, j = i[ops], j[ops]
        slot = slots(self.fields[f"{name}_window"], i, j)
        _, miss = _chains(slot, i.astype(np.int64) << 32 | j)
        step = np.broadcast_to(step, len(ops))[miss]
        self.note(name, kind, False, True, rows, ops[miss] * STEPS + step, i[miss], j[miss],
                  slot[miss])

    def paired_dy(self):
        """Loads of dY in order `interleaved`."""
        tile = self.m.astype(np.int64) << 32 | self.n
        row, column = (slots(self.fields[f"{w}_window"], self.m, self.n) for w in ("dy", "dy2"))
        miss = _paired_misses(self.dw, tile, row, column)
        for dw, slot, step, window in ((False, row, LOAD_A, "dy"), (True, column, LOAD_B, "dy2")):
            c = np.flatnonzero(miss & (self.dw == dw))
            self.note("dy", Kind.DY, False, True, self.fields["m"], c * STEPS + step,
                      self.m[c], self.n[c], slot[c], window)

    def result(self, name, kind, valid, ops, i, j, r, shape):
        """Spills, fills and stores of the output whose tile (i, j) operations `ops` add to.

        It has `valid` rows; `shape` are its tiles and those of the reduction.
        """
        rows, cols, depth = shape
        i, j, r = i[ops], j[ops], r[ops]
        slot = slots(self.fields[f"{name}_window"], i, j)
        before, miss = _chains(slot, i.astype(np.int64) << 32 | j)
        spill = miss & (before >= 0) & (r[before] != depth - 1)
        old, when = before[spill], ops * STEPS
        note, part = self.note, f"{name}_part"
        note(part, Kind.PARTIAL, True, False, valid, when[spill] + SPILL, i[old], j[old],
             slot[old], name)
        back = miss & (r > 0)
        note(part, Kind.PARTIAL, False, False, valid, when[back] + FILL, i[back], j[back],
             slot[back], name)
        if self.fields[f"{name}_accumulate"]:
            first = r == 0
            note(name, kind, False, False, valid, when[first] + FILL, i[first], j[first],
                 slot[first])
        last = r == depth - 1
        if name == "y":
            self.epilogue(when[last], i[last], j[last])
        if self.fields["y_target"] == YTarget.DRAM.value:
            note(name, kind, True, self.fields[f"{name}_bfp"], valid, when[last] + STORE, i[last],
                 j[last], slot[last])
        self.spilled[name] = np.full((rows, cols), -1, np.int32)
        self.spilled[name][i[old], j[old]] = r[old]  # ascending, so the last one stays

    def epilogue(self, when, i, j):
        """Loads of the epilogue's operand for the results (i, j), finished in this order."""
        function = Function(self.fields["function"])
        if function is Function.RELU_GRAD:
            operand, kind, bfp, rows = "x", Kind.X, True, self.fields["m"]
        elif function in (Function.BIAS, Function.BIAS_RELU):
            operand, kind, bfp, rows, i = "dy", Kind.BIAS, False, 1, np.zeros_like(i)
        else:
            return
        tile = i.astype(np.int64) << 32 | j
        miss = np.ones(len(tile), bool)
        miss[1:] = tile[1:] != tile[:-1]
        if self.fields["w_keep"]:  # a bias: its tiles stay, T to a slot
            miss = np.zeros(len(tile), bool)
            miss[np.unique(tile, return_index=True)[1]] = True
            slot = j[miss] // self.cfg.tile
        else:
            ring = self.fields["e_window"]["h_log2"] + self.fields["e_window"]["w_log2"]
            slot = np.arange(miss.sum()) & (1 << ring) - 1
        self.note(operand, kind, False, bfp, rows, when[miss] + LOAD_E, i[miss], j[miss],
                  slot.astype(np.uint16), "e")


def trace(cfg: Config, fields: dict) -> Trace:
    """Trace of a GEMM, GRAD, CONVERT or VECTOR.

    Parameters
    ----------
    cfg : Config
    fields : dict
        Fields by name, windows as dictionaries; fields that are not given count as 0.
    """
    key = tuple((name, tuple(value.items()) if isinstance(value, dict) else value)
                for name, value in fields.items() if name not in _PLACE | {"w_keep"})
    key += (("w_keep", int(fields.get("w_keep", 0) > 0)),)
    return _trace(cfg, key).at(fields)


@lru_cache(maxsize=128)
def _trace(cfg: Config, key: tuple) -> Trace:
    """Trace of an instruction whose addresses are all 0."""
    fields = dict.fromkeys(FIELDS, 0) | {
        name: dict(value) if isinstance(value, tuple) else value for name, value in key}
    opcode, order = Opcode(fields["opcode"]), Order(fields["order"])
    sizes = {d: -(-fields[d] // cfg.tile) for d in "mnk"}
    if opcode in (Opcode.CONVERT, Opcode.VECTOR):
        return sets.trace(cfg, fields, sizes)
    blocks = {d: min(fields[f"b{d}"] or sizes[d], sizes[d]) for d in "mnk"}
    ops = walk(opcode, order, sizes, blocks)
    if opcode is Opcode.GEMM:
        kept = np.ones(len(ops["dw"]), bool)
    else:
        kept = np.where(ops["dw"], not fields["dw_off"], not fields["y_off"])
    ops = {key: column[kept] for key, column in ops.items()}
    t = _Tracer(cfg, fields, ops)
    m, n, k, everything = t.m, t.n, t.k, np.arange(len(t.m))
    rows = {d: fields[d] for d in "mk"}
    if opcode is Opcode.GEMM:
        outputs = sizes["m"] * sizes["n"]
        if fields["x_source"] == XSource.DRAM.value:
            t.operand("x", Kind.X, rows["m"], everything, LOAD_A, m, k)
        t.operand("w", Kind.W, rows["k"], everything, LOAD_B, k, n)
        t.result("y", Kind.Y, rows["m"], everything, m, n, k,
                 (sizes["m"], sizes["n"], sizes["k"]))
    else:
        outputs = sizes["m"] * sizes["k"]
        dx, dw = np.flatnonzero(~t.dw), np.flatnonzero(t.dw)
        if order is Order.INTERLEAVED:
            t.paired_dy()
        else:
            t.operand("dy", Kind.DY, rows["m"], everything, np.where(t.dw, LOAD_B, LOAD_A), m, n)
        if len(dx):
            t.operand("w", Kind.W, rows["k"], dx, LOAD_B, k, n)
            t.result("y", Kind.DX, rows["m"], dx, m, k, n,
                     (sizes["m"], sizes["k"], sizes["n"]))
        if len(dw):
            t.operand("x", Kind.X, rows["m"], dw, LOAD_A, m, k)
            t.result("dw", Kind.DW, rows["k"], dw, k, n, m,
                     (sizes["k"], sizes["n"], sizes["m"]))
    vector_operations = outputs if fields["function"] != Function.NONE.value else 0
    return Trace(t.dw, t.m, t.n, t.k, vector_operations, tuple(t.accesses), t.spilled, t.total())
