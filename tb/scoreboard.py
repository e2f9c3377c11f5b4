"""Runs jobs on the simulated NPU and compares everything with the golden model."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hw.config import Config
from hw.isa import INSTRUCTION_BYTES, Error, Opcode
from hw.regs import REGISTERS
from sw.golden.decode import LAYER_OPS, check, decode
from sw.golden.machine import COUNTERS, Machine
from sw.golden.traffic import Trace, trace
from tb.job import Job, Result
from tb.runner import simulate

BUSY, DONE, ERROR = 1, 2, 4
IRQ_DONE, IRQ_ERROR = 1, 2
#: Counters of clocks that add up to CYCLES_TOTAL.
CLOCKS = tuple(r.name for r in REGISTERS if r.name.startswith("ARRAY_"))
#: Registers that a result depends on.
SETTINGS = ("REGION_BASE_LO", "REGION_BASE_HI", "REGION_SIZE", "PROGRAM_ADDR", "SEED")
#: What a job without memory has from the last one with memory.
INHERITED = ("base", "read_errors", "write_errors")
#: Clocks by which the host's count of a run may differ from CYCLES_TOTAL.
SLACK = 8


@dataclass(frozen=True)
class Verdict:
    """One job's result and all that is wrong with it."""

    result: Result
    problems: list[str]


@dataclass(frozen=True)
class _Step:
    """One instruction that is fetched: its offset, its error, its trace if it has one."""

    pc: int
    error: Error
    error_addr: int
    walk: Trace | None


def _steps(cfg: Config, region: np.ndarray, pc: int) -> Iterator[_Step]:
    """Instructions of the program at offset `pc`, up to END or the first that is refused."""
    while True:
        if pc + INSTRUCTION_BYTES > len(region):
            yield _Step(pc, Error.BAD_ADDRESS, pc, None)
            return
        fields = decode(region[pc:pc + INSTRUCTION_BYTES])
        error, addr, walk = check(cfg, fields), pc, None
        opcode = fields["opcode"]
        if error is Error.NONE and opcode in [o.value for o in LAYER_OPS]:
            walk = trace(cfg, fields)
            outside = walk.first_outside(len(region))
            if outside is not None:
                error, addr = Error.BAD_ADDRESS, outside & 0xFFFFFFFF
        yield _Step(pc, error, addr, walk)
        if error is not Error.NONE or opcode == Opcode.END.value:
            return
        pc += INSTRUCTION_BYTES


def _written(steps: list[_Step], size: int) -> np.ndarray:
    """Which bytes of the region the instructions may write."""
    mask = np.zeros(size, bool)
    for access in (a for s in steps if s.walk for a in s.walk.accesses if a.write):
        for addr in np.unique(access.addr):
            mask[addr:addr + access.image_bytes] = True
    return mask


def _bus_errors(steps: list[_Step], job: Job, lead: int) -> list[tuple[Error, int, int]]:
    """What the memory may answer with an error: code, and the offsets that it may be about."""
    found = []
    for error, limits, write in ((Error.READ_ERROR, job.read_errors, False),
                                 (Error.WRITE_ERROR, job.write_errors, True)):
        if limits is None:
            continue
        begin, end = (limit - lead for limit in limits)
        images = [(s.pc, INSTRUCTION_BYTES) for s in steps if not write]
        images += [(addr, a.image_bytes) for s in steps if s.walk for a in s.walk.accesses
                   if a.write == write for addr in np.unique(a.addr).tolist()]
        found += [(error, addr, addr + (size if write else 1)) for addr, size in images
                  if addr < end and addr + size > begin]
    return found


def _where(wrong: np.ndarray) -> str:
    at = np.flatnonzero(wrong)
    return f"{len(at)} bytes, the first at offset {at[0]:#x}"


