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
    """All ports at random; a row is not read in the clock in which it is written."""
    rng, dut = random.Random(cfg.tile), Accumulator(cfg)
    rows = [(slot, row) for slot in range(cfg.acc_slots) for row in range(cfg.tile)]
    memory, seen = {}, dict.fromkeys(("s held off", "l held off", "s kept", "v read held off",
                                       "v write held off", "v read", "v written"), 0)

    def same_bank(a, b):
        return (a[0] - b[0]) % cfg.acc_banks == 0

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
        x_expected = s_expected = v_expected = None
        for _ in range(2500):
            if x_expected:
                assert [ctx.get(w) for w in dut.x_r_data] == x_expected
            if s_expected:
                assert [ctx.get(w) for w in dut.s_r_data] == s_expected
            if v_expected:
                assert [ctx.get(w) for w in dut.v_r_data] == v_expected
            x_read, x_write, l_write, v_write = rng.sample(rows, 4)
            s_read, v_read = (
                rng.choice([x_read, rng.choice([r for r in rows if r not in
                                                (x_write, l_write, v_write)])]) for _ in range(2))
            x_r, x_w, s_r, l_w, v_r, v_w = (rng.random() < 0.6 for _ in range(6))
            values = [[rng.getrandbits(32) for _ in range(cfg.tile)] for _ in range(3)]
            for port, where in (("x_r", x_read), ("x_w", x_write), ("s_r", s_read),
                                ("l_w", l_write), ("v_r", v_read), ("v_w", v_write)):
                address(ctx, port, where)
            ctx.set(dut.x_r_en, x_r)
            ctx.set(dut.x_w_en, x_w)
            ctx.set(dut.x_w_data, values[0])
            ctx.set(dut.s_r_valid, s_r)
            ctx.set(dut.l_w_valid, l_w)
            ctx.set(dut.l_w_data, values[1])
            ctx.set(dut.v_r_valid, v_r)
            ctx.set(dut.v_w_valid, v_w)
            ctx.set(dut.v_w_data, values[2])

            s_meets = x_r and same_bank(x_read, s_read)
            l_meets = x_w and same_bank(x_write, l_write)
            v_r_meets = any(on and same_bank(where, v_read)
                            for on, where in ((x_r, x_read), (s_r, s_read)))
            v_w_meets = any(on and same_bank(where, v_write)
                            for on, where in ((x_w, x_write), (l_w, l_write)))
            assert ctx.get(dut.s_r_ready) == (not s_meets)
            assert ctx.get(dut.l_w_ready) == (not l_meets)
            assert ctx.get(dut.v_r_ready) == (not v_r_meets)
            assert ctx.get(dut.v_w_ready) == (not v_w_meets)
            seen["s held off"] += s_r and s_meets
            seen["l held off"] += l_w and l_meets
            seen["v read held off"] += v_r and v_r_meets
            seen["v write held off"] += v_w and v_w_meets
            seen["v read"] += v_r and not v_r_meets
            seen["v written"] += v_w and not v_w_meets
            seen["s kept"] += not s_r and s_meets
            x_expected = memory[x_read] if x_r else None
            if s_r and not s_meets:
                s_expected = memory[s_read]
            v_expected = memory[v_read] if v_r and not v_r_meets else None
            if x_w:
                memory[x_write] = values[0]
            if l_w and not l_meets:
                memory[l_write] = values[1]
            if v_w and not v_w_meets:
                memory[v_write] = values[2]
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    assert min(seen.values()) > 50
