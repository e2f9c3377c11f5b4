"""`python -m sw serve`: serve requests on a backend while another copy of the network trains."""

import argparse
import sys
from pathlib import Path

import numpy as np

from hw.config import MAX_REQUESTS, Config, load
from hw.generate import add_config_arguments
from hw.regs import UNITS
from sw import serving_figures
from sw.commands.arguments import check_ranges
from sw.compiler.network import Network, perceptron
from sw.compiler.planner import PlanError
from sw.compiler.serving import ServingPlan
from sw.compiler.training import TrainingPlan
from sw.data import Dataset, training_data
from sw.figures import check_available
from sw.files import UsageError, write_json
from sw.model import read_model
from sw.nn.parameters import Parameters, initial
from sw.perfetto import write_trace
from sw.runtime.backends import BACKENDS, Hyperparameters, Timing
from sw.runtime.colocation import Colocation, Comparison, percentiles, shares
from sw.runtime.server import LATEST, POLICIES, Scheduling, Server, TrainingJob
from sw.runtime.trainer import Trainer

#: Hidden layers of the digits network: the first that fits on chip.
HIDDEN = ((256, 256), (32,))
#: Training of the served copy, and of the one that trains beside: samples a step, epochs, steps
#: of one start.
BATCH, EPOCHS, STEPS = 64, 3, 2
RATES = {"learning_rate": 0.1, "momentum": 0.9}
#: How requests can arrive, if not as in a file.
DISTRIBUTIONS = ("poisson", "uniform")
#: DRAM that the simulation models: clocks of latency, bytes a clock.
LATENCY = 100
#: Most clocks of --batch-timeout: the warm-up's request waits for it too.
LONGEST = 1_000_000
#: Clocks in the trace.
TRACE = 150_000


def add_arguments(commands) -> None:
    """Add `serve` to the subparsers `commands`."""
    serve = commands.add_parser(
        "serve", help="serve requests while a copy of the network trains",
        description="Serve requests of a classifier, and repeat it with training off and the same "
                    "arrivals. The load is a fraction of what full batches reach.")
    serve.add_argument("--model", default="digits", metavar="digits|model.npz",
                       help="scikit-learn's digits, trained first on the golden model; or a model "
                            "that train wrote (default digits)")
    add_config_arguments(serve)
    serve.add_argument("--backend", choices=BACKENDS, default="rtl",
                       help="golden has no clock: outputs only (default rtl)")
    serve.add_argument("--arrivals", default="poisson", metavar="poisson|uniform|FILE",
                       help="how requests arrive; a file has a clock a line (default poisson)")
    serve.add_argument("--load", type=float, default=0.5, help="0.01..8 (default 0.5)")
    serve.add_argument("--requests", type=int, default=500, metavar="N", help="default 500")
    serve.add_argument("--batch-max", type=int, default=16, metavar="N",
                       help="most requests of a batch (default 16)")
    serve.add_argument("--batch-timeout", type=int, metavar="CYCLES",
                       help="clocks after which a batch is launched that is not full (default: a "
                            "full batch's service time)")
    serve.add_argument("--train", choices=("digits", "none"), default="digits",
                       help="what trains beside (default digits)")
    serve.add_argument("--policy", choices=POLICIES, default="priority",
                       help="who gets a unit that both want (default priority)")
    serve.add_argument("--read-credits", type=int, metavar="BEATS",
                       help="training's read beats outstanding while inference is active "
                            "(default: READ_CREDITS after reset)")
    serve.add_argument("--spike-threshold", type=int, default=0, metavar="Q",
                       help="hold training while more requests wait; 0 is never (default 0)")
    serve.add_argument("--seed", type=int, default=0,
                       help="of arrivals, of requests and of initial weights (default 0)")
    serve.add_argument("-o", "--out", type=Path, default=Path("build/serve"), metavar="DIR",
                       help="folder for report.json, trace.json and figures (default build/serve)")
    serve.set_defaults(run=run_command)


def model(cfg: Config, batch_max: int, seed: int) -> tuple[Network, Parameters, Dataset]:
    """A digits classifier that fits on chip, trained on the golden model, and its data."""
    data = training_data("digits", "cross-entropy")
    for hidden in HIDDEN:
        network = perceptron([data.train.x.shape[1], *hidden, data.outputs])
        try:
            ServingPlan(cfg, network, batch_max)
            break
        except PlanError as error:
            refusal = error
    else:
        raise refusal
    trainer = Trainer(cfg, network, batch=BATCH, samples=len(data.train.x))
    trainer.set_parameters(initial(network, seed))
    targets = data.train.targets(network.outputs)
    for epoch in range(EPOCHS):
        rows = np.random.default_rng([seed, epoch]).permutation(len(targets))
        trainer.run_epoch(epoch, data.train.x[rows], targets[rows], **RATES)
    return network, trainer.parameters(), data


