"""`python -m tb`: the regression on a configuration of the user's choice."""

import argparse
import contextlib
import os
import sys
import time

from hw.config import ConfigError, load
from hw.generate import add_config_arguments
from tb import regression
from tb.runner import SimulationError


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="python -m tb", description="Simulate the NPU with Verilator and compare it with the "
        "golden model. Exit status: 0, 1 if a test failed, 2 for a mistake on the command line.")
    add_config_arguments(top)
    top.add_argument("--test", metavar="NAME", nargs="+", action="extend", default=[],
                     help="run these tests or groups only (see --list)")
    top.add_argument("--list", action="store_true", help="list the tests")
    top.add_argument("--seed", type=int, default=0, help="of all that is random, 32 bits")
    top.add_argument("--waves", action="store_true", help="keep a VCD of every simulation")
    return top


def _print(case: regression.Case, seed: int):
    """One line, and why it failed."""
    print(f"{'PASS' if case.passed else 'FAIL'}  {case.name:62} {case.seconds:7.1f} s  seed {seed}",
          flush=True)
    for line in case.message.splitlines():
        print(f"      {line}")


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0, 1 if a test failed or the simulator did, 2 for a user's mistake."""
    args = parser().parse_args(argv)
    if args.list:
        for name, text in regression.tests().items():
            print(f"{name:42} {text}")
        return 0
    try:
        cfg = load(args.config, args.overrides)
        names = regression.select(args.test)
        if not 0 <= args.seed < 1 << 32:
            raise ValueError(f"--seed must be 0..{(1 << 32) - 1}, not {args.seed}")
    except (ConfigError, ValueError) as error:
        print(f"tb: {error}", file=sys.stderr)
        return 2
    if args.waves:
        os.environ["WAVES"] = "1"
    began, cases = time.monotonic(), []
    try:
        results = regression.run(cfg, names, args.seed, waves=args.waves,
                                 progress=lambda what: print(f"tb: {what}", file=sys.stderr))
        while True:
            with contextlib.redirect_stdout(sys.stderr):  # the simulator's talk is no result
                group = next(results, None)
            if group is None:
                break
            for case in group[0]:
                _print(case, args.seed)
            if group[1]:
                print(f"      log: {group[1] / 'sim.log'}")
                if args.waves:
                    print(f"      waves: {group[1] / 'dump.vcd'}")
            cases += group[0]
    except SimulationError as error:
        print(f"tb: {error}", file=sys.stderr)
        return 1
    failed = [case for case in cases if not case.passed]
    print(f"{len(cases) - len(failed)} of {len(cases)} passed on "
          f"{' '.join([args.config, *args.overrides])} in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
