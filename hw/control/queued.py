"""Queue entries: a command and the numbers it waits for (docs/architecture.md, "Ordering")."""

from amaranth.lib import data

from hw.config import Config
from hw.control.commands import exec_command, load_command, store_command, vector_command
from hw.control.numbers import NUMBER_BITS


def _queued(command: data.StructLayout, *events: str) -> data.StructLayout:
    return data.StructLayout({"cmd": command, **dict.fromkeys(events, NUMBER_BITS)})


def queued_load(cfg: Config) -> data.StructLayout:
    """A load; waits for operations read, stores read and done, vector commands done."""
    return _queued(load_command(cfg), "exec_read", "store_read", "store_done", "vector_done")


def queued_exec(cfg: Config) -> data.StructLayout:
    """An operation; waits for loads done, stores read and done, vector commands done."""
    return _queued(exec_command(cfg), "load_done", "store_read", "store_done", "vector_done")


def queued_vector(cfg: Config) -> data.StructLayout:
    """A vector command; waits for operations done, loads done, stores read."""
    return _queued(vector_command(cfg), "exec_done", "load_done", "store_read")


def queued_store(cfg: Config) -> data.StructLayout:
    """A store; waits for operations done, loads done, vector commands done."""
    return _queued(store_command(cfg), "exec_done", "load_done", "vector_done")
