"""One way to run programs on the golden model and on the simulated RTL."""

import contextlib
import sys
from dataclasses import dataclass, field, fields

import numpy as np

from hw.config import Config
from hw.isa import PHASES, Error
from hw.regs import COUNTERS
from sw.golden.machine import COUNTERS as TIMELESS
from sw.golden.machine import Machine

BACKENDS = ("golden", "rtl")


class RunError(Exception):
    """A program stopped with an error, or the simulator could not run it."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How the simulated memory behaves: see `tb.job.Job`. The golden model has no clock."""

    latency: int = 100
    bytes_per_cycle: int = 0
    stall: float = 0.0
    stall_seed: int = 1
    timeout_cycles: int = 10_000_000


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """Settings of the optimizer: the registers of their names, as FP32."""

    learning_rate: float = 0.0
    momentum: float = 0.0
    weight_decay: float = 0.0

    def bits(self) -> dict[str, int]:
        """FP32 bits by name."""
        return {f.name: int(np.float32(getattr(self, f.name)).view(np.uint32))
                for f in fields(self)}


@dataclass(frozen=True)
class Outcome:
    """What one program left behind, memory apart.

    `counters` are those of `hw.regs` by name, since this program's start; the golden model has
    only those that do not depend on time. `phases` are (clocks, clocks of ARRAY_BUSY) by phase;
    the golden model has none.
    """

    counters: dict[str, int]
    nonfinite: bool
    overflow: bool
    problems: list[str] = field(default_factory=list)
    phases: list[tuple[int, int]] = field(default_factory=list)

    def differences(self, other: "Outcome") -> list[str]:
        """Where flags, and counters that do not depend on time, differ; then the bus's problems."""
        found = [f"{name} is {self.counters[name]}, not {other.counters[name]}"
                 for name in TIMELESS if self.counters[name] != other.counters[name]]
        found += [f"flag {name.upper()} is {getattr(self, name)}"
                  for name in ("nonfinite", "overflow")
                  if getattr(self, name) != getattr(other, name)]
        return found + self.problems


def run(backend: str, cfg: Config, memory: np.ndarray, programs: list[int], *, seed: int = 0,
        timing: Timing | None = None,
        hyperparameters: Hyperparameters | None = None) -> tuple[np.ndarray, list[Outcome]]:
    """Run the programs at offsets `programs` one after the other, each from its own start.

    Parameters
    ----------
    backend : str
        One of `BACKENDS`.
    cfg : Config
    memory : np.ndarray
        The region, uint8; not changed.
    seed : int
        SEED register.
    timing : Timing, optional
        The simulated memory; for "rtl".
    hyperparameters : Hyperparameters, optional
        Registers of SGD; all 0 if not given.

    Returns
    -------
    (np.ndarray, list of Outcome)
        The memory afterwards, and one outcome a program.

    Raises
    ------
    ValueError
        Unknown backend.
    RunError
        A program stopped with an error, or the simulation failed.
    """
    sgd = (hyperparameters or Hyperparameters()).bits()
    if backend == "golden":
        return _golden(cfg, memory.copy(), programs, seed, sgd)
    if backend == "rtl":
        return _rtl(cfg, memory, programs, seed, timing or Timing(), sgd)
    raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, not {backend!r}")


def _golden(cfg, memory, programs, seed, sgd):
    machine, outcomes = Machine(cfg, memory, seed=seed, **sgd), []
    for addr in programs:
        result = machine.run(addr)
        if result.error is not Error.NONE:
            raise RunError(f"the program at {addr:#x} stopped with {result.error.name} "
                           f"at {result.error_addr:#x}")
        outcomes.append(Outcome(result.counters, result.nonfinite, result.overflow))
    return memory, outcomes


def _rtl(cfg, memory, programs, seed, timing, sgd):
    try:
        from tb.job import Job
        from tb.runner import SimulationError, simulate
    except ImportError as error:
        raise RunError(f"simulation needs the package {error.name}") from None
    jobs = [Job(memory=None if index else memory,
                registers={"REGION_BASE_LO": 0, "REGION_BASE_HI": 0, "REGION_SIZE": len(memory),
                           "SEED": seed, "PROGRAM_ADDR": addr, "EXCEPTIONS": 3,
                           "COUNTERS_CLEAR": 1,
                           **{name.upper(): bits for name, bits in sgd.items()}},
                latency=timing.latency, bytes_per_cycle=timing.bytes_per_cycle,
                stall=timing.stall, seed=timing.stall_seed, timeout_cycles=timing.timeout_cycles)
            for index, addr in enumerate(programs)]
    try:
        with contextlib.redirect_stdout(sys.stderr):  # the simulator's talk is no result
            results = simulate(cfg, jobs)
    except (SimulationError, ValueError) as error:
        raise RunError(str(error)) from None
    outcomes = []
    for addr, result in zip(programs, results, strict=True):
        registers = result.registers
        if registers["ERROR_CODE"]:
            raise RunError(f"the program at {addr:#x} stopped with "
                           f"{Error(registers['ERROR_CODE']).name} "
                           f"at {registers['ERROR_ADDR']:#x}")
        outcomes.append(Outcome({name: registers[name] for name, _ in COUNTERS},
                                bool(registers["EXCEPTIONS"] & 1),
                                bool(registers["EXCEPTIONS"] & 2), result.protocol_errors,
                                [(registers[f"PHASE_CYCLES_{p}"], registers[f"PHASE_BUSY_{p}"])
                                 for p in range(PHASES)]))
    return results[-1].memory, outcomes
