"""cocotb tests of the bare NPU on its buses, with cocotbext-axi's memory.

Every run is compared with the golden model, word for word, and watched by `tb.axi_rules.Rules`.
"""

from itertools import cycle

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge, SimTimeoutError, with_timeout

from hw.config import Config
from hw.isa import Function, Kind, Opcode, Order
from tb.axi_bench import BUSY, PERIOD, START, Bench
from tb.job import Job
from tb.program import Program, word

DONE, ERROR = 1, 2  # of IRQ_STATUS
NONFINITE, OVERFLOW = 1, 2  # of EXCEPTIONS
STATUS_DONE = 2
LATE = 200  # clocks from one write response to the next, when they are late
CUTS = 5  # times that a run is cut off


def layer(cfg: Config, kind: Opcode | Order = Opcode.GEMM) -> tuple[Program, int]:
    """A random program, and its offset.

    CONVERTs and a GEMM on their results, or a GRAD, or for VECTOR a loop of a training step.
    """
    p = Program(cfg, cocotb.RANDOM_SEED % 2**32)
    most = 3 if cfg.fp32_beats <= 64 else 2 if cfg.fp32_beats <= 1024 else 1
    m, k, n = (int(cfg.tile * (most - 1) + p.rng.integers(1, cfg.tile + 1)) for _ in "mkn")
    rounding = {"stochastic": int(p.rng.integers(2)), "salt": int(p.rng.integers(1 << 32))}
    if kind is Opcode.GEMM:
        x, w = p.room(m, k, True), p.room(k, n, True)
        p.convert(p.normal(m, k), x, y_kind=Kind.X, y_row=1)
        p.convert(p.normal(k, n), w, x_kind=Kind.W, y_kind=Kind.W, **rounding)
        p.gemm(x, w, p.room(m, n, bool(p.rng.integers(2))), x_row=1, bm=1, bk=2, **rounding)
    elif kind is Opcode.VECTOR:
        train(p, m, k, n, rounding)
    else:
        dy = p.room(m, n, True)
        p.convert(p.normal(m, n), dy, x_kind=Kind.DY, y_kind=Kind.DY, **rounding)
        p.grad(p.bfp(m, k), p.bfp(k, n), dy, p.room(m, k, True), p.room(k, n, False),
               kind, x_independent=1, w_independent=1, bm=2, bn=1, bk=1, **rounding)
    return p, p.end()


def train(p: Program, m: int, k: int, n: int, rounding: dict):
    """Two steps in a loop: GEMM with bias, SOFTMAX, GRAD, updates; some beside each other."""
    beside = int(p.cfg.acc_slots >= 16)
    few = {"y_window": p.staging(4)}
    x, w, bias, y = p.bfp(m, k), p.bfp(k, n), p.normal(1, n), p.room(m, n, False)
    targets, dy, losses = p.bfp(m, n), p.room(m, n, True), p.room(m, 1, False)
    dx, dw, db = p.room(m, k, True), p.room(k, n, False), p.room(1, n, False)
    momenta, weights = (p.normal(k, n), p.normal(1, n)), p.normal(k, n)
    with p.loop(2):
        p.gemm(x, w, y, bias=bias, phase=1)
        p.vector(Function.SOFTMAX, y, w=targets, y=dy, dw=losses, scalar=word(1 / m), phase=2,
                 **few)
        p.vector(Function.COLUMN_SUM, dy, y=db, **few)
        p.grad(x, w, dy, dx, dw, Order.DX_MAJOR, function=Function.RELU_GRAD, overlap=beside,
               phase=3, salt_reg=1, **rounding)
        p.vector(Function.SGD, db, w=momenta[1], dy=bias, overlap=beside, phase=4, **few)
        p.vector(Function.SGD, dw, w=momenta[0], dy=weights, y=w, phase=5, **few)
        p.address(1, 2, 1)


def job(program: Program, start: int, **settings) -> Job:
    """Job of `program` in a region at a page of its own."""
    cfg = program.cfg
    pages = (1 << cfg.addr_width) - (1 << 26) >> 12
    base = int(np.random.default_rng(program.seed).integers(1, pages)) << 12
    clocks = 20_000 + 30 * len(program.memory()) // cfg.beat_bytes
    return program.job(start, region_base=base, seed=program.seed,
                       **{"timeout_cycles": clocks, **settings})


async def rises(signal, clocks: int):
    """Wait until a signal is high, for so many clocks at most."""
    if not int(signal.value):
        try:
            await with_timeout(RisingEdge(signal), clocks * PERIOD, "ns")
        except SimTimeoutError:
            raise AssertionError(f"{signal._name} does not rise in {clocks} clocks") from None


@cocotb.test()
@cocotb.parametrize(kind=[Opcode.GEMM, Opcode.VECTOR, *Order], stall=[0.0, 0.3, 0.7])
async def matches_golden(dut, kind, stall):
    """Every byte, counter and flag, with random stalls on all channels."""
    bench = Bench(dut)
    await bench.run(job(*layer(bench.cfg, kind), stall=stall))


@cocotb.test()
@cocotb.parametrize(channel=["ar", "r", "aw", "w", "b"])
async def one_slow_channel(dut, channel):
    """One channel that pauses nine clocks of ten."""
    bench = Bench(dut)
    await bench.run(job(*layer(bench.cfg, Order.DX_MAJOR), stall={channel: 0.9}))


