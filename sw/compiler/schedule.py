"""Order of the instructions of a training step, and what may run beside what.

Instructions name the tensors that they read and write (`Command`); tensors do not overlap. Two
instructions *conflict* if one writes a tensor that the other reads or writes (RAW, WAR, WAW through
DRAM), or if they use a common accumulator slot. Conflicting instructions keep their order:

* of one stream, always: the hardware orders their loads, operations and stores itself. Only a load
  marked independent does not wait for stores of earlier instructions of its stream; it is marked
  only if none that may be unfinished writes its tensor.
* of two streams, by `overlap`: an instruction starts when all earlier ones of the other stream have
  finished but for the latest `overlap`; so many are allowed as do not conflict with it.

`dispatch` follows instructions in the order in which they are executed, turn after turn of a loop;
an instruction that is executed several times gets what holds every time. In the accumulator,
conflicts come from `y_window`, `dw_window` and `e_window` of GEMM and GRAD, which share no slot
with the staging slots of VECTOR and CONVERT on any machine that has slots enough. The scratchpad
belongs to the array stream alone.
"""

from dataclasses import dataclass, field

from hw.isa import FIELDS, Opcode

#: Largest value of `overlap`.
MOST = (1 << FIELDS["overlap"][0]) - 1


@dataclass(eq=False, kw_only=True)
class Command:
    """An instruction, and what the scheduler needs to know of it.

    Attributes
    ----------
    fields : dict
        Instruction fields but `overlap` and the `*_independent` ones.
    reads : dict
        Operand ("x", "w", "dy"; anything else for what has no independent flag) -> tensor.
    writes : tuple of str
        Tensors.
    slots : range
        Accumulator slots, from the first to the last one.
    clocks : float
        Estimate.
    layer : int
        Of several that could run the one of the lowest layer goes first: the next step needs it
        first.
    """

    fields: dict
    reads: dict[str, str]
    writes: tuple[str, ...]
    slots: range
    clocks: float
    layer: int
    overlap: int = MOST
    independent: dict[str, bool] = field(default_factory=dict)

    @property
    def array(self) -> bool:
        """Whether it belongs to the array stream."""
        return self.fields["opcode"] in (Opcode.GEMM, Opcode.GRAD)

    def depends(self, other: "Command") -> bool:
        """Whether one writes what the other reads or writes."""
        mine, theirs = (set(c.writes) for c in (self, other))
        return bool(mine & theirs or mine & set(other.reads.values())
                    or theirs & set(self.reads.values()))

    def conflicts(self, other: "Command") -> bool:
        """`depends`, or a common accumulator slot."""
        shared = range(max(self.slots.start, other.slots.start),
                       min(self.slots.stop, other.slots.stop))
        return len(shared) > 0 or self.depends(other)

    def instruction(self) -> dict:
        """All fields."""
        return {**self.fields, "overlap": self.overlap,
                **{f"{name}_independent": int(flag) for name, flag in self.independent.items()}}


def arrange(commands: list[Command]) -> list[Command]:
    """The instructions of a step in program order.

    `commands` come in an order that is right without any overlap; the order of the array stream is
    kept. By estimated clocks, the instruction that can start first is next. What can start at one
    time: the array's, so that it never waits for the dispatch of VECTOR instructions; then that of
    the lowest layer, so that the next step's first layers can start while upper ones are updated.
    """
    before = {c: [p for p in commands[:i] if c.depends(p)] for i, c in enumerate(commands)}
    finish: dict[Command, float] = {}
    free = {True: 0.0, False: 0.0}
    waiting, result = list(commands), []
    while waiting:
        array = next((c for c in waiting if c.array), None)
        able = [c for c in waiting if (c is array or not c.array)
                and all(p in finish for p in before[c])]

        def start(c):
            return max([free[c.array], *(finish[p] for p in before[c])])

        chosen = min(able, key=lambda c: (start(c), not c.array, c.layer))
        finish[chosen] = free[chosen.array] = start(chosen) + chosen.clocks
        waiting.remove(chosen)
        result.append(chosen)
    return result


def dispatch(executed: list[Command]):
    """Set `overlap` and `independent` of instructions, given in the order of their execution.

    `finished` counts the instructions of each stream that have surely finished when an instruction
    starts. While instructions are still losing overlap it is too low, never too high.
    """
    issued: dict[bool, list[Command]] = {True: [], False: []}
    finished = {True: 0, False: 0}
    most: dict[Command, int] = {}
    for c in executed:
        other = issued[not c.array]
        pending = other[finished[not c.array]:]
        clear = next((n for n, p in enumerate(reversed(pending)) if c.conflicts(p)), MOST)
        c.overlap = min(c.overlap, clear)
        most[c] = max(most.get(c, 0), len(pending))
        finished[not c.array] = max(finished[not c.array], len(other) - c.overlap)
        own = issued[c.array]
        unfinished = own[finished[c.array]:]
        for name in ("x", "w", "dy"):
            if name in c.reads:
                free = not any(c.reads[name] in p.writes for p in unfinished)
                c.independent[name] = c.independent.get(name, True) and free
        own.append(c)
    for c, count in most.items():
        c.overlap = min(c.overlap, count)
