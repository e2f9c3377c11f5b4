"""A network trained on the generated Verilog, beside float32, and DRAM traffic by gradient order.

``python -m scripts.digits``: scikit-learn's handwritten digits through 64-32-10, five epochs on the
RTL of `tiny`, every memory word compared with the golden model; then an epoch on the golden model
in each order. Figures, report and model are left in build/digits.
"""

import json
import sys
from pathlib import Path

from hw.config import load
from hw.isa import Kind
from scripts.training import backward
from sw.cli import main as sw
from sw.compiler.network import perceptron
from sw.compiler.planner import ORDERS
from sw.data import training_data
from sw.nn.parameters import initial
from sw.runtime.trainer import Trainer, one_hot

CONFIG, SIZES = "tiny", [64, 32, 10]
FOLDER = Path(__file__).parents[1] / "build" / "digits"
#: Test accuracy to reach.
GOAL = 0.93


def compare_orders() -> bool:
    """Print the DRAM bytes of an epoch's gradients by order; whether all give the same weights."""
    network, data = perceptron(SIZES), training_data("digits", "cross-entropy").train
    targets = one_hot(data.y, SIZES[-1])
    print(f"{'gradients, one epoch':22} {'bytes read':>11} {'of dY':>9} {'bytes written':>14}")
    weights = set()
    for order in ORDERS:
        trainer = Trainer(load(CONFIG), network, batch=32, samples=len(data.x), order=order)
        trainer.set_parameters(initial(network, 0))
        trainer.run_epoch(0, data.x, targets, learning_rate=0.1, momentum=0.9)
        traffic = backward(trainer)
        read, written = (sum(count for (way, _), count in traffic.items() if way == wanted)
                         for wanted in ("read", "write"))
        print(f"{order:22} {read:>11,} {traffic['read', Kind.DY]:>9,} {written:>14,}", flush=True)
        weights.add(b"".join(value.tobytes() for value in trainer.parameters().values()))
    return len(weights) == 1


def main() -> int:
    """Run the demonstration; not 0 if RTL and golden or two orders differ, or a goal is missed."""
    print(f"{'-'.join(map(str, SIZES))} learns handwritten digits on the RTL of `{CONFIG}`; "
          "the simulator is built first.", flush=True)
    status = sw(["train", "--data", "digits", "--hidden", *map(str, SIZES[1:-1]), "--config",
                 CONFIG, "--backend", "rtl", "--out", str(FOLDER)])
    if status:
        return status
    report = json.loads((FOLDER / "report.json").read_text())
    reached = report["test_accuracy"] >= GOAL
    print(f"\nRTL equal to the golden model in every memory word: yes\n"
          f"Test accuracy {report['test_accuracy']:.2%} (float32 "
          f"{report['float32_test_accuracy']:.2%}), goal {GOAL:.0%}: "
          f"{'reached' if reached else 'MISSED'}\n"
          f"Figures, report and model: {FOLDER}\n", flush=True)
    same = compare_orders()
    print(f"\nWeights the same in all four orders, bit for bit: {'yes' if same else 'NO'}")
    return 0 if reached and same else 1


if __name__ == "__main__":
    sys.exit(main())
