"""Tiles of W and of biases that stay on chip from instruction to instruction.

Written from docs/serving.md, "On-chip operands". Their values are not kept: a number stands for one
matrix, with one bias, which do not change while tiles of them are there.
"""

import numpy as np

from hw.isa import Kind
from sw.golden.accesses import Trace

#: Scratchpad windows of GEMM and GRAD.
WINDOWS = ("x", "w", "dy", "dy2")


class Kept:
    """What is kept.

    Tags of the scratchpad slots that hold kept tiles: slot -> (w_keep, row, column); the `w_keep`
    of biases that are in the accumulator.
    """

    def __init__(self):
        self._tags: dict[int, tuple[int, int, int]] = {}
        self._biases: set[int] = set()

    def forget(self):
        """Drop all of them."""
        self._tags.clear()
        self._biases.clear()

    def follow(self, fields: dict, walk: Trace) -> Trace:
        """Let the instruction `fields` be executed.

        `walk` is its trace if no tile is there at its beginning; the trace with what is there. A
        load into a slot replaces a kept tile; other writes to the scratchpad do not touch tags.
        """
        number = fields["w_keep"]
        if not number and not self._tags:
            return walk
        found = walk
        for a in walk.accesses:
            if number and a.kind is Kind.BIAS:
                if number in self._biases:
                    found = found.without(a, list(range(len(a.when))))
                self._biases.add(number)
            if a.write or a.window not in WINDOWS:
                continue
            slots = (fields[f"{a.window}_window"]["base"] + a.slot.astype(np.int64)).tolist()
            tags = [(number, *tile) for tile in zip(a.i.tolist(), a.j.tolist(), strict=True)]
            if number and a.window == "w":
                # What is there at the beginning decides about the first access to a slot only.
                first = np.unique(a.slot, return_index=True)[1].tolist()
                hits = [at for at in first if self._tags.get(slots[at]) == tags[at]]
                found = walk.without(a, hits)
                self._tags.update(zip(slots, tags, strict=True))
            else:
                for slot in slots:
                    self._tags.pop(slot, None)
        return found
