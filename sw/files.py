"""Files that the commands read and write."""

import io
import json
import math
import os
import sys
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
    """A binary file in memory; at the end, if nothing went wrong, its content is that of `path`.

    Whatever interrupts the writer, `path` is either the old file or the new one, complete.
    Devices and pipes are written as they are.
    """
    buffer = io.BytesIO()
    yield buffer
    if path.exists() and not path.is_file():
        path.write_bytes(buffer.getbuffer())
        return
    path = Path(os.path.realpath(path))  # unlike resolve(), it takes links in a circle
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: str | Path, value: dict) -> None:
    """Write `value` as JSON, with null for NaN and infinities; path - is standard output."""
    text = json.dumps(_plain(value), indent=2, allow_nan=False) + "\n"
    if path == "-":
        sys.stdout.write(text)
        return
    with replacing(Path(path)) as file:
        file.write(text.encode())


def _plain(value):
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
