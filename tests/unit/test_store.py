import random
from dataclasses import dataclass, field

import pytest
from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.sim import Simulator

from hw.config import Config
from hw.control.commands import Source
from hw.isa import Kind
from hw.memory.store import StoreUnit

SMALL = dict(spad_kib=1, acc_kib=1, spad_banks=1, acc_banks=2)
CONFIGS = [
    Config(tile=2, mant_width=8, axi_width=32, outstanding=2, write_buffer=4, **SMALL),
    Config(tile=2, mant_width=4, axi_width=128, outstanding=1, write_buffer=16, **SMALL),
    Config(tile=3, mant_width=8, axi_width=64, outstanding=3, write_buffer=8, **SMALL),
    Config(tile=3, mant_width=12, axi_width=32, outstanding=16, write_buffer=64, **SMALL),
    Config(tile=4, mant_width=8, axi_width=64, outstanding=16, write_buffer=64, **SMALL),
    Config(tile=4, mant_width=16, axi_width=512, outstanding=4, write_buffer=8, **SMALL),
    Config(tile=5, mant_width=4, axi_width=32, outstanding=5, write_buffer=32, **SMALL),
    Config(tile=5, mant_width=6, axi_width=64, outstanding=8, write_buffer=16, **SMALL),
    Config(tile=5, mant_width=9, axi_width=256, outstanding=2, write_buffer=512, **SMALL),
]
each_config = pytest.mark.parametrize(
    "cfg", CONFIGS, ids=lambda c: f"T{c.tile}_m{c.mant_width}_axi{c.axi_width}")


# --- the contract of docs/numerics.md -----------------------------------------------------------

def stochastic_bits(row, col, seed, salt):
    x, y = row & 0xFFFF, col & 0xFFFF
    for key in (seed & 0xFFFF ^ row >> 16, salt & 0xFFFF ^ col >> 16, seed >> 16, salt >> 16,
                seed & 0xFFFF ^ 0x9E37, salt & 0xFFFF ^ 0x79B9):
        x = ((x >> 7 | x << 9) + y & 0xFFFF) ^ key
        y = ((y << 2 | y >> 14) & 0xFFFF) ^ x
    return x


def mantissa(m, x, exponent, r):
    """Mantissa of one element; `r` None rounds to nearest even."""
    size = x >> 23 & 255
    if exponent in (0, 255) or size == 0:
        return 0
    scaled, shift = ((1 << 23) + (x & 0x7FFFFF)) << 16, 25 - m + exponent - size
    whole, part = scaled >> shift >> 16, scaled >> shift & 0xFFFF
    if r is not None:
        whole += part + r >= 1 << 16
    else:
        rest = scaled - (whole << shift + 16)
        half = 1 << shift + 15
        whole += rest > half or (rest == half and whole & 1)
    whole = min(whole, (1 << m - 1) - 1)
    return -whole if x >> 31 else whole


