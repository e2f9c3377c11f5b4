"""Chooses order, blocks and windows of one GEMM or GRAD.

A candidate is an order, a blocking and a split of the scratchpad. All are ranked by a closed-form
estimate (`sw.compiler.reuse`); the best few of each order are then replayed on their exact traces.
The cost is clocks; the bus's share of them counts a little extra, so that of two plans of one
speed the one with less traffic wins.
"""

from dataclasses import dataclass, field
from functools import lru_cache

from hw.config import Config
from hw.isa import Function, Opcode, Order
from sw.compiler.assembler import window
from sw.compiler.cost import OVERHEAD, WINDOWS, Bus, replay
from sw.compiler.reuse import best_window, power_floor
from sw.compiler.share import Share
from sw.compiler.splits import accumulators, splits
from sw.golden.traffic import trace

#: Names of orders on command lines.
ORDERS = {o.name.lower().replace("_", "-"): o for o in Order}
#: Candidates of an order that are replayed, and operations up to which that is quick enough.
FINALISTS, REPLAY_LIMIT = 4, 20_000
#: What a clock of the bus costs beside the clock itself.
BUS_WEIGHT = 0.02


class PlanError(ValueError):
    """A request that no plan can meet."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One GEMM or GRAD to plan: sizes in elements, and the flags that change its cost."""

    opcode: Opcode
    m: int
    k: int
    n: int
    y_bfp: bool = False
    dw_bfp: bool = False
    y_off: bool = False
    dw_off: bool = False
    y_accumulate: bool = False
    dw_accumulate: bool = False
    function: Function = Function.NONE

    def fields(self) -> dict:
        """Instruction fields."""
        return {name: int(getattr(self, name)) for name in self.__dataclass_fields__
                if name not in ("opcode", "function")} \
            | {"opcode": self.opcode, "function": self.function}


@dataclass(frozen=True)
class Plan:
    """Fields of the instruction (order, blocks, windows), and the estimates of it."""

    fields: dict = field(repr=False)
    clocks: float
    tile_bytes: float

    @property
    def order(self) -> str:
        """Name of the order."""
        return next(name for name, order in ORDERS.items() if order is self.fields["order"])

    def cost(self, cfg: Config, bus: Bus) -> float:
        """What plans are chosen by."""
        return self.clocks + BUS_WEIGHT * bus.clocks(cfg, self.tile_bytes)


def paper_order(m: int, k: int, n: int) -> Order:
    """Algorithm 1 of the interleaved-gradient-order paper (doi 10.1145/3613424.3614299)."""
    if max(m, n, k) < 4 * min(m, n, k):
        return Order.INTERLEAVED
    return Order.DW_MAJOR if k > n and k > m else Order.DX_MAJOR


