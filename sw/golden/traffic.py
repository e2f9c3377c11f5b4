"""The sequencer's walk: tile operations in order, and the DRAM accesses that each one causes.

Written from docs/architecture.md, "Sequencer". Residency is a function of program order alone, so
a window is solved at once: sorted by slot, an access misses when it differs from the one before.
"""

from dataclasses import dataclass

import numpy as np

from hw.config import Config
from hw.isa import Kind, Opcode, Order

#: An access's place in program order is PHASES * operation + phase.
PHASES = 5
LOAD_A, LOAD_B, SPILL, FILL, STORE = range(PHASES)


@dataclass(frozen=True)
class Accesses:
    """Accesses to the tile images of one operand, in program order.

    `when` is the place in program order, `i` and `j` the tile, `slot` its slot in the window
    `window` ("x", "w", "dy", "dy2", "y", "dw").
    """

    window: str
    kind: Kind
    write: bool
    image_bytes: int
    base: int
    pitch: int
    when: np.ndarray
    i: np.ndarray
    j: np.ndarray
    slot: np.ndarray

    @property
    def addr(self) -> np.ndarray:
        """Offsets of the images in the region, not wrapped."""
        return self.base + (self.i.astype(np.int64) * self.pitch + self.j) * self.image_bytes

    @property
    def total(self) -> int:
        """Bytes of all accesses."""
        return len(self.when) * self.image_bytes


@dataclass(frozen=True)
class Trace:
    """One instruction: its operations (arrays `dw`, `m`, `n`, `k` in order) and its accesses.

    `spilled` holds, for "y" and "dw", the reduction tile after which each output tile was spilled
    last, -1 if never.
    """

    dw: np.ndarray
    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    accesses: tuple[Accesses, ...]
    spilled: dict[str, np.ndarray]

    def counters(self) -> dict[str, int]:
        """Bytes by direction and kind, under the names of the hardware's counters."""
        result = {f"{d}_{k.name}": 0 for d in ("READ", "WRITE") for k in Kind}
        for a in self.accesses:
            result[f"{'WRITE' if a.write else 'READ'}_{a.kind.name}"] += a.total
        return result

    def first_outside(self, region_bytes: int) -> int | None:
        """Offset of the first image that does not lie inside the region."""
        found = []
        for a in self.accesses:
            corner = a.base + (int(a.i.max(initial=0)) * a.pitch + int(a.j.max(initial=0)) + 1) \
                * a.image_bytes
            if corner > region_bytes:
                addr = a.addr
                outside = np.flatnonzero(addr + a.image_bytes > region_bytes)
                if len(outside):
                    found.append((int(a.when[outside[0]]), int(addr[outside[0]])))
        return min(found)[1] if found else None


