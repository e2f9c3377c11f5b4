"""DRAM accesses of an instruction in program order."""

from dataclasses import dataclass, replace

import numpy as np

from hw.config import Config
from hw.isa import Kind

#: An access's place in program order is STEPS * operation + step.
STEPS = 7
#: Steps of an operation on the array.
LOAD_A, LOAD_B, SPILL, FILL, LOAD_E, STORE = range(6)
#: Steps of an operation of the vector stream; Y is stored in STORE.
LOAD_X, LOAD_W, LOAD_DY, STORE_W, STORE_DY, _, STORE_DW = range(STEPS)


@dataclass(frozen=True)
class Accesses:
    """Accesses to the tile images of one operand, in program order.

    `operand` names the fields of the address and pitch ("x", "w", "dy", "y", "dw", "y_part",
    "dw_part"), `when` is the place in program order, `i` and `j` the tile, `slot` its slot in the
    window `window` ("x", "w", "dy", "dy2", "y", "dw", "e"). No image ends beyond `base + reach`.
    Images of tile row `last` have fewer valid rows: only their first `last_bytes` are transferred.
    """

    operand: str
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
    reach: int
    last: int
    last_bytes: int

    @property
    def addr(self) -> np.ndarray:
        """Offsets of the images in the region, not wrapped."""
        return self.base + (self.i.astype(np.int64) * self.pitch + self.j) * self.image_bytes

    @property
    def moved(self) -> np.ndarray:
        """Bytes that each access transfers."""
        return np.where(self.i == self.last, self.last_bytes, self.image_bytes)

    @property
    def total(self) -> int:
        """Bytes of all accesses."""
        fewer = int(np.count_nonzero(self.i == self.last))
        return len(self.when) * self.image_bytes - fewer * (self.image_bytes - self.last_bytes)


@dataclass(frozen=True)
class Trace:
    """One instruction: its operations on the array, its vector commands and its accesses.

    `dw`, `m`, `n` and `k` are arrays of the operations in order. `vector_operations` counts vector
    commands. `spilled` holds, for "y" and "dw", the reduction tile after which each output tile was
    spilled last, -1 if never. `bytes` is what `counters` returns.
    """

    dw: np.ndarray
    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    vector_operations: int
    accesses: tuple[Accesses, ...]
    spilled: dict[str, np.ndarray]
    bytes: dict[str, int]

    def counters(self) -> dict[str, int]:
        """Bytes by direction and kind, under the names of the hardware's counters."""
        return dict(self.bytes)

    def at(self, fields: dict) -> "Trace":
        """The same with the addresses of `fields`; those that are not given count as 0."""
        return replace(self, accesses=tuple(
            replace(a, base=fields.get(f"{a.operand}_addr", 0)) for a in self.accesses))

    def without(self, accesses: Accesses, dropped: list[int]) -> "Trace":
        """The same but for some of `accesses`: those at the indices `dropped`."""
        rest = replace(accesses, **{name: np.delete(getattr(accesses, name), dropped)
                                    for name in ("when", "i", "j", "slot")})
        name = f"{'WRITE' if rest.write else 'READ'}_{rest.kind.name}"
        count = self.bytes[name] - accesses.total + rest.total
        return replace(self, bytes=self.bytes | {name: count}, accesses=tuple(
            rest if a is accesses else a for a in self.accesses))

    def first_outside(self, region_bytes: int) -> int | None:
        """Offset of the first image in program order that does not lie inside the region."""
        found = []
        for a in self.accesses:
            if a.base + a.reach > region_bytes:
                addr = a.addr
                outside = np.flatnonzero(addr + a.image_bytes > region_bytes)
                if len(outside):
                    first = outside[a.when[outside].argmin()]
                    found.append((int(a.when[first]), int(addr[first])))
        return min(found)[1] if found else None


class Recorder:
    """Collects the accesses of one instruction, with all addresses 0.

    Parameters
    ----------
    cfg : Config
    fields : dict
        Fields of the instruction by name.
    """

    def __init__(self, cfg: Config, fields: dict):
        self.cfg, self.fields = cfg, fields
        self.accesses: list[Accesses] = []

    def note(self, operand, kind, write, bfp, rows, when, i, j, slot, window=None):
        """Record accesses to the tiles (i, j) of `operand`, a matrix of `rows` rows."""
        last = (rows - 1) // self.cfg.tile
        rest = self.cfg.image_beats(bfp, rows - last * self.cfg.tile) * self.cfg.beat_bytes
        pitch = self.fields[f"{operand}_pitch"]
        size = self.cfg.image_bytes(bfp)
        reach = (int(i.max()) * pitch + int(j.max()) + 1) * size if len(i) else 0
        self.accesses.append(Accesses(operand, window or operand, kind, write, size, 0, pitch,
                                      when, i, j, slot, reach, last, rest))

    def total(self) -> dict[str, int]:
        """Bytes by direction and kind."""
        result = {f"{d}_{k.name}": 0 for d in ("READ", "WRITE") for k in Kind}
        for a in self.accesses:
            result[f"{'WRITE' if a.write else 'READ'}_{a.kind.name}"] += a.total
        return result
