"""AXI4-Lite registers: every kind of access, and refusals."""

from amaranth.sim import Simulator

from hw import config
from hw.control.axil import OKAY, SLVERR, Registers
from hw.isa import PHASES
from hw.regs import ID, OFFSETS, PHASE_BASE

CFG = config.load("tiny")


async def write(ctx, dut, offset, value, strobes=15, data_late=0):
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


async def read(ctx, dut, offset):
    ctx.set(dut.araddr, offset)
    ctx.set(dut.arvalid, 1)
    assert ctx.get(dut.arready)
    await ctx.tick()
    ctx.set(dut.arvalid, 0)
    if PHASE_BASE <= offset < PHASE_BASE + 16 * PHASES and offset % 4 == 0:
        assert not ctx.get(dut.arready | dut.rvalid)  # one clock more
        await ctx.tick()
    assert ctx.get(dut.rvalid)
    answer = ctx.get(dut.rdata), ctx.get(dut.rresp)
    await ctx.tick()
    assert ctx.get(dut.rvalid)  # until it is taken
    ctx.set(dut.rready, 1)
    await ctx.tick()
    ctx.set(dut.rready, 0)
    return answer


def simulate(bench):
    dut = Registers(CFG)

    async def testbench(ctx):
        await bench(ctx, dut)

    sim = Simulator(dut)
    sim.add_clock(1e-9)
    sim.add_testbench(testbench)
    sim.run()


def test_accesses():
    async def bench(ctx, dut):
        assert await read(ctx, dut, OFFSETS["ID"]) == (ID, OKAY)
        assert await read(ctx, dut, OFFSETS["CONFIG_HASH"]) == (CFG.hash, OKAY)
        assert await write(ctx, dut, OFFSETS["SEED"], 0x12345678, data_late=2) == OKAY
        assert ctx.get(dut.value_SEED) == 0x12345678
        assert await read(ctx, dut, OFFSETS["SEED"]) == (0x12345678, OKAY)
        ctx.set(dut.status_ERROR_ADDR, 0xABC)
        assert await read(ctx, dut, OFFSETS["ERROR_ADDR"]) == (0xABC, OKAY)

    simulate(bench)


def test_refusals_change_nothing():
    async def bench(ctx, dut):
        assert await write(ctx, dut, OFFSETS["SEED"], 7) == OKAY
        assert await write(ctx, dut, OFFSETS["SEED"], 9, strobes=7) == SLVERR
        assert await read(ctx, dut, OFFSETS["SEED"]) == (7, OKAY)
        assert await write(ctx, dut, OFFSETS["ID"], 9) == SLVERR
        assert await write(ctx, dut, 0xFFC, 9) == SLVERR
        assert (await read(ctx, dut, 0xFFC))[1] == SLVERR
        assert (await read(ctx, dut, OFFSETS["CONTROL"]))[1] == SLVERR

    simulate(bench)


def test_pulses_and_counters():
    async def bench(ctx, dut):
        ctx.set(dut.awaddr, OFFSETS["CONTROL"])
        ctx.set(dut.wdata, 1)
        ctx.set(dut.wstrb, 15)
        assert ctx.get(dut.write_CONTROL) == 0
        ctx.set(dut.awvalid, 1)
        ctx.set(dut.wvalid, 1)
        assert ctx.get(dut.write_CONTROL) == 1
        await ctx.tick()
        assert ctx.get(dut.write_CONTROL) == 0  # one clock only, though the response waits
        ctx.set(dut.awvalid, 0)
        ctx.set(dut.wvalid, 0)
        ctx.set(dut.bready, 1)
        ctx.set(dut.count_READ_X, 65535)
        await ctx.tick().repeat(66000)
        ctx.set(dut.count_READ_X, 0)
        ctx.set(dut.bready, 0)
        offset = OFFSETS["READ_X"]
        total = 65535 * 66000
        assert await read(ctx, dut, offset) == (total & 0xFFFFFFFF, OKAY)
        assert await read(ctx, dut, offset + 4) == (total >> 32, OKAY)
        ctx.set(dut.cycles_op, 1234)
        ctx.set(dut.set_CYCLES_OP, 1)
        await ctx.tick()
        ctx.set(dut.set_CYCLES_OP, 0)
        assert await read(ctx, dut, OFFSETS["CYCLES_OP"]) == (1234, OKAY)
        assert await write(ctx, dut, OFFSETS["COUNTERS_CLEAR"], 0) == OKAY
        assert await read(ctx, dut, offset) == (0, OKAY)

    simulate(bench)


def test_phases():
    async def bench(ctx, dut):
        counts = {0: (3, 1), 31: (70, 66), 5: (4, 2)}
        for phase, (cycles, busy) in counts.items():
            ctx.set(dut.phase, phase)
            ctx.set(dut.count_CYCLES_TOTAL, 1)
            ctx.set(dut.count_ARRAY_BUSY, 1)
            await ctx.tick().repeat(busy)
            ctx.set(dut.count_ARRAY_BUSY, 0)
            await ctx.tick().repeat(cycles - busy)
        ctx.set(dut.count_CYCLES_TOTAL, 0)
        for phase in range(PHASES):
            for name, value in zip(("CYCLES", "BUSY"), counts.get(phase, (0, 0)), strict=True):
                offset = OFFSETS[f"PHASE_{name}_{phase}"]
                assert await read(ctx, dut, offset) == (value, OKAY)
                assert await read(ctx, dut, offset + 4) == (0, OKAY)
        for offset in (PHASE_BASE + 2, PHASE_BASE - 4, PHASE_BASE + 16 * PHASES):
            assert (await read(ctx, dut, offset))[1] == SLVERR
        assert await write(ctx, dut, PHASE_BASE, 1) == SLVERR
        assert await write(ctx, dut, OFFSETS["COUNTERS_CLEAR"], 0) == OKAY
        for phase in counts:
            assert await read(ctx, dut, OFFSETS[f"PHASE_CYCLES_{phase}"]) == (0, OKAY)

    simulate(bench)