def image(cfg, cmd, tile, seed):
    """DRAM image of `tile` under command `cmd`, and whether it holds a NaN or Inf."""
    size = cfg.tile
    words = [[tile[r][c] if r < cmd["rows"] and c < cmd["cols"] else 0 for c in range(size)]
             for r in range(size)]
    sizes = [max(w >> 23 & 255 for w in row) for row in words]

    def padded(value, bits):
        beats = -(-bits // cfg.axi_width)
        return value.to_bytes(beats * cfg.axi_width // 8, "little")

    if not cmd["bfp"]:
        value = sum(words[r][c] << 32 * (r * size + c) for r in range(size) for c in range(size))
        return padded(value, 32 * size * size), max(sizes) == 255
    exponents = sizes if cmd["row_exp"] else [max(sizes)] * size
    value = 0
    for r in range(size):
        for c in range(size):
            bits = stochastic_bits((cmd["row0"] + r) % 2**20, (cmd["col0"] + c) % 2**20, seed,
                                   cmd["salt"]) if cmd["stochastic"] else None
            q = mantissa(cfg.mant_width, words[r][c], exponents[r], bits)
            value |= (q & (1 << cfg.container) - 1) << cfg.container * (r * size + c)
    heads = sum(e << 8 * r for r, e in enumerate(exponents))
    return (padded(heads, 8 * size) + padded(value, cfg.container * size * size),
            max(sizes) == 255)


# --- stimulus -----------------------------------------------------------------------------------

def random_tile(cfg, rng):
    centre, spread = rng.randrange(30, 200), rng.choice([0, 3, 12, 30])
    odd = rng.choice([0, 0, 0, 1, 3])

    def element():
        if rng.randrange(20) < odd:
            return rng.choice([0x7FC00000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x00800000, 1])
        if rng.randrange(6) == 0:
            return 0
        return (rng.getrandbits(1) << 31 | centre + rng.randint(0, spread) << 23
                | rng.choice([0, 0x7FFFFF, rng.getrandbits(23)]))

    return [[element() for _ in range(cfg.tile)] for _ in range(cfg.tile)]


def random_commands(cfg, rng, count, **fixed):
    """Commands on images that do not overlap; beats in between stay untouched."""
    commands, addr = [], 0
    for k in range(count):
        addr += rng.choice([0, 0, rng.randrange(4)]) * cfg.beat_bytes
        bfp = rng.randrange(2)
        cmd = dict(source=rng.choice(list(Source)), slot=rng.randrange(cfg.acc_slots),
                   kind=rng.choice(list(Kind)), bfp=bfp,
                   row_exp=k & 1, stochastic=k >> 1 & 1, final=rng.randrange(2),
                   rows=rng.choice([cfg.tile, rng.randint(1, cfg.tile)]),
                   cols=rng.choice([cfg.tile, rng.randint(1, cfg.tile)]),
                   addr=addr, salt=rng.getrandbits(32),
                   row0=rng.choice([0, 2**20 - 1, rng.getrandbits(20)]),
                   col0=rng.choice([0, 2**20 - 2, rng.getrandbits(20)]))
        cmd.update(fixed)
        commands.append(cmd)
        addr += cfg.bfp_bytes if cmd["bfp"] else cfg.fp32_bytes
    return commands, addr + 4 * cfg.beat_bytes


@dataclass
class Burst:
    offset: int
    beats: int
    data: list = field(default_factory=list)


class Bench:
    """Accumulator and memory around a store unit, and the rules of its interfaces."""

    def __init__(self, cfg, rng, stall=0.0, wait_for_w=False, bad=()):
        self.cfg, self.rng, self.stall = cfg, rng, stall
        self.wait_for_w, self.bad = wait_for_w, bad
        self.dut, self.reset = StoreUnit(cfg), Signal()
        self.acc = [random_tile(cfg, rng) for _ in range(cfg.acc_slots)]
        self.seed = rng.getrandbits(32)
        self.base = 0x8_7654_0000 % 2**cfg.addr_width + rng.choice(
            [0, rng.randrange(0, 4096, cfg.beat_bytes), 4096 - cfg.beat_bytes])

    def start(self, commands, size):
        self.commands, self.memory = commands, bytearray(b"\xA5" * size)
        self.taken = 0
        self.reads, self.read_now = [], None
        self.raised, self.accepted, self.filling, self.answers = [], 0, 0, 0
        self.errors, self.error_pulses = [], []
        self.store_reads = self.store_dones = self.nonfinite = 0
        self.counted = dict.fromkeys(Kind, 0)
        self.offering, self.held_aw, self.held_w, self.held_r = False, None, None, None
        self.b_offered = None
        self.first_w = self.last_w = None
        self.clock = 0

    def chance(self):
        return self.rng.random() >= self.stall

    async def step(self, ctx, abort=0):
        dut, rng = self.dut, self.rng
        get = ctx.get
        # Drive.
        ctx.set(dut.abort, abort)
        self.offering = self.offering or (self.taken < len(self.commands) and self.chance())
        ctx.set(dut.cmd.valid, self.offering)
        if self.offering:
            ctx.set(dut.cmd.payload, self.commands[self.taken])
        if self.read_now is not None:
            slot, row = self.read_now
            ctx.set(dut.s_r_data, self.acc[slot][row])
            self.read_now = None
        aw_valid, w_valid = get(dut.aw_valid), get(dut.w_valid)
        w_ready = self.chance()
        # A slave may hold back AW until it has seen all the data.
        aw_ready = (self.filling > self.accepted or self.accepted < len(self.raised) - 1
                    if self.wait_for_w else self.chance())
        complete = min(self.accepted, self.filling)  # bursts with address and all data
        if self.b_offered is None and self.answers < complete and self.chance():
            self.b_offered = rng.randrange(2) + 2 * (self.answers in self.bad)
        ctx.set(dut.aw_ready, aw_ready)
        ctx.set(dut.w_ready, w_ready)
        ctx.set(dut.s_r_ready, self.chance())
        ctx.set(dut.b_valid, self.b_offered is not None)
        ctx.set(dut.b_resp, self.b_offered if self.b_offered is not None else 3)
        assert (aw_valid, w_valid) == (get(dut.aw_valid), get(dut.w_valid))

        # Look.
        aw = (get(dut.aw_addr), get(dut.aw_len)) if aw_valid else None
        if self.held_aw is not None:
            assert aw == self.held_aw, "AW changed while it waited"
        elif aw is not None:
            self.check_address(*aw)
            self.raised.append(Burst(aw[0] - self.base, aw[1] + 1))
        aw_taken = aw_valid and aw_ready
        owed = self.filling < len(self.raised)
        assert w_valid == owed, "W flows exactly while a raised burst is incomplete"
        w = (get(dut.w_data), get(dut.w_last)) if w_valid else None
        assert self.held_w in (None, w), "W changed while it waited"
        outstanding = len(self.raised) - self.answers
        assert outstanding <= self.cfg.outstanding
        assert get(dut.idle) == (outstanding == 0)
        request = (get(dut.s_r_slot), get(dut.s_r_row)) if get(dut.s_r_valid) else None
        assert self.held_r in (None, request), "an accumulator request changed while it waited"
        read_taken = request is not None and get(dut.s_r_ready)
        cmd_taken = self.offering and get(dut.cmd.ready)
        assert not (cmd_taken and abort)
        b_taken = self.b_offered is not None and get(dut.b_ready)
        assert get(dut.count_en) == aw_taken
        if aw_taken:
            assert get(dut.count_bytes) == (aw[1] + 1) * self.cfg.beat_bytes
            self.counted[Kind(get(dut.count_kind))] += get(dut.count_bytes)
        if get(dut.store_read):
            source = self.commands[self.store_reads]["source"]
            assert get(dut.store_read_source) == source
            self.store_reads += 1
            rows = sum(c["rows"] for c in self.commands[:self.store_reads])
            assert len(self.reads) >= rows, "store_read before the last read"
            assert len(self.reads) <= rows + 1, "store_read late"
        if get(dut.store_done):
            source = self.commands[self.store_dones]["source"]
            assert get(dut.store_done_source) == source
            self.store_dones += 1
            assert self.answered_bytes() >= self.image_end(self.store_dones), "store_done early"
        self.nonfinite += get(dut.nonfinite)
        if get(dut.error):
            self.error_pulses.append(get(dut.error_addr))
        await ctx.tick()
        self.clock += 1

        # Move.
        self.held_aw = None if aw_taken else aw
        self.accepted += aw_taken
        self.held_w = w
        if w_valid and w_ready:
            self.held_w = None
            self.first_w = self.clock if self.first_w is None else self.first_w
            self.last_w = self.clock
            self.take_beat(*w)
        self.held_r = None if read_taken else request
        if read_taken:
            self.reads.append(request)
            self.read_now = request
        if cmd_taken:
            self.taken, self.offering = self.taken + 1, False
        if b_taken:
            if self.b_offered >= 2:
                self.errors.append(self.raised[self.answers].offset)
            self.answers, self.b_offered = self.answers + 1, None

    def check_address(self, addr, length):
        beats = length + 1
        assert addr % self.cfg.beat_bytes == 0
        assert addr // 4096 == (addr + beats * self.cfg.beat_bytes - 1) // 4096, "crosses 4 KiB"
        assert beats <= min(256, self.cfg.write_buffer // 2)

    def take_beat(self, data, last):
        burst = self.raised[self.filling]
        at = burst.offset + len(burst.data) * self.cfg.beat_bytes
        burst.data.append(data)
        assert last == (len(burst.data) == burst.beats)
        self.memory[at:at + self.cfg.beat_bytes] = data.to_bytes(self.cfg.beat_bytes, "little")
        self.filling += last

    def answered_bytes(self):
        return sum(b.beats for b in self.raised[:self.answers]) * self.cfg.beat_bytes

    def image_end(self, count):
        return sum(self.cfg.bfp_bytes if c["bfp"] else self.cfg.fp32_bytes
                   for c in self.commands[:count])

    async def finish(self, ctx, limit=20000):
        """Run all commands; check the memory, every pulse and every counter."""
        dut = self.dut
        ctx.set(dut.seed, self.seed)
        ctx.set(dut.base, self.base)
        while self.answered_bytes() < self.image_end(len(self.commands)):
            await self.step(ctx)
            assert self.clock < limit, "stuck"
        for _ in range(5):
            await self.step(ctx)
        expected, nonfinite = bytearray(b"\xA5" * len(self.memory)), 0
        counted = dict.fromkeys(Kind, 0)
        for cmd in self.commands:
            data, bad = image(self.cfg, cmd, self.acc[cmd["slot"]], self.seed)
            expected[cmd["addr"]:cmd["addr"] + len(data)] = data
            nonfinite += bad and cmd["final"]
            counted[cmd["kind"]] += len(data)
        assert self.memory == expected
        assert self.nonfinite == nonfinite
        assert self.counted == counted
        assert self.reads == [(c["slot"], r) for c in self.commands for r in range(c["rows"])]
        assert self.store_reads == len(self.commands)
        assert self.error_pulses == self.errors
        if not self.errors:
            assert self.store_dones == len(self.commands)

    def run(self, process):
        m = Module()
        m.submodules.dut = ResetInserter(self.reset)(self.dut)
        sim = Simulator(m)
        sim.add_clock(1e-6)
        sim.add_testbench(process)
        sim.run()


def run(cfg, rng, commands, size, **options):
    bench = Bench(cfg, rng, **options)
    bench.start(commands, size)
    bench.run(bench.finish)
    return bench


# --- tests --------------------------------------------------------------------------------------

@each_config
@pytest.mark.parametrize("stall", [0.0, 0.5])
def test_images(cfg, stall):
    rng = random.Random(f"{cfg}{stall}")
    run(cfg, rng, *random_commands(cfg, rng, 24), stall=stall)


@each_config
def test_memory_that_takes_data_before_addresses(cfg):
    rng = random.Random(str(cfg))
    run(cfg, rng, *random_commands(cfg, rng, 12), stall=0.2, wait_for_w=True)


@pytest.mark.parametrize(("write_buffer", "base", "bursts"), [
    (512, 0x1000_0000, [256, 33]),
    (512, 0x1000_0FC0, [16, 256, 17]),
    (64, 0x1000_0000, [32] * 9 + [1]),
])
def test_bursts_are_as_long_as_the_rules_allow(write_buffer, base, bursts):
    cfg = Config(tile=17, axi_width=32, write_buffer=write_buffer, spad_kib=16, acc_kib=8)
    rng = random.Random(1)
    bench = Bench(cfg, rng)
    bench.base = base
    bench.start(*random_commands(cfg, rng, 1, bfp=0, addr=0))
    bench.run(bench.finish)
    assert [b.beats for b in bench.raised] == bursts


@each_config
def test_error_responses(cfg):
    rng = random.Random(str(cfg))
    bench = Bench(cfg, rng, stall=0.3, bad=(9, 11, 12))
    bench.start(*random_commands(cfg, rng, 20))

    async def process(ctx):
        await bench.finish(ctx)
        assert len(bench.errors) == 3
        first = bench.errors[0]
        good = sum(c["addr"] + (cfg.bfp_bytes if c["bfp"] else cfg.fp32_bytes) <= first
                   for c in bench.commands)
        assert bench.store_dones == good, "no store_done at or after an error"

    bench.run(process)


@each_config
@pytest.mark.parametrize("wait_for_w", [False, True])
def test_abort_finishes_what_is_owed_and_the_unit_starts_afresh(cfg, wait_for_w):
    rng = random.Random(str(cfg))
    bench = Bench(cfg, rng, stall=0.3, wait_for_w=wait_for_w)

    async def process(ctx):
        ctx.set(bench.dut.seed, bench.seed)
        ctx.set(bench.dut.base, bench.base)
        for _ in range(5):
            bench.start(*random_commands(cfg, rng, 20))
            for _ in range(rng.randrange(5, 120)):
                await bench.step(ctx)
            waits = bench.held_aw is not None
            raised = len(bench.raised)
            # The AW of this clock's burst may show up in the next.
            new = not waits and ctx.get(bench.dut.aw_valid)
            limit = bench.clock + 2000
            await bench.step(ctx, abort=1)
            while not ctx.get(bench.dut.idle):
                await bench.step(ctx, abort=1)
                assert bench.clock < limit, "never idle"
            assert len(bench.raised) <= raised + new
            for _ in range(5):
                await bench.step(ctx, abort=1)
                assert ctx.get(bench.dut.idle)
            assert bench.filling == bench.accepted == bench.answers == len(bench.raised)
            ctx.set(bench.reset, 1)
            ctx.set(bench.dut.cmd.valid, 0)
            await ctx.tick()
            ctx.set(bench.reset, 0)
        bench.start(*random_commands(cfg, rng, 6))
        await bench.finish(ctx)

    bench.run(process)


def rate(cfg, count, image_bytes, **fixed):
    """Clocks per tile in which `count` tiles leave when nothing stalls."""
    rng = random.Random(5)
    commands, _ = random_commands(cfg, rng, count, rows=cfg.tile, **fixed)
    for k, cmd in enumerate(commands):
        cmd["addr"] = k * image_bytes
    bench = Bench(cfg, rng)
    bench.base = 0x1000_0000
    bench.start(commands, count * image_bytes)
    bench.run(bench.finish)
    return (bench.last_w - bench.first_w + 1) / count


@pytest.mark.parametrize("row_exp", [0, 1])
def test_bfp_tiles_leave_at_a_beat_per_clock(row_exp):
    cfg = Config()
    assert cfg.axi_width == cfg.tile * cfg.container
    assert rate(cfg, 8, cfg.bfp_bytes, bfp=1, row_exp=row_exp) <= cfg.bfp_beats + 0.25


def test_fp32_tiles_leave_at_a_beat_per_clock():
    cfg = Config()
    assert rate(cfg, 3, cfg.fp32_bytes, bfp=0) == cfg.fp32_beats
