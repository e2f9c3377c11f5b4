"""Jobs for the simulated NPU and what comes back."""

from dataclasses import dataclass, field, fields

import numpy as np

#: Channels that can be stalled, in the order of the memory's `stall` input.
CHANNELS = ("ar", "r", "aw", "w", "b")

#: What the memory can find wrong with the NPU's use of the bus, by bit of its `errors` output.
PROTOCOL_ERRORS = (
    "burst crosses a 4 KiB boundary",
    "burst not aligned to a beat",
    "burst is not INCR of whole beats",
    "valid or payload changed before ready",
    "wlast misplaced",
    "burst outside the memory",
    "read and write of the same bytes overlap in time",
)


@dataclass(kw_only=True)
class Host:
    """What the host does during a job, at given clocks, in Verilog (tb/host.sv).

    The job ends when all of it has been done, all requests are completed and both contexts are
    idle. Every interrupt is acknowledged at once. Once ENABLE has been refused, or a doorbell
    because requests are no longer served, no more are posted.

    Parameters
    ----------
    writes : list of (clock, register, value)
        Register writes, in ascending order of clocks.
    requests : list of (clock, input, output, tag)
        Requests, posted at their clock or as soon after as there is space in the ring.
    ring, completions : int
        Byte addresses of the rings, counted from the memory's base, which must be 0.
    ring_log2 : int
        log2 of their entries.
    epochs : int
        Times that training's program is started at most while requests remain; the first start is
        one of `writes`.
    trace : int
        Clocks whose unit activity is logged.
    bucket : int
        Clocks over which unit activity is summed; 0 is never.
    """

    writes: list[tuple[int, str, int]] = field(default_factory=list)
    requests: list[tuple[int, int, int, int]] = field(default_factory=list)
    ring: int = 0
    completions: int = 0
    ring_log2: int = 0
    epochs: int = 1
    trace: int = 0
    bucket: int = 0


#: First letters of the log's lines, in the order of `HostLog`'s attributes.
_LETTERS = "DCBEFXPTU"


@dataclass(kw_only=True)
class HostLog:
    """What the host saw; clocks count from its start.

    Attributes
    ----------
    doorbells : int array (n, 2)
        Clock, requests posted so far.
    completions : int array (n, 5)
        Clock, tag, status, latency, service: as in the completion ring, in order.
    acks : int array (n, 2)
        Clock, address: acknowledged writes of inference.
    ended : int array (n, 1)
        Clocks in which the end of training's program was seen.
    failed : int array (n, 2)
        Clock, context that an error stopped.
    refused : int array (n, 1)
        Clocks in which a refused doorbell or ENABLE was seen.
    served : int array (1, 2)
        Clock, training's OPERATIONS (low 32 bits), when all requests were completed.
    trace : int array (n, 2)
        Clock, activity from then on: bit 2 * unit + context.
    use : int array (n, 11)
        Clock, then clocks of each bit of `activity` in the bucket that ends there.
    """

    doorbells: np.ndarray
    completions: np.ndarray
    acks: np.ndarray
    ended: np.ndarray
    failed: np.ndarray
    refused: np.ndarray
    served: np.ndarray
    trace: np.ndarray
    use: np.ndarray

    @classmethod
    def read(cls, path) -> "HostLog":
        """Parse a log of tb/host.sv."""
        rows: dict[str, list[list[int]]] = {letter: [] for letter in _LETTERS}
        for line in path.read_text().splitlines():
            letter, *words = line.split()
            rows[letter].append([int(w, 16 if letter == "T" and i else 10)
                                 for i, w in enumerate(words)])
        widths = (2, 5, 2, 1, 2, 1, 2, 2, 11)
        return cls(**{f.name: np.array(rows[letter], np.int64).reshape(-1, width)
                      for f, letter, width in zip(fields(cls), _LETTERS, widths, strict=True)})


