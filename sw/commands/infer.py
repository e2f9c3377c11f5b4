"""`python -m sw infer`: predictions of a trained model on a backend."""

import argparse
import sys
from pathlib import Path

import numpy as np

from hw.config import load
from hw.generate import add_config_arguments
from sw.commands.arguments import check_writable
from sw.commands.report import measures, predictions
from sw.compiler.inference import InferencePlan
from sw.data import inference_data
from sw.files import UsageError, replacing, write_json
from sw.model import read_model
from sw.runtime.backends import BACKENDS
from sw.runtime.trainer import infer


def add_arguments(commands) -> None:
    """Add `infer` to the subparsers `commands`."""
    infer = commands.add_parser(
        "infer", help="predict with a trained model",
        description="Predict with a model that train wrote. Activations have one exponent per row "
                    "of a tile, so that a sample's outputs do not depend on the others. "
                    "Without --config, the model's configuration, changed by --set.")
    infer.add_argument("model", metavar="model.npz", help="a model that train wrote")
    infer.add_argument("--data", required=True, metavar="digits|FILE.npz",
                       help="scikit-learn's digits, those for the test; or an array x_test or x, "
                            "and for the accuracy y_test or y")
    add_config_arguments(infer)
    infer.add_argument("--backend", choices=BACKENDS, default="golden",
                       help="rtl is also compared with golden, word for word")
    infer.add_argument("-o", "--out", metavar="FILE.npz",
                       help="write the outputs and, of a classifier, the predictions")
    infer.add_argument("--json", metavar="FILE", help="write the figures as JSON; - is stdout")
    infer.set_defaults(run=run_command, config=None)


def run_command(args: argparse.Namespace) -> int:
    """Run it; returns the exit status."""
    if args.out == "-":
        raise UsageError("--out must be a file, not standard output")
    check_writable(args.out, args.json)
    model = read_model(args.model)
    part = inference_data(args.data)
    model.check_data(args.data, part)
    config, overrides = model.configuration(args.config, args.overrides)
    cfg = load(config, overrides)
    plan = InferencePlan(cfg, model.network, model.settings["batch"], len(part.x), rows=True)
    logits, outcome, mismatch = infer(plan, model.parameters, part.x, args.backend, check=True)
    classify = model.settings["loss"] == "cross-entropy" or part.labelled
    loss, accuracy = None, None
    if part.y is not None:
        loss, accuracy = measures(logits, part, model.settings["loss"])
    if args.out:
        results = {"outputs": logits} | ({"predictions": predictions(logits)} if classify else {})
        with replacing(Path(args.out)) as file:
            np.savez(file, **results)
    report = {"model": args.model, "data": args.data, "samples": len(part.x), "config": config,
              "overrides": overrides, "backend": args.backend, "loss": loss, "accuracy": accuracy,
              "cycles": outcome.counters.get("CYCLES_TOTAL"),
              "nonfinite_tiles": outcome.counters["NONFINITE_TILES"],
              "match": mismatch is None if args.backend == "rtl" else None}
    if args.json:
        write_json(args.json, report)
    if args.json != "-":
        print(_table(report))
    if mismatch:
        print(f"sw infer: the simulation differs from the golden model: {mismatch}",
              file=sys.stderr)
    return 1 if mismatch else 0


def _table(report: dict) -> str:
    """The report for people."""
    rows = [("model", f"{report['model']} on {report['data']}, {report['samples']:,} samples; "
                      f"{' '.join([report['config'], *report['overrides']])}, "
                      f"{report['backend']}")]
    if report["loss"] is not None:
        rows.append(("loss", f"{report['loss']:.4f}"))
    if report["accuracy"] is not None:
        rows.append(("accuracy", f"{report['accuracy']:.2%}"))
    if report["cycles"] is not None:
        rows.append(("clocks", f"{report['cycles']:,}, "
                               f"{report['cycles'] / report['samples']:,.0f} a sample"))
    if report["nonfinite_tiles"]:
        rows.append(("tiles with NaN or Inf", f"{report['nonfinite_tiles']:,}"))
    if report["match"] is not None:
        rows.append(("golden model", "equal" if report["match"] else "DIFFERS"))
    return "\n".join(f"{name:22}{value}" for name, value in rows)
