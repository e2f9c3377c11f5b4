"""Windows of tile slots: whether they exist, and whether they are made of a context's slots.

Each function returns two values: the window of 2**`size_log2` slots from `base` on leaves the
memory; it leaves the slots `first` .. `last`, which means something only if it exists.
"""

from amaranth.hdl import Value

from hw.config import Config


def spad_window(cfg: Config, base: Value, size_log2: Value, first: Value,
                last: Value) -> tuple[Value, Value]:
    """A scratchpad window; it may not leave its bank, unless slots count on into the next one."""
    size = (1 << size_log2)[:17]
    if cfg.bank_slots & (cfg.bank_slots - 1) == 0:
        missing = base + size > cfg.spad_slots
    else:
        index, bank = base[:cfg.slot_index_bits], base[cfg.slot_index_bits:]
        missing = (index + size > cfg.bank_slots) | (bank >= cfg.spad_banks)
    return (size_log2 > 16) | missing, (base < first) | (base + size > last + 1)


def acc_window(cfg: Config, base: Value, size_log2: Value, first: Value,
               last: Value) -> tuple[Value, Value]:
    """An accumulator window."""
    end = base + (1 << size_log2)[:17]
    return (size_log2 > 16) | (end > cfg.acc_slots), (base < first) | (end > last + 1)