@dataclass(kw_only=True)
class Job:
    """One run of a program: memory, registers, and how the memory behaves.

    Parameters
    ----------
    memory : uint8 array or bytes, one dimension
        DRAM from byte address `base` on. None goes on from the job before: its memory and its
        memory settings, without a reset.
    registers : dict
        Register name -> value, written in this order before START; names as in `hw.regs`. If
        IRQ_ENABLE is not among them, it is set to all ones.
    prefix : str
        "INFERENCE_": the program runs in the inference context; registers that both contexts have
        are the inference context's, here and in the result.
    host : Host, optional
        What the host does, instead of START: nothing else starts anything.
    base : int
        Byte address of `memory[0]`.
    latency : int
        Clocks from an accepted AR to its first beat, and from the last W beat to B; 1 .. 65535.
    bytes_per_cycle : int
        Bandwidth of reads and writes together; 0 is no limit.
    outstanding : int
        Bursts that the memory accepts each way before it answers; 1 .. 64.
    stall : float or dict
        Probability that a channel pauses in a clock, 0 .. 0.9; one for all or by channel name.
    seed : int
        Seed of the stalls, 32 bits.
    read_errors, write_errors : (int, int), optional
        Bytes [begin, end), counted from `base`, that are answered with SLVERR.
    error_limit : int
        Such answers (beats of reads, bursts of writes) after which there are no more; 0 is no
        limit.
    stop_after : int, optional
        Write STOP this many clocks after START and wait until the NPU is idle, instead of
        waiting for the interrupt.
    reset_after : int, optional
        Reset NPU and bus this many clocks after START (with a host: after its start), instead of
        waiting for the interrupt. The memory keeps its contents.
    reads : list of str, optional
        Registers that the result has; all if not given.
    timeout_cycles : int
        Clocks after which the run is given up.
    """

    memory: np.ndarray | bytes | None
    registers: dict[str, int] = field(default_factory=dict)
    prefix: str = ""
    host: Host | None = None
    base: int = 0
    latency: int = 20
    bytes_per_cycle: int = 0
    outstanding: int = 64
    stall: float | dict[str, float] = 0.0
    seed: int = 1
    read_errors: tuple[int, int] | None = None
    write_errors: tuple[int, int] | None = None
    error_limit: int = 0
    stop_after: int | None = None
    reset_after: int | None = None
    reads: list[str] | None = None
    timeout_cycles: int = 1_000_000

    def ports(self) -> dict[str, int]:
        """Values of the inputs of `axi_memory` that describe its behaviour.

        Raises
        ------
        ValueError
            For an unknown channel or a value out of range.
        """
        by_channel = self.stall if isinstance(self.stall, dict) else \
            dict.fromkeys(CHANNELS, self.stall)
        stall = 0
        for name, probability in by_channel.items():
            if name not in CHANNELS:
                raise ValueError(f"stall names channels {', '.join(CHANNELS)}, not {name!r}")
            if not 0 <= probability <= 0.9:
                raise ValueError(f"stall must be 0 .. 0.9, not {probability!r}")
            stall |= round(probability * 256) << 8 * CHANNELS.index(name)
        for name, low, high in (("latency", 1, 0xFFFF), ("bytes_per_cycle", 0, 0xFFFF),
                                ("outstanding", 1, 64), ("error_limit", 0, 0xFF),
                                ("seed", 0, 0xFFFF_FFFF)):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} must be {low} .. {high}, not {getattr(self, name)!r}")
        (r_begin, r_end), (w_begin, w_end) = (s or (0, 0)
                                              for s in (self.read_errors, self.write_errors))
        return {
            "base": self.base, "latency": self.latency, "bytes_per_cycle": self.bytes_per_cycle,
            "max_outstanding": self.outstanding, "stall": stall,
            "seed": (self.seed + 1) * 0x9E37_79B9_7F4A_7C15 % 2**64,
            "read_error": r_end << 32 | r_begin, "write_error": w_end << 32 | w_begin,
            "error_limit": self.error_limit,
        }


@dataclass(kw_only=True)
class Result:
    """What a job left behind.

    Attributes
    ----------
    memory : uint8 array, as long as the job's
    registers : dict
        Every readable register and counter of the context by name (with a host: of both contexts
        and the shared ones), read after the interrupt and before it is acknowledged.
    log : HostLog or None
        With a host.
    cycles : int
        Clocks from the write of START to the interrupt (with `stop_after`: until idle; with
        `reset_after`: until the reset).
    protocol_errors : list of str
        Of `PROTOCOL_ERRORS`; the simulator's output has the first address of each.
    outstanding : bool
        The bus still had an unanswered burst when the interrupt came.
    """

    memory: np.ndarray
    registers: dict[str, int]
    cycles: int
    protocol_errors: list[str]
    outstanding: bool
    log: HostLog | None = None
