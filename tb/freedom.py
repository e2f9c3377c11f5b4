"""What the instructions of a program may say of each other: `overlap`, and what is independent."""

from collections.abc import Iterator
from dataclasses import dataclass

from hw.isa import Function, Opcode

#: Most instructions of the other stream that `overlap` counts.
MOST_OVERLAP = 15
ARRAY = (Opcode.GEMM, Opcode.GRAD)
#: Epilogues with an operand.
LOADING = (Function.BIAS, Function.BIAS_RELU, Function.RELU_GRAD)


@dataclass(frozen=True)
class Footprint:
    """What an instruction touches in all its turns: matrices by address, accumulator slots."""

    reads: dict[str, int]
    writes: frozenset[int]
    slots: frozenset[int]

    def apart(self, other: "Footprint") -> bool:
        """Whether the two may run at once."""
        return not (self.slots & other.slots or self.writes & other.writes
                    or self.writes & {*other.reads.values()}
                    or other.writes & {*self.reads.values()})


def accumulator_slots(instruction: dict) -> frozenset[int]:
    """Slots of all windows of the accumulator that an instruction uses."""
    opcode, used = instruction["opcode"], ["y_window"]
    if opcode is Opcode.GRAD:
        used = [f"{name}_window" for name in ("y", "dw") if not instruction.get(f"{name}_off")]
    if opcode in ARRAY and instruction.get("function") in LOADING:
        used.append("e_window")
    found = set()
    for window in (instruction[name] for name in used):
        found |= {*range(window["base"],
                         window["base"] + (1 << window["h_log2"] + window["w_log2"]))}
    return frozenset(found)


def executed(instructions: list[dict]) -> Iterator[int]:
    """Indices of the instructions in the order in which they are executed, loops unrolled."""
    at, loops = 0, []
    while at < len(instructions):
        yield at
        opcode = instructions[at]["opcode"]
        at += 1
        if opcode is Opcode.LOOP:
            turns = instructions[at - 1]["m"]
            if turns:
                loops.append([at, turns])
            else:
                at += instructions[at - 1]["bm"]
        elif opcode is Opcode.NEXT:
            if not loops:
                return  # it is refused
            loops[-1][1] -= 1
            if loops[-1][1]:
                at = loops[-1][0]
            else:
                loops.pop()


def freedoms(instructions: list[dict], footprints: dict[int, Footprint]
             ) -> dict[int, tuple[int, set[str]]]:
    """For each instruction with a footprint: the most of `overlap`, and the independent operands.

    They hold for every time that the instruction is executed; one that is not is left out.
    """
    found = {}
    streams = {True: [], False: []}  # executed so far: the array's, the vector unit's
    for at in executed(instructions):
        if at not in footprints:
            continue
        mine, array = footprints[at], instructions[at]["opcode"] in ARRAY
        apart = (mine.apart(footprints[other]) for other in reversed(streams[not array]))
        count = next((n for n, yes in enumerate(apart) if not yes), MOST_OVERLAP)
        written = set().union(*(footprints[other].writes for other in streams[array]))
        free = {name for name, addr in mine.reads.items() if addr not in written}
        most, always = found.get(at, (count, free))
        found[at] = min(most, count, MOST_OVERLAP), always & free
        streams[array].append(at)
    return found
