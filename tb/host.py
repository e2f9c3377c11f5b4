"""The cocotb side of `tb.runner.simulate`: runs jobs one after the other on `npu_tb`.

Reads jobs.json of the working directory, writes results.json. No Python runs between START and
the interrupt: the clock comes from cocotb's C++ side and the memory is Verilog.
"""

import json
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge, SimTimeoutError, Timer, with_timeout
from cocotb.utils import get_sim_time

from hw.regs import CONTEXT_REGISTERS, OFFSETS, REGISTERS
from tb.axi_lite import AxiLite

PERIOD = 10  # ns
START, STOP, BUSY = 1, 2, 1
CONTEXT = {r.name for r in CONTEXT_REGISTERS}


async def _pulse(dut, port):
    """Hold a strobe of the memory for one rising edge."""
    await FallingEdge(dut.clk)
    port.value = 1
    await FallingEdge(dut.clk)
    port.value = 0


async def _clocks(dut, count: int):
    """Let `count` clocks pass; ends at a falling edge."""
    if count:
        await Timer(count * PERIOD, "ns")
    await FallingEdge(dut.clk)


async def _reset(dut, ports: dict[str, int] | None = None):
    """Reset NPU and memory; with `ports`, new memory settings and contents."""
    await FallingEdge(dut.clk)
    dut.rst.value = 1
    if ports:
        for name, value in ports.items():
            getattr(dut, name).value = value
        await _pulse(dut, dut.load)
    await FallingEdge(dut.clk)
    dut.rst.value = 0


def _name(job: dict, register: str) -> str:
    """Full name of a register that a job calls `register`."""
    return job["prefix"] + register if register in CONTEXT else register


async def _read(bus: AxiLite, job: dict) -> dict[str, int]:
    """The registers that a job's result has, by the names that it calls them."""
    wanted = {name: _name(job, name) for name in CONTEXT} if not job["host"] else \
        {name: name for name in OFFSETS}
    names = {full: name for name, full in wanted.items()}
    only = job["reads"] and {*job["reads"], "IRQ_STATUS"}
    found = [r for r in REGISTERS if r.name in names and r.access != "wo"
             and (only is None or names[r.name] in only)]
    offsets = [r.offset + 4 * i for r in found for i in range(r.words)]
    words = dict(zip(offsets, await bus.read_all(offsets), strict=True))
    return {names[r.name]: sum(words[r.offset + 4 * i] << 32 * i for i in range(r.words))
            for r in found}


async def _serve(dut, job: dict):
    """Let the Verilog host do what the job says, to its end or the reset.

    Raises
    ------
    SimTimeoutError
        It did not get to its end in time.
    """
    for name, value in job["host"].items():
        getattr(dut, name).value = value
    await FallingEdge(dut.clk)
    dut.go.value = 1
    try:
        if job["reset_after"] is not None:
            await _clocks(dut, job["reset_after"])
            await _reset(dut)
        else:
            await with_timeout(RisingEdge(dut.done), job["timeout_cycles"] * PERIOD, "ns")
    finally:
        await FallingEdge(dut.clk)
        dut.go.value = 0
        await FallingEdge(dut.clk)
        await FallingEdge(dut.clk)


async def _end(dut, bus: AxiLite, job: dict):
    """Wait for the interrupt; or write STOP and wait until the NPU is idle; or reset it.

    Raises
    ------
    SimTimeoutError
        None of it happened in time.
    """
    if job["reset_after"] is not None:
        await _clocks(dut, job["reset_after"])
        await _reset(dut)
    elif job["stop_after"] is not None:
        await _clocks(dut, job["stop_after"])
        await bus.write(OFFSETS[_name(job, "CONTROL")], STOP)
        last = get_sim_time("ns") + job["timeout_cycles"] * PERIOD
        while await bus.read(OFFSETS[_name(job, "STATUS")]) & BUSY:
            if get_sim_time("ns") > last:
                raise SimTimeoutError
    elif not int(dut.irq.value):
        await with_timeout(RisingEdge(dut.irq), job["timeout_cycles"] * PERIOD, "ns")


async def _run(dut, bus: AxiLite, number: int, job: dict) -> dict:
    """Run one job; its result, or {"failure": text}."""
    dut.job.value = number
    if job["ports"]:
        await _reset(dut, job["ports"])
    enables = dict.fromkeys(("IRQ_ENABLE", "INFERENCE_IRQ_ENABLE", "REQUEST_IRQ_ENABLE")
                            if job["host"] else ("IRQ_ENABLE",), 0xFFFF_FFFF)
    start = {} if job["host"] else {"CONTROL": START}
    for name, value in {**enables, **job["registers"], **start}.items():
        await bus.write(OFFSETS[_name(job, name)], value)
    begin = get_sim_time("ns")
    try:
        await (_serve(dut, job) if job["host"] else _end(dut, bus, job))
    except SimTimeoutError:
        status, error = [await bus.read(OFFSETS[_name(job, n)]) for n in ("STATUS", "ERROR_CODE")]
        return {"failure": f"no end within {job['timeout_cycles']} clocks: STATUS 0x{status:x}, "
                           f"ERROR_CODE {error}, bursts in flight: {int(dut.busy.value)}"}
    cycles = round((get_sim_time("ns") - begin) / PERIOD)
    outstanding = bool(int(dut.busy.value))
    registers = await _read(bus, job)
    await bus.write(OFFSETS[_name(job, "IRQ_STATUS")], registers["IRQ_STATUS"])
    await _pulse(dut, dut.dump)
    await FallingEdge(dut.clk)  # inputs are registered
    return {"registers": registers, "cycles": cycles, "errors": int(dut.errors.value),
            "outstanding": outstanding}


@cocotb.test()
async def jobs(dut):
    """Run every job of jobs.json."""
    for strobe in (dut.load, dut.dump, dut.go):
        strobe.value = 0
    dut.rst.value = 1
    Clock(dut.clk, PERIOD, "ns").start()
    bus = AxiLite(dut)
    results = []
    for number, job in enumerate(json.loads(Path("jobs.json").read_text())):
        results.append(await _run(dut, bus, number, job))
        if "failure" in results[-1]:
            break
    Path("results.json").write_text(json.dumps(results))
