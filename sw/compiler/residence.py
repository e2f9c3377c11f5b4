"""Where everything of a served network stays on chip."""

from dataclasses import replace

from hw.config import Config, ConfigError
from hw.control.epilogue import SLOTS
from sw.compiler.assembler import window
from sw.compiler.planner import PlanError
from sw.compiler.reuse import power_ceil, power_floor
from sw.compiler.share import Share
from sw.compiler.slots import LEAST, SEPARATE

#: Most accumulator slots of results on their way to the next layer.
PASSING = 16


def _banks(cfg: Config, slots: range) -> set[int]:
    return set(range(slots[0] >> cfg.slot_index_bits, (slots[-1] >> cfg.slot_index_bits) + 1))


def _exists(cfg: Config, slots: range) -> bool:
    """Whether all are slots: in one bank, or anywhere if numbers are contiguous over banks."""
    if cfg.bank_slots == 1 << cfg.slot_index_bits:
        return slots.stop <= cfg.spad_slots
    bank, index = divmod(slots.start, 1 << cfg.slot_index_bits)
    return bank < cfg.spad_banks and index + len(slots) <= cfg.bank_slots


def _first_fit(cfg: Config, taken: list[range], size: int, avoid: set[int]) -> range | None:
    starts = {bank << cfg.slot_index_bits for bank in range(cfg.spad_banks)}
    for start in sorted(starts | {slots.stop for slots in taken}):
        slots = range(start, start + size)
        free = all(slots.stop <= t.start or t.stop <= slots.start for t in taken)
        if free and _exists(cfg, slots) and not avoid & _banks(cfg, slots):
            return slots
    return None


def arrangements(cfg: Config, sizes: dict[str, int], pairs: list[tuple[str, str]]) \
        -> list[dict[str, range]]:
    """Slots of windows of `sizes` from slot 0 on, none overlapping; the best arrangement first.

    The windows of a pair are read together: arrangements with the fewest pairs that share a bank
    are best, among these those that reach least far. Empty if the scratchpad is too small.
    """
    largest = sorted(sizes, key=lambda name: -sizes[name])
    found = []
    # First fit depends on the order: the largest first, but for one that goes before them.
    for first in largest:
        for apart in (True, False):
            chosen: dict[str, range] = {}
            for name in [first, *(n for n in largest if n != first)]:
                partners = [p for pair in pairs if name in pair for p in pair if p in chosen]
                avoid = {b for p in partners for b in _banks(cfg, chosen[p])} if apart else set()
                taken = list(chosen.values())
                slots = _first_fit(cfg, taken, sizes[name], avoid) \
                    or _first_fit(cfg, taken, sizes[name], set())
                if slots is None:
                    break
                chosen[name] = slots
            else:
                found.append(chosen)

    def badness(chosen):
        together = sum(bool(_banks(cfg, chosen[a]) & _banks(cfg, chosen[b])) for a, b in pairs)
        return together, _stop(chosen)

    return sorted(found, key=badness)