class _Comparison:
    """One job against the golden model."""

    def __init__(self, cfg: Config, job: Job, before: np.ndarray, result: Result):
        self.cfg, self.job, self.result, self.registers = cfg, job, result, result.registers
        low, high, size, self.start, self.seed = (job.registers[name] for name in SETTINGS)
        lead = (high << 32 | low) - job.base
        self.before, self.after = (memory[lead:lead + size] for memory in (before, result.memory))
        self.steps = list(_steps(cfg, self.before, self.start))
        self.problems = [f"bus: {text}" for text in result.protocol_errors]
        outside = before != result.memory
        outside[lead:lead + size] = False
        self._refuse("memory outside the region was changed", outside)
        self.bus_errors = _bus_errors(self.steps, job, lead)

    def _refuse(self, what: str, wrong: np.ndarray):
        if wrong.any():
            self.problems.append(f"{what}: {_where(wrong)}")

    def _expect(self, name: str, value: int):
        if self.registers[name] != value:
            self.problems.append(f"{name} is {self.registers[name]:#x}, not {value:#x}")

    def _expect_end(self, error: Error):
        bad = error is not Error.NONE
        self._expect("STATUS", ERROR if bad else DONE)
        self._expect("IRQ_STATUS", IRQ_ERROR if bad else IRQ_DONE)
        self._expect("ERROR_CODE", error.value)

    def _only_outputs(self):
        """Check that nothing but what the program writes has changed."""
        touched = _written(self.steps, len(self.before))
        self._refuse("memory that is no output was changed", (self.after != self.before) & ~touched)

    def _clocks(self):
        """Check that every clock is counted once."""
        total = sum(self.registers[name] for name in CLOCKS)
        if total != self.registers["CYCLES_TOTAL"]:
            self.problems.append(f"array clocks add up to {total}, CYCLES_TOTAL is "
                                 f"{self.registers['CYCLES_TOTAL']}")

    def run(self) -> list[str]:
        """All that is wrong."""
        job = self.job
        if job.reset_after is not None:
            self._only_outputs()
            return self.problems
        self._clocks()
        if self.result.outstanding:
            self.problems.append("the program ended with a burst under way")
        if abs(self.result.cycles - self.registers["CYCLES_TOTAL"]) > SLACK \
                and job.stop_after is None:
            self.problems.append(f"CYCLES_TOTAL is {self.registers['CYCLES_TOTAL']} after "
                                 f"{self.result.cycles} clocks")
        status = self.registers["STATUS"]
        if job.stop_after is not None and status == 0:
            self._stopped()
        elif self.bus_errors or (job.stop_after is not None and status != DONE):
            self._failed()
        else:
            self._completed()
        return self.problems

    def _stopped(self):
        self._expect("IRQ_STATUS", IRQ_DONE)
        self._expect("ERROR_CODE", Error.NONE.value)
        self._only_outputs()

    def _failed(self):
        """Check a run that met an error on the bus, or one that the golden model finds too.

        It may have been stopped before the results of earlier instructions were written.
        """
        last = self.steps[-1]
        allowed = [*self.bus_errors, (last.error, last.error_addr, last.error_addr + 1)]
        code, addr = self.registers["ERROR_CODE"], self.registers["ERROR_ADDR"]
        if not any(error.value == code and low <= addr < high for error, low, high in allowed
                   if error is not Error.NONE):
            self.problems.append(
                f"ERROR_CODE is {code} and ERROR_ADDR {addr:#x}, none of "
                + ", ".join(f"{e.name} {low:#x}" for e, low, _ in allowed))
        else:
            self._expect_end(Error(code))
        self._only_outputs()

    def _completed(self):
        """Check everything that the golden model knows."""
        region, last = self.before.copy(), self.steps[-1]
        golden = Machine(self.cfg, region, seed=self.seed).run(self.start)
        self._expect_end(golden.error)
        self._expect("ERROR_ADDR", golden.error_addr)
        self._expect("ERROR_PC", last.pc)
        wrong = region != self.after
        if last.walk and last.error is not Error.NONE:  # it may have written some of its results
            wrong &= ~_written([last], len(region))
        self._refuse("memory differs from the golden model's", wrong)
        if golden.error is Error.NONE:
            for name in COUNTERS:
                self._expect(name, golden.counters[name])
            self._expect("EXCEPTIONS", golden.nonfinite | golden.overflow << 1)


def compare(cfg: Config, jobs: list[Job], results: list[Result]) -> list[Verdict]:
    """Judge the results of jobs that ran one after the other.

    A job without memory is judged from what the job before left. Every job must set the registers
    of `SETTINGS`.
    """
    verdicts, before, source = [], None, None
    for job, result in zip(jobs, results, strict=True):
        if job.memory is None:
            job = replace(job, **{name: getattr(source, name) for name in INHERITED})
        else:
            before, source = np.frombuffer(job.memory, np.uint8), job
        verdicts.append(Verdict(result, _Comparison(cfg, job, before, result).run()))
        before = result.memory
    return verdicts


def run(cfg: Config, jobs: list[Job], source: Path | None = None) -> list[Verdict]:
    """Simulate `jobs` and judge them; arguments and errors as of `tb.runner.simulate`."""
    return compare(cfg, jobs, simulate(cfg, jobs, source))
