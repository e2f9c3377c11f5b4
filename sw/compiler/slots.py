"""Accumulator slots of a training program: array windows, epilogue operands, vector staging."""

from dataclasses import dataclass

from hw.config import Config
from hw.isa import Function, Opcode
from sw.compiler.assembler import window
from sw.compiler.reuse import power_floor

#: Accumulator slots that training needs, and from which on the two streams share none.
LEAST, SEPARATE = 4, 12
#: Slots of a set of SGD, the largest; no function uses more than 8 sets.
SET = 4


class SlotError(ValueError):
    """An accumulator memory that is too small."""


@dataclass(frozen=True)
class Slots:
    """The first `array` slots are the array's; then come `epilogue` slots; `staging` are the last.

    If there are too few, staging and array share slots, and the streams take turns.
    """

    array: int
    epilogue: int
    staging: range

    @classmethod
    def of(cls, cfg: Config) -> "Slots":
        """Slots of a configuration.

        Raises
        ------
        SlotError
            Fewer than four slots.
        """
        total = cfg.acc_slots
        if total < LEAST:
            least = -(-LEAST * cfg.tile * cfg.tile * 4 // 1024)
            raise SlotError(f"networks need {LEAST} accumulator tiles: acc_kib must be at least "
                            f"{least}, not {cfg.acc_kib}")
        if total < SEPARATE:
            epilogue = max(1, total // 6)
            return cls(total - epilogue, epilogue, range(power_floor(total)))
        staging = min(4 * SET, power_floor(total // 3))
        epilogue = 4 if total >= 2 * SEPARATE else 2
        return cls(total - staging - epilogue, epilogue, range(total - staging, total))

    def vector_window(self) -> dict[str, int]:
        """`y_window` of VECTOR and CONVERT."""
        return window(self.staging.start, 0, len(self.staging).bit_length() - 1)

    def epilogue_window(self) -> dict[str, int]:
        """`e_window`."""
        return window(self.array, 0, self.epilogue.bit_length() - 1)

    def used(self, fields: dict) -> range:
        """Slots of an instruction, from the first to the last one."""
        if fields["opcode"] in (Opcode.VECTOR, Opcode.CONVERT):
            return self.staging
        none = Function.NONE
        return range(self.array if fields.get("function", none) is none
                     else self.array + self.epilogue)
