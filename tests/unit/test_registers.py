"""AXI4-Lite registers: every kind of access to the three blocks, and refusals."""

import random

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator

from hw import config
from hw.control.axil import OKAY, SLVERR, AxiLiteSlave
from hw.control.block import reset_value
from hw.control.registers import ContextRegisters
from hw.control.shared import REQUEST_OWNED, SharedRegisters
from hw.isa import PHASES
from hw.regs import (
    BLOCK,
    CONTEXT_REGISTERS,
    HISTOGRAM_BASE,
    ID,
    INFERENCE_BASE,
    OFFSETS,
    PHASE_BASE,
    REGISTERS,
    SHARED_BASE,
    SHARED_REGISTERS,
    SPACE,
)

CFG = config.load("tiny")
#: Offsets of words that are readable, by base of their block.
IN_BLOCK = {0: CONTEXT_REGISTERS, INFERENCE_BASE: CONTEXT_REGISTERS, SHARED_BASE: SHARED_REGISTERS}


class Dut(wiring.Component):
    """The slave with its three blocks."""

    def __init__(self):
        self.slave = AxiLiteSlave()
        self.training, self.inference = ContextRegisters(CFG), ContextRegisters(CFG)
        self.shared = SharedRegisters(CFG)
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.slave = self.slave
        for n, name in enumerate(("training", "inference", "shared")):
            m.submodules[name] = block = getattr(self, name)
            wiring.connect(m, self.slave.block[n], block.bus)
        return m


async def write(ctx, dut, offset, value, strobes=15, data_late=0):
    dut = dut.slave
    ctx.set(dut.awaddr, offset)
    ctx.set(dut.awvalid, 1)
    for _ in range(data_late):
        assert not ctx.get(dut.awready)
        await ctx.tick()
    ctx.set(dut.wdata, value)
    ctx.set(dut.wstrb, strobes)
    ctx.set(dut.wvalid, 1)
    assert ctx.get(dut.awready & dut.wready)
    await ctx.tick()
    ctx.set(dut.awvalid, 0)
    ctx.set(dut.wvalid, 0)
    assert ctx.get(dut.bvalid)
    response = ctx.get(dut.bresp)
    ctx.set(dut.bready, 1)
    await ctx.tick()
    ctx.set(dut.bready, 0)
    return response


def late(offset):
    """Whether the word lies in a RAM."""
    block = offset & -BLOCK
    if block > SHARED_BASE or offset % 4:
        return False
    first, size = (HISTOGRAM_BASE, 4 * 96) if block == SHARED_BASE else (PHASE_BASE, 16 * PHASES)
    return first <= offset - block < first + size


async def read(ctx, dut, offset):
    dut = dut.slave
    ctx.set(dut.araddr, offset)
    ctx.set(dut.arvalid, 1)
    if late(offset):
        assert not ctx.get(dut.arready | dut.rvalid)
        await ctx.tick()
    assert ctx.get(dut.arready)
    await ctx.tick()
    ctx.set(dut.arvalid, 0)
    assert ctx.get(dut.rvalid)
    answer = ctx.get(dut.rdata), ctx.get(dut.rresp)
    await ctx.tick()
    assert ctx.get(dut.rvalid)  # until it is taken
    ctx.set(dut.rready, 1)
    await ctx.tick()
    ctx.set(dut.rready, 0)
    return answer


def simulate(bench):
    dut = Dut()

    async def testbench(ctx):
        await bench(ctx, dut)

    sim = Simulator(dut)
    sim.add_clock(1e-9)
    sim.add_testbench(testbench)
    sim.run()


def blocks(dut):
    return {0: dut.training, INFERENCE_BASE: dut.inference, SHARED_BASE: dut.shared}


