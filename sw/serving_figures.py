"""Figures of serving runs, as PNG."""

from pathlib import Path

import numpy as np

from hw.regs import UNITS
from sw.figures import BLUE, GREY, ORANGE, new_figure, save
from sw.perfetto import intervals
from sw.runtime.colocation import Comparison
from sw.runtime.server import Served


def latencies(path: Path, result: Comparison) -> None:
    """Distributions of latency and service time, with training on and off."""
    figure = new_figure(9, 3.8)
    for axes, name in zip(figure.subplots(1, 2), ("latency", "service"), strict=True):
        for run, label, colour, style in ((result.off, "training off", GREY, "--"),
                                          (result.on, "training on", BLUE, "-")):
            values = np.sort(getattr(run, name))
            above = 1 - np.arange(len(values)) / len(values)
            axes.step(values, above, where="post", color=colour, linestyle=style, label=label)
        axes.set_yscale("log")
        axes.set_xlabel(f"{name} (clocks)")
        axes.set_ylabel("requests that take longer")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    save(figure, path)


def occupation(path: Path, served: Served) -> None:
    """Part of the clocks in which each unit works for each context, over time."""
    use = served.log.use[served.log.use[:, 0] <= max(served.clocks, 1)]
    if len(use) < 2:
        return
    # At most some 200 points: sums over several buckets.
    step = max(1, len(use) // 200)
    use = use[:len(use) // step * step]
    clocks = use[::step, 0]
    width = (use[1, 0] - use[0, 0]) * step
    parts = use[:, 1:].reshape(-1, step, 10).sum(1) / width
    figure = new_figure(9, 5)
    rows = figure.subplots(3, 1, sharex=True)
    names = [unit for unit, _ in UNITS]
    for axes, (label, units) in zip(rows, (("array", ("ARRAY",)), ("vector unit", ("VECTOR",)),
                                           ("DRAM bus", ("READ", "WRITE"))), strict=True):
        training, inference = (sum(parts[:, 2 * names.index(u) + c] for u in units)
                               for c in (0, 1))
        axes.stackplot(clocks, 100 * inference, 100 * training, colors=(BLUE, ORANGE),
                       labels=("inference", "training"))
        axes.set_ylabel(f"{label} (%)")
        axes.set_ylim(0, 100)
        axes.grid(alpha=0.3)
    rows[0].legend(loc="upper right", ncols=2, fontsize="small")
    rows[-1].set_xlabel("clock")
    save(figure, path)


def timeline(path: Path, served: Served, around: int = 3000) -> None:
    """Which context has each unit, clock by clock, around the launch of a batch.

    Parameters
    ----------
    around : int
        Clocks shown.
    """
    trace = served.log.trace
    launches = np.unique(served.posted + served.latency - served.service)
    if not len(trace):
        return
    inside = launches[(launches > around) & (launches + around < trace[-1, 0])]
    training = intervals(trace, 0, int(trace[-1, 0]))

    def mixed(launch):
        """Clocks around a launch in which the array works for training."""
        begin, end = launch - around // 3, launch + around - around // 3
        return sum(max(0, min(b, end) - max(a, begin)) for a, b in training)

    begin = int(max(inside, key=mixed) if len(inside) else launches[0]) - around // 3
    end = begin + around
    from matplotlib.patches import Patch

    figure = new_figure(9, 3.4)
    axes = figure.subplots()
    labels = []
    for row, (unit, _) in enumerate(UNITS):
        for context, colour in ((1, BLUE), (0, ORANGE)):
            bars = [(max(a, begin), min(b, end) - max(a, begin))
                    for a, b in intervals(trace, 2 * row + context, end) if a < end and b > begin]
            axes.broken_barh(bars, (3 * row + (0 if context else 1) - 0.45, 0.9), color=colour,
                             linewidth=0)
        labels.append(unit.lower())
    for launch in launches[(launches >= begin) & (launches < end)]:
        axes.axvline(launch, color=BLUE, linewidth=1, linestyle=":")
    axes.set_yticks([3 * n + 0.5 for n in range(len(labels))], labels)
    axes.invert_yaxis()
    axes.set_xlim(begin, end)
    axes.set_xlabel("clock (dotted: a batch is launched)")
    axes.legend(handles=[Patch(color=BLUE, label="inference"),
                         Patch(color=ORANGE, label="training")],
                loc="upper right", bbox_to_anchor=(1, 1.16), ncols=2, frameon=False)
    save(figure, path)


def sweep(path: Path, rows: list[dict]) -> None:
    """p99 latency and training's throughput against load, by policy and batch size.

    Parameters
    ----------
    rows : list of dict
        As `scripts.colocation` measures them.
    """
    figure = new_figure(9, 4)
    left, right = figure.subplots(1, 2)
    colours = dict(zip(dict.fromkeys(r["policy"] for r in rows), (BLUE, ORANGE, GREY),
                       strict=False))
    styles = dict(zip(dict.fromkeys(r["batch_max"] for r in rows), ("-", "--", ":", "-."),
                      strict=False))
    for (policy, batch), line in _lines(rows).items():
        loads = [r["load"] for r in line]
        label = f"{policy}, batches of {batch}"
        for axes, key in (left, "p99"), (right, "steps_per_million_clocks"):
            axes.plot(loads, [r[key] for r in line], styles[batch], marker="o", markersize=3,
                      color=colours[policy], label=label)
    left.set_ylabel("p99 latency (clocks)")
    left.set_yscale("log")
    right.set_ylabel("training steps per million clocks")
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xlabel("load (of full batches' throughput)")
        axes.grid(alpha=0.3)
    left.legend(frameon=False, fontsize="small")
    save(figure, path)


def _lines(rows: list[dict]) -> dict[tuple, list[dict]]:
    lines: dict[tuple, list[dict]] = {}
    for row in rows:
        lines.setdefault((row["policy"], row["batch_max"]), []).append(row)
    return lines
