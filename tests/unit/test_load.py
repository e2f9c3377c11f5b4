# amaranth: UnusedElaboratable=no
import random
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from hw.config import Config, load, presets
from hw.control.commands import Destination, Source, load_command
from hw.isa import Kind
from hw.memory.axi import image_beats
from hw.memory.load import LoadUnit

BASE = 0x12_3456_7000
SPAD, ACC, PROGRAM, DESCRIPTOR = Destination
#: Limits of bursts that do not limit: max_beats, credits.
FREE = 256, 65535


def config(tile, mant_width, axi_width, **others):
    return Config(tile=tile, mant_width=mant_width, axi_width=axi_width, spad_kib=8, acc_kib=8,
                  **others)


def words(value, bits, count):
    return [value >> (bits * k) & ((1 << bits) - 1) for k in range(count)]


def fp32(value):
    """Bits of a float that FP32 holds exactly, or that is too small for a normal number."""
    return struct.unpack("<I", struct.pack("<f", value))[0] if abs(value) >= 2.0**-126 else 0


def canonical(word):
    if word & 0x7F800000 == 0:
        return 0
    return 0x7FC00000 if word & 0x7FFFFFFF > 0x7F800000 else word


def beats_of(cfg, command):
    if command["dest"] == PROGRAM:
        return max(1, 1024 // cfg.axi_width)
    if command["dest"] == DESCRIPTOR:
        return cfg.entry_bytes // cfg.beat_bytes
    return cfg.image_beats(not command["fp32"], command["rows"])


def expected_rows(cfg, command, image):
    """What a tile command writes: (exponent, mantissas or FP32 words) of every row."""
    t, m = cfg.tile, cfg.mant_width
    rows = []
    for r in range(command["rows"] if command["gather"] else t):
        valid = [r < command["rows"] and c < command["cols"] for c in range(t)]
        if command["fp32"]:
            row = words(image >> 32 * t * r, 32, t)
            row = [canonical(x) if ok else 0 for x, ok in zip(row, valid, strict=True)]
            rows.append((None, row))
            continue
        exponent = image >> (8 * r if command["row_exp"] else 0) & 255
        if command["row_exp"] and r >= command["rows"]:
            exponent = 0
        codes = words(image >> cfg.axi_width * cfg.exp_beats + cfg.container * t * r,
                      cfg.container, t)
        q = [(code % 2**m ^ 1 << m - 1) - (1 << m - 1) for code in codes]
        q = [max(x, -cfg.q_max) if ok and 0 < exponent < 255 else 0
             for x, ok in zip(q, valid, strict=True)]
        if command["dest"] == SPAD:
            rows.append((exponent, [abs(x) | (x < 0) << m - 1 for x in q]))
        else:
            rows.append((None, [0x7FC00000 if exponent == 255 and ok
                                else fp32(x * 2.0**(exponent - 127 - (m - 2)))
                                for x, ok in zip(q, valid, strict=True)]))
    return rows


def bursts_of(cfg, commands):
    """Yields (address, beats) of the bursts of `commands`; sent is what `max_beats` is."""
    max_beats = yield
    for command in commands:
        address, left = BASE + command["addr"], beats_of(cfg, command)
        while left:
            beats = min(left, 256, cfg.read_buffer, max(1, max_beats),
                        (4096 - address % 4096) // cfg.beat_bytes)
            max_beats = yield address, beats
            address, left = address + beats * cfg.beat_bytes, left - beats


def expected_bursts(cfg, command):
    """(address, beats) of the bursts of a command without limits."""
    source = bursts_of(cfg, [command])
    next(source)
    bursts = []
    with suppress(StopIteration):
        while True:
            bursts.append(source.send(FREE[0]))
    return bursts


def random_image(rng, cfg, command):
    image = bytearray(rng.randbytes(beats_of(cfg, command) * cfg.beat_bytes))
    if command["dest"] in (PROGRAM, DESCRIPTOR):
        return image
    if command["fp32"]:
        for k in range(0, 4 * cfg.tile * command["rows"], 4):
            if rng.random() < 0.5:
                special = [0x80000000, 1, 0x807FFFFF, 0x7F800000, 0xFF800000, 0x7F800001,
                           0xFFFFFFFF, 0x00800000, 0x7F7FFFFF]
                image[k:k + 4] = rng.choice(special).to_bytes(4, "little")
    else:
        for k in range(cfg.tile):
            image[k] = rng.choice([0, 255, 254, rng.randrange(1, cfg.mant_width), image[k]])
        for k in range(cfg.exp_beats * cfg.beat_bytes, len(image)):
            if rng.random() < 0.3:
                image[k] = rng.choice([0x80, 0x88, 0x08, 0, 1, 0xFF])
    return image


def random_commands(rng, cfg, count, dests=(SPAD, SPAD, ACC, ACC, ACC, PROGRAM, DESCRIPTOR)):
    commands = []
    for _ in range(count):
        dest = rng.choice(dests)
        full = rng.random() < 0.3
        gather = dest in (SPAD, ACC) and rng.randrange(2)
        commands.append({
            "source": rng.choice(list(Source)), "dest": dest, "kind": rng.choice(list(Kind)),
            "fp32": rng.randrange(2) if dest == ACC else 0, "row_exp": rng.randrange(2),
            "gather": gather, "row": rng.randrange(cfg.tile),
            "slot": rng.randrange(cfg.acc_slots if dest == ACC
                                  else cfg.spad_slots - gather * (cfg.tile - 1)),
            "rows": 1 if gather and dest == ACC else
                    cfg.tile if full else rng.randint(1, cfg.tile),
            "cols": cfg.tile if full else rng.randint(1, cfg.tile),
            # often close below a 4 KiB boundary
            "addr": rng.randrange(1 << 10) * 4096
            + (rng.choice([-rng.randrange(40), rng.randrange(4096)]) * cfg.beat_bytes) % 4096,
        })
    return commands


@dataclass
class Outcome:
    bursts: list = field(default_factory=list)       # (address, beats) as accepted
    counts: list = field(default_factory=list)       # (kind, bytes)
    events: list = field(default_factory=list)       # what the unit did, in order
    errors: list = field(default_factory=list)       # addresses
    idle_clocks: list = field(default_factory=list)  # since `abort`: idle in this clock
    unanswered: list = field(default_factory=list)   # bursts raised or unanswered in this clock
    owed: list = field(default_factory=list)         # beats raised and not arrived in this clock
    clocks: int = 0


def run(cfg, commands, images, *, stall=0.0, latency=3, seed=0, bad_beats=(), abort_at=None,
        block_at=None, clocks=None, limits=(FREE,)):
    """Feed `commands` to a LoadUnit with a memory behind it; stop when all are done.

    `bad_beats` are numbers of beats, counted over the run, that get an error response. From clock
    `block_at` on the memories take no rows. With `clocks` the run ends then. `limits` are
    (max_beats, credits), one of which holds at a time, changed at random.
    """
    rng = random.Random(seed)
    dut, out = LoadUnit(cfg), Outcome()
    queue = []                                       # (clock from which it is answered, beat, last)
    contents = {}
    for command, image in zip(commands, images, strict=True):
        for k in range(0, len(image), cfg.beat_bytes):
            contents.setdefault(BASE + command["addr"] + k, []).append(
                int.from_bytes(image[k:k + cfg.beat_bytes], "little"))

    async def bench(ctx):
        sent, offered, beat_offered, beats = 0, False, False, 0
        held_ar = held_row = None
        before = 0, *FREE                            # owed and limits in the clock before
        owed = 0
        bursts = bursts_of(cfg, commands)
        next(bursts)
        done = finished = 0
        ctx.set(dut.base, BASE)
        while finished < len(commands) if clocks is None else out.clocks < clocks:
            aborted = abort_at is not None and out.clocks >= abort_at
            ctx.set(dut.abort, aborted)
            offered = offered or (sent < len(commands) and rng.random() >= stall)
            ctx.set(dut.cmd.valid, offered)
            if offered:
                ctx.set(dut.cmd.payload, load_command(cfg).const(commands[sent]))
            ctx.set(dut.ar_ready, rng.random() >= stall)
            for ready in dut.l_w_ready, dut.w_ready:
                ctx.set(ready, (block_at is None or out.clocks < block_at)
                        and rng.random() >= stall)
            max_beats, credits = before[1:] if rng.random() < 0.9 else rng.choice(limits)
            if out.clocks == 0:
                max_beats, credits = limits[0]
            ctx.set(dut.max_beats, max_beats)
            ctx.set(dut.credits, credits)
            beat_offered = bool(queue) and queue[0][0] <= out.clocks and (
                beat_offered or rng.random() >= stall)
            ctx.set(dut.r_valid, beat_offered)
            if beat_offered:
                ctx.set(dut.r_data, queue[0][1])
                ctx.set(dut.r_last, queue[0][2])
                ctx.set(dut.r_resp, rng.choice([2, 3]) if beats in bad_beats
                        else rng.choice([0, 1]))

            # ---- what happens in this clock
            ar = (ctx.get(dut.ar_addr), ctx.get(dut.ar_len) + 1) if ctx.get(dut.ar_valid) else None
            assert held_ar is None or held_ar == ar, "a raised burst changed"
            if ar and not held_ar:
                assert ar == bursts.send(before[1])
                assert not before[0] or before[0] + ar[1] <= before[2], "more than the credits"
                owed += ar[1]
            assert ctx.get(dut.owed) == owed
            before = owed, max_beats, credits
            out.owed.append(owed)
            row = None
            if ctx.get(dut.w_valid):
                row = ("spad", ctx.get(dut.w_slot), ctx.get(dut.w_row), ctx.get(dut.w_exp),
                       [ctx.get(x) for x in dut.w_data])
            if ctx.get(dut.l_w_valid):
                assert row is None, "rows of two commands at a time"
                row = ("acc", ctx.get(dut.l_w_slot), ctx.get(dut.l_w_row), None,
                       [ctx.get(x) for x in dut.l_w_data])
            assert held_row is None or held_row == row, "an offered row changed"
            held_row = row
            if row and ctx.get(dut.w_ready if row[0] == "spad" else dut.l_w_ready):
                out.events.append(row)
                held_row = None
            if ctx.get(dut.load_done):
                out.events.append(("done", ctx.get(dut.load_source)))
                finished += 1
            if ctx.get(dut.instr_valid):
                out.events.append(("instr", ctx.get(dut.instr)))
                finished += 1
            if ctx.get(dut.descriptor_valid):
                out.events.append(("descriptor", ctx.get(dut.descriptor)))
                finished += 1
            if ctx.get(dut.error):
                out.errors.append(ctx.get(dut.error_addr))
            in_flight = len(out.bursts) - done + (ar is not None)
            assert in_flight <= cfg.outstanding, "more bursts than allowed"
            out.unanswered.append(in_flight)
            out.idle_clocks.append(ctx.get(dut.idle))
            counted = ctx.get(dut.count_en)
            held_ar = ar
            if ar and ctx.get(dut.ar_ready):
                held_ar = None
                assert counted
                out.bursts.append(ar)
                out.counts.append((ctx.get(dut.count_kind), ctx.get(dut.count_bytes)))
                for k in range(ar[1]):
                    data = contents[ar[0] + k * cfg.beat_bytes].pop(0)
                    queue.append((out.clocks + latency, data, k == ar[1] - 1))
            else:
                assert not counted
            if beat_offered and ctx.get(dut.r_ready):
                done += queue.pop(0)[2]
                owed -= 1
                beats, beat_offered = beats + 1, False
            if aborted:
                assert not ctx.get(dut.cmd.ready)
                assert ctx.get(dut.r_ready)
            if offered and ctx.get(dut.cmd.ready):
                sent, offered = sent + 1, False
            await ctx.tick()
            out.clocks += 1
            assert out.clocks < 200 * (len(commands) + 1) * cfg.fp32_beats, "stuck"

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    return out


def expected_events(cfg, commands, images):
    events = []
    for command, image in zip(commands, images, strict=True):
        image = int.from_bytes(image, "little")
        if command["dest"] == PROGRAM:
            events.append(("instr", image % 2**1024))
            continue
        if command["dest"] == DESCRIPTOR:
            events.append(("descriptor", image % 2**128))
            continue
        memory = "spad" if command["dest"] == SPAD else "acc"
        for r, (exponent, row) in enumerate(expected_rows(cfg, command, image)):
            where = (command["slot"] + r, command["row"]) if command["gather"] \
                else (command["slot"], r)
            events.append((memory, *where, exponent, row))
        events.append(("done", command["source"]))
    return events


def split_events(events):
    """Tile events, and instructions and descriptors; between the two there is no order."""
    others = "instr", "descriptor"
    return [e for e in events if e[0] not in others], [e for e in events if e[0] in others]


CONFIGS = [(2, 4, 32), (2, 8, 512), (3, 5, 64), (3, 4, 32), (4, 8, 64), (4, 4, 512), (4, 12, 32),
           (5, 8, 128), (5, 16, 256), (5, 4, 64), (4, 9, 1024), (6, 8, 32), (12, 8, 64)]


@pytest.mark.parametrize("stall", [0.0, 0.5])
@pytest.mark.parametrize("sizes", CONFIGS)
def test_unpacks_what_memory_holds(sizes, stall):
    cfg = config(*sizes, outstanding=3)
    rng = random.Random(str(sizes))
    commands = random_commands(rng, cfg, 40)
    images = [random_image(rng, cfg, c) for c in commands]
    out = run(cfg, commands, images, stall=stall, seed=1, latency=rng.choice([1, 4, 20]))
    assert split_events(out.events) == split_events(expected_events(cfg, commands, images))
    assert out.bursts == [b for c in commands for b in expected_bursts(cfg, c)]
    assert out.counts == [(c["kind"], n * cfg.beat_bytes)
                          for c in commands for _, n in expected_bursts(cfg, c)]
    assert not out.errors
    assert [bool(x) for x in out.idle_clocks] == [n == 0 for n in out.unanswered]


@pytest.mark.parametrize("cfg", [*map(load, presets()), *(config(*sizes) for sizes in CONFIGS)],
                         ids=lambda cfg: f"t{cfg.tile}m{cfg.mant_width}b{cfg.axi_width}")
def test_beats_of_rows(cfg):
    m, bfp, rows, beats = Module(), Signal(), Signal(cfg.count_bits), Signal(16)
    m.d.comb += beats.eq(image_beats(cfg, bfp, rows))

    async def bench(ctx):
        for n in range(1, cfg.tile + 1):
            for kind in 0, 1:
                ctx.set(bfp, kind)
                ctx.set(rows, n)
                assert ctx.get(beats) == cfg.image_beats(bool(kind), n)

    sim = Simulator(m)
    sim.add_testbench(bench)
    sim.run()


@pytest.mark.parametrize("max_beats", [256, 511])
def test_splits_long_images(max_beats):
    cfg = Config(tile=20, mant_width=8, axi_width=32, spad_kib=8, acc_kib=8)
    commands = [{"source": Source.VECTOR, "dest": ACC, "kind": Kind.PARTIAL, "fp32": 1,
                 "row_exp": 0, "gather": 0, "row": 0, "slot": 1, "rows": 20, "cols": 20,
                 "addr": addr}
                for addr in (0, 4096 - 4 * 260)]
    rng = random.Random(0)
    images = [random_image(rng, cfg, c) for c in commands]
    out = run(cfg, commands, images, limits=[(max_beats, 65535)])
    assert out.bursts == [(BASE, 256), (BASE + 1024, 144), (BASE + 3056, 256), (BASE + 4080, 4),
                          (BASE + 4096, 140)]
    assert out.events == expected_events(cfg, commands, images)


@pytest.mark.parametrize(("sizes", "clocks"), [((16, 8, 128), 17), ((4, 8, 64), 4), ((2, 8, 32), 2),
                                               ((5, 8, 512), 5)])
def test_keeps_up_with_the_bus(sizes, clocks):
    cfg = config(*sizes)
    rng = random.Random(0)
    commands = random_commands(rng, cfg, 40, dests=(SPAD,))
    for k, command in enumerate(commands):  # no burst crosses a boundary
        command |= {"addr": k * 4096, "gather": 0, "rows": cfg.tile}
    images = [random_image(rng, cfg, c) for c in commands]
    out = run(cfg, commands, images, latency=8)
    assert out.events == expected_events(cfg, commands, images)
    assert out.clocks <= clocks * len(commands) + 25


@pytest.mark.parametrize("sizes", [(16, 8, 128), (4, 8, 64), (5, 8, 512)])
def test_gathers_keep_up_with_the_bus(sizes):
    cfg = config(*sizes)
    rng = random.Random(0)
    commands = random_commands(rng, cfg, 60, dests=(SPAD,))
    for k, command in enumerate(commands):
        command |= {"addr": k * 4096, "gather": 1, "slot": 0, "rows": 1 + k % 2}
    images = [random_image(rng, cfg, c) for c in commands]
    out = run(cfg, commands, images, latency=8)
    assert out.events == expected_events(cfg, commands, images)
    assert out.clocks <= sum(max(2, beats_of(cfg, c)) for c in commands) + 25


@pytest.mark.parametrize("credits", [0, 3, 4, 6, 9, 11])
def test_uses_its_credits(credits):
    cfg = config(4, 8, 64)
    rng = random.Random(0)
    commands = random_commands(rng, cfg, 12, dests=(ACC,))
    for k, command in enumerate(commands):
        command |= {"addr": k * 4096, "rows": 4, "fp32": 1, "gather": 0}
    images = [random_image(rng, cfg, c) for c in commands]
    out = run(cfg, commands, images, latency=20, limits=[(4, credits)])
    assert out.events == expected_events(cfg, commands, images)
    # when a burst is raised in the clock in which a beat arrives, one credit stays unused
    assert max(out.owed) in ((credits - 1, credits) if credits > 4 else (4,))


@pytest.mark.parametrize("seed", range(4))
def test_limits_change_at_any_time(seed):
    cfg = config(*[(5, 8, 128), (4, 8, 64), (12, 8, 64), (10, 8, 32)][seed], outstanding=5)
    rng = random.Random(seed)
    commands = random_commands(rng, cfg, 40)
    images = [random_image(rng, cfg, c) for c in commands]
    out = run(cfg, commands, images, stall=0.2 * seed, seed=seed, latency=20,
              limits=[(0, 0), (1, 3), (2, 65535), (3, 4), (16, 40), (511, 300), FREE])
    assert split_events(out.events) == split_events(expected_events(cfg, commands, images))


@pytest.mark.parametrize("stall", [0.0, 0.5])
def test_reports_error_responses(stall):
    cfg = config(4, 8, 64, outstanding=3)
    rng = random.Random(5)
    commands = random_commands(rng, cfg, 20, dests=(SPAD, ACC))
    images = [random_image(rng, cfg, c) for c in commands]
    of_beat = [c["addr"] for c in commands for _ in range(beats_of(cfg, c))]
    bad = sorted(rng.sample(range(len(of_beat)), 8))
    out = run(cfg, commands, images, stall=stall, bad_beats=bad)
    assert out.errors == [of_beat[k] for k in bad]
    assert out.events == expected_events(cfg, commands, images)


@pytest.mark.parametrize(("dest", "bad"), [
    (PROGRAM, 0), (PROGRAM, 7), (PROGRAM, 15), (PROGRAM, None), (DESCRIPTOR, 0), (DESCRIPTOR, 1),
    (DESCRIPTOR, None)])
def test_what_came_with_an_error_is_not_valid(dest, bad):
    cfg = config(4, 8, 64)
    rng = random.Random(5)
    commands = random_commands(rng, cfg, 2, dests=(dest,))
    images = [random_image(rng, cfg, c) for c in commands]
    out = run(cfg, commands, images, bad_beats=[] if bad is None else [bad], clocks=80)
    assert out.events == expected_events(cfg, commands, images)[0 if bad is None else 1:]
    assert out.errors == ([] if bad is None else [commands[0]["addr"]])


@pytest.mark.parametrize("seed", range(6))
def test_abort_drains_the_bus(seed):
    cfg = config(4, 8, 64, outstanding=5)
    rng = random.Random(seed)
    commands = random_commands(rng, cfg, 100)
    images = [random_image(rng, cfg, c) for c in commands]
    block_at = rng.randrange(40, 150)
    settings = {"stall": rng.choice([0, 0.3, 0.7]), "seed": seed, "block_at": block_at,
                "latency": rng.choice([1, 30])}
    busy = run(cfg, commands, images, **settings, clocks=block_at + 50).unanswered
    at = rng.choice([k for k in range(block_at, block_at + 50) if busy[k - 1] > 0])
    out = run(cfg, commands, images, **settings, abort_at=at, clocks=at + 400)
    assert [bool(x) for x in out.idle_clocks] == [n == 0 for n in out.unanswered]
    assert out.unanswered[at - 1] > 0
    after = out.unanswered[at:]
    assert all(a >= b for a, b in pairwise(after)), "a burst was raised"
    assert after[-1] == 0
    whole, got = (split_events(x) for x in (expected_events(cfg, commands, images), out.events))
    for everything, part in zip(whole, got, strict=True):
        assert part == everything[:len(part)], "something else was written"
