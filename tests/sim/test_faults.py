"""The scoreboard finds faults: in the RTL, in the golden model, in one bit of memory."""

from dataclasses import replace

import numpy as np
import pytest

from hw.isa import Function, Order
from sw.golden.machine import Machine
from tb import scoreboard
from tb.program import Program
from tb.runner import simulate
from tests.patched import FAULTS, TINY


@pytest.fixture(scope="module")
def jobs():
    p = Program(TINY, 1)
    x, w, dy = p.bfp(9, 11), p.bfp(11, 13), p.bfp(9, 13)
    p.gemm(x, w, p.room(9, 13, True))
    p.grad(x, w, dy, p.room(9, 11, False), p.room(11, 13, False), Order.DX_MAJOR, bm=1, phase=3)
    p.vector(Function.MSE, p.normal(9, 13), w=dy, y=p.room(9, 13, True), dw=p.room(9, 1, False))
    return [p.job(p.end(), region_base=1 << 20)]


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_fault_in_the_rtl(jobs, fault, patched_verilog):
    plusargs = [fault] if fault else []
    (verdict,) = scoreboard.compare(
        TINY, jobs, simulate(TINY, jobs, patched_verilog, plusargs))
    differs = any("memory differs" in problem for problem in verdict.problems)
    assert differs if fault else not verdict.problems


@pytest.fixture(scope="module")
def results(jobs):
    return simulate(TINY, jobs)


def problems(jobs, results):
    return scoreboard.compare(TINY, jobs, results)[0].problems


def test_fault_in_the_golden_model(jobs, results, monkeypatch):
    assert problems(jobs, results) == []

    class Wrong(Machine):
        def _finish(self, f, name, values, *rest):
            values.view(np.uint32)[0, 0] ^= 1 << 22
            super()._finish(f, name, values, *rest)

    monkeypatch.setattr(scoreboard, "Machine", Wrong)
    assert any("memory differs" in problem for problem in problems(jobs, results))


def test_one_bit_anywhere_in_memory(jobs, results):
    rng = np.random.default_rng(0)
    size = len(jobs[0].memory)
    for at in (0, 4095, 4096, size - 4097, size - 1, *rng.integers(0, size, 50)):
        memory = results[0].memory.copy()
        memory[at] ^= 1 << rng.integers(0, 8)
        assert len(problems(jobs, [replace(results[0], memory=memory)])) == 1


@pytest.mark.parametrize("name", [
    "STATUS", "IRQ_STATUS", "ERROR_CODE", "ERROR_ADDR", "ERROR_PC", "EXCEPTIONS", "CYCLES_TOTAL",
    "INSTRUCTIONS", "NONFINITE_TILES", "ARRAY_BUSY", "ARRAY_IDLE", "ARRAY_STALL_LOAD",
    "OPERATIONS", "READ_PROGRAM", "READ_DY", "WRITE_DX", "WRITE_PARTIAL"])
def test_one_register(jobs, results, name):
    registers = results[0].registers
    changed = {**registers, name: registers[name] ^ 1}
    assert problems(jobs, [replace(results[0], registers=changed)])


def test_misuse_of_the_bus(jobs, results):
    assert problems(jobs, [replace(results[0], outstanding=True)])
    assert problems(jobs, [replace(results[0], protocol_errors=["burst too long"])])
    assert problems(jobs, [replace(results[0], cycles=results[0].cycles + 100)])
