"""Checks of arguments that several commands have."""

import argparse
from pathlib import Path

from sw.files import UsageError


def check_ranges(args: argparse.Namespace, *ranges: tuple[str, float, float]) -> None:
    """Refuse arguments out of their range.

    Parameters
    ----------
    ranges : (str, number, number)
        Name in `args`, lowest and highest value. None as the value passes; of a list, each item
        is checked.

    Raises
    ------
    UsageError
        One is out of range, or NaN.
    """
    for name, low, high in ranges:
        given = getattr(args, name)
        for value in given if isinstance(given, list | tuple) else [given]:
            if value is not None and not low <= value <= high:
                raise UsageError(f"--{name.replace('_', '-')} must be {low}..{high}, not {value}")


def check_writable(*paths: str | None) -> None:
    """Refuse paths of files whose directory is not there; - is standard output.

    Raises
    ------
    UsageError
        There is no such directory.
    """
    for path in paths:
        if path and path != "-" and not Path(path).absolute().parent.is_dir():
            raise UsageError(f"no directory for {path}")
