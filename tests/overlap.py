"""Which instructions of a program can run side by side, and whether they may.

From the program's bytes and docs/architecture.md alone ("Streams", "Ordering").
"""

from collections.abc import Iterator

import numpy as np

from hw.config import Config
from hw.isa import FIELDS, Function, Opcode
from sw.golden.program import Step, steps

ARRAY = (Opcode.GEMM.value, Opcode.GRAD.value)
WITH_OPERAND = {f.value for f in (Function.BIAS, Function.BIAS_RELU, Function.RELU_GRAD)}


class Executed:
    """One executed instruction: bytes that it reads, by operand, and writes; accumulator slots."""

    def __init__(self, step: Step):
        f = self.fields = step.fields
        self.pc, self.array = step.pc, f["opcode"] in ARRAY
        self.reads: list[tuple[str, int, int]] = []
        self.writes: list[tuple[int, int]] = []
        for a in step.walk.accesses:
            if len(a.when):
                span = int(a.addr.min()), int(a.addr.max()) + a.image_bytes
                if a.write:
                    self.writes.append(span)
                else:
                    self.reads.append((a.operand, *span))
        names = ["y_window"]
        if self.array:
            names = [] if f["y_off"] else ["y_window"]
            names += ["dw_window"] if f["opcode"] == Opcode.GRAD.value else []
            names += ["e_window"] if f["function"] in WITH_OPERAND else []
        self.slots = set()
        for name in names:
            w = f[name]
            self.slots |= set(range(w["base"], w["base"] + (1 << w["h_log2"] + w["w_log2"])))

    def touches(self, other: "Executed") -> bool:
        """Whether this one writes what the other reads or writes."""
        spans = [*other.writes, *(r[1:] for r in other.reads)]
        return any(b < end and begin < e for begin, end in self.writes for b, e in spans)

    def __str__(self):
        function = Function(self.fields["function"]).name
        return f"{Opcode(self.fields['opcode']).name} {function} at {self.pc:#x}"


def conflicts(cfg: Config, memory: np.ndarray, pc: int) -> Iterator[str]:
    """What is wrong with `overlap` and the independent flags of the program at offset `pc`."""
    issued = {True: [], False: []}
    finished = {True: 0, False: 0}
    for step in steps(cfg, memory, pc):
        assert step.error.value == 0
        if step.walk is None:
            continue
        new = Executed(step)
        other, own = issued[not new.array], issued[new.array]
        finished[not new.array] = max(finished[not new.array],
                                      len(other) - new.fields["overlap"])
        for old in other[finished[not new.array]:]:
            if old.touches(new) or new.touches(old):
                yield f"{new} beside {old}: memory"
            if old.slots & new.slots:
                yield f"{new} beside {old}: accumulator slots"
        for old in own[finished[new.array]:]:
            for name, begin, end in new.reads:
                if new.fields.get(f"{name}_independent") and \
                        any(b < end and begin < e for b, e in old.writes):
                    yield f"{new}: {name} is not independent of {old}"
        own.append(new)


def with_field(code: bytes, index: int, name: str, value: int) -> bytes:
    """A program with a plain field of instruction `index` changed."""
    offset = 0
    for field, (shape, _) in FIELDS.items():
        width = shape if isinstance(shape, int) else 32
        if field == name:
            break
        offset += width
    word = int.from_bytes(code, "little")
    mask = (1 << width) - 1
    offset += index * 1024
    return (word & ~(mask << offset) | value << offset).to_bytes(len(code), "little")
