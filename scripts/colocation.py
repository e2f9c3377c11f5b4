"""Serving beside training over load, policy and batch size, on the RTL.

``python -m scripts.colocation``: the digits network of `sw serve` on `edge`, Poisson arrivals, the
same for every policy, in runs of the same length in clocks. Every run is compared with solo runs on
the golden model. Writes colocation.csv and colocation.png into build/colocation and prints the
table.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from hw.config import MAX_REQUESTS, load
from sw.cli import MISTAKES
from sw.commands import serve
from sw.commands.arguments import check_ranges
from sw.files import replacing
from sw.runtime.backends import RunError, Timing
from sw.runtime.colocation import Colocation, percentiles
from sw.runtime.server import LATEST, POLICIES, Scheduling, together
from sw.serving_figures import sweep

LOADS = (0.05, 0.2, 0.4, 0.6, 0.8, 0.95)
BATCHES = (16, 32)
FOLDER = Path(__file__).parents[1] / "build" / "colocation"
COLUMNS = ("batch_max", "policy", "load", "requests", "service_off", "service", "service_ratio",
           "p99_off", "p99", "p99_ratio", "steps_per_million_clocks", "share", "harvest", "match")


def measure(colocation: Colocation, data, load: float, clocks: int, policy: str) -> dict:
    """One row of the table: requests that arrive in so many clocks."""
    count = max(1, round(load * clocks / colocation.batch_clocks * colocation.batch_max))
    x, _ = serve.requests(data, count, 0)
    clocks = colocation.arrivals("poisson", load, count, 0)
    result = colocation.serve(x, clocks, Scheduling(
        policy=policy, batch_timeout=round(colocation.batch_clocks)))
    off, on = percentiles(result.off.latency)["p99"], percentiles(result.on.latency)["p99"]
    return {
        "batch_max": colocation.batch_max, "policy": policy, "load": load, "requests": count,
        "service_off": result.off.service.mean(), "service": result.on.service.mean(),
        "service_ratio": result.on.service.mean() / result.off.service.mean(),
        "p99_off": off, "p99": on, "p99_ratio": on / off,
        "steps_per_million_clocks": 1e6 * result.training_rate,
        "share": result.load, "harvest": result.harvest, "match": result.match}


def main() -> int:
    """Run the sweep; 1 if a run fails or differs from the golden model, 2 for a user's mistake."""
    parser = argparse.ArgumentParser(prog="python -m scripts.colocation",
                                     description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="edge", help="preset (default edge)")
    parser.add_argument("--clocks", type=int, default=600_000, metavar="N",
                        help="in which a run's requests arrive (default 600000)")
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS, metavar="L",
                        help="fractions of what full batches reach")
    parser.add_argument("--batch-max", type=int, nargs="+", default=BATCHES, metavar="N",
                        help="most requests of a batch")
    args = parser.parse_args()
    try:
        return run(args)
    except MISTAKES as error:
        message, status = error, 2
    except RunError as error:
        message, status = error, 1
    print(f"scripts.colocation: {message}", file=sys.stderr)
    return status


def run(args: argparse.Namespace) -> int:
    """The sweep."""
    check_ranges(args, ("clocks", 1, LATEST), ("loads", 0.01, 8), ("batch_max", 1, MAX_REQUESTS))
    cfg, rows = load(args.config), []
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(" ".join(f"{name:>9}"[:9] for name in COLUMNS))
    for batch_max in args.batch_max:
        network, parameters, data = serve.model(cfg, batch_max, 0)
        colocation = Colocation(
            cfg, network, parameters, batch_max=batch_max,
            training=serve.training_job(cfg, network, batch_max, data, 0),
            timing=Timing(latency=serve.LATENCY, bytes_per_cycle=cfg.beat_bytes))
        for value in args.loads:
            row = partial(measure, colocation, data, value, args.clocks)
            # The first policy's run without training serves the others too.
            first, *others = POLICIES
            done = [row(first)]
            done += together(*(partial(row, policy) for policy in others))
            for r in done:
                print(" ".join(f"{v:>9.5g}" if isinstance(v, float) else f"{v!s:>9}"
                               for v in r.values()), flush=True)
            rows += done
    with replacing(FOLDER / "colocation.csv") as file:
        file.write(("\n".join([",".join(COLUMNS),
                               *(",".join(map(str, r.values())) for r in rows)]) + "\n").encode())
    sweep(FOLDER / "colocation.png", rows)
    return 0 if all(r["match"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
