"""cocotb tests of the bare NPU's registers, with cocotbext-axi's AXI4-Lite master."""

import cocotb
from cocotb.triggers import Combine
from cocotbext.axi import AxiResp

from hw.isa import Error
from hw.regs import BLOCK, ID, OFFSETS, SPACE
from tb.axi_bench import config
from tb.register_bench import (
    ACCESS,
    ALL_STROBES,
    COUNTED,
    READ_WRITE,
    SAMPLE,
    STATUS_ERROR,
    Host,
    after_reset,
)

IRQ_ERROR, RING_ERROR = 2, 2
ENABLE, LAUNCH_IDLE = 1, 2
#: Names of the registers of the two contexts begin with it.
PREFIXES = ["", "INFERENCE_"]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reset_values(dut):
    """After reset every register has its value, whatever was there before."""
    host = Host(dut)
    await host.reset()
    everything = after_reset()
    found = await host.values()
    assert found == {offset: everything[offset] for offset in found}
    await host.fill()
    for prefix in PREFIXES:
        await host.fail(prefix)
    await host.reset()
    assert await host.values() == found


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5])
async def read_and_write(dut, stall):
    """Every writable register keeps its 32 bits, and no other one changes."""
    host = Host(dut, stall)
    await host.reset()
    expected = await host.values()
    for offset in host.rng.sample(READ_WRITE, len(READ_WRITE)):
        for value in (0xFFFFFFFF, host.rng.getrandbits(32)):
            expected[offset] = value
            assert await host.write(offset, value) == AxiResp.OKAY
            assert await host.read(offset) == (value, AxiResp.OKAY)
    assert await host.values() == expected


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(prefix=PREFIXES)
async def errors_and_acknowledgement(dut, prefix):
    """A failed start fills the error registers; the interrupt goes by writing its own bit."""
    host = Host(dut)
    await host.reset()
    await host.fail(prefix, 0x5678)
    for name, value in (("STATUS", STATUS_ERROR), ("IRQ_STATUS", IRQ_ERROR), ("ERROR_ADDR", 0x5678),
                        ("ERROR_CODE", Error.BAD_ADDRESS.value), ("ERROR_PC", 0x5678)):
        assert await host.register(prefix + name) == value, name
        (other,) = set(PREFIXES) - {prefix}
        assert await host.register(other + name) == 0, name
    for name, value, left, irq in (
            ("IRQ_ENABLE", ~IRQ_ERROR & 0xFFFFFFFF, IRQ_ERROR, 0),
            ("IRQ_ENABLE", IRQ_ERROR, IRQ_ERROR, 1), ("IRQ_STATUS", 0, IRQ_ERROR, 1),
            ("IRQ_STATUS", ~IRQ_ERROR & 0xFFFFFFFF, IRQ_ERROR, 1), ("IRQ_STATUS", IRQ_ERROR, 0, 0)):
        assert await host.write(OFFSETS[prefix + name], value) == AxiResp.OKAY
        assert await host.register(f"{prefix}IRQ_STATUS") == left, name
        assert int(dut.irq.value) == irq, f"irq is not {irq} after {value:#x} in {name}"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def request_registers(dut):
    """Registers of the request unit keep what it takes; what it refuses raises RING_ERROR."""
    host = Host(dut)
    await host.reset()

    async def refused(name, value):
        before = await host.register("CONSUMED"), await host.register("REQUEST_QUEUE")
        assert await host.write(OFFSETS[name], value) == AxiResp.OKAY
        assert (await host.register("CONSUMED"), await host.register("REQUEST_QUEUE")) == before
        assert await host.register("REQUEST_IRQ_STATUS") == RING_ERROR
        assert int(dut.irq.value) == 1
        assert await host.write(OFFSETS["REQUEST_IRQ_STATUS"], RING_ERROR) == AxiResp.OKAY
        assert int(dut.irq.value) == 0

    for name, value in (("INFERENCE_REGION_SIZE", 1 << 20), ("COMPLETION_RING", 1 << 12),
                        ("RING_LOG2", 3), ("REQUEST_IRQ_ENABLE", RING_ERROR),
                        ("REQUEST_CONTROL", LAUNCH_IDLE)):
        assert await host.write(OFFSETS[name], value) == AxiResp.OKAY
    assert await host.register("REQUEST_CONTROL") == LAUNCH_IDLE
    await refused("DOORBELL", 1)
    for name, wrong, right in (("INPUT_WINDOW", 0xFFFF, 0), ("OUTPUT_WINDOW", 0xFFFF, 0),
                               ("REQUEST_INPUTS", 1 << 20, 1), ("REQUEST_OUTPUTS", 1 << 20, 1)):
        assert await host.write(OFFSETS[name], wrong) == AxiResp.OKAY
        await refused("REQUEST_CONTROL", ENABLE | LAUNCH_IDLE)
        assert await host.register("REQUEST_CONTROL") == LAUNCH_IDLE
        assert await host.write(OFFSETS[name], right) == AxiResp.OKAY
    assert await host.write(OFFSETS["REQUEST_CONTROL"], ENABLE | LAUNCH_IDLE) == AxiResp.OKAY
    assert await host.register("REQUEST_CONTROL") == ENABLE | LAUNCH_IDLE
    assert await host.register("REQUEST_SPACE") == 8
    await refused("DOORBELL", 9)
    await refused("CONSUMED", 1)
    assert await host.write(OFFSETS["DOORBELL"], 8) == AxiResp.OKAY
    assert await host.register("REQUEST_SPACE") == 0
    assert await host.register("REQUEST_QUEUE") == 8
    await refused("DOORBELL", 9)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def hold_bounds(dut):
    """Bounds that depend on registers follow them."""
    host = Host(dut)
    await host.reset()
    for beats, credits_, idle in ((16, 32, 65535), (4, 8, 6), (0, 0, 0), (1000, 3, 200)):
        for name, value in (("MAX_BURST_BEATS", beats), ("READ_CREDITS", credits_),
                            ("READ_CREDITS_IDLE", idle)):
            assert await host.write(OFFSETS[name], value) == AxiResp.OKAY
        most = min(max(beats, 1), 256)
        assert await host.register("QUANTISER_HOLD_BOUND") == 0
        assert await host.register("WRITE_HOLD_BOUND") == 2 * most
        assert await host.register("READ_HOLD_BOUND") == min(
            max(credits_, idle, most), config().outstanding * most)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(prefix=PREFIXES)