def plan(cfg: Config, layer: Layer, *, order: str = "auto",
         blocks: tuple[int, int, int] | None = None, bus: Bus | None = None,
         share: Share | None = None) -> Plan:
    """Plan `layer`: order "auto" (by cost), "paper" or a name; `blocks` (bm, bn, bk) if given.

    Only slots of `share` are used (default: all).

    Raises
    ------
    PlanError
        Unknown order, a block that is negative or above 65535, or a share that is too small.
    """
    bus, share = bus or Bus(), share or Share.whole(cfg)
    if not share.enough(cfg) or len(share.acc) < 2:
        slots = sum(map(len, share.banks(cfg)))
        raise PlanError(f"a share must have at least 4 scratchpad slots, 2 in each of two banks, "
                        f"and 2 accumulator slots, not {slots} and {len(share.acc)}")
    if order not in ("auto", "paper", *ORDERS):
        raise PlanError(f"order must be auto, paper, {', '.join(ORDERS)}, not {order!r}")
    if blocks and not all(0 <= b < 1 << 16 for b in blocks):
        raise PlanError(f"blocks must be 0..65535 tiles, not {' '.join(map(str, blocks))}")
    if layer.opcode is Opcode.GEMM:
        orders = [Order.SEQUENTIAL]
    elif order == "paper":
        orders = [paper_order(layer.m, layer.k, layer.n)]
    else:
        orders = list(Order) if order == "auto" else [ORDERS[order]]
    tiles = {d: -(-getattr(layer, d) // cfg.tile) for d in "mnk"}
    blockings = [dict(zip("mnk", blocks, strict=True))] if blocks else list(_blockings(tiles))
    operations = tiles["m"] * tiles["n"] * tiles["k"] * (2 - layer.y_off - layer.dw_off)
    results = accumulators(layer.opcode, layer.y_off, layer.dw_off, tiles, share.acc)
    plans = []
    for chosen in orders:
        ranked = sorted((_Candidate(cfg, layer, chosen, tiles, blocking, split, acc, bus).plan()
                         for blocking in blockings
                         for split in splits(cfg, share, layer.opcode, chosen)
                         for acc in results),
                        key=lambda p: p.cost(cfg, bus))
        if operations <= REPLAY_LIMIT:
            plans += [_replayed(cfg, p, bus) for p in ranked[:FINALISTS]]
        else:
            plans.append(ranked[0])
    return min(plans, key=lambda p: p.cost(cfg, bus))


def _replayed(cfg: Config, plan: Plan, bus: Bus) -> Plan:
    """`plan` with the estimates of its exact trace."""
    numbers = _numbers(plan.fields)
    walk = trace(cfg, numbers)
    return Plan(plan.fields, replay(cfg, numbers, walk, bus), sum(walk.counters().values()))


def _numbers(fields: dict) -> dict:
    """Fields as the golden model has them: numbers, addresses and unused windows included."""
    names = ("x", "w", "dy", "y", "dw", "y_part", "dw_part")
    return {f"{n}_{what}": 0 for n in names for what in ("addr", "pitch")} | \
        {f"{n}_window": window() for n in WINDOWS} | \
        {name: getattr(value, "value", value) for name, value in fields.items()}


def _blockings(tiles: dict[str, int]):
    """A sensible set of block sizes: powers of two, and everything."""
    def sizes(count, most):
        powers = [1 << i for i in range(7) if 1 << i < min(count, most)]
        return [*powers, min(count, 65535)]

    for bm in sizes(tiles["m"], 65):
        for bn in sizes(tiles["n"], 65):
            for bk in sizes(tiles["k"], 65):
                yield {"m": bm, "n": bn, "k": bk}


@lru_cache(1 << 14)
def _window(dims: str, passes: tuple, tiles: tuple, slots: int):
    """`best_window` of tuples."""
    return best_window(dims, [list(loops) for loops in passes], dict(tiles), slots)


class _Candidate:
    """One order, blocking and split: windows, estimated bytes and clocks."""

    def __init__(self, cfg, layer, order, tiles, blocks, split, accumulators, bus):
        self.cfg, self.layer, self.order, self.tiles, self.bus = cfg, layer, order, tiles, bus
        self.blocks = {d: min(b or tiles[d], tiles[d]) for d, b in blocks.items()}
        self.windows = {}
        self.tile_bytes = 0.0
        if layer.opcode is Opcode.GEMM:
            self._gemm(split, *accumulators)
        else:
            self._grad(split, *accumulators)

    def plan(self) -> Plan:
        """The candidate with its closed-form estimates."""
        return Plan(self.fields(), self._estimate(), self.tile_bytes)

    def _loops(self, names: str):
        """Loops by name: capitals over blocks, small letters (average trips) inside, p a pair."""
        counts = {d: -(-self.tiles[d] // self.blocks[d]) for d in "mnk"}
        return [("p", 2.0) if c == "p" else
                (c.lower(), float(counts[c.lower()])) if c.isupper() else
                (c, self.tiles[c] / counts[c]) for c in names]

    def _visits(self, name, dims, passes, base, slots) -> float:
        """Choose the window of operand `name`; how often its tiles enter it."""
        count, (high, wide) = _window(dims, tuple(map(tuple, passes)), tuple(self.tiles.items()),
                                      power_floor(slots))
        self.windows[f"{name}_window"] = window(base, high.bit_length() - 1, wide.bit_length() - 1)
        return count

    def _spad_window(self, name, dims, passes, base, slots):
        count = self._visits(name, dims, passes, base, slots)
        self.tile_bytes += count * self.cfg.bfp_bytes

    def _acc_window(self, name, dims, loops, base, slots):
        count = self._visits(name, dims, [loops], base, slots)
        results = self.tiles[dims[0]] * self.tiles[dims[1]]
        cfg, layer = self.cfg, self.layer
        self.tile_bytes += 2 * max(0.0, count - results) * cfg.fp32_bytes
        bfp = getattr(layer, f"{name}_bfp")
        self.tile_bytes += results * cfg.image_bytes(bfp)
        self.tile_bytes += results * cfg.fp32_bytes * getattr(layer, f"{name}_accumulate")

    def _gemm(self, places, y, _):
        loops = self._loops("KMNknm")
        self._spad_window("x", "mk", [loops], *places[0])
        self._spad_window("w", "kn", [loops], *places[1])
        self._acc_window("y", "mn", loops, *y)
        if self.layer.function in (Function.BIAS, Function.BIAS_RELU):
            turns = -(-self.tiles["m"] // self.blocks["m"]) if self.tiles["n"] > 1 else 1
            self.tile_bytes += turns * self.tiles["n"] * self.cfg.fp32_bytes

    def _grad(self, places, y, dw_place):
        layer, order = self.layer, self.order
        if order in (Order.SEQUENTIAL, Order.INTERLEAVED):
            dx, dw = self._loops("MKNnkm"), self._loops("NKMmnk")
            dy = [loops for loops, off in ((dx, layer.y_off), (dw, layer.dw_off)) if not off]
        else:
            outer = "KMNk" if order is Order.DX_MAJOR else "KNMk"
            dx, dw = self._loops(outer + "nm"), self._loops(outer + "mn")
            both = not (layer.y_off or layer.dw_off)
            dy = [self._loops(outer + "pmn" if both else outer + "mn")]
        self._spad_window("x", "mk", [] if layer.dw_off else [dw], *places[0])
        self._spad_window("w", "kn", [] if layer.y_off else [dx], *places[1])
        if order is Order.INTERLEAVED:
            self._spad_window("dy", "mn", [] if layer.y_off else [dx], *places[2])
            self._spad_window("dy2", "mn", [] if layer.dw_off else [dw], *places[3])
        else:
            self._spad_window("dy", "mn", dy, *places[2])
        if not layer.y_off:
            self._acc_window("y", "mk", dx, *y)
        if layer.function is Function.RELU_GRAD:
            self.tile_bytes += self.tiles["m"] * self.tiles["k"] * self.cfg.bfp_bytes
        if not layer.dw_off:
            self._acc_window("dw", "kn", dw, *dw_place)

    def _estimate(self) -> float:
        """Clocks: the array or the bus, whichever takes longer, and both ends of the operation."""
        cfg, layer, b, t = self.cfg, self.layer, self.blocks, self.cfg.tile
        load = self.bus.clocks(cfg, cfg.bfp_bytes)
        store = max(t + 4, self.bus.clocks(cfg, cfg.image_bytes(layer.y_bfp)))
        clocks = max(self._array_clocks(), self.bus.clocks(cfg, self.tile_bytes))
        # The first block waits for its operands, the last one for the stores of its results.
        starve = max(0.0, (b["m"] + b["n"]) * load - b["m"] * b["n"] * t) * b["k"]
        drain = b["m"] * b["n"] * max(0.0, store - t) + store
        return clocks + self.bus.latency + 2 * load + starve + drain + OVERHEAD

    def _array_clocks(self) -> float:
        layer, tiles, b, t = self.layer, self.tiles, self.blocks, self.cfg.tile
        run = 1 if self.order in (Order.DX_MAJOR, Order.DW_MAJOR, Order.INTERLEAVED) else b["k"]
        passes = [] if layer.y_off else [("m", b["m"])]
        if layer.opcode is Opcode.GRAD and not layer.dw_off:
            passes.append(("k", run))
        total = 0.0
        for streamed, length in passes:
            others = tiles["m"] * tiles["n"] * tiles["k"] / tiles[streamed]
            # A pass that changes the stationary tile takes T clocks, however few its rows.
            total += others * (getattr(layer, streamed) if length > 1 else tiles[streamed] * t)
        return total

    def fields(self) -> dict:
        """Fields of the instruction."""
        return {**self.layer.fields(), "order": self.order, **self.windows,
                **{f"b{d}": 0 if self.blocks[d] == self.tiles[d] else self.blocks[d]
                   for d in "mnk"}}
