"""What ENABLE asks of rings, windows and sizes: each at its edge, and against the golden model."""

import random

import pytest
from requests_alone import REGISTERS, TINY, put, simulate, write
from requests_units import REGION

from hw.config import Config
from sw.golden.serving import Service, refusal

#: Banks of 113 slots, numbered in steps of 128.
GAPS = Config(tile=3, mant_width=8, axi_width=32, spad_kib=4, acc_kib=4)
#: A window as wide as the largest dimension.
VAST = Config(tile=256, spad_kib=1 << 22, acc_kib=1 << 22)


def window(side, base=0, h_log2=1, w_log2=2):
    return {f"{side}_window": {"base": base, "h_log2": h_log2, "w_log2": w_log2}}


def x(*parts, **fields):
    """Scratchpad window of inputs: 2 x 8 slots, if not told otherwise."""
    return window("input", *parts, **fields)


def y(*parts, **fields):
    """Accumulator window of outputs: 8 slots."""
    return window("output", *parts, **fields)


#: The last registers that are taken, the first that are not.
EDGES = [
    ({"request_ring": REGION - 0x80}, {"request_ring": REGION - 0x78}),
    ({"completion_ring": REGION - 0x80}, {"completion_ring": REGION - 0x78}),
    ({"completion_ring": REGION - 0x80}, {"completion_ring": REGION}),
    ({"completion_ring": REGION - 0x80}, {"completion_ring": 2**32 - 8}),
    ({"request_ring": 0x1008}, {"request_ring": 0x1004}),
    ({"request_ring": 0x1008}, {"request_ring": 0x1009}),
    ({"region_size": 0x3080}, {"region_size": 0x307F}),
    ({"ring_log2": 4, "region_size": 0x3100}, {"ring_log2": 5, "region_size": 0x3100}),
    # Slots of the context.
    (x(8) | {"spad_first": 8}, x(8) | {"spad_first": 9}),
    (x(8) | {"spad_last": 23}, x(8) | {"spad_last": 22}),
    (y(8) | {"acc_first": 8}, y(8) | {"acc_first": 9}),
    (y(8) | {"acc_last": 15}, y(8) | {"acc_last": 14}),
    # Slots that there are: 512 and 64.
    (x(512 - 16), x(512 - 15)), (x(512 - 16), x(0xFFFF)),
    (x(0, 6, 2), x(0, 7, 2)), (x(0, 0, 8), x(0, 0, 9)), (x(0, 8, 0), x(0, 8, 8)),
    (y(64 - 8), y(64 - 7)), (y(64 - 8), y(0xFFFF)),
    (y(0, 4, 2), y(0, 5, 2)), (y(0, 0, 6), y(0, 0, 7)), (y(0, 6, 0), y(0, 9, 8)),
    (x(0, 6, 2), x(0, 15, 15)), (y(0, 4, 2), y(0, 15, 15)),
    # Columns of a row of tiles.
    ({"inputs": 16}, {"inputs": 17}), ({"outputs": 16}, {"outputs": 17}),
    (x(0, 0, 0) | {"inputs": 4}, x(0, 0, 0) | {"inputs": 5}),
    (y(0, 5, 0) | {"outputs": 4}, y(0, 5, 0) | {"outputs": 5}),
    ({"inputs": 0}, {"inputs": 2**20}), ({"outputs": 0}, {"outputs": 2**31}),
]
GAP_EDGES = [
    (x(128 + 113 - 16), x(128 + 113 - 15)), (x(3 * 128), x(4 * 128)),
    (x(113 - 16), x(113)), (x(128), x(127)), (x(0, 3, 2), x(0, 4, 2)),
]
VAST_EDGES = [
    (x(0, 0, 12) | {"inputs": 2**20 - 1}, x(0, 0, 12) | {"inputs": 2**20}),
    (y(0, 0, 12) | {"outputs": 2**20 - 1}, y(0, 0, 12) | {"outputs": 2**20}),
    (x(0, 0, 15), x(1, 0, 15)), (x(0, 0, 15), x(0, 1, 15)),
    (y(0, 2, 12), y(1, 2, 12)),
]


async def enable(ctx, dut, registers):
    """Whether ENABLE is set, and then cleared again; if it is refused, RING_ERROR tells."""
    put(ctx, dut, REGISTERS | registers)
    refused = await write(ctx, dut, "control", 3)
    assert ctx.get(dut.control) == (2 if refused else 3)
    assert ctx.get(dut.attached) == (not refused)
    assert not ctx.get(dut.ring_error)
    assert not await write(ctx, dut, "control", 0)
    assert not ctx.get(dut.attached)
    return not refused


@pytest.mark.parametrize(("cfg", "edges"), [(TINY, EDGES), (GAPS, GAP_EDGES), (VAST, VAST_EDGES)],
                         ids=["tiny", "gaps", "vast"])
def test_edges(cfg, edges):
    async def bench(ctx, dut):
        for taken, refused in edges:
            assert await enable(ctx, dut, taken), taken
            assert not await enable(ctx, dut, refused), refused

    simulate(bench, cfg)


def random_window(rng, slots):
    h, w = rng.choice([(0, 0), (1, 1), (0, 2), (2, 0), (0, 3), (rng.randrange(16), 0),
                       (rng.randrange(16), rng.randrange(16))])
    last = max(0, slots - (1 << h + w))
    base = rng.choice([0, 0, 1, rng.randrange(slots), last, last + 1, last // 2, 2**16 - 1])
    return {"base": base, "h_log2": h, "w_log2": w}


@pytest.mark.parametrize("cfg", [TINY, GAPS], ids=["tiny", "gaps"])
def test_golden_refuses_the_same(cfg):
    rng, seen = random.Random(0), {}

    async def bench(ctx, dut):
        for _ in range(1500):
            windows, counts, regions, registers = [], [], [], {}
            for side, slots, name, size in (
                    ("spad", 1 << cfg.spad_slot_bits, "input", "inputs"),
                    ("acc", cfg.acc_slots, "output", "outputs")):
                chosen = random_window(rng, slots)
                most = cfg.tile << chosen["w_log2"]
                count = rng.choice([0, 1, most, most + 1, most - 1, rng.randint(1, most)])
                first, last = sorted(rng.randrange(slots) for _ in range(2))
                region = rng.choice([*[(0, slots - 1)] * 4, (first, last), (0, last)])
                windows.append(chosen)
                counts.append(count)
                regions.append(region)
                registers |= {f"{name}_window": chosen, size: count, f"{side}_first": region[0],
                              f"{side}_last": region[1]}
            reason = refusal(cfg, Service(0, 1, *counts, *windows), tuple(regions))
            assert await enable(ctx, dut, registers) == (reason is None), (registers, reason)
            seen[reason] = seen.get(reason, 0) + 1

    simulate(bench, cfg)
    assert len(seen) == 7
    assert min(seen.values()) > 20, seen


def test_refused_and_then_taken():
    """A refused ENABLE changes nothing; set again while it is set, it is not refused."""
    async def bench(ctx, dut):
        assert await write(ctx, dut, "control", 1)
        assert await write(ctx, dut, "doorbell", 1)
        assert not ctx.get(dut.drop)
        put(ctx, dut, x(8))
        assert not await write(ctx, dut, "control", 1)
        assert ctx.get(dut.drop)
        put(ctx, dut, x(7))
        assert not await write(ctx, dut, "control", 3)
        assert ctx.get(dut.control) == 3

    simulate(bench, **x(7), spad_first=8)