async def counters_clear(dut, prefix):
    """Any write, of all strobes, to COUNTERS_CLEAR sets the context's counters to zero."""
    host = Host(dut)
    await host.reset()
    for each in PREFIXES:
        await host.fail(each)
    clocks = OFFSETS[f"{prefix}CYCLES_TOTAL"]
    host.readable = sorted({*host.readable, clocks})
    before = await host.values()
    assert before[clocks] == await host.register(f"{prefix}PHASE_CYCLES_0") > 0
    await host.refused(OFFSETS[f"{prefix}COUNTERS_CLEAR"], "write", 7)
    assert await host.values() == before
    assert await host.write(OFFSETS[f"{prefix}COUNTERS_CLEAR"], 0) == AxiResp.OKAY
    after = await host.values()
    block = OFFSETS[f"{prefix}ID"]
    cleared = {o for o in COUNTED if block <= o < block + BLOCK}
    assert not any(after[o] for o in cleared & after.keys())
    assert all(after[o] == before[o] for o in after.keys() - cleared)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def shared_counters_clear(dut):
    """Clocks without use are counted, from SHARED_COUNTERS_CLEAR on."""
    host = Host(dut)
    await host.reset()
    await host.values()
    before = await host.register("ARRAY_UNUSED")
    assert await host.write(OFFSETS["SHARED_COUNTERS_CLEAR"], 1) == AxiResp.OKAY
    assert 0 < await host.register("ARRAY_UNUSED") < before


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.5])
async def refusals_change_nothing(dut, stall):
    """SLVERR for what is no register, read-only, write-only, or not written in full."""
    host = Host(dut, stall)
    await host.reset()
    await host.fail()
    before = await host.fill()
    unmapped = [offset for offset in range(0, SPACE, 4) if offset not in ACCESS]
    for offset in (*host.rng.sample(unmapped, 40), min(unmapped), SPACE - 4):
        await host.refused(offset, "read")
        await host.refused(offset, "write")
    writable = [o for o, access in ACCESS.items() if access != "ro"]
    for offset in (*writable, *host.rng.sample(sorted(ACCESS.keys() - set(writable)), SAMPLE)):
        access = ACCESS[offset]
        await host.refused(offset + host.rng.randrange(1, 4), "read", length=1)
        if access == "wo":
            await host.refused(offset, "read")
        for strobes in (ALL_STROBES,) if access == "ro" else host.rng.sample(range(ALL_STROBES), 4):
            await host.refused(offset, "write", strobes)
    assert await host.values() == before


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.3, 0.7])
async def interleaved_accesses(dut, stall):
    """Reads and writes at once, several under way: a read gives the value before or after."""
    host = Host(dut, stall)
    await host.reset()
    begun = {offset: [value] for offset, value in after_reset().items() if offset in READ_WRITE}
    ended = dict.fromkeys(READ_WRITE, 0)

    async def write_some(offsets):
        for _ in range(40):
            offset, value = host.rng.choice(offsets), host.rng.getrandbits(32)
            begun[offset].append(value)
            assert await host.write(offset, value) == AxiResp.OKAY
            ended[offset] = len(begun[offset]) - 1

    async def read_some():
        for _ in range(60):
            if host.rng.random() < 0.2:
                assert await host.read(OFFSETS["ID"]) == (ID, AxiResp.OKAY)
                continue
            offset = host.rng.choice(READ_WRITE)
            first = ended[offset]
            value, response = await host.read(offset)
            assert response == AxiResp.OKAY
            assert value in begun[offset][first:], f"{value:#x} is no value of {offset:#x}"

    half = len(READ_WRITE) // 2
    await Combine(*(cocotb.start_soon(task) for task in (
        write_some(READ_WRITE[:half]), write_some(READ_WRITE[half:]), read_some(), read_some())))
    for offset in READ_WRITE:
        assert await host.read(offset) == (begun[offset][-1], AxiResp.OKAY)
