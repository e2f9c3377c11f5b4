"""`python -m sw`: run operations, train networks and serve them, on a backend."""

import argparse
import sys

from hw.config import ConfigError
from sw.commands import infer, op, serve, train
from sw.compiler.layout import LayoutError
from sw.compiler.network import NetworkError
from sw.compiler.planner import PlanError
from sw.compiler.slots import SlotError
from sw.files import UsageError
from sw.runtime.backends import RunError

MISTAKES = (UsageError, ConfigError, NetworkError, PlanError, LayoutError, SlotError)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m sw",
                                  description="Run operations, train networks and serve them.")
    commands = top.add_subparsers(dest="command", required=True)
    for command in (op, train, infer, serve):
        command.add_arguments(commands)
    return top


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0, 1 for a mismatch or a failed run, 2 for a user's mistake, 130 for Ctrl-C."""
    args = parser().parse_args(argv)
    try:
        return args.run(args)
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename or 'an empty name'}: "
        message, status = f"{where}{error.strerror or error}", 2
    except MemoryError:
        message, status = "these matrices take more memory than there is", 2
    except MISTAKES as error:
        message, status = error, 2
    except RunError as error:
        message, status = error, 1
    except KeyboardInterrupt:
        message, status = "interrupted", 130
    print(f"sw {args.command}: {message}", file=sys.stderr)
    return status