class Nest:
    """A ragged nest of loops as arrays, one entry per turn of the innermost loop so far.

    Parameters
    ----------
    sizes, blocks : dict
        Tiles and tiles per block of "m", "n" and "k".
    """

    def __init__(self, sizes: dict[str, int], blocks: dict[str, int]):
        self.sizes, self.blocks = sizes, blocks
        self.columns = {"": np.zeros(1, np.int32)}

    def loop(self, name: str, counts) -> np.ndarray:
        """Add a loop whose trip count per turn of the outer loops is `counts`; its variable."""
        length = len(self.columns[""])
        counts = np.broadcast_to(np.asarray(counts, np.int64), length)
        outer = np.repeat(np.arange(length), counts)
        self.columns = {key: column[outer] for key, column in self.columns.items()}
        starts = np.cumsum(counts) - counts
        self.columns[name] = (np.arange(len(outer)) - starts[outer]).astype(np.int32)
        return self.columns[name]

    def extent(self, name: str) -> np.ndarray:
        """Tiles of dimension `name` in the current block."""
        first = self.columns[name.upper()] * self.blocks[name]
        return np.minimum(self.blocks[name], self.sizes[name] - first)

    def loops(self, names: str) -> "Nest":
        """Add loops by name: a capital over blocks, a small letter over the block's tiles."""
        for name in names:
            if name.isupper():
                self.loop(name, -(-self.sizes[name.lower()] // self.blocks[name.lower()]))
            else:
                self.loop(name, self.extent(name))
        return self

    def tile(self, name: str) -> np.ndarray:
        """Tile number of dimension `name`."""
        return self.columns[name.upper()] * self.blocks[name] + self.columns[name]


def _walk(opcode: Opcode, order: Order, sizes, blocks) -> dict[str, np.ndarray]:
    """Operations in order: is it a dW operation, and its tiles m, n, k."""
    def walk(names, dw):
        nest = Nest(sizes, blocks).loops(names)
        tile = {d: nest.tile(d) for d in "mnk"}
        return {"dw": np.full(len(tile["m"]), dw), **tile}

    if opcode is Opcode.GEMM:
        return walk("KMNknm", False)
    if order in (Order.SEQUENTIAL, Order.INTERLEAVED):
        dx, dw = walk("MKNnkm", False), walk("NKMmnk", True)
        if order is Order.SEQUENTIAL:
            return {key: np.concatenate([dx[key], dw[key]]) for key in dx}
        return {key: np.stack([dx[key], dw[key]], axis=1).reshape(-1) for key in dx}
    nest = Nest(sizes, blocks).loops("KMNk" if order is Order.DX_MAJOR else "KNMk")
    dw = nest.loop("dx", 2) == 0
    nest.loop("u", np.where(dw, nest.extent("m"), nest.extent("n")))
    dw = nest.columns["dx"] == 0
    nest.loop("v", np.where(dw, nest.extent("n"), nest.extent("m")))
    dw, u, v = nest.columns["dx"] == 0, nest.columns["u"], nest.columns["v"]
    nest.columns |= {"m": np.where(dw, u, v), "n": np.where(dw, v, u)}
    return {"dw": dw, **{d: nest.tile(d) for d in "mnk"}}


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


class _Tracer:
    """Builds the accesses of one GEMM or GRAD."""

    def __init__(self, cfg: Config, fields: dict, ops: dict[str, np.ndarray]):
        self.cfg, self.fields = cfg, fields
        self.dw, self.m, self.n, self.k = (ops[key] for key in ("dw", "m", "n", "k"))
        self.accesses: list[Accesses] = []
        self.spilled: dict[str, np.ndarray] = {}

    def note(self, name, kind, write, bfp, chosen, phase, i, j, slot, window=None):
        """Record accesses of matrix `name` by the operations `chosen` (indices)."""
        self.accesses.append(Accesses(
            window or name, kind, write, self.cfg.bfp_bytes if bfp else self.cfg.fp32_bytes,
            self.fields[f"{name}_addr"], self.fields[f"{name}_pitch"],
            chosen * PHASES + phase, i, j, slot))

    def operand(self, name, kind, ops, phase, i, j):
        """Loads of an operand that operations `ops` read as tile (i, j)."""
        i, j = i[ops], j[ops]
        slot = slots(self.fields[f"{name}_window"], i, j)
        _, miss = _chains(slot, i.astype(np.int64) << 32 | j)
        phase = np.broadcast_to(phase, len(ops))[miss]
        self.note(name, kind, False, True, ops[miss], phase, i[miss], j[miss], slot[miss])

    def paired_dy(self):
        """Loads of dY in order `interleaved`."""
        tile = self.m.astype(np.int64) << 32 | self.n
        row, column = (slots(self.fields[f"{w}_window"], self.m, self.n) for w in ("dy", "dy2"))
        miss = _paired_misses(self.dw, tile, row, column)
        for dw, slot, phase, window in ((False, row, LOAD_A, "dy"), (True, column, LOAD_B, "dy2")):
            c = np.flatnonzero(miss & (self.dw == dw))
            self.note("dy", Kind.DY, False, True, c, phase, self.m[c], self.n[c], slot[c], window)

    def result(self, name, kind, ops, i, j, r, shape):
        """Spills, fills and stores of the output whose tile (i, j) operations `ops` add to."""
        rows, cols, depth = shape
        i, j, r = i[ops], j[ops], r[ops]
        slot = slots(self.fields[f"{name}_window"], i, j)
        before, miss = _chains(slot, i.astype(np.int64) << 32 | j)
        spill = miss & (before >= 0) & (r[before] != depth - 1)
        old = before[spill]
        note, part = self.note, f"{name}_part"
        note(part, Kind.PARTIAL, True, False, ops[spill], SPILL, i[old], j[old], slot[old], name)
        back = miss & (r > 0)
        note(part, Kind.PARTIAL, False, False, ops[back], FILL, i[back], j[back], slot[back], name)
        if self.fields[f"{name}_accumulate"]:
            first = r == 0
            note(name, kind, False, False, ops[first], FILL, i[first], j[first], slot[first])
        last = r == depth - 1
        note(name, kind, True, self.fields[f"{name}_bfp"], ops[last], STORE, i[last], j[last],
             slot[last])
        self.spilled[name] = np.full((rows, cols), -1, np.int32)
        self.spilled[name][i[old], j[old]] = r[old]  # ascending, so the last one stays


def trace(cfg: Config, fields: dict) -> Trace:
    """Trace of a GEMM, GRAD or CONVERT, given its fields by name (windows as dicts)."""
    opcode, order = Opcode(fields["opcode"]), Order(fields["order"])
    sizes = {d: -(-fields[d] // cfg.tile) for d in "mnk"}
    if opcode is Opcode.CONVERT:
        return _trace_convert(cfg, fields, sizes)
    blocks = {d: min(fields[f"b{d}"] or sizes[d], sizes[d]) for d in "mnk"}
    ops = _walk(opcode, order, sizes, blocks)
    if opcode is Opcode.GEMM:
        kept = np.ones(len(ops["dw"]), bool)
    else:
        kept = np.where(ops["dw"], not fields["dw_off"], not fields["y_off"])
    ops = {key: column[kept] for key, column in ops.items()}
    t = _Tracer(cfg, fields, ops)
    m, n, k, everything = t.m, t.n, t.k, np.arange(len(t.m))
    if opcode is Opcode.GEMM:
        t.operand("x", Kind.X, everything, LOAD_A, m, k)
        t.operand("w", Kind.W, everything, LOAD_B, k, n)
        t.result("y", Kind.Y, everything, m, n, k, (sizes["m"], sizes["n"], sizes["k"]))
    else:
        dx, dw = np.flatnonzero(~t.dw), np.flatnonzero(t.dw)
        if order is Order.INTERLEAVED:
            t.paired_dy()
        else:
            t.operand("dy", Kind.DY, everything, np.where(t.dw, LOAD_B, LOAD_A), m, n)
        if len(dx):
            t.operand("w", Kind.W, dx, LOAD_B, k, n)
            t.result("y", Kind.DX, dx, m, k, n, (sizes["m"], sizes["k"], sizes["n"]))
        if len(dw):
            t.operand("x", Kind.X, dw, LOAD_A, m, k)
            t.result("dw", Kind.DW, dw, k, n, m, (sizes["k"], sizes["n"], sizes["m"]))
    return Trace(t.dw, t.m, t.n, t.k, tuple(t.accesses), t.spilled)


def _trace_convert(cfg: Config, fields: dict, sizes: dict[str, int]) -> Trace:
    count = sizes["m"] * sizes["n"]
    i, j = np.divmod(np.arange(count), sizes["n"])
    slot, when = slots(fields["y_window"], i, j), np.arange(count) * PHASES
    accesses = tuple(
        Accesses("y", Kind(fields[f"{name}_kind"]), name == "y",
                 cfg.bfp_bytes if bfp else cfg.fp32_bytes, fields[f"{name}_addr"],
                 fields[f"{name}_pitch"], when + phase, i, j, slot)
        for name, bfp, phase in (("x", not fields["x_fp32"], FILL), ("y", fields["y_bfp"], STORE)))
    none = np.zeros(0, np.int32)
    return Trace(none.astype(bool), none, none, none, accesses, {})
