"""Reports of training: measures, `report.json`, and its table."""

import numpy as np

from sw.data import Part
from sw.model import Model


def measures(logits: np.ndarray, part: Part, loss: str) -> tuple[float, float | None]:
    """(mean loss, accuracy) of `logits` (samples, outputs); no accuracy without labels."""
    logits = logits.astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinite outputs
        if loss == "cross-entropy":
            top = logits.max(axis=1)
            total = np.log(np.exp(logits - top[:, None]).sum(axis=1)) + top
            mean = (total - logits[np.arange(len(logits)), part.y]).mean()
        else:
            mean = ((logits - part.targets(logits.shape[1])) ** 2).mean()
    return float(mean), accuracy(logits, part)


def predictions(logits: np.ndarray) -> np.ndarray:
    """Number of each sample's largest output; -1 if one of them is NaN."""
    return np.where(np.isnan(logits).any(axis=1), -1, logits.argmax(axis=1))


def accuracy(logits: np.ndarray, part: Part) -> float | None:
    """Share of the samples whose prediction is their label; None without labels."""
    return float((predictions(logits) == part.y).mean()) if part.labelled else None


def report(model: Model, *, data: str, samples: tuple[int, int], backend: str) -> dict:
    """Contents of report.json.

    Cycles, phases and vector work count the training programs of the epochs that ran on the RTL;
    they and `match` are null if none did. DRAM bytes are those of all epochs.

    Parameters
    ----------
    samples : (int, int)
        Samples for training and for the test.
    """
    epochs = model.epochs
    timed = [e for e in epochs if e["cycles"] is not None]
    last = epochs[-1]
    phases, vector, cycles = None, None, None
    if timed:
        cycles = sum(e["cycles"] for e in timed)
        phases = _phases(timed)
        vector = {key: sum(e["vector"][key] for e in timed) for key in ("busy", "overlap")}
        vector["overlapped"] = vector["overlap"] / vector["busy"] if vector["busy"] else None
    return {
        "data": data, "samples": {"train": samples[0], "test": samples[1]},
        "sizes": model.sizes, "config": model.config, "overrides": model.overrides,
        "backend": backend, "hyperparameters": model.settings,
        **{key: last[key] for key in ("loss", "float32_loss", "test_loss", "float32_test_loss",
                                      "test_accuracy", "float32_test_accuracy")},
        "match": all(e["match"] for e in timed) if timed else None,
        "cycles": cycles,
        "utilisation": sum(p["busy"] for p in phases) / cycles if timed else None,
        "phases": phases, "vector": vector,
        "dram_bytes": {way: _sums(e["dram_bytes"][way] for e in epochs)
                       for way in ("read", "write")},
        "nonfinite_tiles": sum(e["nonfinite_tiles"] for e in epochs),
        "epochs": epochs,
    }


def _sums(parts) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for key, value in part.items():
            total[key] = total.get(key, 0) + value
    return total


def _phases(epochs: list[dict]) -> list[dict]:
    """Sums over the epochs, and the share of each phase's clocks in which the array is busy."""
    rows: dict[tuple, dict] = {}
    for epoch in epochs:
        for p in epoch["phases"]:
            row = rows.setdefault((p["layer"], p["phase"]), {**p, "cycles": 0, "busy": 0})
            row["cycles"] += p["cycles"]
            row["busy"] += p["busy"]
    for row in rows.values():
        row["utilisation"] = row["busy"] / row["cycles"] if row["cycles"] else None
    return list(rows.values())


def table(report: dict) -> str:
    """The report for people."""
    labelled = all(e["test_accuracy"] is not None for e in report["epochs"])
    shown = ("loss", "test_accuracy" if labelled else "test_loss")
    head = "accuracy" if labelled else "test loss"
    lines = [f"{' - '.join(map(str, report['sizes']))} on {report['data']}, "
             f"{report['samples']['train']:,} samples, {report['samples']['test']:,} for the test; "
             f"{' '.join([report['config'], *report['overrides']])}, {report['backend']}", "",
             f"{'epoch':>5} {'loss':>9} {'float32':>9} {head:>10} {'float32':>9}"]
    for e in report["epochs"]:
        lines.append(f"{e['epoch']:>5} {e[shown[0]]:>9.4f} {e['float32_' + shown[0]]:>9.4f} "
                     + " ".join(f"{e[p + shown[1]]:>{w}.{'2%' if labelled else '4f'}}"
                                for p, w in (("", 10), ("float32_", 9))))
    lines.append("")
    if report["phases"]:
        lines.append(f"{'layer':>12} {'phase':10} {'clocks':>14} {'share':>7} {'array busy':>11}")
        for p in report["phases"]:
            busy = "" if p["utilisation"] is None else f"{p['utilisation']:.1%}"
            lines.append(f"{p['layer'] or '':>12} {p['phase']:10} {p['cycles']:>14,} "
                         f"{p['cycles'] / report['cycles']:>7.1%} {busy:>11}")
        lines.append(f"{'all':>12} {'':10} {report['cycles']:>14,} {'':7} "
                     f"{report['utilisation']:>11.1%}")
        lines.append("")
        if report["vector"]["overlapped"] is not None:
            lines.append(f"vector unit's work beside the array's: "
                         f"{report['vector']['overlapped']:.1%} of "
                         f"{report['vector']['busy']:,} clocks")
    for way, kinds in report["dram_bytes"].items():
        lines.append(f"bytes {way:6}" + ", ".join(f"{k} {v:,}" for k, v in kinds.items()))
    if report["nonfinite_tiles"]:
        lines.append(f"tiles with NaN or Inf: {report['nonfinite_tiles']:,}")
    if report["match"] is not None:
        lines.append(f"golden model: {'equal' if report['match'] else 'DIFFERS'}")
    return "\n".join(lines)