def test_every_word_has_its_value():
    """Values after reset, then all "rw" registers and statuses with values of their own."""
    async def bench(ctx, dut):
        rng = random.Random(1)
        expected = {}
        for base, registers in IN_BLOCK.items():
            for r in registers:
                if r.access != "wo":
                    at = base + r.offset
                    expected |= {at + 4 * n: 0 for n in range(r.words)}
                    expected[at] = reset_value(CFG, r.name)
                    if r.name.endswith("_MIN"):
                        expected |= {at: 0xFFFFFFFF, at + 4: 0xFFFF}
            if base != SHARED_BASE:
                expected |= {base + OFFSETS["ID"]: ID, base + OFFSETS["CONFIG_HASH"]: CFG.hash}
        for offset, value in expected.items():
            assert await read(ctx, dut, offset) == (value, OKAY), hex(offset)

        order = [(base, r) for base, registers in IN_BLOCK.items() for r in registers]
        rng.shuffle(order)
        for base, r in order:
            at, value = base + r.offset, rng.getrandbits(32)
            status = f"status_{r.name}"
            if hasattr(blocks(dut)[base], status):
                ctx.set(getattr(blocks(dut)[base], status), value)
                expected[at] = value
            elif r.access == "rw":
                assert await write(ctx, dut, at, value) == OKAY
                assert ctx.get(getattr(blocks(dut)[base], f"value_{r.name}")) == value
                expected[at] = value
        units = [dut.shared.occupied, dut.shared.hold_max, dut.shared.hold_bound]
        for port in units:
            for n in range(len(port)):
                ctx.set(port[n], rng.getrandbits(48 if port is units[0] else 16))
        for n, unit in enumerate(("ARRAY", "VECTOR", "QUANTISER", "READ", "WRITE")):
            uses = ("TRAINING", "INFERENCE", "TRAINING_HELD", "INFERENCE_HELD", "UNUSED")
            for k, use in enumerate(uses):
                value = ctx.get(dut.shared.occupied[5 * n + k])
                at = OFFSETS[f"{unit}_{use}"]
                expected |= {at: value & 0xFFFFFFFF, at + 4: value >> 32}
            expected |= {OFFSETS[f"{unit}_HOLD_MAX"]: ctx.get(dut.shared.hold_max[n]),
                         OFFSETS[f"{unit}_HOLD_BOUND"]: ctx.get(dut.shared.hold_bound[n])}
        for offset, value in expected.items():
            assert await read(ctx, dut, offset) == (value, OKAY), hex(offset)
        assert len(expected) == sum(r.words for r in REGISTERS if r.access != "wo")

    simulate(bench)


def test_refusals_change_nothing():
    async def bench(ctx, dut):
        access = {r.offset + 4 * n: r.access for r in REGISTERS for n in range(r.words)}
        for base, name in (0, "SEED"), (INFERENCE_BASE, "SEED"), (SHARED_BASE, "BATCH_MAX"):
            at = base + next(r.offset for r in IN_BLOCK[base] if r.name == name)
            assert await write(ctx, dut, at, 7, data_late=2) == OKAY
            assert await write(ctx, dut, at, 9, strobes=7) == SLVERR
            assert await write(ctx, dut, at + 1, 9) == SLVERR
            assert await read(ctx, dut, at) == (7, OKAY)
        unmapped = [o for o in range(0, SPACE, 4) if o not in access]
        assert max(unmapped) == SPACE - 4
        for offset in [*unmapped[::7], SPACE - BLOCK, SPACE - 4]:
            assert await write(ctx, dut, offset, 9) == SLVERR
            assert (await read(ctx, dut, offset))[1] == SLVERR
        for offset, kind in access.items():
            if kind == "ro" and offset % 36 == 0:
                assert await write(ctx, dut, offset, 9) == SLVERR
            if kind == "wo":
                assert (await read(ctx, dut, offset))[1] == SLVERR
            if offset % 20 == 0:
                assert (await read(ctx, dut, offset + 2))[1] == SLVERR

    simulate(bench)


