"""Generic cell counts: ``python -m hw.synth --config NAME [--set KEY=VALUE ...] [--json FILE]``.

Yosys' plain `synth`, hierarchical, through pyosys. RAMs (instances of the RAM wrapper) are left out
and reported as bits.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from hw.config import Config, ConfigError, load
from hw.generate import add_config_arguments, verilog
from hw.lib.ram import RAM_MODULE, RAM_VERILOG

_SCRIPT = """\
from pyosys import libyosys as ys
design = ys.Design()
for command in {commands!r}:
    ys.run_pass(command, design)
"""


def _yosys(commands: list[str], folder: Path) -> None:
    """Run Yosys commands in a process of its own; its log goes to a file."""
    try:
        with (folder / "yosys.log").open("w") as log:
            subprocess.run([sys.executable, "-c", _SCRIPT.format(commands=commands)], cwd=folder,
                           stdout=log, stderr=subprocess.STDOUT, check=True)
    except subprocess.CalledProcessError:
        tail = (folder / "yosys.log").read_text()[-500:]
        raise RuntimeError(f"Yosys failed (is pyosys installed?): {tail}") from None


def _ram_bits(netlist: dict, module: str) -> int:
    """Bits of the RAMs below `module` in a Yosys JSON netlist."""
    bits = 0
    for cell in netlist["modules"][module]["cells"].values():
        if cell["type"] == RAM_MODULE:
            size = {k: int(v, 2) for k, v in cell["parameters"].items()}
            bits += size["WIDTH"] * size["DEPTH"]
        elif cell["type"] in netlist["modules"]:
            bits += _ram_bits(netlist, cell["type"])
    return bits


def synthesise(cfg: Config, top: str = "npu") -> dict:
    """Cells of module `top`: `cells`, `cells_per_mac`, `ram_bits`, and `blocks` by name.

    What the contexts have of their own is one block together.
    """
    text = verilog(cfg)
    ports = RAM_VERILOG[RAM_VERILOG.index("module"):RAM_VERILOG.index("reg [WIDTH-1:0] mem")]
    empty = "(* blackbox *)\n" + ports + "\nendmodule\n"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "npu.v").write_text(text.replace(RAM_VERILOG, empty))
        _yosys(["read_verilog npu.v", f"hierarchy -top {top}", "proc", "write_json rtl.json",
                f"synth -top {top}", "tee -q -o stat.json stat -json"], folder)
        netlist = json.loads((folder / "rtl.json").read_text())
        stat = json.loads((folder / "stat.json").read_text())["modules"]
    by_module = {n.lstrip("\\"): m for n, m in stat.items()}

    def cells(module):
        total = 0
        for kind, count in by_module[module]["num_cells_by_type"].items():
            kind = kind.lstrip("\\")
            if kind in by_module:
                total += count * cells(kind)
            elif kind != RAM_MODULE:
                total += count
        return total

    blocks = {}
    for name, cell in sorted(netlist["modules"][top]["cells"].items()):
        if cell["type"] in by_module:
            block = blocks.setdefault(name.removeprefix("training_").removeprefix("inference_"),
                                      {"cells": 0, "ram_bits": 0})
            block["cells"] += cells(cell["type"])
            block["ram_bits"] += _ram_bits(netlist, cell["type"])
    total = cells(top)
    blocks["top"] = {"cells": total - sum(b["cells"] for b in blocks.values()), "ram_bits": 0}
    macs = cfg.tile * cfg.tile
    for block in blocks.values():
        block["cells_per_mac"] = round(block["cells"] / macs, 1)
    return {"cells": total, "cells_per_mac": round(total / macs, 1),
            "ram_bits": sum(b["ram_bits"] for b in blocks.values()), "blocks": blocks}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m hw.synth",
                                  description="Count the NPU's generic Yosys cells.")
    add_config_arguments(top)
    top.add_argument("--json", metavar="FILE", help="write the figures as JSON; - is stdout")
    return top


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    args = parser().parse_args(argv)
    try:
        cfg = load(args.config, args.overrides)
        if args.json and args.json != "-" and not Path(args.json).absolute().parent.is_dir():
            raise ConfigError(f"no directory for {args.json}")
        result = synthesise(cfg)
    except (ConfigError, RuntimeError, OSError) as error:
        print(f"hw.synth: {error}", file=sys.stderr)
        return 2
    if args.json == "-":
        print(json.dumps(result))
        return 0
    print(f"{'block':16} {'cells':>9} {'per MAC':>8} {'RAM bits':>10}")
    for name, b in result["blocks"].items():
        print(f"{name:16} {b['cells']:9} {b['cells_per_mac']:8.1f} {b['ram_bits']:10}")
    print(f"{'total':16} {result['cells']:9} {result['cells_per_mac']:8.1f} "
          f"{result['ram_bits']:10}")
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
