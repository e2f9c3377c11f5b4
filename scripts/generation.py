"""Time and memory of `hw.generate` for every preset, as a Markdown table.

``python -m scripts.generation``: best of three runs; memory is that of the largest process.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

#: Seconds to stay under, on two cores.
GOALS = {"tiny": 2, "edge": 4, "small45": 15, "large128": 60}

_RUN = """\
import json, resource, sys, time
began = time.monotonic()
from hw import generate
generate.main(["--config", sys.argv[1], "-o", sys.argv[2]])
seconds = time.monotonic() - began
kib = max(resource.getrusage(who).ru_maxrss
          for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(json.dumps([seconds, kib]))
"""


def measure(preset: str) -> tuple[float, int, int]:
    """Seconds, KiB of memory, and bytes of Verilog."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", _RUN, preset, folder], check=True, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        seconds, kib = json.loads(done.stdout.splitlines()[-1])
        return seconds, kib, (Path(folder) / "npu.v").stat().st_size


def main() -> int:
    """Print the table; returns 1 if a goal was missed."""
    print("| preset | seconds | goal | memory | Verilog |\n| --- | --- | --- | --- | --- |")
    missed = 0
    for preset, goal in GOALS.items():
        seconds, kib, size = min(measure(preset) for _ in range(3))
        missed += seconds >= goal
        print(f"| `{preset}` | {seconds:.1f} | {goal}{' MISSED' if seconds >= goal else ''} "
              f"| {kib / 1024:.0f} MiB | {size / 1024:.0f} KiB |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
