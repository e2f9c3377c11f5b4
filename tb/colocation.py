"""Two contexts in one memory, and what each of them must leave there: that of its solo run."""

from dataclasses import dataclass, replace

import numpy as np

from hw.config import Config
from hw.isa import Error, Function, Order
from hw.regs import CONTEXT_REGISTERS, UNITS
from sw.compiler.assembler import assemble, window
from sw.compiler.share import Share
from sw.golden.machine import Machine
from sw.golden.machine import Result as GoldenResult
from tb import scoreboard
from tb.job import Host, Job, Result
from tb.program import RATES, Program

PAGE = 4096
#: Byte between and behind the regions, which nothing may change.
GUARD = 0xA5
PREFIXES = ("", "INFERENCE_")
#: Registers of SGD of the inference context: 0.2, 0.5 and 0.02.
OTHER_RATES = {"LEARNING_RATE": 0x3E4CCCCD, "MOMENTUM": 0x3F000000, "WEIGHT_DECAY": 0x3CA3D70A}


class SharedProgram(Program):
    """Programs on some slots: four runs in the scratchpad from `spad` on, 28 slots from `acc` on.

    No instruction needs more than 4 slots in each run.
    """

    def __init__(self, cfg: Config, seed: int, spad: tuple[int, int, int, int], acc: int):
        super().__init__(cfg, seed)
        self._spad, self._acc = spad, acc

    def windows(self, high: int = 1, wide: int = 1) -> dict[str, dict]:
        """As in `Program`, at most 2 x 2 tiles."""
        names = ("x_window", "w_window", "dy_window", "dy2_window")
        return {**{name: window(base, high, wide)
                   for name, base in zip(names, self._spad, strict=True)},
                "y_window": window(self._acc, high, wide),
                "e_window": window(self._acc + 4, 1, 1),
                "dw_window": window(self._acc + 8, high, wide)}

    def staging(self, slots: int = 8) -> dict[str, int]:
        """As in `Program`."""
        return window(self._acc + 12, 0, min(slots, 16).bit_length() - 1)


@dataclass
class Solo:
    """A program in a region with what golden's run of it alone leaves."""

    memory: np.ndarray
    program: int
    after: np.ndarray
    golden: GoldenResult
    seed: int = 0

    @classmethod
    def of(cls, cfg: Config, memory: np.ndarray, program: int, seed: int = 0,
           **context) -> "Solo":
        """Run golden; `context` are arguments of `Machine`."""
        after = memory.copy()
        golden = Machine(cfg, after, seed=seed, **context).run(program)
        return cls(memory, program, after, golden, seed)

    def registers(self, prefix: str, base: int) -> dict[str, int]:
        """Registers of the context."""
        return {f"{prefix}{name}": value for name, value in (
            ("REGION_BASE_LO", base), ("REGION_SIZE", len(self.memory)),
            ("PROGRAM_ADDR", self.program), ("SEED", self.seed))}

    def problems(self, result: Result, prefix: str, base: int, counters: bool = True) -> list[str]:
        """What differs from golden's run; `counters`: it ran once since they were cleared."""
        found = [f"{prefix}memory: {text}" for text in differences(
            result.memory[base:base + len(self.after)], self.after)]
        expected = {"ERROR_CODE": self.golden.error.value}
        if counters and self.golden.error is Error.NONE:
            expected |= self.golden.counters
        return found + unequal(result, {prefix + name: v for name, v in expected.items()})


def unequal(result: Result, expected: dict[str, int]) -> list[str]:
    """Registers that do not have their expected values."""
    return [f"{name} is {result.registers[name]}, not {value}" for name, value in expected.items()
            if result.registers[name] != value]


def differences(found: np.ndarray, expected: np.ndarray) -> list[str]:
    """Where bytes differ, in words; nothing if they do not."""
    at = np.flatnonzero(found != expected)
    return [f"{len(at)} bytes differ, the first at offset {at[0]:#x}"] if len(at) else []