def test_a_read_waits_until_the_one_before_is_taken():
    async def bench(ctx, dut):
        slave = dut.slave
        ctx.set(slave.araddr, OFFSETS["ID"])
        ctx.set(slave.arvalid, 1)
        await ctx.tick()
        ctx.set(slave.araddr, OFFSETS["MAX_BURST_BEATS"])
        for _ in range(3):
            assert not ctx.get(slave.arready)
            assert ctx.get(slave.rvalid)
            assert ctx.get(slave.rdata) == ID
            await ctx.tick()
        ctx.set(slave.rready, 1)
        await ctx.tick()
        assert ctx.get(slave.arready)
        assert not ctx.get(slave.rvalid)
        await ctx.tick()
        assert ctx.get(slave.rvalid)
        assert ctx.get(slave.rdata) == 16

    simulate(bench)


async def pulse(ctx, dut, offset, value, port):
    """Write, and the values of `port` before, in and after the clock of the write."""
    seen = [ctx.get(port)]
    for name, v in ("awaddr", offset), ("wdata", value), ("wstrb", 15), ("awvalid", 1), \
            ("wvalid", 1):
        ctx.set(getattr(dut.slave, name), v)
    seen.append(ctx.get(port))
    await ctx.tick()
    seen.append(ctx.get(port))  # the response waits
    ctx.set(dut.slave.awvalid, 0)
    ctx.set(dut.slave.wvalid, 0)
    ctx.set(dut.slave.bready, 1)
    await ctx.tick()
    ctx.set(dut.slave.bready, 0)
    return seen


def test_writes_are_seen_for_one_clock():
    async def bench(ctx, dut):
        for base in (0, INFERENCE_BASE):
            for name in ("CONTROL", "IRQ_STATUS", "EXCEPTIONS"):
                for other, block in blocks(dut).items():
                    port = getattr(block, f"write_{name}", None)
                    if port is not None:
                        seen = await pulse(ctx, dut, base + OFFSETS[name], 3, port)
                        assert seen == [0, 3 if other == base else 0, 0]
        for name in (*REQUEST_OWNED, "DOORBELL", "SHARED_COUNTERS_CLEAR"):
            port = getattr(dut.shared, f"strobe_{name}")
            assert await pulse(ctx, dut, OFFSETS[name], 0, port) == [0, 1, 0]
        seen = await pulse(ctx, dut, OFFSETS["DOORBELL"], 0x12345, dut.shared.wdata)
        assert seen[1] == 0x12345
        seen = await pulse(ctx, dut, OFFSETS["REQUEST_IRQ_STATUS"], 2,
                           dut.shared.write_REQUEST_IRQ_STATUS)
        assert seen == [0, 2, 0]

    simulate(bench)


def test_counters_of_a_context():
    async def bench(ctx, dut):
        training, inference = dut.training, dut.inference
        ctx.set(training.count_READ_X, 65535)
        ctx.set(inference.count_READ_X, 3)
        await ctx.tick().repeat(100)
        ctx.set(training.count_READ_X, 0)
        ctx.set(inference.count_READ_X, 0)
        offset = OFFSETS["READ_X"]
        assert await read(ctx, dut, offset) == (6553500, OKAY)
        assert await read(ctx, dut, INFERENCE_BASE + offset) == (300, OKAY)
        ctx.set(training.cycles_op, 0x1234567890AB)
        ctx.set(training.set_CYCLES_OP, 1)
        await ctx.tick()
        ctx.set(training.set_CYCLES_OP, 0)
        assert await read(ctx, dut, OFFSETS["CYCLES_OP"]) == (0x567890AB, OKAY)
        assert await read(ctx, dut, OFFSETS["CYCLES_OP"] + 4) == (0x1234, OKAY)
        assert await write(ctx, dut, OFFSETS["COUNTERS_CLEAR"], 0) == OKAY
        assert await read(ctx, dut, offset) == (0, OKAY)
        assert await read(ctx, dut, INFERENCE_BASE + offset) == (300, OKAY)

    simulate(bench)


def test_counters_carry_into_the_high_word():
    dut = ContextRegisters(CFG)

    async def bench(ctx):
        ctx.set(dut.count_READ_X, 65535)
        await ctx.tick().repeat(66000)
        ctx.set(dut.count_READ_X, 0)
        for word in range(2):
            ctx.set(dut.bus.r_offset, OFFSETS["READ_X"] + 4 * word)
            assert ctx.get(dut.bus.r_data) == 65535 * 66000 >> 32 * word & 0xFFFFFFFF

    sim = Simulator(dut)
    sim.add_clock(1e-9)
    sim.add_testbench(bench)
    sim.run()


