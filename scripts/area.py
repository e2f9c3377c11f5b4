"""Generic cells per MAC over array sizes and dot widths, as a Markdown table.

``python -m scripts.area [--tiles 4 8 ...] [--dot-widths 1 4]``: `hw.synth` with scratchpad and
accumulator of 256 and 32 tiles, 8 vector lanes (T = 4: 4), and a bus as wide as a row of mantissas
(64 to 1024 bits).
"""

import argparse
import sys

from hw.config import Config
from hw.synth import synthesise

#: Both contexts' parts together; the table's last column but one is all the rest.
BLOCKS = ("execute", "vector", "quantiser", "store", "load", "context", "requests", "scratchpad",
          "accumulator")


def configuration(tile: int, dot_width: int) -> Config:
    """The configuration measured for a tile and a dot width."""
    square = tile * tile
    return Config(tile=tile, dot_width=dot_width, spad_kib=-(-256 * square // 1024),
                  acc_kib=-(-32 * 4 * square // 1024), axi_width=min(1024, max(64, 8 * tile)))


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.area",
                                     description="Cells per MAC, as a Markdown table.")
    parser.add_argument("--tiles", nargs="+", type=int, default=[4, 8, 16, 32, 64])
    parser.add_argument("--dot-widths", nargs="+", type=int, default=[1, 4])
    args = parser.parse_args(argv)
    print(f"| T | w | cells per MAC | {' | '.join(BLOCKS)} | others | cells |")
    print("|" + " --- |" * (len(BLOCKS) + 5))
    for tile in args.tiles:
        blocks = {}
        for dot_width in args.dot_widths:
            cfg = configuration(tile, dot_width)
            if not blocks:
                blocks = {n: b["cells"] for n, b in synthesise(cfg)["blocks"].items()}
            else:  # the other blocks are the same for every dot width
                blocks["execute"] = synthesise(cfg, "npu_execute")["cells"]
            total = sum(blocks.values())
            shown = [blocks[b] for b in BLOCKS]
            parts = " | ".join(f"{count / tile**2:.0f}" for count in [*shown, total - sum(shown)])
            print(f"| {tile} | {dot_width} | {total / tile**2:.0f} | {parts} | {total:,} |",
                  flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
