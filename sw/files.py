"""Files that the commands read and write."""

import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np


class UsageError(Exception):
    """A user's mistake, in one line."""


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """All arrays of an npz file, which may hold no Python objects.

    Raises
    ------
    UsageError
        It is no npz file of number arrays.
    OSError
        It cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as data:
            found = {name: data[name] for name in data.files}
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except (ValueError, EOFError, zipfile.BadZipFile, AttributeError, TypeError, zlib.error,
            RuntimeError, SyntaxError, tokenize.TokenError, OSError):
        raise UsageError(f"{path} is no npz file of number arrays") from None
    if not all(isinstance(value, np.ndarray) for value in found.values()):
        raise UsageError(f"{path} is no npz file of number arrays")
    return found


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A binary file that takes the place of `path` at the end, if nothing went wrong.

    Whatever interrupts the writer, `path` is either the old file or the new one, complete.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
