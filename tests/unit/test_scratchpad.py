import random

import pytest
from amaranth.sim import Simulator

from hw.config import Config
from hw.memory.scratchpad import Scratchpad

CONFIGS = [
    Config(tile=2, mant_width=4, spad_kib=1, spad_banks=16, acc_kib=1),
    Config(tile=3, mant_width=8, spad_kib=1, spad_banks=1),
    Config(tile=4, mant_width=9, spad_kib=1),
    Config(tile=5, mant_width=5, spad_kib=1, spad_banks=2),
    Config(tile=16, mant_width=8, spad_kib=1, spad_banks=4),  # one slot in a bank
]


def simulate(dut, bench):
    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()


def slot_number(cfg, bank, index):
    return bank << cfg.slot_index_bits | index


@pytest.mark.parametrize("cfg", CONFIGS, ids=lambda c: f"t{c.tile}b{c.spad_banks}")
def test_rows_and_columns(cfg):
    """Both ports read every row and column of random tiles, while rows are written anew."""
    rng, tile, dut = random.Random(cfg.tile), cfg.tile, Scratchpad(cfg)
    slots = [(bank, index) for bank in range(cfg.spad_banks) for index in range(cfg.bank_slots)]
    chosen = sorted({slots[0], slots[-1], *rng.sample(slots, min(len(slots), 5))})
    memory = {slot: [None] * tile for slot in chosen}  # rows of (mantissas, exponent)
    reads = [(slot, index, col) for slot in chosen for index in range(tile) for col in (0, 1)]
    queues = {port: rng.sample(reads, len(reads)) for port in "ab"}

    def start_read(ctx, port, slot, index, col):
        for name, value in (("en", 1), ("slot", slot_number(cfg, *slot)), ("index", index),
                            ("col", col)):
            ctx.set(getattr(dut, f"{port}_{name}"), value)
        mantissas, exponent = memory[slot][index]
        return [row[index] for row, _ in memory[slot]] if col else mantissas, exponent

    def start_write(ctx, slot, row):
        mantissas = [rng.getrandbits(cfg.mant_width) for _ in range(tile)]
        memory[slot][row] = mantissas, rng.getrandbits(8)
        ctx.set(dut.w_en, 1)
        ctx.set(dut.w_slot, slot_number(cfg, *slot))
        ctx.set(dut.w_row, row)
        ctx.set(dut.w_data, mantissas)
        ctx.set(dut.w_exp, memory[slot][row][1])

    async def bench(ctx):
        for slot in chosen:
            for row in range(tile):
                start_write(ctx, slot, row)
                await ctx.tick()
        pending = [{}] * dut.LATENCY
        while any(queues.values()) or any(pending):
            for port, want in pending.pop(0).items():
                got = getattr(dut, f"{port}_data"), getattr(dut, f"{port}_exp")
                assert ([ctx.get(q) for q in got[0]], ctx.get(got[1])) == want
            results, busy = {}, {}
            for port, queue in queues.items():
                ctx.set(getattr(dut, f"{port}_en"), 0)
                if queue and rng.random() < 0.8 and queue[-1][0][0] not in busy:
                    slot, index, col = queue.pop()
                    busy[slot[0]] = slot
                    results[port] = start_read(ctx, port, slot, index, col)
            pending.append(results)
            ctx.set(dut.w_en, 0)
            slot = rng.choice(chosen)
            if slot not in busy.values():
                start_write(ctx, slot, rng.randrange(tile))
            await ctx.tick()

    simulate(dut, bench)


def test_ports_in_one_bank():
    cfg, reached = CONFIGS[2], []
    dut = Scratchpad(cfg)

    async def bench(ctx):
        for a_en, b_en, bank in ((1, 0, 0), (0, 1, 0), (1, 1, 1), (1, 1, 0)):
            reached.append((a_en, b_en, bank))
            ctx.set(dut.a_en, a_en)
            ctx.set(dut.b_en, b_en)
            ctx.set(dut.b_slot, slot_number(cfg, bank, 0))
            await ctx.tick()

    with pytest.raises(AssertionError):
        simulate(dut, bench)
    assert reached[-1] == (1, 1, 0)
