"""One layer on real data, on the generated Verilog: forward, then its gradients in four orders.

``python -m scripts.demo``: a 64 x 32 layer on a batch of scikit-learn's handwritten digits, on the
RTL of `tiny`, every memory word compared with the golden model.
"""

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from sw.cli import main as sw
from sw.compiler.planner import ORDERS

CONFIG, BATCH, INPUTS, OUTPUTS = "tiny", 32, 64, 32


def op(folder: Path, operation: str, data: dict, *extra: str) -> tuple[dict, dict]:
    """Run one operation on the RTL; its report and its result matrices.

    Raises
    ------
    SystemExit
        The RTL differs from the golden model, or could not run.
    """
    np.savez(folder / "in.npz", **data)
    with contextlib.redirect_stdout(io.StringIO()):
        status = sw(["op", operation, "--shape", str(BATCH), str(INPUTS), str(OUTPUTS), "--config",
                     CONFIG, "--backend", "rtl", "--data", str(folder / "in.npz"), "--out",
                     str(folder / "out.npz"), "--json", str(folder / "report.json"), *extra])
    if status:
        raise SystemExit(status)
    with np.load(folder / "out.npz") as results:
        return json.loads((folder / "report.json").read_text()), dict(results)


def row(name: str, report: dict, kind: str) -> str:
    """One line of the table."""
    read, written = (sum(report["dram_bytes"][way].values()) for way in ("read", "write"))
    one = report["dram_bytes"]["read"].get(kind, 0)
    return (f"{name:22} {report['cycles']:>8,} {report['utilisation']:>11.1%} {read:>11,} "
            f"{one:>11,} {written:>13,}")


def main() -> int:
    """Run the demonstration; returns the exit status."""
    digits = load_digits()
    x = (digits.data[:BATCH] / 16).astype(np.float32)
    target = np.eye(OUTPUTS, dtype=np.float32)[digits.target[:BATCH]]
    w = np.random.default_rng(0).normal(0, INPUTS**-0.5, (INPUTS, OUTPUTS)).astype(np.float32)
    print(f"{BATCH} digits through a {INPUTS} x {OUTPUTS} layer on the RTL of `{CONFIG}`; "
          "the simulator is built first.", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report, results = op(folder, "gemm", {"X": x, "W": w})
        y = results["Y"]
        dy = (y - target) / BATCH
        print(f"\n{'':22} {'cycles':>8} {'utilisation':>11} {'bytes read':>11} "
              f"{'of X or dY':>11} {'bytes written':>13}")
        print(row("forward  Y = X W", report, "X"), flush=True)
        gradients = {}
        for order in ORDERS:
            report, gradients[order] = op(folder, "grad", {"X": x, "W": w, "dY": dy},
                                          "--order", order)
            print(row(f"gradient {order}", report, "DY"), flush=True)
    first = gradients["sequential"]
    same = all(g[m].tobytes() == first[m].tobytes() for g in gradients.values() for m in first)
    print("\nRTL equal to the golden model in every memory word: yes")
    print(f"dX and dW the same in all four orders, bit for bit: {'yes' if same else 'NO'}")
    for name, got, exact in (("Y", y, x @ w), ("dX", first["dX"], dy @ w.T),
                             ("dW", first["dW"], x.T @ dy)):
        error = np.linalg.norm(got - exact) / np.linalg.norm(exact)
        print(f"{name:2} against float32: relative error {error:.2%}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