def _model(args: argparse.Namespace, cfg: Config) -> tuple[Network, Parameters, Dataset]:
    """The network to serve, its parameters, and data."""
    if args.model == "digits":
        return model(cfg, args.batch_max, args.seed)
    old = read_model(args.model)
    data = training_data("digits", old.settings["loss"])
    if data.train.x.shape[1] != old.sizes[0] or data.outputs != old.sizes[-1]:
        raise UsageError(f"requests are digits, {data.train.x.shape[1]} inputs and {data.outputs} "
                         f"outputs; {args.model} is {'-'.join(map(str, old.sizes))}")
    return old.network, old.parameters, data


def requests(data: Dataset, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of `count` requests, drawn from the test's, and their labels."""
    rows = np.random.default_rng(seed).integers(len(data.test.x), size=count)
    return data.test.x[rows], data.test.y[rows]


def training_job(cfg: Config, network: Network, batch_max: int, data: Dataset,
                 seed: int) -> TrainingJob:
    """Another copy of `network` that trains in what serving leaves of the chip."""
    samples = min(BATCH * STEPS, len(data.train.x))
    share = ServingPlan(cfg, network, batch_max).rest
    plan = TrainingPlan(cfg, network, BATCH, samples, share=share)
    return TrainingJob.of(plan, initial(network, seed + 1), data.train.x[:samples],
                          data.train.targets(network.outputs)[:samples], Hyperparameters(**RATES))


def run_command(args: argparse.Namespace) -> int:
    """Run it; returns the exit status."""
    check_ranges(args, ("load", 0.01, 8), ("requests", 1, 100_000),
                 ("batch_max", 1, MAX_REQUESTS), ("batch_timeout", 0, LONGEST),
                 ("spike_threshold", 0, MAX_REQUESTS), ("read_credits", 0, 0xFFFF),
                 ("seed", 0, (1 << 32) - 1))
    if args.backend == "rtl":
        check_available()
    cfg = load(args.config, args.overrides)
    network, parameters, data = _model(args, cfg)
    x, labels = requests(data, args.requests, args.seed)
    listed = None if args.arrivals in DISTRIBUTIONS else _listed(args)
    args.out.mkdir(parents=True, exist_ok=True)  # a mistake is told before the simulations
    if args.backend == "golden":
        return _golden(args, cfg, network, parameters, x, labels)
    job = None if args.train == "none" else training_job(cfg, network, args.batch_max, data,
                                                         args.seed)
    colocation = Colocation(cfg, network, parameters, batch_max=args.batch_max, training=job,
                            timing=Timing(latency=LATENCY, bytes_per_cycle=cfg.beat_bytes))
    clocks = listed if listed is not None else colocation.arrivals(
        args.arrivals, args.load, args.requests, args.seed)
    timeout = round(colocation.batch_clocks) if args.batch_timeout is None else args.batch_timeout
    scheduling = Scheduling(policy=args.policy, batch_timeout=timeout,
                            spike_threshold=args.spike_threshold,
                            read_credits=args.read_credits)
    result = colocation.serve(x, clocks, scheduling, trace=TRACE)
    report = _report(args, colocation, scheduling, result)
    report["accuracy"] = float((result.on.outputs.argmax(1) == labels).mean())
    write_json(args.out / "report.json", report)
    write_trace(args.out / "trace.json", result.on)
    serving_figures.latencies(args.out / "latency.png", result)
    serving_figures.occupation(args.out / "occupation.png", result.on)
    serving_figures.timeline(args.out / "timeline.png", result.on)
    print(table(report))
    print(f"{'files':26}{args.out}: report.json, trace.json (Perfetto), latency.png, "
          "occupation.png, timeline.png")
    if not result.match:
        print("sw serve: the simulation differs from the golden model", file=sys.stderr)
    return 0 if result.match else 1


def _listed(args: argparse.Namespace) -> np.ndarray:
    """Clocks of arrival in a file."""
    try:
        clocks = np.array(Path(args.arrivals).read_text().split(), np.int64)[:args.requests]
    except (ValueError, OverflowError):
        clocks = np.array([])
    if len(clocks) < args.requests or (np.diff(clocks) < 0).any() or not (
            clocks[0] >= 0 and clocks[-1] <= LATEST):
        raise UsageError(f"{args.arrivals} must hold at least {args.requests} clocks in ascending "
                         f"order, one a line, from 0 to {LATEST}")
    return clocks


def _golden(args, cfg, network, parameters, x, labels) -> int:
    server = Server(cfg, network, batch_max=args.batch_max)
    server.load(parameters)
    server.submit(x)
    outputs = server.wait().outputs
    report = {"config": args.config, "backend": "golden", "requests": len(x),
              "accuracy": float((outputs.argmax(1) == labels).mean())}
    write_json(args.out / "report.json", report)
    print("\n".join(f"{name:26}{value}" for name, value in report.items()))
    return 0


def _report(args, colocation: Colocation, scheduling: Scheduling, result: Comparison) -> dict:
    """The figures of one comparison."""
    on, off = result.on, result.off
    _, sizes = np.unique(on.posted + on.latency - on.service, return_counts=True)
    names, counts = np.unique(sizes, return_counts=True)
    return {
        "config": args.config, "overrides": args.overrides, "backend": args.backend,
        "sizes": [colocation.network.inputs, *(la.outputs for la in colocation.network.layers)],
        "policy": args.policy, "arrivals": args.arrivals,
        "load": args.load if args.arrivals in DISTRIBUTIONS else None,
        "model": args.model, "train": args.train,
        "requests": args.requests, "batch_max": args.batch_max,
        "batch_timeout": scheduling.batch_timeout, "spike_threshold": args.spike_threshold,
        "read_credits": on.counters["READ_CREDITS"],
        "seed": args.seed, "batch_clocks": colocation.batch_clocks,
        "latency": percentiles(on.latency), "latency_training_off": percentiles(off.latency),
        "service": percentiles(on.service), "service_training_off": percentiles(off.service),
        "service_mean": float(on.service.mean()),
        "service_mean_training_off": float(off.service.mean()),
        "requests_per_million_clocks": 1e6 * len(on.latency) / on.clocks,
        "requests_per_million_clocks_training_off": 1e6 * len(off.latency) / off.clocks,
        "training_steps": result.training_steps,
        "steps_per_million_clocks": 1e6 * result.training_rate,
        "steps_per_million_clocks_alone": 1e6 * result.training_alone,
        "busiest": result.busiest, "busiest_share": result.load, "harvest": result.harvest,
        "shares": shares(on), "batches": {int(s): int(c) for s, c in zip(names, counts,
                                                                         strict=True)},
        "spike_cycles": on.counters["SPIKE_CYCLES"],
        "holds": {unit.lower(): [on.counters[f"{unit}_HOLD_MAX"],
                                 on.counters[f"{unit}_HOLD_BOUND"]] for unit, _ in UNITS},
        "match": bool(result.match),
    }


def table(report: dict) -> str:
    """The report for people."""
    rows = [("network", f"{'-'.join(map(str, report['sizes']))} on {report['config']}"
                        f"{''.join(' ' + o for o in report['overrides'])}, {report['requests']} "
                        f"requests, {report['arrivals']}, "
                        + (f"load {report['load']:g}, " if report["load"] else "")
                        + report["policy"])]
    rows.append(("clocks", f"{'p50':>10}{'p99':>10}{'p99.9':>10}{'max':>10}"))
    runs = (("", "training"), ("_training_off", "training off"))
    for name in ("service", "latency"):
        for suffix, text in runs[report["train"] == "none":]:
            rows.append((f"{name}, {text}",
                         "".join(f"{report[name + suffix][p]:>10,}"
                                 for p in ("p50", "p99", "p999", "max"))))
    off = report["service_mean_training_off"]
    rows.append(("service, mean", f"{report['service_mean']:,.0f}, training off {off:,.0f} "
                 f"({report['service_mean'] / off - 1:+.1%})"))
    rows.append(("requests / 10^6 clocks", f"{report['requests_per_million_clocks']:.1f}, training "
                 f"off {report['requests_per_million_clocks_training_off']:.1f}"))
    sizes = [(int(s), c) for s, c in report["batches"].items()]
    rows.append(("batches", f"{sum(c for _, c in sizes)} of up to {report['batch_max']}, mean "
                 f"{report['requests'] / sum(c for _, c in sizes):.1f}"))
    if report["training_steps"]:
        rows += [
            ("training steps", f"{report['training_steps']:.1f}: "
             f"{report['steps_per_million_clocks']:.2f} / 10^6 clocks, alone "
             f"{report['steps_per_million_clocks_alone']:.2f}"),
            ("harvest", f"{report['harvest']:.3f} of what the {report['busiest']}'s idle "
             f"{1 - report['busiest_share']:.1%} would give" if report["harvest"] else "-"),
            ("training held (spikes)", f"{report['spike_cycles']:,} clocks"),
            ("held, at most / bound" if report["policy"] != "fair" else "held / bound of priority",
             ", ".join(f"{unit} {seen}/{bound}" for unit, (seen, bound)
                       in report["holds"].items())),
        ]
    rows += [("accuracy", f"{report['accuracy']:.2%}"),
             ("equal to solo runs", "yes" if report["match"] else "NO")]
    return "\n".join(f"{name:26}{value}" for name, value in rows)
