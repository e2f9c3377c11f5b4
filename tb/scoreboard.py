"""Runs jobs on the simulated NPU and compares everything with the golden model."""

from dataclasses import dataclass, replace

import numpy as np

from hw.config import Config
from hw.control.commands import Source
from hw.isa import INSTRUCTION_BYTES, Error, Opcode
from hw.regs import CONTEXT_REGISTERS
from sw.golden.machine import COUNTERS, Machine
from sw.golden.program import Step, steps
from tb.job import Job, Result
from tb.runner import simulate

BUSY, DONE, ERROR = 1, 2, 4
IRQ_DONE, IRQ_ERROR = 1, 2
#: Counters of clocks that add up to CYCLES_TOTAL.
CLOCKS = tuple(r.name for r in CONTEXT_REGISTERS if r.name.startswith("ARRAY_"))
#: Registers that a result depends on.
SETTINGS = ("REGION_BASE_LO", "REGION_BASE_HI", "REGION_SIZE", "PROGRAM_ADDR", "SEED")
#: Registers of SGD, which keep their values from job to job; 0 after a reset.
RATES = ("LEARNING_RATE", "MOMENTUM", "WEIGHT_DECAY")
#: Counters by phase that add up to the counter.
PHASES = {total: tuple(r.name for r in CONTEXT_REGISTERS if r.name.startswith(f"PHASE_{name}_"))
          for total, name in (("CYCLES_TOTAL", "CYCLES"), ("ARRAY_BUSY", "BUSY"))}
#: What a job without memory has from the last one with memory.
INHERITED = ("base", "read_errors", "write_errors")
#: Clocks by which the host's count of a run may differ from CYCLES_TOTAL.
SLACK = 8


@dataclass(frozen=True)
class Verdict:
    """One job's result and all that is wrong with it."""

    result: Result
    problems: list[str]


def _steps(cfg: Config, region: np.ndarray, pc: int) -> tuple[list[Step], list[Step], list[Step]]:
    """What the program at offset `pc` executes up to END or the first error, and what may follow.

    An error in a trace is found late: instructions of the other stream that need not wait for this
    one may have been dispatched. The third list is what may have been fetched.
    """
    executed, late, fetched = [], [], []
    program = steps(cfg, region, pc)
    for step in program:
        executed.append(step)
        if step.error is not Error.NONE:
            break
    if executed[-1].error is not Error.NONE and executed[-1].walk:
        for step in program:
            fetched.append(step)
            if step.walk and step.fields["overlap"] and _stream(step) != _stream(executed[-1]):
                late.append(step)
            elif step.walk or step.error is not Error.NONE or \
                    step.fields["opcode"] == Opcode.FENCE.value:
                break
    return executed, late, executed + fetched


def _stream(step: Step) -> Source:
    array = step.fields["opcode"] in (Opcode.GEMM.value, Opcode.GRAD.value)
    return Source.ARRAY if array else Source.VECTOR


def _accesses(executed: list[Step]) -> set[tuple[bool, int, int]]:
    """Whether it is a write, offset and moved bytes of every image that the instructions move."""
    found = set()
    for walk in {id(s.walk): s.walk for s in executed if s.walk}.values():
        for a in walk.accesses:
            moved = np.unique(np.stack([a.addr, a.moved]), axis=1)
            found |= {(a.write, addr, count) for addr, count in moved.T.tolist()}
    return found


def _written(executed: list[Step], size: int) -> np.ndarray:
    """Which bytes of the region the instructions may write."""
    mask = np.zeros(size, bool)
    for write, addr, count in _accesses(executed):
        if write:
            mask[addr:addr + count] = True
    return mask


def _bus_errors(executed: list[Step], fetched: list[Step], job: Job,
                lead: int) -> list[tuple[Error, int, int]]:
    """What the memory may answer with an error: code, and the offsets that it may be about."""
    if job.read_errors is None and job.write_errors is None:
        return []
    moved = _accesses(executed) | {(False, s.pc, INSTRUCTION_BYTES) for s in fetched}
    found = []
    for error, limits, is_write in ((Error.READ_ERROR, job.read_errors, False),
                                    (Error.WRITE_ERROR, job.write_errors, True)):
        if limits is None:
            continue
        begin, end = (limit - lead for limit in limits)
        found += [(error, addr, addr + (size if write else 1)) for write, addr, size in moved
                  if write == is_write and addr < end and addr + size > begin]
    return found


def _where(wrong: np.ndarray) -> str:
    at = np.flatnonzero(wrong)
    return f"{len(at)} bytes, the first at offset {at[0]:#x}"


class _Comparison:
    """One job against the golden model."""

    def __init__(self, cfg: Config, job: Job, rates: dict[str, int], before: np.ndarray,
                 result: Result):
        self.rates = {name.lower(): value for name, value in rates.items()}
        self.cfg, self.job, self.result, self.registers = cfg, job, result, result.registers
        low, high, size, self.start, self.seed = (job.registers[name] for name in SETTINGS)
        lead = (high << 32 | low) - job.base
        self.before, self.after = (memory[lead:lead + size] for memory in (before, result.memory))
        self.steps, self.late, fetched = _steps(cfg, self.before, self.start)
        self.problems = [f"bus: {text}" for text in result.protocol_errors]
        outside = before != result.memory
        outside[lead:lead + size] = False
        self._refuse("memory outside the region was changed", outside)
        self.bus_errors = _bus_errors(self.steps + self.late, fetched, job, lead)

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
        touched = _written(self.steps + self.late, len(self.before))
        self._refuse("memory that is no output was changed", (self.after != self.before) & ~touched)

    def _clocks(self):
        """Check that every clock is counted once."""
        for total, parts in (("CYCLES_TOTAL", CLOCKS), *PHASES.items()):
            found = sum(self.registers[name] for name in parts)
            if found != self.registers[total]:
                self.problems.append(f"{parts[0]} and its like add up to {found}, {total} is "
                                     f"{self.registers[total]}")

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
        allowed = [*self.bus_errors, *((s.error, s.error_addr, s.error_addr + 1)
                                       for s in (self.steps[-1], *self.late))]
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
        golden = Machine(self.cfg, region, seed=self.seed, **self.rates).run(self.start)
        self._expect_end(golden.error)
        late = [(s.error_addr, s.pc) for s in self.late if s.error is not Error.NONE]
        if (self.registers["ERROR_ADDR"], self.registers["ERROR_PC"]) not in late:
            self._expect("ERROR_ADDR", golden.error_addr)
            self._expect("ERROR_PC", last.pc)
        wrong = region != self.after
        if last.walk and last.error is not Error.NONE:  # it may have written some of its results
            wrong &= ~_written([last, *self.late], len(region))
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
    rates = dict.fromkeys(RATES, 0)
    for job, result in zip(jobs, results, strict=True):
        if job.memory is None:
            job = replace(job, **{name: getattr(source, name) for name in INHERITED})
        else:
            before, source = np.frombuffer(job.memory, np.uint8), job
            rates = dict.fromkeys(RATES, 0)
        rates |= {name: job.registers[name] for name in RATES if name in job.registers}
        verdicts.append(Verdict(result, _Comparison(cfg, job, rates, before, result).run()))
        before = result.memory
        if job.reset_after is not None:
            rates = dict.fromkeys(RATES, 0)
    return verdicts


def run(cfg: Config, jobs: list[Job]) -> list[Verdict]:
    """Simulate `jobs` and judge them; arguments and errors as of `tb.runner.simulate`."""
    return compare(cfg, jobs, simulate(cfg, jobs))
