"""Closed-form estimate of how often tiles move through a direct-mapped window.

A pass is a nest of loops, outermost first, each a pair (dimension, trips); trips may be averages.
Its first three loops are those over blocks.
"""

Loops = list[tuple[str, float]]
Window = tuple[int, int]


def power_floor(n: int) -> int:
    """Largest power of two that is at most n."""
    return 1 << n.bit_length() - 1


def power_ceil(n: int) -> int:
    """Smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()


def visits(dims: str, loops: Loops, window: Window) -> float:
    """Times that a tile indexed by the two `dims` enters its window.

    A loop over another dimension costs nothing when all that it reads fits the window.
    """
    count, extent = 1.0, {d: 1.0 for d, _ in loops}
    for dim, trips in reversed(loops):
        if dim in dims:
            count *= trips
            extent[dim] *= trips
        elif any(extent[d] > room + 1e-9 for d, room in zip(dims, window, strict=True)):
            count *= trips
    return count


def best_window(dims: str, passes: list[Loops], tiles: dict[str, int],
                slots: int) -> tuple[float, Window]:
    """Fewest visits in all `passes` with a window of at most `slots`, and that window.

    Among equals the largest wins, then the one that extends furthest the way the next block lies:
    room to load ahead, and to drain results. A matrix that fits as a whole is visited once,
    however many passes read it.
    """
    ahead = [d for loops in passes for d, trips in loops[:3] if d in dims and trips > 1]
    upright = bool(ahead) and ahead[-1] == dims[0]
    rows, cols = (power_ceil(tiles[d]) for d in dims)
    best = None
    high = 1
    while high <= min(rows, slots):
        wide = min(cols, power_floor(slots // high))
        if high == rows and wide == cols:
            count = float(tiles[dims[0]] * tiles[dims[1]])
        else:
            count = sum(visits(dims, loops, (high, wide)) for loops in passes)
        key = (round(count), -high * wide, -high if upright else -wide)
        if best is None or key < best[0]:
            best = (key, count, (high, wide))
        high *= 2
    return best[1], best[2]
