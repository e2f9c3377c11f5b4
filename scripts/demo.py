"""Serving while training on the generated Verilog of `tiny`.

``python -m scripts.demo``: a digits classifier answers requests at 60 % of what full batches reach,
alone, and while another copy of it trains, with priority and in turns. Every output and trained
weight is compared with solo runs on the golden model. Reports, traces and figures are in
build/demo.
"""

import json
import sys
from pathlib import Path

from sw.cli import main as sw

CONFIG, LOAD, REQUESTS, BATCH = "tiny", 0.6, 2000, 8
FOLDER = Path(__file__).parents[1] / "build" / "demo"
#: Most that priority may add to the mean service time and to the p99 latency.
SERVICE, LATENCY = 0.02, 0.05


def run(policy: str) -> dict | None:
    """Serve with a policy; its report, or None if RTL and golden differ."""
    folder = FOLDER / policy
    print(f"\n{policy}:", flush=True)
    status = sw(["serve", "--config", CONFIG, "--policy", policy, "--load", str(LOAD), "--requests",
                 str(REQUESTS), "--batch-max", str(BATCH), "--out", str(folder)])
    return None if status else json.loads((folder / "report.json").read_text())


def main() -> int:
    """Run the demonstration; not 0 if something differs or a goal is missed."""
    print(f"A digits classifier serves {REQUESTS} requests on the RTL of `{CONFIG}` while another "
          "copy trains;\nthe simulator is built first.", flush=True)
    reports = [run(policy) for policy in ("priority", "fair")]
    if None in reports:
        return 1
    service, latency = (
        [new / old - 1 for new, old in pairs] for pairs in (
            [(r["service_mean"], r["service_mean_training_off"]) for r in reports],
            [(r["latency"]["p99"], r["latency_training_off"]["p99"]) for r in reports]))
    reached = service[0] <= SERVICE and latency[0] <= LATENCY
    print(f"\nTraining costs a batch {service[0]:+.1%} of its service time under priority, "
          f"{service[1]:+.1%} in turns;\np99 latency {latency[0]:+.1%} and {latency[1]:+.1%}; "
          f"harvest {reports[0]['harvest']:.2f}. Goals (+{SERVICE:.0%}, +{LATENCY:.0%}): "
          f"{'reached' if reached else 'MISSED'}\n"
          f"Outputs and trained weights equal to solo runs: yes\nFigures: {FOLDER}")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
