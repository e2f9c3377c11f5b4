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
    """An accumulator memory, or a share of it, that is too small."""


@dataclass(frozen=True)
class Slots:
    """The first slots, `array`, are the array's; then come `epilogue`; `staging` are the last.

    If there are too few, staging and array share slots, and the streams take turns.
    """

    array: range
    epilogue: range
    staging: range

    @classmethod
    def of(cls, cfg: Config, share: range) -> "Slots":
        """Slots of a share.

        Raises
        ------
        SlotError
            Fewer than four slots.
        """
        total = len(share)
        if total < LEAST:
            if total < cfg.acc_slots:
                raise SlotError(f"networks need {LEAST} accumulator slots, not {total}")
            least = -(-LEAST * cfg.tile * cfg.tile * 4 // 1024)
            raise SlotError(f"networks need {LEAST} accumulator tiles: acc_kib must be at least "
                            f"{least}, not {cfg.acc_kib}")
        if total < SEPARATE:
            epilogue = max(1, total // 6)
            return cls(share[:total - epilogue], share[total - epilogue:],
                       share[:power_floor(total)])
        staging = total - min(4 * SET, power_floor(total // 3))
        array = staging - (4 if total >= 2 * SEPARATE else 2)
        return cls(share[:array], share[array:staging], share[staging:])

    def vector_window(self) -> dict[str, int]:
        """`y_window` of VECTOR and CONVERT."""
        return window(self.staging.start, 0, len(self.staging).bit_length() - 1)

    def epilogue_window(self) -> dict[str, int]:
        """`e_window`."""
        return window(self.epilogue.start, 0, len(self.epilogue).bit_length() - 1)

    def used(self, fields: dict) -> range:
        """Slots of an instruction, from the first to the last one."""
        if fields["opcode"] in (Opcode.VECTOR, Opcode.CONVERT):
            return self.staging
        if fields.get("function", Function.NONE) is Function.NONE:
            return self.array
        return range(self.array.start, self.epilogue.stop)
