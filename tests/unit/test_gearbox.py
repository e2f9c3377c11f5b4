# amaranth: UnusedElaboratable=no
import random

import pytest
from amaranth.sim import Simulator

from hw.memory.gearbox import Gearbox

WIDTHS = [(12, 64), (64, 12), (96, 64), (64, 96), (360, 256), (256, 360), (1440, 256), (256, 1440),
          (32, 64), (64, 32), (128, 128), (16, 512), (512, 16)]


def split(value, bits, count):
    return [value >> (bits * k) & ((1 << bits) - 1) for k in range(count)]


def run(dut, words, expected, drops, stall, seed):
    """Send `words` (data, last); demand `expected` (data, last), raising `drop` where told.

    Returns the clocks from the first input to the last output.
    """
    rng = random.Random(seed)
    clocks = 0

    async def bench(ctx):
        nonlocal clocks
        sent, got, offered, held = 0, 0, False, None
        while got < len(expected):
            offered = offered or (sent < len(words) and rng.random() >= stall)
            ctx.set(dut.i.valid, offered)
            if offered:
                ctx.set(dut.i.payload, dict(zip(("data", "last"), words[sent], strict=True)))
            ready = rng.random() >= stall
            valid = ctx.get(dut.o.valid)
            ctx.set(dut.o.ready, ready)
            ctx.set(dut.drop, drops[got] if ready else rng.randrange(2))
            assert ctx.get(dut.o.valid) == valid
            output = (ctx.get(dut.o.payload.data), ctx.get(dut.o.payload.last)) if valid else None
            assert held is None or held == output, "an offered output changed"
            taken = offered and ctx.get(dut.i.ready)
            await ctx.tick()
            clocks += 1
            assert clocks < 40 * (len(words) + len(expected)) + 100, "stuck"
            held = output
            if valid and ready:
                assert output == expected[got], got
                got, held = got + 1, None
            if taken:
                sent, offered = sent + 1, False
        assert sent == len(words)
        ctx.set(dut.i.valid, 0)
        ctx.set(dut.o.ready, 1)
        for _ in range(3):
            assert not ctx.get(dut.o.valid), "more came out than went in"
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    return clocks


def packing(rng, in_bits, out_bits, images, words):
    """Inputs and outputs of `images` images of `words` input words each, padded at their ends."""
    inputs, outputs = [], []
    for _ in range(images):
        value = rng.getrandbits(in_bits * words)
        beats = -(-in_bits * words // out_bits)
        inputs += [(x, k == words - 1) for k, x in enumerate(split(value, in_bits, words))]
        outputs += [(x, k == beats - 1) for k, x in enumerate(split(value, out_bits, beats))]
    return inputs, outputs


@pytest.mark.parametrize("stall", [0.0, 0.5])
@pytest.mark.parametrize(("in_bits", "out_bits"), WIDTHS)
def test_packs_images_and_pads_their_ends(in_bits, out_bits, stall):
    rng = random.Random(in_bits * out_bits)
    for words in 1, 5, 33:
        inputs, outputs = packing(rng, in_bits, out_bits, 3, words)
        run(Gearbox(in_bits, out_bits), inputs, outputs, [0] * len(outputs), stall, words)


@pytest.mark.parametrize("stall", [0.0, 0.5])
@pytest.mark.parametrize(("in_bits", "out_bits"), WIDTHS)
def test_unpacks_images_and_drops_their_padding(in_bits, out_bits, stall):
    rng = random.Random(in_bits * out_bits)
    for rows in 1, 5, 33:
        inputs, outputs, drops = [], [], []
        for _ in range(3):
            beats = -(-out_bits * rows // in_bits)
            value = rng.getrandbits(in_bits * beats)
            inputs += [(x, 0) for x in split(value, in_bits, beats)]
            outputs += [(x, 0) for x in split(value, out_bits, rows)]
            drops += [k == rows - 1 for k in range(rows)]
        run(Gearbox(in_bits, out_bits), inputs, outputs, drops, stall, rows)


@pytest.mark.parametrize(("in_bits", "out_bits"), WIDTHS)
def test_narrower_side_moves_every_clock(in_bits, out_bits):
    inputs, outputs = packing(random.Random(1), in_bits, out_bits, 1, 60)
    clocks = run(Gearbox(in_bits, out_bits), inputs, outputs, [0] * len(outputs), 0.0, 0)
    assert clocks <= max(len(inputs), len(outputs)) + 2


@pytest.mark.parametrize(("in_bits", "out_bits"), [(128, 128), (256, 128), (64, 128)])
def test_images_follow_each_other_without_a_gap(in_bits, out_bits):
    inputs, outputs = packing(random.Random(1), in_bits, out_bits, 8, 16)
    clocks = run(Gearbox(in_bits, out_bits), inputs, outputs, [0] * len(outputs), 0.0, 0)
    assert clocks <= max(len(inputs), len(outputs)) + 2


def test_refuses_a_width_that_is_not_positive():
    with pytest.raises(ValueError, match="out_bits must be positive, not 0"):
        Gearbox(8, 0)
