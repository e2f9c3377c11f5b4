"""The on-chip slots of one context."""

from dataclasses import dataclass

from hw.config import Config


@dataclass(frozen=True)
class Share:
    """Scratchpad and accumulator slots, each from the first to the last one.

    Scratchpad slot numbers are {bank, index}: where a bank's slots are no power of two, numbers
    without a slot lie between those of two banks.
    """

    spad: range
    acc: range

    @classmethod
    def whole(cls, cfg: Config) -> "Share":
        """All slots."""
        last = cfg.spad_banks - 1 << cfg.slot_index_bits
        return cls(range(last + cfg.bank_slots), range(cfg.acc_slots))

    def banks(self, cfg: Config) -> list[range]:
        """Scratchpad slots by bank, of the banks that the share has slots of."""
        starts = (bank << cfg.slot_index_bits for bank in range(cfg.spad_banks))
        parts = (range(max(self.spad.start, start), min(self.spad.stop, start + cfg.bank_slots))
                 for start in starts)
        return [part for part in parts if part]

    def enough(self, cfg: Config) -> bool:
        """Whether a GEMM or GRAD can do with the scratchpad slots."""
        return sum(map(len, self.banks(cfg))) >= 4 and all(self.quarters(cfg))

    def quarters(self, cfg: Config) -> list[range]:
        """Four runs of neighbouring slots, in order; sizes are those of the ranges.

        The scratchpad's share is cut in halves, and these again, each at the bank boundary that is
        nearest to the middle, or in the middle if there is none. So operands in different halves
        lie in different banks if the share has two. Runs of several banks are given by the first
        slot and the number of slots.
        """
        banks = self.banks(cfg)
        bounds = [0]
        for bank in banks:
            bounds.append(bounds[-1] + len(bank))

        def cut(low, high, size):
            inner = [b for b in bounds if low < b < high]
            if not inner:
                middle = (low + high) // 2
                return (low, middle, size // 2), (middle, high, size // 2)
            middle = min(inner, key=lambda b: abs(low + high - 2 * b))
            return (low, middle, middle - low), (middle, high, high - middle)

        def slot(position):
            bank = max(i for i, b in enumerate(bounds[:-1]) if b <= position)
            return banks[bank].start + position - bounds[bank]

        halves = cut(0, bounds[-1], bounds[-1])
        return [range(slot(low), slot(low) + size)
                for half in halves for low, _, size in cut(*half)]
