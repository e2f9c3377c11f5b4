"""Ways to cut a share among the operands and results of a GEMM or GRAD."""

from functools import lru_cache

from hw.config import Config
from hw.isa import Opcode, Order
from sw.compiler.reuse import power_ceil, power_floor
from sw.compiler.share import Share

#: First slot and number of slots.
Place = tuple[int, int]


@lru_cache(64)
def splits(cfg: Config, share: Share, opcode: Opcode, order: Order) \
        -> tuple[tuple[Place, ...], ...]:
    """Ways to cut the scratchpad: (base, slots) of X, W (GEMM); X, W, dY and, `interleaved`, dY2.

    Operands that are read together get banks of their own if there are enough. One that would
    span banks keeps to its first bank unless slot numbers are contiguous over banks.
    """
    quarters = share.quarters(cfg)

    def place(first, count):
        base = quarters[first].start
        slots = sum(map(len, quarters[first:first + count]))
        if cfg.bank_slots != 1 << cfg.slot_index_bits:
            slots = min(slots, cfg.bank_slots - base % (1 << cfg.slot_index_bits))
        return base, slots

    # First quarter and number of quarters of each operand.
    if opcode is Opcode.GEMM:
        cuts = [((0, 2), (2, 2))]
    elif order is Order.INTERLEAVED:
        cuts = [((0, 1), (1, 1), (2, 1), (3, 1))]
    else:
        cuts = [((0, 1), (1, 1), (2, 2))]
        if len(share.banks(cfg)) >= 4:
            cuts += [((0, 2), (2, 1), (3, 1)), ((0, 1), (1, 2), (3, 1))]
    halves = [len(quarters[i]) + len(quarters[i + 1]) for i in (0, 2)]
    if halves[0] != halves[1]:
        cuts += [tuple(((first + 2) % 4, count) for first, count in cuts[0])]
    return tuple(tuple(place(*part) for part in cut) for cut in cuts)


def accumulators(opcode: Opcode, y_off: bool, dw_off: bool, tiles: dict[str, int],
                 share: range) -> list[tuple[Place, Place]]:
    """Ways to share accumulator slots between Y (dX) and dW: halves, or all that one can use.

    Each is (base, slots) of both.
    """
    slots, base = len(share), share.start
    if opcode is Opcode.GEMM or dw_off:
        return [((base, slots), (base + slots, 0))]
    if y_off:
        return [((base, 0), (base, slots))]
    y, dw = (power_ceil(tiles[a]) * power_ceil(tiles[b]) for a, b in ("mk", "kn"))
    half = power_floor(slots // 2)
    if max(y, dw) <= half:
        return [((base, half), (base + half, half))]
    chosen = {half, *(s for s in (y, power_floor(max(1, slots - dw))) if s < slots)}
    return [((base, s), (base + s, power_floor(slots - s))) for s in sorted(chosen)]
