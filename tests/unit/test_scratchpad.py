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
    """Both ports read every row and column of random tiles, while rows are written anew.

    Any of the write ports may ask in a clock; the first that does writes.
    """
    rng, tile, dut = random.Random(cfg.tile), cfg.tile, Scratchpad(cfg)
    slots = [(bank, index) for bank in range(cfg.spad_banks) for index in range(cfg.bank_slots)]
    chosen = sorted({slots[0], slots[-1], *rng.sample(slots, min(len(slots), 5))})
    memory = {slot: [None] * tile for slot in chosen}  # rows of (mantissas, exponent)
    reads = [(slot, index, col) for slot in chosen for index in range(tile) for col in (0, 1)]
    seen = {(port, what): 0 for port in range(dut.WRITERS) for what in ("taken", "held")}
    queues = {port: rng.sample(reads, len(reads)) for port in "ab"}

    def start_read(ctx, port, slot, index, col):
        for name, value in (("en", 1), ("slot", slot_number(cfg, *slot)), ("index", index),
                            ("col", col)):
            ctx.set(getattr(dut, f"{port}_{name}"), value)
        mantissas, exponent = memory[slot][index]
        return [row[index] for row, _ in memory[slot]] if col else mantissas, exponent

    def start_writes(ctx, writes):
        """Offer `writes` (slot, row) on some of the ports; the first is accepted."""
        ports = sorted(rng.sample(range(dut.WRITERS), len(writes)))
        for port in range(dut.WRITERS):
            ctx.set(dut.w_valid[port], port in ports)
        for k, (port, (slot, row)) in enumerate(zip(ports, writes, strict=True)):
            mantissas = [rng.getrandbits(cfg.mant_width) for _ in range(tile)]
            exponent = rng.getrandbits(8)
            ctx.set(dut.w_slot[port], slot_number(cfg, *slot))
            ctx.set(dut.w_row[port], row)
            ctx.set(dut.w_data[port], mantissas)
            ctx.set(dut.w_exp[port], exponent)
            if k == 0:
                memory[slot][row] = mantissas, exponent
            seen[port, "held" if k else "taken"] += 1
        for port in range(dut.WRITERS):
            assert ctx.get(dut.w_ready[port]) == (not ports or port <= ports[0])

    async def bench(ctx):
        for slot in chosen:
            for row in range(tile):
                start_writes(ctx, [(slot, row)])
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
            free = [slot for slot in chosen if slot not in busy.values()]
            start_writes(ctx, [(rng.choice(free), rng.randrange(tile))
                               for _ in range(rng.randrange(dut.WRITERS + 1)) if free])
            await ctx.tick()

    simulate(dut, bench)
    assert min(n for (port, what), n in seen.items() if (port, what) != (0, "held")) > 0
    assert seen[0, "held"] == 0


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
