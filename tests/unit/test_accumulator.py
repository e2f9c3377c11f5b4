import random

import pytest
from amaranth.sim import Simulator

from hw.config import Config
from hw.memory.accumulator import Accumulator

CONFIGS = [
    Config(tile=2, mant_width=8, spad_kib=1, acc_kib=1, acc_banks=4),
    Config(tile=3, mant_width=8, spad_kib=1, acc_kib=1, acc_banks=2),
    Config(tile=5, mant_width=8, spad_kib=1, acc_kib=1, acc_banks=8),
]
#: (port, context), the one that goes first first.
READS = ("x_r", None), ("s_r", 1), ("v_r", 1), ("s_r", 0), ("v_r", 0)
WRITES = ("x_w", None), ("l_w", 1), ("v_w", 1), ("l_w", 0), ("v_w", 0)


def bank(cfg, slot):
    """Halves of the slots in halves of the banks; inside a half the exclusive or of the digits."""
    upper, inside = divmod(slot, cfg.acc_slots // 2)
    base, lower = cfg.acc_banks // 2, 0
    while base > 1 and inside:
        lower, inside = lower ^ inside % base, inside // base
    return upper, lower


@pytest.mark.parametrize("cfg", CONFIGS, ids=lambda c: f"t{c.tile}b{c.acc_banks}")
def test_ports(cfg):
    """All ports at random; a row is not read in the clock in which it is written."""
    rng, dut = random.Random(cfg.tile), Accumulator(cfg)
    rows = [(slot, row) for slot in range(cfg.acc_slots) for row in range(cfg.tile)]
    memory, seen = {}, {(p, what): 0 for p in READS[1:] + WRITES[1:] for what in ("taken", "held")}
    kept = {("s_r", 0): 0, ("s_r", 1): 0}

    def signal(port, name):
        unit, context = port
        value = getattr(dut, f"{unit}_{name}")
        return value if context is None else value[context]

    async def bench(ctx):
        for where in rows:
            memory[where] = [rng.getrandbits(32) for _ in range(cfg.tile)]
            ctx.set(dut.x_w_slot, where[0])
            ctx.set(dut.x_w_row, where[1])
            ctx.set(dut.x_w_en, 1)
            ctx.set(dut.x_w_data, memory[where])
            await ctx.tick()
        expected = {}
        for _ in range(800):
            for port, line in expected.items():
                assert [ctx.get(w) for w in signal(port, "data")] == line, port
            expected = {port: line for port, line in expected.items() if port in kept}
            written = rng.sample(rows, len(WRITES))
            read = [rng.choice([r for r in rows if r not in written]) for _ in READS]
            values = {}
            for channel, places in (READS, read), (WRITES, written):
                busy = set()                     # banks
                for port, (slot, row) in zip(channel, places, strict=True):
                    on, name = rng.random() < 0.5, "en" if port[1] is None else "valid"
                    ctx.set(signal(port, name), on)
                    ctx.set(signal(port, "slot"), slot)
                    ctx.set(signal(port, "row"), row)
                    free = bank(cfg, slot) not in busy
                    if port[1] is not None:
                        assert ctx.get(signal(port, "ready")) == free, port
                        seen[port, "taken" if free else "held"] += on
                    if on:
                        busy.add(bank(cfg, slot))
                    if port in kept:
                        kept[port] += port in expected and not (on and free)
                    if channel is WRITES:
                        line = [rng.getrandbits(32) for _ in range(cfg.tile)]
                        ctx.set(signal(port, "data"), line)
                        if on and free:
                            values[slot, row] = line
                    elif on and free:
                        expected[port] = memory[slot, row]
            memory.update(values)
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    assert min([*seen.values(), *kept.values()]) > 20
