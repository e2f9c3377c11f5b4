"""Loops over tiles as arrays: the operations of GEMM and GRAD in order.

Written from docs/architecture.md, "Sequencer".
"""

import numpy as np

from hw.isa import Opcode, Order


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


def walk(opcode: Opcode, order: Order, sizes, blocks) -> dict[str, np.ndarray]:
    """Operations in order: is it a dW operation, and its tiles m, n, k."""
    def turns(names, dw):
        nest = Nest(sizes, blocks).loops(names)
        tile = {d: nest.tile(d) for d in "mnk"}
        return {"dw": np.full(len(tile["m"]), dw), **tile}

    if opcode is Opcode.GEMM:
        return turns("KMNknm", False)
    if order in (Order.SEQUENTIAL, Order.INTERLEAVED):
        dx, dw = turns("MKNnkm", False), turns("NKMmnk", True)
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
