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


@pytest.mark.parametrize("cfg", CONFIGS, ids=lambda c: f"t{c.tile}b{c.acc_banks}")
def test_ports(cfg):
    """All four ports at random; a row is not read in the clock in which it is written."""
    rng, dut = random.Random(cfg.tile), Accumulator(cfg)
    rows = [(slot, row) for slot in range(cfg.acc_slots) for row in range(cfg.tile)]
    memory, seen = {}, {"s held off": 0, "l held off": 0, "s kept": 0}

    def address(ctx, port, where):
        ctx.set(getattr(dut, f"{port}_slot"), where[0])
        ctx.set(getattr(dut, f"{port}_row"), where[1])

    async def bench(ctx):
        for where in rows:
            memory[where] = [rng.getrandbits(32) for _ in range(cfg.tile)]
            address(ctx, "x_w", where)
            ctx.set(dut.x_w_en, 1)
            ctx.set(dut.x_w_data, memory[where])
            await ctx.tick()
        x_expected = s_expected = None
        for _ in range(2500):
            if x_expected:
                assert [ctx.get(w) for w in dut.x_r_data] == x_expected
            if s_expected:
                assert [ctx.get(w) for w in dut.s_r_data] == s_expected
            x_read, x_write, l_write = rng.sample(rows, 3)
            s_read = rng.choice([x_read, rng.choice([r for r in rows if r not in
                                                     (x_write, l_write)])])
            x_r, x_w, s_r, l_w = (rng.random() < 0.6 for _ in range(4))
            values = [[rng.getrandbits(32) for _ in range(cfg.tile)] for _ in range(2)]
            for port, where in (("x_r", x_read), ("x_w", x_write), ("s_r", s_read),
                                ("l_w", l_write)):
                address(ctx, port, where)
            ctx.set(dut.x_r_en, x_r)
            ctx.set(dut.x_w_en, x_w)
            ctx.set(dut.x_w_data, values[0])
            ctx.set(dut.s_r_valid, s_r)
            ctx.set(dut.l_w_valid, l_w)
            ctx.set(dut.l_w_data, values[1])

            s_meets = x_r and (x_read[0] - s_read[0]) % cfg.acc_banks == 0
            l_meets = x_w and (x_write[0] - l_write[0]) % cfg.acc_banks == 0
            assert ctx.get(dut.s_r_ready) == (not s_meets)
            assert ctx.get(dut.l_w_ready) == (not l_meets)
            seen["s held off"] += s_r and s_meets
            seen["l held off"] += l_w and l_meets
            seen["s kept"] += not s_r and s_meets
            x_expected = memory[x_read] if x_r else None
            if s_r and not s_meets:
                s_expected = memory[s_read]
            if x_w:
                memory[x_write] = values[0]
            if l_w and not l_meets:
                memory[l_write] = values[1]
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    assert min(seen.values()) > 50
