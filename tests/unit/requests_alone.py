"""The request unit alone: its loads and stores are taken at once and never end."""

from amaranth.sim import Simulator
from requests_units import COMPLETION_RING, REGION, REQUEST_RING

from hw.config import load
from hw.requests.unit import RequestUnit

TINY = load("tiny")
#: Registers at first.
REGISTERS = {
    "request_ring": REQUEST_RING, "completion_ring": COMPLETION_RING, "ring_log2": 3, "inputs": 4,
    "outputs": 4, "region_size": REGION, "batch_max": 4, "batch_timeout": 50,
    "input_window": {"base": 0, "h_log2": 1, "w_log2": 2},
    "output_window": {"base": 0, "h_log2": 1, "w_log2": 2},
    "spad_first": 0, "spad_last": 0xFFFF, "acc_first": 0, "acc_last": 0xFFFF,
}


def put(ctx, dut, registers):
    """Set registers by name."""
    for name, value in registers.items():
        ctx.set(getattr(dut, name), value)


def simulate(bench, cfg=TINY, **registers):
    """Run `bench(ctx, dut)` with these registers."""
    dut = RequestUnit(cfg)

    async def run_it(ctx):
        put(ctx, dut, REGISTERS | registers)
        for port in (dut.load, dut.store, dut.raw):
            ctx.set(port.ready, 1)
        await bench(ctx, dut)

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(run_it)
    sim.run()


async def write(ctx, dut, name, value):
    """Write a register; whether it is refused."""
    strobe = getattr(dut, f"{name}_write")
    ctx.set(strobe, 1)
    ctx.set(dut.wdata, value)
    refused = ctx.get(dut.ring_error)
    await ctx.tick()
    ctx.set(strobe, 0)
    return refused


async def pulse(ctx, signal):
    ctx.set(signal, 1)
    await ctx.tick()
    ctx.set(signal, 0)
