"""cocotb tests of `axi_memory` on its own; launched by tests/sim/test_axi_memory.py."""

from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge
from cocotbext.axi import AxiBus, AxiMaster, AxiResp

from tb.job import PROTOCOL_ERRORS, Job

SIZE = 16384
BASE = 1 << 32


def contents(beat_bytes: int) -> bytes:
    """What the memory holds at first."""
    return bytes((7 * i + i // 251) % 256 for i in range(SIZE // beat_bytes * beat_bytes))


async def start(dut, **settings):
    """Load the memory, with a job's `settings`; all its inputs are idle."""
    beat_bytes = len(dut.wdata) // 8
    Clock(dut.clk, 10, "ns").start()
    for name in ("arvalid", "awvalid", "wvalid", "rready", "bready"):
        getattr(dut, name).value = 0
    ports = Job(memory=None, base=BASE, **settings).ports()
    for name, value in {**ports, "size": SIZE, "job": 0, "rst": 1, "load": 1, "dump": 0}.items():
        getattr(dut, name).value = value
    image = contents(beat_bytes)
    Path("0.in").write_bytes(b"".join(
        image[i:i + beat_bytes][::-1] for i in range(0, SIZE, beat_bytes)))
    await FallingEdge(dut.clk)
    await FallingEdge(dut.clk)
    dut.load.value = 0
    dut.rst.value = 0
    await RisingEdge(dut.clk)


@cocotb.test()
async def answers_so_many_errors(dut):
    """Reads count by the beat, writes by the burst; from then on all is well."""
    await start(dut, read_errors=(256, 512), write_errors=(1024, 1536), error_limit=3)
    master = AxiMaster(AxiBus.from_entity(dut), dut.clk)
    beat, data = len(dut.wdata) // 8, bytes(range(64))
    assert (await master.write(BASE + 1024, data)).resp == AxiResp.SLVERR
    assert (await master.read(BASE + 256, beat)).resp == AxiResp.SLVERR
    assert (await master.read(BASE + 1024, 64)).data == contents(beat)[1024:1088]
    assert (await master.read(BASE + 256, beat)).resp == AxiResp.SLVERR
    assert (await master.read(BASE + 256, 256)).data == contents(beat)[256:512]
    assert (await master.write(BASE + 1024, data)).resp == AxiResp.OKAY
    assert (await master.read(BASE + 1024, 64)).data == data
    assert not found(dut)


def found(dut) -> list[str]:
    """Errors that the memory has reported."""
    return [text for bit, text in enumerate(PROTOCOL_ERRORS) if int(dut.errors.value) >> bit & 1]


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.6], bytes_per_cycle=[0, 3])
async def reads_what_was_written(dut, stall, bytes_per_cycle):
    """Contents come from the file, take writes and go back to a file."""
    await start(dut, stall=stall, bytes_per_cycle=bytes_per_cycle, outstanding=3)
    master = AxiMaster(AxiBus.from_entity(dut), dut.clk)
    image = bytearray(contents(len(dut.wdata) // 8))
    assert (await master.read(BASE, SIZE)).data == image
    for number in range(8):
        address, text = 1000 * number + 4 * number, bytes([number + 1]) * (40 * number + 5)
        image[address:address + len(text)] = text
        response = await master.write(BASE + address, text)
        assert response.resp == AxiResp.OKAY
    assert (await master.read(BASE + 12, 9000)).data == image[12:9012]
    await FallingEdge(dut.clk)
    assert not int(dut.busy.value)
    dut.dump.value = 1
    await FallingEdge(dut.clk)
    assert Path("0.out").read_bytes() == image
    assert set(found(dut)) <= {"burst not aligned to a beat"}  # the master's way to write bytes


@cocotb.test()
async def answers_errors(dut):
    """Ranges that answer SLVERR, and DECERR outside the memory."""
    await start(dut, read_errors=(256, 512), write_errors=(1024, 1536))
    master = AxiMaster(AxiBus.from_entity(dut), dut.clk)
    for address, read, write in ((0, 0, 0), (256, 2, 0), (448, 2, 0), (512, 0, 0), (1024, 0, 2),
                                 (1472, 0, 2), (1536, 0, 0)):
        assert (await master.read(BASE + address, 64)).resp == read, address
        assert (await master.write(BASE + address, bytes(64))).resp == write, address
    assert not found(dut)
    for address in (BASE - 64, BASE + SIZE):
        assert (await master.read(address, 64)).resp == AxiResp.DECERR
    assert found(dut) == ["burst outside the memory"]


async def reset(dut):
    """Forget all bursts and errors."""
    dut.rst.value = 1
    await RisingEdge(dut.clk)
    dut.rst.value = 0


async def address(dut, channel, offset, **changes):
    """Send one address of a burst of 4 beats, changed in some way."""
    size = (len(dut.wdata) // 8).bit_length() - 1
    for name, value in {"addr": BASE + offset, "len": 3, "size": size, "burst": 1, "valid": 1,
                        **changes}.items():
        getattr(dut, channel + name).value = value
    while True:
        await RisingEdge(dut.clk)
        if int(getattr(dut, f"{channel}ready").value):
            break
    getattr(dut, f"{channel}valid").value = 0


async def clocks_until(dut, port):
    """Rising edges until `port` is seen high."""
    clocks = 0
    while True:
        await RisingEdge(dut.clk)
        clocks += 1
        if int(port.value):
            return clocks


async def write_data(dut, last=(0, 0, 0, 1)):
    """Send beats of write data, with `wlast` as told."""
    dut.wstrb.value = (1 << len(dut.wstrb)) - 1
    for flag in last:
        dut.wvalid.value = 1
        dut.wlast.value = flag
        await clocks_until(dut, dut.wready)
    dut.wvalid.value = 0


@cocotb.test()
@cocotb.parametrize(latency=[1, 2, 37])
async def keeps_its_latency(dut, latency):
    """From AR to the first R, and from the last W to B; a burst then flows."""
    await start(dut, latency=latency)
    dut.rready.value = dut.bready.value = 1
    await address(dut, "ar", 0)
    assert await clocks_until(dut, dut.rvalid) == latency + 1
    assert await clocks_until(dut, dut.rlast) == 3
    await address(dut, "aw", 0)
    await write_data(dut)
    assert await clocks_until(dut, dut.bvalid) == latency + 1


@cocotb.test()
async def limits_its_bandwidth(dut):
    """Half a beat per clock: a burst of 64 beats takes 128 clocks."""
    await start(dut, latency=1, bytes_per_cycle=len(dut.wdata) // 16)
    dut.rready.value = 1
    await address(dut, "ar", 0, len=63)
    await clocks_until(dut, dut.rvalid)
    assert 120 <= await clocks_until(dut, dut.rlast) <= 128


@cocotb.test()
@cocotb.parametrize(channel=["ar", "aw"])
async def finds_bad_addresses(dut, channel):
    """Each wrong burst is reported as what it is, and alone."""
    beat = len(dut.wdata) // 8
    await start(dut)
    for changes, error in (({}, None),
                           ({"addr": BASE + 4096 - 2 * beat}, PROTOCOL_ERRORS[0]),
                           ({"addr": BASE + 2}, PROTOCOL_ERRORS[1]),
                           ({"burst": 2}, PROTOCOL_ERRORS[2]),
                           ({"size": 1}, PROTOCOL_ERRORS[2]),
                           ({"addr": BASE - 4 * beat}, PROTOCOL_ERRORS[5]),
                           ({"addr": BASE + SIZE}, PROTOCOL_ERRORS[5])):
        await reset(dut)
        await address(dut, channel, 0, **changes)
        await FallingEdge(dut.clk)
        assert found(dut) == ([error] if error else []), changes


@cocotb.test()
@cocotb.parametrize(channel=["ar", "aw", "w"], change=["valid", "payload"])
async def finds_unstable_payloads(dut, channel, change):
    """What is offered must stay until it is taken."""
    await start(dut)
    await reset(dut)  # no channel is ready in the first clock
    getattr(dut, f"{channel}valid").value = 1
    await RisingEdge(dut.clk)
    if change == "valid":
        getattr(dut, f"{channel}valid").value = 0
    else:
        payload = dut.wdata if channel == "w" else getattr(dut, f"{channel}len")
        payload.value = int(payload.value) ^ 1
    await RisingEdge(dut.clk)
    await FallingEdge(dut.clk)
    assert PROTOCOL_ERRORS[3] in found(dut)


@cocotb.test()
@cocotb.parametrize(last=[(0, 0, 0, 0), (0, 1, 0, 1), (0, 0, 0, 1)])
async def finds_misplaced_wlast(dut, last):
    """`wlast` belongs on the last beat only."""
    await start(dut)
    await address(dut, "aw", 0)
    await write_data(dut, last)
    await FallingEdge(dut.clk)
    assert found(dut) == ([] if last == (0, 0, 0, 1) else [PROTOCOL_ERRORS[4]])


@cocotb.test()
@cocotb.parametrize(first=["ar", "aw"], distance=[-4, -3, 0, 3, 4])
async def finds_overlaps(dut, first, distance):
    """A read and a write under way must not touch the same bytes."""
    beat = len(dut.wdata) // 8
    await start(dut, latency=50)
    await address(dut, first, 1024)
    await address(dut, "aw" if first == "ar" else "ar", 1024 + distance * beat)
    await FallingEdge(dut.clk)
    assert found(dut) == ([] if abs(distance) == 4 else [PROTOCOL_ERRORS[6]])
