"""Estimated clocks of a GEMM or GRAD: a coarse replay of its trace on the three units."""

from dataclasses import dataclass

import numpy as np

from hw.config import Config
from hw.isa import Opcode
from sw.golden.accesses import STEPS, STORE, Trace
from sw.golden.traffic import slots

WINDOWS = ("x", "w", "dy", "dy2", "y", "dw", "e")
#: Clocks around an instruction: fetch, decode, filling the pipelines.
OVERHEAD = 40
#: Clocks from the end of a pass to its tile in the accumulator, beyond T.
ADDER = 12


@dataclass(frozen=True)
class Bus:
    """The DRAM as the planner sees it: clocks of latency, bytes per clock (0: one beat)."""

    latency: int = 100
    bytes_per_cycle: int = 0

    def clocks(self, cfg: Config, count: float) -> float:
        """Clocks that `count` bytes take."""
        rate = min(self.bytes_per_cycle or cfg.beat_bytes, cfg.beat_bytes)
        return count / rate


def _keys(window: str, fields: dict, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    return WINDOWS.index(window) << 16 | slots(fields[f"{window}_window"], i, j).astype(np.int64)


def _operations(cfg: Config, f: dict, walk: Trace) -> list[tuple[int, int, int, int]]:
    """Of every operation: keys of its A, B and accumulator slots, and the clocks of its pass."""
    t, m, n, k, dw = cfg.tile, walk.m, walk.n, walk.k, walk.dw
    x, w = _keys("x", f, m, k), _keys("w", f, k, n)
    last = {d: (f[d] - 1) // t for d in "mnk"}
    rest = {d: f[d] - last[d] * t for d in "mnk"}
    rows = np.where(dw, np.where(k == last["k"], rest["k"], t),
                    np.where(m == last["m"], rest["m"], t))
    if f["opcode"] == Opcode.GEMM.value:
        a, b, acc, stationary = x, w, _keys("y", f, m, n), (k, n)
    else:
        pair = "dy2" if f["order"] == 1 else "dy"
        a = np.where(dw, x, _keys("dy", f, m, n))
        b = np.where(dw, _keys(pair, f, m, n), w)
        acc = np.where(dw, _keys("dw", f, k, n), _keys("y", f, m, k))
        stationary = (dw, np.where(dw, m, k), n)
    changed = np.ones(len(m), bool)
    changed[1:] = np.any([s[1:] != s[:-1] for s in stationary], axis=0)
    clocks = np.where(changed, np.maximum(rows, t), rows)
    return list(zip(a.tolist(), b.tolist(), acc.tolist(), clocks.tolist(), strict=True))


def _events(cfg: Config, walk: Trace, bus: Bus) -> list[tuple[int, bool, int, float]]:
    """Accesses in program order: (when, is it a write, slot key, clocks on the bus)."""
    result = []
    for a in walk.accesses:
        keys = (WINDOWS.index(a.window) << 16 | a.slot.astype(np.int64)).tolist()
        result += [(when, a.write, key, bus.clocks(cfg, count)) for when, key, count in
                   zip(a.when.tolist(), keys, a.moved.tolist(), strict=True)]
    result.sort()
    return result


def replay(cfg: Config, fields: dict, walk: Trace, bus: Bus) -> float:
    """Clocks of the instruction `fields` whose trace is `walk`."""
    events = _events(cfg, walk, bus)
    moved = sum(e[3] for e in events)
    ready, read, done, freed = {}, {}, {}, {}  # clocks by slot key
    issue = arrival = now = stored = 0.0
    starts, position = [], 0
    for index, (a, b, acc, clocks) in enumerate(_operations(cfg, fields, walk)):
        if index >= cfg.queue_depth:
            issue = max(issue, starts[index - cfg.queue_depth])
        while position < len(events) and events[position][0] < index * STEPS + STORE:
            _, write, key, cost = events[position]
            position += 1
            if write:
                begin = max(stored, done[key])
                stored = begin + max(cost, cfg.tile + 4)
                freed[key] = stored
            else:
                issue = max(issue, read.get(key, 0.0), freed.get(key, 0.0))
                arrival = max(arrival, issue + bus.latency) + cost
                ready[key] = arrival
        now = max(now, ready.get(a, 0.0), ready.get(b, 0.0), ready.get(acc, 0.0),
                  freed.get(acc, 0.0))
        starts.append(now)
        now += clocks
        read[a] = read[b] = now
        done[acc] = now + cfg.tile + ADDER
        if position < len(events) and events[position][0] == index * STEPS + STORE:
            key, cost = events[position][2:]
            position += 1
            begin = max(stored, done[key])
            stored = begin + max(cost, cfg.tile + 4)
            freed[key] = begin + 2 * cfg.tile
    return max(now, stored, moved) + OVERHEAD
