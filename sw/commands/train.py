"""`python -m sw train`: train a network on a backend, beside the same network in float32."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from hw.config import DIM_BITS, load
from hw.generate import add_config_arguments
from sw import figures
from sw.commands.arguments import check_ranges
from sw.commands.epoch import Training
from sw.commands.progress import Progress
from sw.commands.report import report, table
from sw.compiler.network import LOSSES, perceptron
from sw.compiler.planner import ORDERS
from sw.data import Dataset, training_data
from sw.files import UsageError, write_json
from sw.model import RANGES, Model, read_model
from sw.nn.parameters import initial
from sw.runtime.backends import BACKENDS

#: Settings that a model keeps, with their defaults.
DEFAULTS = {"loss": "cross-entropy", "batch": 32, "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0,
            "order": "auto", "rounding": "even", "seed": 0}
HIDDEN = [32]
CONFIG = "edge"


def add_arguments(commands) -> None:
    """Add `train` to the subparsers `commands`."""
    train = commands.add_parser(
        "train", help="train a network of linear layers and ReLU",
        description="Train a network of linear layers with ReLU between them, and the same "
                    "network in float32. With --resume, the defaults are the model's settings.")
    train.add_argument("--data", required=True, metavar="digits|FILE.npz",
                       help="scikit-learn's digits; or arrays x_train, y_train, x_test, y_test; or "
                            "x, y, of which every fifth sample is for the test. Integers in y are "
                            "labels, other numbers targets")
    train.add_argument("--hidden", nargs="*", type=int, metavar="N",
                       help="outputs of each hidden layer, or none (default 32)")
    train.add_argument("--batch", type=int, metavar="N", help="samples a step (default 32)")
    train.add_argument("--epochs", type=int, default=5, metavar="N",
                       help="epochs in all, those of a resumed model included (default 5)")
    train.add_argument("--lr", type=float, help="learning rate (default 0.1)")
    train.add_argument("--momentum", type=float, help="default 0.9")
    train.add_argument("--weight-decay", type=float, help="default 0")
    train.add_argument("--loss", choices=LOSSES, help="default cross-entropy")
    add_config_arguments(train)
    train.add_argument("--order", choices=(*ORDERS, "auto", "paper"),
                       help="order of the gradients' tile operations (default auto: by cost)")
    train.add_argument("--rounding", choices=("even", "stochastic"),
                       help="of numbers that become BFP: to even, or stochastic (default even)")
    train.add_argument("--backend", choices=BACKENDS, default="golden",
                       help="rtl is also compared with golden, word for word")
    train.add_argument("--seed", type=int,
                       help="of initial weights, shuffling and stochastic rounding (default 0)")
    train.add_argument("--resume", metavar="model.npz", help="go on with this model")
    train.add_argument("-o", "--out", type=Path, default=Path("build/train"), metavar="DIR",
                       help="folder for report.json, model.npz and figures (default build/train)")
    train.set_defaults(run=run_command, config=None)


def _check(args: argparse.Namespace):
    """Refuse what argparse cannot see."""
    check_ranges(args, ("epochs", 1, 1_000_000), ("hidden", 1, (1 << DIM_BITS) - 1),
                 *((name, *limits) for name, limits in RANGES.items()))


def _start(args: argparse.Namespace) -> tuple[Dataset, Model]:
    """The data, and the model before its next epoch."""
    old = None if args.resume is None else read_model(args.resume)
    settings = {name: value if getattr(args, name) is None else getattr(args, name)
                for name, value in (old.settings if old else DEFAULTS).items()}
    data = training_data(args.data, settings["loss"])
    if old is None:
        hidden = HIDDEN if args.hidden is None else args.hidden
        sizes = [data.train.x.shape[1], *hidden, data.outputs]
        start = initial(perceptron(sizes, settings["loss"]), settings["seed"])
        return data, Model(sizes=sizes, config=args.config or CONFIG, overrides=args.overrides,
                           settings=settings, epochs=[], parameters=start, float32=start)
    for part in (data.train, data.test):
        old.check_data(args.data, part)
    for flag, given, known in (("--hidden", args.hidden, old.sizes[1:-1]),
                               ("--loss", args.loss, old.settings["loss"])):
        if given not in (None, known):
            text = " ".join(map(str, known)) if isinstance(known, list) else known
            raise UsageError(f"{flag} must be left out or be the model's, {text}")
    if len(old.epochs) >= args.epochs:
        raise UsageError(f"--epochs must be more than the {len(old.epochs)} that {args.resume} "
                         f"has, not {args.epochs}")
    config, overrides = old.configuration(args.config, args.overrides)
    return data, replace(old, config=config, overrides=overrides, settings=settings)


def run_command(args: argparse.Namespace) -> int:
    """Run it; returns the exit status."""
    _check(args)
    figures.check_available()  # before hours of work, not after
    data, model = _start(args)
    training = Training(load(model.config, model.overrides), model, data, args.backend)
    args.out.mkdir(parents=True, exist_ok=True)
    progress = Progress(args.epochs - len(model.epochs))
    begun = saved = len(model.epochs)
    mismatch = None
    try:
        while len(model.epochs) < args.epochs and mismatch is None:
            progress.show(f"epoch {len(model.epochs) + 1}/{args.epochs} ...")
            mismatch = training.run_epoch()
            if mismatch is None:
                model.save(args.out / "model.npz")
                saved = len(model.epochs)
            result = report(model, data=args.data, backend=args.backend,
                            samples=(len(data.train.x), len(data.test.x)))
            write_json(args.out / "report.json", result)
            progress.step(_line(model.epochs[-1], args.epochs))
        figures.training_curves(args.out / "curves.png", model.epochs)
        if result["phases"]:
            figures.phase_cycles(args.out / "cycles.png", result["phases"])
        else:
            (args.out / "cycles.png").unlink(missing_ok=True)
    except KeyboardInterrupt:
        progress.close()
        left = (f"go on after epoch {saved} with --resume {args.out / 'model.npz'}"
                if saved > begun else "no epoch was finished")
        print(f"sw train: interrupted; {left}", file=sys.stderr)
        return 130
    progress.close()
    print(table(result))
    if mismatch:
        print(f"sw train: the simulation differs from the golden model: {mismatch}",
              file=sys.stderr)
    return 1 if mismatch else 0


def _line(epoch: dict, epochs: int) -> str:
    """An epoch in a line."""
    parts = [f"epoch {epoch['epoch']}/{epochs}: loss {epoch['loss']:.4f} "
             f"(float32 {epoch['float32_loss']:.4f})"]
    if epoch["test_accuracy"] is None:
        parts.append(f"test loss {epoch['test_loss']:.4f} "
                     f"(float32 {epoch['float32_test_loss']:.4f})")
    else:
        parts.append(f"test accuracy {epoch['test_accuracy']:.2%} "
                     f"(float32 {epoch['float32_test_accuracy']:.2%})")
    return ", ".join(parts)
