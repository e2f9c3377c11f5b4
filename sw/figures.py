"""Figures of training runs, as PNG. Matplotlib is loaded when the first one is drawn."""

from importlib.util import find_spec
from pathlib import Path

from sw.files import UsageError, replacing

DOTS_PER_INCH = 150
#: Colours that the colour-blind can tell apart (Okabe and Ito).
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
PHASE_COLOURS = {"forward": BLUE, "gradient": ORANGE, "update": GREEN, "loss": RED}


def check_available() -> None:
    """Refuse to go on without Matplotlib.

    Raises
    ------
    UsageError
        It is not installed.
    """
    if find_spec("matplotlib") is None:
        raise UsageError("figures need the package matplotlib")


def training_curves(path: Path, epochs: list[dict]) -> None:
    """Loss and test accuracy (an epoch without labels: test loss) over the epochs, and float32's.

    Parameters
    ----------
    epochs : list of dict
        Those of a report: epoch, loss, test_loss, test_accuracy, and the same with float32_.
    """
    figure = new_figure(9, 3.6)
    left, right = figure.subplots(1, 2)
    _curves(left, epochs, "loss", "training loss", 1)
    if any(e["test_accuracy"] is None for e in epochs):
        _curves(right, epochs, "test_loss", "test loss", 1)
    else:
        _curves(right, epochs, "test_accuracy", "test accuracy (%)", 100)
    save(figure, path)


def phase_cycles(path: Path, phases: list[dict]) -> None:
    """Cycles by layer, stacked by phase; the hatched part of each is without array work.

    Parameters
    ----------
    phases : list of dict
        Those of a report: layer, phase, cycles, busy.
    """
    from matplotlib.patches import Patch
    from matplotlib.ticker import EngFormatter

    layers = list(dict.fromkeys(p["layer"] or p["phase"] for p in phases))
    height = dict.fromkeys(layers, 0)
    figure = new_figure(6.4, 4)
    axes = figure.subplots()
    for p in phases:
        colour, layer = PHASE_COLOURS.get(p["phase"], GREY), p["layer"] or p["phase"]
        for cycles, style in ((p["busy"], {}),
                              (p["cycles"] - p["busy"], {"hatch": "////", "alpha": 0.55})):
            axes.bar(layers.index(layer), cycles, bottom=height[layer], width=0.6,
                     color=colour, edgecolor="white", linewidth=0, **style)
            height[layer] += cycles
    axes.set_xticks(range(len(layers)), layers)
    axes.set_ylabel("clock cycles, all epochs")
    axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    names = list(dict.fromkeys(p["phase"] for p in phases))
    keys = [Patch(facecolor=PHASE_COLOURS.get(name, GREY), label=name) for name in names]
    keys.append(Patch(facecolor="#BBBBBB", edgecolor="white", hatch="////", label="array idle"))
    axes.legend(handles=keys, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    save(figure, path)


def accuracy_by_width(path: Path, widths: list[int], accuracies: list[list[float]],
                      float32: list[float]) -> None:
    """Test accuracy against the mantissa width: every run, their mean, and float32's mean.

    Parameters
    ----------
    widths : list of int
        Mantissa widths in bits.
    accuracies : list of list of float
        For each width, the accuracies (0 to 1) of its runs.
    float32 : list of float
        Those of the same runs in float32.
    """
    figure = new_figure(6, 4)
    axes = figure.subplots()
    mean = 100 * sum(float32) / len(float32)
    axes.axhline(mean, color=ORANGE, linestyle="--", label="float32, mean")
    axes.axhspan(100 * min(float32), 100 * max(float32), color=ORANGE, alpha=0.15, linewidth=0,
                 label="float32, range")
    for width, runs in zip(widths, accuracies, strict=True):
        axes.plot([width] * len(runs), [100 * a for a in runs], "o", color=BLUE, markersize=4,
                  alpha=0.5, label="NPU, each seed" if width == widths[0] else None)
    axes.plot(widths, [100 * sum(runs) / len(runs) for runs in accuracies], "D-", color=BLUE,
              label="NPU, mean")
    axes.set_xticks(sorted(widths))
    axes.set_xlabel("mantissa width m (bits, with sign)")
    axes.set_ylabel("test accuracy (%)")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    save(figure, path)


def new_figure(width: float, height: float):
    """A figure of so many inches."""
    check_available()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _curves(axes, epochs: list[dict], key: str, label: str, factor: float):
    from matplotlib.ticker import MaxNLocator

    numbers = [e["epoch"] for e in epochs]
    for name, prefix, style in (("NPU", "", {"color": BLUE, "marker": "o"}),
                                ("float32", "float32_",
                                 {"color": ORANGE, "marker": "s", "linestyle": "--"})):
        axes.plot(numbers, [factor * e[prefix + key] for e in epochs], markersize=4, label=name,
                  **style)
    axes.set_xlabel("epoch")
    axes.set_ylabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def save(figure, path: Path):
    """Write a figure as PNG."""
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=DOTS_PER_INCH)
