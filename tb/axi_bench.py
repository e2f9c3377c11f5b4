"""The bare NPU on cocotbext-axi: memory on its AXI4 port, and jobs that run one by one."""

import json
import logging
import os
import random
from dataclasses import asdict, replace

import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge, SimTimeoutError, Timer, with_timeout
from cocotb.utils import get_sim_time
from cocotbext.axi import AxiBus, AxiSlave

from hw.config import Config
from hw.regs import CONTEXT_REGISTERS, OFFSETS, REGISTERS
from tb.axi_lite import AxiLite
from tb.axi_rules import Rules
from tb.job import CHANNELS, Job, Result
from tb.scoreboard import compare

PERIOD = 10  # ns
START, STOP = 1, 2
BUSY = 1


def environment(cfg: Config) -> dict[str, str]:
    """Environment variables that tell `config` in the simulator about `cfg`."""
    return {"NPU_CONFIG": json.dumps(asdict(cfg))}


def config() -> Config:
    """Configuration of the NPU that is simulated."""
    return Config(**json.loads(os.environ["NPU_CONFIG"]))


def pauses(probability: float, seed: int):
    """Endless pauses for a channel, one a clock."""
    rng = random.Random(seed)
    while True:
        yield rng.random() < probability


class Memory:
    """DRAM behind the NPU's AXI4 port: answers bursts in order, with errors where it is told."""

    def __init__(self, dut):
        self._job, self.contents = Job(memory=b""), np.zeros(0, np.uint8)
        slave = AxiSlave(AxiBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, target=self)
        read, write = slave.read_if, slave.write_if
        for part in (read, write):
            part.log.setLevel(logging.ERROR)
        self.channels = {c: getattr(read if c in ("ar", "r") else write, f"{c}_channel")
                         for c in CHANNELS}

    def prepare(self, job: Job):
        """Take contents, stalls and errors from `job`."""
        self._job, self.contents = job, np.frombuffer(job.memory, np.uint8).copy()
        stall = job.stall if isinstance(job.stall, dict) else dict.fromkeys(CHANNELS, job.stall)
        for number, name in enumerate(self.channels):
            self.pause(name, pauses(stall[name], job.seed << 3 | number)
                       if stall.get(name) else None)

    def pause(self, channel: str, generator):
        """Let `generator` pause a channel, clock by clock; None ends it."""
        self.channels[channel].set_pause_generator(generator)
        if generator is None:
            self.channels[channel].pause = False

    def _range(self, address: int, length: int, errors: tuple[int, int] | None) -> slice:
        begin = address - self._job.base
        if not 0 <= begin <= len(self.contents) - length:
            raise OSError("outside the memory")
        if errors and begin < errors[1] and begin + length > errors[0]:
            raise OSError("an error, as told")
        return slice(begin, begin + length)

    async def read(self, address: int, length: int) -> bytes:
        """Bytes for the bus, or an OSError, which it answers with SLVERR."""
        return self.contents[self._range(address, length, self._job.read_errors)].tobytes()

    async def write(self, address: int, data: bytes):
        """Bytes from the bus, as `read`."""
        self.contents[self._range(address, len(data), self._job.write_errors)] = \
            np.frombuffer(data, np.uint8)


class Bench:
    """Clock, reset, registers, memory and rules of one NPU.

    Runs jobs as `tb.runner.simulate` does, with cocotbext-axi's memory: a job's `latency`,
    `bytes_per_cycle` and `outstanding` mean nothing here, and a job without memory goes on with the
    memory's contents only.

    Attributes
    ----------
    cfg : Config
    bus : AxiLite
    memory : Memory
    rules : Rules
    in_burst : bool
        A reset or STOP that a job asks for waits until a burst is under way.
    """

    def __init__(self, dut):
        self.dut, self.cfg = dut, config()
        self._jobs: list[Job] = []
        self._results: list[Result] = []
        self.in_burst = False
        dut.rst.value = 1
        Clock(dut.clk, PERIOD, "ns").start()
        self.bus, self.memory = AxiLite(dut), Memory(dut)
        self.rules = Rules(dut, self.cfg.beat_bytes)

    async def read(self, name: str) -> int:
        """Value of a register or counter."""
        words = {r.name: r.words for r in REGISTERS}[name]
        return sum([await self.bus.read(OFFSETS[name] + 4 * i) << 32 * i for i in range(words)])

    async def write(self, name: str, value: int):
        """Write a register."""
        await self.bus.write(OFFSETS[name], value)

    async def reset(self, clocks: int = 2):
        """Reset NPU and memory interface."""
        dut = self.dut
        await FallingEdge(dut.clk)
        dut.rst.value = 1
        for _ in range(clocks):
            await FallingEdge(dut.clk)
        for signal in (dut.m_axi_arvalid, dut.m_axi_awvalid, dut.m_axi_wvalid, dut.irq):
            assert not int(signal.value), f"{signal._name} is high in reset"
        dut.rst.value = 0

    async def start(self, job: Job):
        """Prepare the memory, with a reset if the job brings one, and start the program."""
        if job.memory is None:
            job = replace(job, memory=self.memory.contents)
            self.memory.prepare(job)
        else:
            self.dut.rst.value = 1
            self.memory.prepare(job)
            await self.reset()
        for name, value in {"IRQ_ENABLE": 0xFFFFFFFF, **job.registers, "CONTROL": START}.items():
            await self.write(name, value)
        self._jobs.append(job)
        self._began = get_sim_time("ns")

    async def _end(self, job: Job):
        for clocks, action in ((job.reset_after, self.reset),
                               (job.stop_after, lambda: self.write("CONTROL", STOP))):
            if clocks is not None:
                if clocks:
                    await Timer(clocks * PERIOD, "ns")
                while self.in_burst and not (self.rules.outstanding or int(self.dut.irq.value)):
                    await RisingEdge(self.dut.clk)
                await action()
                while await self.read("STATUS") & BUSY:
                    pass
                return
        if not int(self.dut.irq.value):
            await RisingEdge(self.dut.irq)

    async def finish(self) -> Result:
        """Wait for the end of the job that was started last; its result.

        Raises
        ------
        AssertionError
            It takes more clocks than its `timeout_cycles`.
        """
        job = self._jobs[-1]
        try:
            await with_timeout(self._end(job), job.timeout_cycles * PERIOD, "ns")
        except SimTimeoutError:
            status, error = [await self.read(n) for n in ("STATUS", "ERROR_CODE")]
            raise AssertionError(f"no end within {job.timeout_cycles} clocks: STATUS {status:#x}, "
                                 f"ERROR_CODE {error}") from None
        cycles = round((get_sim_time("ns") - self._began) / PERIOD)
        outstanding = self.rules.outstanding
        registers = {r.name: await self.read(r.name) for r in CONTEXT_REGISTERS if r.access != "wo"}
        await self.write("IRQ_STATUS", registers["IRQ_STATUS"])
        self._results.append(Result(memory=self.memory.contents, registers=registers,
                                    cycles=cycles, protocol_errors=[], outstanding=outstanding))
        return self._results[-1]

    async def run(self, *jobs: Job):
        """Run jobs and judge them."""
        for job in jobs:
            await self.start(job)
            await self.finish()
        self.judge()

    def judge(self):
        """Compare all jobs since the last call with the golden model.

        Raises
        ------
        AssertionError
            Something is wrong, with all of it as text.
        """
        problems = [f"job {number}: {text}"
                    for number, v in enumerate(compare(self.cfg, self._jobs, self._results))
                    for text in v.problems]
        self._jobs, self._results = [], []
        assert not problems, "\n".join(problems)

