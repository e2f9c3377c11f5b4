"""Cycles and utilisation of GEMM and GRAD on the RTL of `edge`, as a Markdown table.

``python -m scripts.performance``: BFP tiles in DRAM to results in DRAM, memory of 16 bytes per
cycle (reads and writes together) and 100 cycles of latency. Every run is compared with the golden
model. Cycles count from the instruction's decode to its last accepted write beat; total is start to
interrupt.
"""

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

from sw.cli import main as sw

MEMORY = ("--bytes-per-cycle", "16", "--latency", "100")
#: Name, arguments of `python -m sw op`, utilisation to reach.
RUNS = (
    ("GEMM, long, w = 1", "gemm --shape 1024 256 512 --result bfp", 0.99),
    ("GEMM, long, w = 4",
     "gemm --shape 1024 256 512 --result bfp --set dot_width=4", 0.99),
    ("GEMM, long, w = 16",
     "gemm --shape 1024 256 512 --result bfp --set dot_width=16", 0.99),
    ("GEMM, BFP to BFP", "gemm --shape 256 256 256 --result bfp", 0.97),
    ("GEMM, BFP to BFP", "gemm --shape 64 64 64 --result bfp", 0.75),
    ("GRAD dx-major", "grad --shape 256 128 256 --order dx-major", 0.90),
    ("GRAD dw-major", "grad --shape 256 128 256 --order dw-major", 0.90),
    ("GRAD dx-major", "grad --shape 128 128 128 --order dx-major", 0.90),
    ("GRAD dw-major", "grad --shape 128 128 128 --order dw-major", 0.90),
    ("GRAD interleaved", "grad --shape 256 128 256 --order interleaved", None),
    ("GRAD sequential", "grad --shape 256 128 256 --order sequential", None),
)


def measure(arguments: str) -> dict:
    """Report of one run.

    Raises
    ------
    SystemExit
        The RTL differs from the golden model, or could not run.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        with contextlib.redirect_stdout(io.StringIO()):
            status = sw(["op", *arguments.split(), "--config", "edge", "--backend", "rtl",
                         *MEMORY, "--json", str(path)])
        if status:
            raise SystemExit(status)
        return json.loads(path.read_text())


def main() -> int:
    """Print the table; returns 1 if a goal was missed."""
    print("| run | M x K x N | cycles | total | utilisation | array busy | goal |\n"
          "| --- | --- | --- | --- | --- | --- | --- |")
    missed = 0
    for name, arguments, goal in RUNS:
        r = measure(arguments)
        shape = " x ".join(map(str, r["shape"]))
        busy = r["stalls"]["ARRAY_BUSY"] / r["cycles"]
        short = goal is not None and r["utilisation"] < goal
        missed += short
        wanted = "" if goal is None else f"{goal:.0%}{' MISSED' if short else ''}"
        print(f"| {name} | {shape} | {r['cycles']:,} | {r['cycles_total']:,} "
              f"| {r['utilisation']:.1%} | {busy:.1%} | {wanted} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
