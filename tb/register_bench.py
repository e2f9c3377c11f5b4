"""What cocotb tests of the registers share: the map, and a host on an NPU without memory."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp

from hw.control.block import reset_value
from hw.control.shared import REQUEST_OWNED
from hw.regs import ID, OFFSETS, REGISTERS, SHARED_BASE
from tb.axi_bench import START, config, pauses
from tb.axi_rules import HELD, Channel

ACCESS = {r.offset + 4 * i: r.access for r in REGISTERS for i in range(r.words)}
#: They lie in the request unit, which refuses values.
OWNED = {OFFSETS[name] for name in REQUEST_OWNED}
READ_WRITE = [o for o, access in ACCESS.items() if access == "rw" and o not in OWNED]
#: Read-only registers that follow others, or count in every clock.
FREE = {r.offset + 4 * i for r in REGISTERS for i in range(r.words)
        if r.name == "REQUEST_SPACE" or r.name.endswith(("_HOLD_BOUND", "_UNUSED"))}
#: Counters, of which some are read and compared in each test, and all other readable registers.
COUNTED = [r.offset + 4 * i for r in REGISTERS for i in range(r.words)
           if r.words == 2 or "_BIN_" in r.name]
OTHERS = [o for o, access in ACCESS.items() if access != "wo" and o not in COUNTED]
SAMPLE = 60
ALL_STROBES = 0xF
STATUS_ERROR = 4


def after_reset() -> dict[int, int]:
    """Values of the readable registers after reset, by offset."""
    cfg = config()
    values = {o: 0 for o, access in ACCESS.items() if access != "wo"}
    for r in REGISTERS:
        name = r.name.removeprefix("INFERENCE_") if r.offset < SHARED_BASE else r.name
        if r.access == "rw":
            values[r.offset] = reset_value(cfg, name)
        elif name.endswith("_MIN"):
            values |= {r.offset: 0xFFFFFFFF, r.offset + 4: 0xFFFF}
        elif name in ("ID", "CONFIG_HASH"):
            values[r.offset] = ID if name == "ID" else cfg.hash
    return values


class Host:
    """AXI4-Lite master on an NPU whose memory answers nothing."""

    def __init__(self, dut, stall: float = 0.0):
        self.dut, self.rng = dut, random.Random(cocotb.RANDOM_SEED)
        self.readable = sorted([*OTHERS, *self.rng.sample(COUNTED, SAMPLE)])
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
        """Values of registers and some counters, but for those that are `FREE`, by offset."""
        found = {}
        for offset in self.readable:
            value, response = await self.read(offset)
            assert response == AxiResp.OKAY, f"read of {offset:#x}: {response.name}"
            if offset not in FREE:
                found[offset] = value
        return found

    async def register(self, name: str) -> int:
        """Value of a register by name."""
        return (await self.read(OFFSETS[name]))[0]

    async def fill(self) -> dict[int, int]:
        """Write a random value to every register that takes one; all values then."""
        for offset in self.rng.sample(READ_WRITE, len(READ_WRITE)):
            assert await self.write(offset, self.rng.getrandbits(32)) == AxiResp.OKAY
        return await self.values()

    async def fail(self, prefix: str = "", program: int = 0x1234):
        """Start a program outside a region of no bytes, which ends with an error at once."""
        for name, value in (("REGION_SIZE", 0), ("PROGRAM_ADDR", program), ("CONTROL", START)):
            assert await self.write(OFFSETS[prefix + name], value) == AxiResp.OKAY
        while await self.register(f"{prefix}STATUS") != STATUS_ERROR:
            pass