class Residence:
    """Windows of a network's layers, from slot 0 on.

    A pair of inputs' windows is for two batches: the one that runs and the one that forms. The
    outputs have accumulator slots of their own, so that the next batch may run while they are
    scattered, and so have the biases, which stay there; results of the other layers share theirs.

    Parameters
    ----------
    cfg : Config
    batch : int
        Requests of a batch.
    shapes : list of tuple
        Tiles of M, K and N by layer.

    Attributes
    ----------
    w, x : list of dict
        Scratchpad windows of each layer's weights and inputs; the second window of the first
        layer's inputs follows it.
    y : list of dict
        Accumulator windows of each layer's results; the last one holds all of them.
    biases : list of dict
        `e_window` of each layer.
    share, rest : Share
        Slots that are used, and the others.

    Raises
    ------
    PlanError
        Something does not fit, or leaves too little to train with.
    """

    def __init__(self, cfg: Config, batch: int, shapes: list[tuple[int, int, int]]):
        self._sizes = {}
        for number, (m, k, n) in enumerate(shapes):
            self._sizes[f"w{number}"] = power_ceil(k) * power_ceil(n)
            self._sizes[f"x{number}"] = power_ceil(m) * power_ceil(k) << (number == 0)
        self._pairs = [(f"w{number}", f"x{number}") for number in range(len(shapes))]
        chosen = self._scratchpad(cfg)
        if chosen is None:
            self._refuse(cfg, batch)
        self.w = [_window(chosen[f"w{number}"], k, n) for number, (_, k, n) in enumerate(shapes)]
        self.x = [_window(chosen[f"x{number}"], m, k) for number, (m, k, _) in enumerate(shapes)]
        spad, acc = _stop(chosen), max(LEAST, self._accumulator(cfg, batch, shapes))
        whole = Share.whole(cfg)
        self.share = Share(range(spad), range(acc))
        # Halves of the accumulator lie in different banks.
        half = whole.acc.stop // 2
        apart = acc <= half and whole.acc.stop - half >= SEPARATE
        self.rest = Share(range(spad, whole.spad.stop),
                          range(half if apart else acc, whole.acc.stop))

    def _scratchpad(self, cfg: Config) -> dict[str, range] | None:
        """The best arrangement that leaves enough to train with."""
        whole = Share.whole(cfg)
        return next((chosen for chosen in arrangements(cfg, self._sizes, self._pairs)
                     if Share(range(_stop(chosen), whole.spad.stop), whole.acc).enough(cfg)), None)

    def _refuse(self, cfg: Config, batch: int):
        enough = "no spad_kib is enough"
        try:
            larger = replace(cfg, spad_kib=2 * cfg.spad_kib)
            while self._scratchpad(larger) is None:
                larger = replace(larger, spad_kib=2 * larger.spad_kib)
            enough = f"spad_kib={larger.spad_kib} is enough"
        except ConfigError:
            pass
        raise PlanError(
            f"batches of {batch} take {sum(self._sizes.values())} scratchpad slots "
            f"({max(self._sizes.values())} of them in one window), training at least {LEAST} more; "
            f"there are {cfg.spad_slots} in {cfg.spad_banks} banks, each window in one: "
            f"{enough}, or a smaller batch_max or network")

    def _accumulator(self, cfg: Config, batch: int, shapes: list[tuple[int, int, int]]) -> int:
        """Set `y` and `biases`; slots that are used."""
        hidden, (m, _, n) = shapes[:-1], shapes[-1]
        widths = [power_ceil(-(-cols // cfg.tile)) for _, _, cols in shapes]
        if max(widths) > SLOTS:
            layer = 1 + widths.index(max(widths))
            raise PlanError(
                f"layer {layer} has {shapes[layer - 1][2]} tiles of biases; there is room on chip "
                f"for at most {SLOTS * cfg.tile} of a layer: {SLOTS * cfg.tile**2} outputs")
        biases, outputs = sum(widths), power_ceil(m) * power_ceil(n)
        passing = 2 if hidden else 0
        needed = passing + biases + outputs
        if needed + LEAST > cfg.acc_slots:
            kib = -(-(needed + LEAST) * cfg.tile * cfg.tile * 4 // 1024)
            raise PlanError(
                f"batches of {batch} take {needed} accumulator slots, training at least {LEAST} "
                f"more; there are {cfg.acc_slots}: acc_kib must be at least {kib}, or a smaller "
                "batch_max or network")
        most = min(PASSING, power_floor(cfg.acc_slots - LEAST - biases - outputs))
        self.y = []
        for rows, _, cols in hidden:
            high = min(power_ceil(rows), max(1, most // 4))
            wide = min(power_ceil(cols), most // high)
            passing = max(passing, high * wide)
            self.y.append(_window(range(passing), high, wide))
        self.biases, stop = [], passing
        for wide in widths:
            self.biases.append(_window(range(stop, stop + wide), 1, wide))
            stop += wide
        self.y.append(_window(range(stop, stop + outputs), m, n))
        return stop + outputs


def _window(slots: range, rows: int, cols: int) -> dict[str, int]:
    """Window at the first of `slots` that holds `rows` x `cols` tiles."""
    return window(slots.start, *(power_ceil(size).bit_length() - 1 for size in (rows, cols)))


def _stop(chosen: dict[str, range]) -> int:
    return max(slots.stop for slots in chosen.values())