def place(*regions: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """One memory with the regions at pages, and their addresses."""
    bases, end = [], 0
    for region in regions:
        bases.append(end)
        end += -(-(len(region) + 1) // PAGE) * PAGE
    memory = np.full(end, GUARD, np.uint8)
    for base, region in zip(bases, regions, strict=True):
        memory[base:base + len(region)] = region
    return memory, bases


def step(p: Program, rows: int, inner: int, cols: int) -> None:
    """Append a layer there and back and its update; running it twice is the same as once."""
    x, w, dy = p.bfp(rows, inner), p.bfp(inner, cols), p.bfp(rows, cols)
    y, dx = p.room(rows, cols, True), p.room(rows, inner, True)
    dw, w_new = p.room(inner, cols, False), p.room(inner, cols, False)
    p.gemm(x, w, y, bias=p.normal(1, cols), function=Function.BIAS_RELU)
    p.grad(x, w, dy, dx, dw, Order.INTERLEAVED, function=Function.RELU_GRAD, stochastic=1)
    p.vector(Function.ADD, dw, w=p.normal(inner, cols), y=w_new)
    p.vector(Function.SOFTMAX, p.normal(rows, cols), w=p.normal(rows, cols),
             y=p.room(rows, cols, True), dw=p.room(rows, 1, False))


def slots(cfg: Config, share: Share) -> tuple[tuple[int, ...], int]:
    """Arguments `spad` and `acc` of `SharedProgram` in a share."""
    return tuple(part.start for part in share.quarters(cfg)), share.acc.start


class HalfProgram(Program):
    """Programs made for half the on-chip memories, in one half of each scratchpad bank.

    What is no slot of the half is none of the whole either.
    """

    def __init__(self, cfg: Config, seed: int, second: bool):
        half = replace(cfg, spad_kib=cfg.spad_kib // 2, acc_kib=cfg.acc_kib // 2)
        super().__init__(half, seed)
        self._whole, self._second = cfg, int(second)

    def _slot(self, name: str, slot: int) -> int:
        half, whole = self.cfg, self._whole
        if name in ("y_window", "dw_window", "e_window"):
            return slot + self._second * half.acc_slots if slot < half.acc_slots \
                else slot + half.acc_slots
        bank, index = divmod(slot, half.bank_slots)
        return bank * whole.bank_slots + self._second * half.bank_slots + index

    def end(self) -> int:
        """As in `Program`."""
        moved = [{name: {**value, "base": self._slot(name, value["base"]) % 2**16}
                  if name.endswith("_window") and isinstance(value, dict) and "base" in value
                  else value for name, value in instruction.items()}
                 for instruction in self.instructions]
        self.instructions = []
        return self.code(assemble(self._whole, moved))


@dataclass
class Pair:
    """Plain programs in both contexts at once, judged by the scoreboard one by one.

    Parameters
    ----------
    cfg : Config
    programs : list of (Program, int)
        Programs and the offsets of what runs, of both contexts.
    starts : tuple of int
        Clocks of their START.
    writes : list of (clock, register, value)
        More writes. The host makes the policy `priority` when the last one is done.
    registers : dict
        More registers.
    settings : dict
        More fields of the job.
    """

    cfg: Config
    programs: list[tuple[Program, int]]
    starts: tuple[int, int]
    writes: list
    registers: dict
    settings: dict

    def __post_init__(self):
        memory, self.bases = place(*(p.memory() for p, _ in self.programs))
        self._sides = []
        for (program, start), base, rates in zip(self.programs, self.bases,
                                                 (RATES, OTHER_RATES), strict=True):
            self._sides.append({
                "REGION_BASE_LO": base, "REGION_BASE_HI": 0, "REGION_SIZE": len(program.memory()),
                "SEED": program.seed, "PROGRAM_ADDR": start, **rates})
        starts = [(clock, f"{prefix}CONTROL", 1)
                  for clock, prefix in zip(self.starts, PREFIXES, strict=True)]
        self.job = Job(
            memory=memory, host=Host(writes=sorted([*starts, *self.writes], key=lambda w: w[0]),
                                     trace=1 << 30),
            registers={**{prefix + name: value
                          for prefix, side in zip(PREFIXES, self._sides, strict=True)
                          for name, value in side.items()}, **self.registers}, **self.settings)

    def check(self, result: Result) -> list[str]:
        """All that is wrong."""
        problems = []
        for prefix, base, side in zip(PREFIXES, self.bases, self._sides, strict=True):
            memory = self.job.memory.copy()
            inside = slice(base, base + side["REGION_SIZE"])
            memory[inside] = result.memory[inside]
            registers = {r.name: result.registers[prefix + r.name] for r in CONTEXT_REGISTERS
                         if r.access != "wo"}
            registers["IRQ_STATUS"] = registers["STATUS"] >> 1  # the host has acknowledged it
            seen = replace(result, memory=memory, registers=registers,
                           cycles=registers["CYCLES_TOTAL"])
            job = replace(self.job, registers=side, host=None)
            [verdict] = scoreboard.compare(self.cfg, [job], [seen])
            problems += [prefix + text for text in verdict.problems]
        return problems + outside_changed(result, self.bases, [
            side["REGION_SIZE"] for side in self._sides])


def outside_changed(result: Result, bases: list[int], sizes: list[int]) -> list[str]:
    """Whether memory that belongs to no region has changed."""
    outside = np.ones(len(result.memory), bool)
    for base, size in zip(bases, sizes, strict=True):
        outside[base:base + size] = False
    wrong = (result.memory[outside] != GUARD).any()
    return ["memory outside the regions was changed"] if wrong else []


def over_bounds(result: Result) -> list[str]:
    """Units in which inference waited longer for training than the bound under `priority`."""
    registers = result.registers
    return [f"{unit}_HOLD_MAX is {registers[f'{unit}_HOLD_MAX']}, its bound is "
            f"{registers[f'{unit}_HOLD_BOUND']}" for unit, _ in UNITS
            if registers[f"{unit}_HOLD_MAX"] > registers[f"{unit}_HOLD_BOUND"]]
