"""cocotb tests of the bare NPU's registers, with cocotbext-axi's AXI4-Lite master."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import Combine, FallingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp

from hw.isa import Error
from hw.regs import ID, OFFSETS, REGISTERS, SPACE
from tb.axi_bench import START, config, pauses
from tb.axi_rules import HELD, Channel

ACCESS = {r.offset + 4 * i: r.access for r in REGISTERS for i in range(r.words)}
READABLE = {offset for offset, access in ACCESS.items() if access != "wo"}
READ_WRITE = [offset for offset, access in ACCESS.items() if access == "rw"]
ALL_STROBES = 0xF
STATUS_ERROR, IRQ_ERROR = 4, 2


class Host:
    """AXI4-Lite master on an NPU whose memory answers nothing."""

    def __init__(self, dut, stall: float = 0.0):
        self.dut, self.rng = dut, random.Random(cocotb.RANDOM_SEED)
        for name in ("arready", "awready", "wready", "rvalid", "bvalid"):
            getattr(dut, f"m_axi_{name}").value = 0
        dut.rst.value = 1
        Clock(dut.clk, 10, "ns").start()
        self.master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        write, read = self.master.write_if, self.master.read_if
        for part, names in (write, "aw w b"), (read, "ar r"):
            part.log.setLevel("ERROR")
            for name in names.split():
                if stall:
                    getattr(part, f"{name}_channel").set_pause_generator(
                        pauses(stall, self.rng.getrandbits(32)))
        self._channels = [Channel(dut, "s_axil", c, s, True) for c, s in HELD["s_axil"].items()]
        cocotb.start_soon(self._watch())

    async def _watch(self):
        """Responses must stay until they are taken."""
        while True:
            await self.dut.clk.rising_edge
            for channel in self._channels:
                if int(self.dut.rst.value):
                    channel.reset()
                else:
                    channel.sample()

    async def reset(self):
        """Hold reset for two clocks."""
        for level in (1, 1, 0):
            await FallingEdge(self.dut.clk)
            self.dut.rst.value = level
        await FallingEdge(self.dut.clk)

    async def write(self, offset: int, value: int) -> AxiResp:
        """Write a register; the response."""
        return (await self.master.write(offset, value.to_bytes(4, "little"))).resp

    async def write_strobes(self, offset: int, value: int, strobes: int) -> AxiResp:
        """Write with any strobes; the response."""
        channels = self.master.write_if
        await channels.aw_channel.send(channels.aw_channel._transaction_obj(awaddr=offset))
        await channels.w_channel.send(
            channels.w_channel._transaction_obj(wdata=value, wstrb=strobes))
        return AxiResp(int((await channels.b_channel.recv()).bresp))

    async def read(self, offset: int, length: int = 4) -> tuple[int, AxiResp]:
        """Value and response of a register."""
        answer = await self.master.read(offset, length)
        return int.from_bytes(answer.data, "little"), answer.resp

    async def refused(self, offset: int, access: str, strobes: int = ALL_STROBES, length: int = 4):
        """Assert that an access is answered with SLVERR."""
        if access == "read":
            answer = (await self.read(offset, length))[1]
        elif strobes == ALL_STROBES:
            answer = await self.write(offset, 0xFFFFFFFF)
        else:
            answer = await self.write_strobes(offset, 0xFFFFFFFF, strobes)
        assert answer == AxiResp.SLVERR, \
            f"{access} of {offset:#x} with strobes {strobes:#x} is answered with {answer.name}"

    async def values(self) -> dict[int, int]:
        """Values of all registers that can be read, by offset."""
        found = {}
        for offset in sorted(READABLE):
            value, response = await self.read(offset)
            assert response == AxiResp.OKAY, f"read of {offset:#x}: {response.name}"
            found[offset] = value
        return found

    async def fill(self) -> dict[int, int]:
        """Write a random value to every register that takes one; all values then."""
        for offset in self.rng.sample(READ_WRITE, len(READ_WRITE)):
            assert await self.write(offset, self.rng.getrandbits(32)) == AxiResp.OKAY
        return await self.values()

    async def fail(self, program: int = 0x1234):
        """Start a program outside a region of no bytes, which ends with an error at once."""
        for name, value in (("REGION_SIZE", 0), ("PROGRAM_ADDR", program), ("CONTROL", START)):
            assert await self.write(OFFSETS[name], value) == AxiResp.OKAY
        while (await self.read(OFFSETS["STATUS"]))[0] != STATUS_ERROR:
            pass


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reset_values(dut):
    """After reset everything is zero but the identities, whatever was there before."""
    host = Host(dut)
    expected = dict.fromkeys(READABLE, 0)
    expected |= {OFFSETS["ID"]: ID, OFFSETS["CONFIG_HASH"]: config().hash}
    await host.reset()
    assert await host.values() == expected
    await host.fill()
    await host.fail()
    await host.reset()
    assert await host.values() == expected


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
async def errors_and_acknowledgement(dut):
    """A failed start fills the error registers; the interrupt goes by writing its own bit."""
    host = Host(dut)
    await host.reset()
    await host.fail(0x5678)
    for name, value in (("STATUS", STATUS_ERROR), ("IRQ_STATUS", IRQ_ERROR), ("ERROR_ADDR", 0x5678),
                        ("ERROR_CODE", Error.BAD_ADDRESS.value), ("ERROR_PC", 0x5678)):
        assert (await host.read(OFFSETS[name]))[0] == value, name
    for name, value, left, irq in (
            ("IRQ_ENABLE", ~IRQ_ERROR & 0xFFFFFFFF, IRQ_ERROR, 0),
            ("IRQ_ENABLE", IRQ_ERROR, IRQ_ERROR, 1), ("IRQ_STATUS", 0, IRQ_ERROR, 1),
            ("IRQ_STATUS", ~IRQ_ERROR & 0xFFFFFFFF, IRQ_ERROR, 1), ("IRQ_STATUS", IRQ_ERROR, 0, 0)):
        assert await host.write(OFFSETS[name], value) == AxiResp.OKAY
        assert (await host.read(OFFSETS["IRQ_STATUS"]))[0] == left, name
        assert int(dut.irq.value) == irq, f"irq is not {irq} after {value:#x} in {name}"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def counters_clear(dut):
    """Any write, of all strobes, to COUNTERS_CLEAR sets every counter to zero."""
    host = Host(dut)
    counters = [r.offset + 4 * i for r in REGISTERS if r.words > 1 for i in range(r.words)]
    await host.reset()
    await host.fail()
    before = await host.values()
    assert before[OFFSETS["CYCLES_TOTAL"]] == before[OFFSETS["PHASE_CYCLES_0"]] > 0
    await host.refused(OFFSETS["COUNTERS_CLEAR"], "write", 7)
    assert await host.values() == before
    assert await host.write(OFFSETS["COUNTERS_CLEAR"], 0) == AxiResp.OKAY
    after = await host.values()
    assert not any(after[offset] for offset in counters)
    assert all(after[o] == before[o] for o in READABLE if o < min(counters))


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
    for offset, access in ACCESS.items():
        await host.refused(offset + host.rng.randrange(1, 4), "read", length=1)
        if access == "wo":
            await host.refused(offset, "read")
        for strobes in (ALL_STROBES,) if access == "ro" else range(ALL_STROBES):
            await host.refused(offset, "write", strobes)
    assert await host.values() == before


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.3, 0.7])
async def interleaved_accesses(dut, stall):
    """Reads and writes at once, several under way: a read gives the value before or after."""
    host = Host(dut, stall)
    await host.reset()
    begun = {offset: [0] for offset in READ_WRITE}
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