@cocotb.test()
async def late_write_responses(dut):
    """What was written is read, and the end is told, only after the response."""
    bench = Bench(dut)
    await bench.start(job(*layer(bench.cfg)))
    bench.memory.pause("b", cycle([True] * (LATE - 1) + [False]))
    await bench.finish()
    bench.judge()


@cocotb.test()
async def valid_does_not_wait_for_ready(dut):
    """Addresses and data are offered to a memory that takes nothing yet."""
    bench = Bench(dut)
    this = job(*layer(bench.cfg), stall={"ar": 1, "aw": 1, "w": 1})
    await bench.start(this)
    for channels in ("ar",), ("aw", "w"):
        for name in channels:
            await rises(getattr(dut, f"m_axi_{name}valid"), this.timeout_cycles)
            assert not int(getattr(dut, f"m_axi_{name}ready").value)
        for name in channels:
            bench.memory.pause(name, None)
    await rises(dut.irq, this.timeout_cycles)


@cocotb.test()
async def interrupt_is_masked_and_acknowledged(dut):
    """Only enabled causes raise irq, and only their own acknowledgement lowers it."""
    bench = Bench(dut)
    this = job(*layer(bench.cfg))
    this.registers["IRQ_ENABLE"] = ERROR
    await bench.start(this)
    while await bench.read("STATUS") & BUSY:
        assert not int(dut.irq.value)
    assert await bench.read("IRQ_STATUS") == DONE
    assert not int(dut.irq.value)
    for name, value, high in (("IRQ_ENABLE", DONE, True), ("IRQ_STATUS", ERROR, True),
                              ("IRQ_STATUS", 0, True), ("IRQ_ENABLE", 0, False),
                              ("IRQ_ENABLE", DONE | ERROR, True), ("IRQ_STATUS", DONE, False)):
        await bench.write(name, value)
        await FallingEdge(dut.clk)
        assert bool(int(dut.irq.value)) == high, f"irq is wrong after {value} in {name}"
    assert await bench.read("IRQ_STATUS") == 0


@cocotb.test()
async def exceptions_stay_until_cleared(dut):
    """Sticky flags of the numbers, which no other job clears."""
    bench = Bench(dut)
    p = Program(bench.cfg, 1)
    p.convert(p.fp32(np.float32([[np.nan]])), p.room(1, 1, True))
    bad = p.end()
    p.convert(p.fp32(np.float32([[1]])), p.room(1, 1, True))
    good = p.end()
    await bench.run(job(p, bad))
    this = job(p, good, fresh=False)
    this.registers["EXCEPTIONS"] = OVERFLOW
    await bench.start(this)
    await bench.finish()
    assert await bench.read("EXCEPTIONS") == NONFINITE
    await bench.write("EXCEPTIONS", NONFINITE)
    assert await bench.read("EXCEPTIONS") == 0


@cocotb.test()
async def start_is_ignored_while_busy(dut):
    """A second START, with another program, changes nothing."""
    bench = Bench(dut)
    await bench.start(job(*layer(bench.cfg), stall=0.5))
    await bench.write("PROGRAM_ADDR", 0)
    for _ in range(20):
        await bench.write("CONTROL", START)
        assert await bench.read("STATUS") == BUSY
    await bench.finish()
    bench.judge()


@cocotb.test()
@cocotb.parametrize(kind=[Opcode.GEMM, Opcode.VECTOR, Order.INTERLEAVED], end=["reset", "stop"])
async def a_fresh_job_follows_one_cut_off(dut, kind, end):
    """Reset or STOP on random clocks, half of them in a burst; then the program runs anew."""
    bench = Bench(dut)
    program = layer(bench.cfg, kind)
    await bench.start(job(*program, stall=0.5))
    clocks = (await bench.finish()).cycles
    for number, after in enumerate((0, *program[0].rng.integers(1, clocks, CUTS))):
        bench.in_burst = number % 2 == 1
        await bench.start(job(*program, fresh=False, stall=0.5, **{f"{end}_after": int(after)}))
        status = (await bench.finish()).registers["STATUS"]
        assert status in ((0, STATUS_DONE) if after else (0,)), \
            f"STATUS is {status} after {end} in clock {after}"
        await bench.run(job(*program, fresh=False))


@cocotb.test()
@cocotb.parametrize(way=["read", "write"], kind=[Opcode.GEMM, Opcode.VECTOR, Order.DW_MAJOR])
async def a_fresh_job_follows_a_bus_error(dut, way, kind):
    """SLVERR on a beat: error code, address and interrupt; without it, all is well."""
    bench = Bench(dut)
    program = layer(bench.cfg, kind)
    this = job(*program, stall=0.3)
    await bench.run(this)
    base = this.registers["REGION_BASE_HI"] << 32 | this.registers["REGION_BASE_LO"]
    beat = bench.cfg.beat_bytes
    bursts = bench.rules.reads if way == "read" else bench.rules.writes
    for number in program[0].rng.integers(0, len(bursts), 4):
        address, length = bursts[number]
        at = address - base + int(program[0].rng.integers(length // beat)) * beat
        wrong = job(*program, fresh=False, stall=0.3, **{f"{way}_errors": (at, at + 1)})
        wrong.registers["IRQ_ENABLE"] = ERROR
        await bench.start(wrong)
        result = await bench.finish()
        if way == "write":  # the burst that holds the beat
            assert result.registers["ERROR_ADDR"] in {
                a - base for a, size in bursts if a - base <= at < a - base + size}
        await bench.run(job(*program, fresh=False))