def test_phases():
    async def bench(ctx, dut):
        counts = {0: (3, 1), 31: (70, 66), 5: (4, 2)}
        block = dut.inference
        for phase, (cycles, busy) in counts.items():
            ctx.set(block.phase, phase)
            ctx.set(block.count_CYCLES_TOTAL, 1)
            ctx.set(block.count_ARRAY_BUSY, 1)
            await ctx.tick().repeat(busy)
            ctx.set(block.count_ARRAY_BUSY, 0)
            await ctx.tick().repeat(cycles - busy)
        ctx.set(block.count_CYCLES_TOTAL, 0)
        await ctx.tick()  # the last change of phase is over
        for phase in range(PHASES):
            for name, value in zip(("CYCLES", "BUSY"), counts.get(phase, (0, 0)), strict=True):
                offset = OFFSETS[f"INFERENCE_PHASE_{name}_{phase}"]
                assert await read(ctx, dut, offset) == (value, OKAY)
                assert await read(ctx, dut, offset + 4) == (0, OKAY)
                assert await read(ctx, dut, offset - INFERENCE_BASE) == (0, OKAY)
        assert await write(ctx, dut, INFERENCE_BASE + PHASE_BASE, 1) == SLVERR
        assert await write(ctx, dut, OFFSETS["INFERENCE_COUNTERS_CLEAR"], 0) == OKAY
        for phase in counts:
            assert await read(ctx, dut, OFFSETS[f"INFERENCE_PHASE_CYCLES_{phase}"]) == (0, OKAY)

    simulate(bench)


def test_shared_counters_and_times():
    async def bench(ctx, dut):
        shared = dut.shared
        ctx.set(shared.count_BATCHES, 1)
        ctx.set(shared.count_SPIKE_CYCLES, 1)
        await ctx.tick().repeat(5)
        ctx.set(shared.count_BATCHES, 0)
        await ctx.tick().repeat(2)
        ctx.set(shared.count_SPIKE_CYCLES, 0)
        ctx.set(shared.time_valid, 1)
        for wait in (5, 6, 1 << 40):
            ctx.set(shared.wait, wait)
            ctx.set(shared.latency, 2 * wait)
            await ctx.tick()
        ctx.set(shared.time_valid, 0)
        await ctx.tick().repeat(2)
        expected = {
            "BATCHES": 5, "SPIKE_CYCLES": 7, "WAIT_COUNT": 3, "SERVICE_COUNT": 3,
            "LATENCY_COUNT": 3, "WAIT_SUM": 11 + (1 << 40), "WAIT_MIN": 5, "WAIT_MAX": 1 << 40,
            "LATENCY_MIN": 10, "LATENCY_MAX": 1 << 41, "LATENCY_SUM": 22 + (1 << 41)}
        for name, value in expected.items():
            at = OFFSETS[name]
            assert await read(ctx, dut, at) == (value & 0xFFFFFFFF, OKAY), name
            assert await read(ctx, dut, at + 4) == (value >> 32, OKAY), name
        bins = {"WAIT": {3: 2, 31: 1}, "SERVICE": {0: 3}, "LATENCY": {4: 2, 31: 1}}
        for name, counts in bins.items():
            for b in range(32):
                at = OFFSETS[f"{name}_BIN_{b}"]
                assert await read(ctx, dut, at) == (counts.get(b, 0), OKAY)
        assert await write(ctx, dut, OFFSETS["SHARED_COUNTERS_CLEAR"], 9) == OKAY
        for name in ("BATCHES", "SPIKE_CYCLES", "WAIT_COUNT", "WAIT_BIN_3", "LATENCY_SUM"):
            assert await read(ctx, dut, OFFSETS[name]) == (0, OKAY), name

    simulate(bench)
