import random
from dataclasses import dataclass, field
from itertools import chain

import pytest
from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib.wiring import connect
from amaranth.sim import Simulator
from exact_bfp import mantissa, stochastic_bits

from hw.config import Config
from hw.control.commands import Source
from hw.isa import Kind
from hw.memory.quantiser import Quantiser
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


def over(configs):
    return pytest.mark.parametrize(
        "cfg", configs, ids=lambda c: f"T{c.tile}_m{c.mant_width}_axi{c.axi_width}")


each_config, some_configs = over(CONFIGS), over(CONFIGS[1::3])


# --- what the unit writes -----------------------------------------------------------------------

def quantised(cfg, cmd, acc, seed):
    """Words, mantissas (BFP) and exponent bytes of the valid rows that `cmd` takes from `acc`."""
    rows = [acc[cmd["slot"] + r][cmd["row"]] if cmd["scatter"] else acc[cmd["slot"]][r]
            for r in range(cmd["rows"])]
    words = [[w if c < cmd["cols"] else 0 for c, w in enumerate(row)] for row in rows]
    sizes = [max(w >> 23 & 255 for w in row) for row in words]
    exponents = sizes if cmd["row_exp"] else [max(sizes)] * cfg.tile
    mantissas = [[
        mantissa(cfg.mant_width, word, exponents[r],
                 stochastic_bits((cmd["row0"] + r) % 2**20, (cmd["col0"] + c) % 2**20, seed,
                                 cmd["salt"]) if cmd["stochastic"] else None)
        for c, word in enumerate(row)] for r, row in enumerate(words)]
    return words, mantissas, exponents, max(sizes) == 255


def image(cfg, cmd, acc, seed):
    """The part of the DRAM image that is written."""
    words, mantissas, exponents, _ = quantised(cfg, cmd, acc, seed)

    def padded(numbers, bits):
        numbers = list(numbers)
        value = sum((n & (1 << bits) - 1) << bits * k for k, n in enumerate(numbers))
        beats = -(-len(numbers) * bits // cfg.axi_width)
        return value.to_bytes(beats * cfg.beat_bytes, "little")

    if not cmd["bfp"]:
        result = padded(chain(*words), 32)
    else:
        heads = exponents + [0] * (cfg.tile - len(exponents))
        result = padded(heads, 8) + padded(chain(*mantissas), cfg.container)
    assert len(result) == cfg.image_beats(cmd["bfp"], cmd["rows"]) * cfg.beat_bytes
    return result


def chip_rows(cfg, number, cmd, acc, seed):
    """What is written to the scratchpad: (number of the command, slot, row, mantissas, exp)."""
    _, mantissas, exponents, _ = quantised(cfg, cmd, acc, seed)
    return [(number, cmd["spad_slot"], r,
             [(q < 0) << cfg.mag_width | abs(q) for q in row], exponents[r])
            for r, row in enumerate(mantissas)]


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


def random_commands(cfg, rng, count, *, chip=0.0, scatter=0.0, raws=0, **fixed):
    """Commands and raw images that do not overlap in DRAM, and the size of what they lie in."""
    commands, raw, addr = [], [], 0
    for k in range(count):
        addr += rng.choice([0, 0, rng.randrange(4)]) * cfg.beat_bytes
        cmd = dict(source=rng.choice(list(Source)), slot=rng.randrange(cfg.acc_slots),
                   scatter=0, row=rng.randrange(cfg.tile), spad=rng.random() < chip,
                   spad_slot=rng.randrange(cfg.spad_slots), kind=rng.choice(list(Kind)),
                   bfp=rng.randrange(2), row_exp=k & 1, stochastic=k >> 1 & 1,
                   final=rng.randrange(2),
                   rows=rng.choice([cfg.tile, rng.randint(1, cfg.tile)]),
                   cols=rng.choice([cfg.tile, rng.randint(1, cfg.tile)]),
                   addr=addr, salt=rng.getrandbits(32),
                   row0=rng.choice([0, 2**20 - 1, rng.getrandbits(20)]),
                   col0=rng.choice([0, 2**20 - 2, rng.getrandbits(20)]))
        if cmd["spad"]:
            cmd["bfp"] = 1
        elif rng.random() < scatter:
            cmd.update(scatter=1, rows=min(cmd["rows"], cfg.acc_slots - cmd["slot"]))
        cmd.update(fixed)
        commands.append(cmd)
        if not cmd["spad"]:
            addr += cfg.image_bytes(cmd["bfp"])
    for _ in range(raws):
        beats = [rng.getrandbits(cfg.axi_width) for _ in range(rng.randint(1, 4))]
        raw.append((addr, beats))
        addr += rng.randint(4, 5) * cfg.beat_bytes
    return commands, raw, addr + 4 * cfg.beat_bytes


@dataclass
class Burst:
    offset: int
    beats: int
    image: object  #: Number of the command, or None of a raw image.
    final: bool    #: The image's last.
    data: list = field(default_factory=list)
    end: int = 0   #: Clock after its last data.


class Bench:
    """Memories around a store unit, and the rules of its interfaces.

    `stall`: chance that a ready is low; `pause`: clocks from the last data to the response;
    `raw_rate`: chance that a raw image begins.
    """

    def __init__(self, cfg, rng, stall=0.0, wait_for_w=False, bad=(), max_beats=(256,), pause=0,
                 raw_rate=0.05):
        self.cfg, self.rng, self.stall = cfg, rng, stall
        self.pause, self.raw_rate = pause, raw_rate
        self.wait_for_w, self.bad, self.max_beats = wait_for_w, bad, max_beats
        self.dut, self.reset = StoreUnit(cfg), Signal()
        self.acc = [random_tile(cfg, rng) for _ in range(cfg.acc_slots)]
        self.seed = rng.getrandbits(32)
        self.base = 0x8_7654_0000 % 2**cfg.addr_width + rng.choice(
            [0, rng.randrange(0, 4096, cfg.beat_bytes), 4096 - cfg.beat_bytes])
        self.clock = 0

    def start(self, commands, raw, size):
        cfg = self.cfg
        self.commands, self.raw, self.memory = commands, raw, bytearray(b"\xA5" * size)
        self.images = {c["addr"]: (k, cfg.image_beats(c["bfp"], c["rows"]))
                       for k, c in enumerate(commands) if not c["spad"]}
        self.images |= {offset: (None, len(beats)) for offset, beats in raw}
        self.taken, self.raw_taken = 0, (0, 0)
        self.reads, self.read_now = [], None
        self.rows, self.expected_rows = [], [
            row for k, c in enumerate(commands) if c["spad"]
            for row in chip_rows(cfg, k, c, self.acc, self.seed)]
        self.raised, self.accepted, self.filling, self.answers = [], 0, 0, 0
        self.beats_left = self.in_quantiser = 0
        self.errors, self.error_pulses = [], []
        self.store_reads = self.store_dones = self.raw_dones = self.nonfinite = 0
        self.due_dram, self.due_chip = [], []  # images that are done, but for the pulse
        self.counted = dict.fromkeys(Kind, 0)
        self.offering = self.offering_raw = False
        self.held_aw = self.held_w = self.held_r = self.held_row = None
        self.b_offered = None
        self.first_w = self.last_w = None
        self.begun = self.clock

    def chance(self):
        return self.rng.random() >= self.stall

    async def step(self, ctx, abort=0):
        dut, rng = self.dut, self.rng
        get = ctx.get
        # Drive.
        ctx.set(dut.abort, abort)
        ctx.set(dut.max_beats, rng.choice(self.max_beats))
        self.offering = self.offering or (self.taken < len(self.commands) and self.chance())
        ctx.set(dut.cmd.valid, self.offering)
        if self.offering:
            ctx.set(dut.cmd.payload, self.commands[self.taken])
        image, beat = self.raw_taken
        self.offering_raw = self.offering_raw or (
            image < len(self.raw) and rng.random() < (0.7 if beat else self.raw_rate))
        ctx.set(dut.raw.valid, self.offering_raw)
        if self.offering_raw:
            offset, beats = self.raw[image]
            ctx.set(dut.raw.payload, dict(data=beats[beat], last=beat == len(beats) - 1,
                                          offset=offset, kind=Kind.REQUEST,
                                          source=Source.REQUEST))
        if self.read_now is not None:
            slot, row = self.read_now
            ctx.set(dut.s_r_data, self.acc[slot][row])
            self.read_now = None
        aw_valid, w_valid = get(dut.aw_valid), get(dut.w_valid)
        row_valid, raw_ready = get(dut.s_w_valid), get(dut.raw.ready)
        w_ready = self.chance()
        # A slave may hold back AW until it has seen all the data.
        aw_ready = (self.filling > self.accepted or self.accepted < len(self.raised) - 1
                    if self.wait_for_w else self.chance())
        complete = min(self.accepted, self.filling)  # bursts with address and all data
        if (self.b_offered is None and self.answers < complete and self.chance()
                and self.clock >= self.raised[self.answers].end + self.pause):
            self.b_offered = rng.randrange(2) + 2 * (self.answers in self.bad)
        row_ready = self.chance()
        ctx.set(dut.aw_ready, aw_ready)
        ctx.set(dut.w_ready, w_ready)
        ctx.set(dut.s_r_ready, self.chance())
        ctx.set(dut.s_w_ready, row_ready)
        ctx.set(dut.b_valid, self.b_offered is not None)
        ctx.set(dut.b_resp, self.b_offered if self.b_offered is not None else 3)
        assert (aw_valid, w_valid, row_valid) == (get(dut.aw_valid), get(dut.w_valid),
                                                  get(dut.s_w_valid))

        # Look.
        aw = (get(dut.aw_addr), get(dut.aw_len)) if aw_valid else None
        if self.held_aw is not None:
            assert aw == self.held_aw, "AW changed while it waited"
        elif aw is not None:
            self.raise_burst(*aw)
        aw_taken = aw_valid and aw_ready
        owed = self.filling < len(self.raised)
        assert w_valid == owed, "W flows exactly while a raised burst is incomplete"
        w = (get(dut.w_data), get(dut.w_last)) if w_valid else None
        assert self.held_w in (None, w), "W changed while it waited"
        outstanding = len(self.raised) - self.answers
        assert outstanding <= self.cfg.outstanding
        asks = get(dut.q.valid)
        assert get(dut.idle) == (outstanding == 0 and self.in_quantiser == 0 and not asks)
        request = (get(dut.s_r_slot), get(dut.s_r_row)) if get(dut.s_r_valid) else None
        assert self.held_r in (None, request), "an accumulator request changed while it waited"
        read_taken = request is not None and get(dut.s_r_ready)
        row = (get(dut.s_w_slot), get(dut.s_w_row), list(get(dut.s_w_data)),
               get(dut.s_w_exp)) if row_valid else None
        assert self.held_row in (None, row), "a row changed while it waited"
        cmd_taken = self.offering and get(dut.cmd.ready)
        raw_taken = self.offering_raw and raw_ready
        assert not (abort and (cmd_taken or raw_taken or asks))
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
            self.see_done(Source(get(dut.store_done_source)))
        else:
            assert self.due_dram + self.due_chip == [], "store_done late"
        self.nonfinite += get(dut.nonfinite)
        if get(dut.error):
            self.error_pulses.append(get(dut.error_addr))
        self.in_quantiser += (asks and get(dut.q.ready)) - get(dut.q_valid)
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
        self.held_row = row
        if row_valid and row_ready:
            self.held_row = None
            self.take_row(*row)
        if cmd_taken:
            self.taken, self.offering = self.taken + 1, False
        if raw_taken:
            self.offering_raw = False
            self.raw_taken = (image + 1, 0) if beat == len(beats) - 1 else (image, beat + 1)
        if b_taken:
            burst = self.raised[self.answers]
            if self.b_offered >= 2:
                self.errors.append(burst.offset)
            if burst.final and not self.errors:
                self.due_dram.append(burst.image)
            self.answers, self.b_offered = self.answers + 1, None

    def raise_burst(self, addr, length):
        beats, offset = length + 1, addr - self.base
        assert addr % self.cfg.beat_bytes == 0
        assert addr // 4096 == (addr + beats * self.cfg.beat_bytes - 1) // 4096, "crosses 4 KiB"
        assert beats <= min(256, self.cfg.write_buffer // 2, max(1, *self.max_beats))
        if self.beats_left == 0:
            self.image, self.beats_left = self.images.pop(offset)
        self.beats_left -= beats
        assert self.beats_left >= 0, "a burst of two images"
        self.raised.append(Burst(offset, beats, self.image, self.beats_left == 0))

    def take_beat(self, data, last):
        burst = self.raised[self.filling]
        at = burst.offset + len(burst.data) * self.cfg.beat_bytes
        burst.data.append(data)
        assert last == (len(burst.data) == burst.beats)
        self.memory[at:at + self.cfg.beat_bytes] = data.to_bytes(self.cfg.beat_bytes, "little")
        self.filling += last
        burst.end = self.clock

    def take_row(self, *row):
        number, *expected = self.expected_rows[len(self.rows)]
        assert list(row) == expected
        to_dram = sum(not c["spad"] for c in self.commands[:number])
        assert self.store_dones + len(self.due_dram) + len(self.due_chip) >= to_dram, "too early"
        self.rows.append(row)
        if row[1] == self.commands[number]["rows"] - 1:
            self.due_chip.append(number)

    def see_done(self, source):
        number = (self.due_dram or self.due_chip).pop(0)
        if number is None:
            assert source == Source.REQUEST
            self.raw_dones += 1
        else:
            assert number == self.store_dones, "store_done out of order"
            assert source == self.commands[number]["source"]
            self.store_dones += 1

    def running(self):
        beats = sum(b.beats for b in self.raised[:self.answers])
        return beats < self.all_beats or len(self.rows) < len(self.expected_rows)

    async def finish(self, ctx, limit=20000):
        """Run all commands; check the memory, every pulse and every counter."""
        dut = self.dut
        ctx.set(dut.seed, self.seed)
        ctx.set(dut.base, self.base)
        self.all_beats = sum(beats for _, beats in self.images.values())
        while self.running():
            await self.step(ctx)
            assert self.clock - self.begun < limit, "stuck"
        for _ in range(5):
            await self.step(ctx)
        expected, nonfinite = bytearray(b"\xA5" * len(self.memory)), 0
        counted = dict.fromkeys(Kind, 0)
        for cmd in self.commands:
            nonfinite += quantised(self.cfg, cmd, self.acc, self.seed)[-1] and cmd["final"]
            if not cmd["spad"]:
                data = image(self.cfg, cmd, self.acc, self.seed)
                expected[cmd["addr"]:cmd["addr"] + len(data)] = data
                counted[cmd["kind"]] += len(data)
        size = self.cfg.beat_bytes
        for offset, beats in self.raw:
            for k, beat in enumerate(beats):
                expected[offset + k * size:offset + (k + 1) * size] = beat.to_bytes(size, "little")
            counted[Kind.REQUEST] += len(beats) * size
        assert self.memory == expected
        assert self.nonfinite == nonfinite
        assert self.counted == counted
        assert self.reads == [
            (c["slot"] + r, c["row"]) if c["scatter"] else (c["slot"], r)
            for c in self.commands for r in range(c["rows"])]
        assert self.store_reads == len(self.commands)
        assert self.error_pulses == self.errors
        if not self.errors:
            assert (self.store_dones, self.raw_dones) == (len(self.commands), len(self.raw))


def simulate(benches, processes, disturb=0.0):
    """Run store units on one quantiser; with one unit, another asks with chance `disturb`."""
    rng = random.Random(7)
    m = Module()
    m.submodules.quantiser = quantiser = Quantiser(benches[0].cfg)
    for context, bench in enumerate(benches):
        m.submodules[f"unit{context}"] = ResetInserter(bench.reset)(bench.dut)
        connect(m, bench.dut.q, quantiser.i[context])
        m.d.comb += [bench.dut.q_valid.eq(quantiser.valid[context]),
                     bench.dut.q_mant.eq(quantiser.mant)]

    async def noise(ctx):
        while True:
            ctx.set(quantiser.fair, rng.randrange(2))
            ctx.set(quantiser.hold, rng.random() < disturb / 2)
            if len(benches) == 1:
                ctx.set(quantiser.i[1].valid, rng.random() < disturb)
            await ctx.tick()

    sim = Simulator(m)
    sim.add_clock(1e-6)
    if disturb:  # first, for the others look at what it does
        sim.add_testbench(noise, background=True)
    for process in processes:
        sim.add_testbench(process)
    sim.run()


def run(cfg, rng, work, disturb=0.0, **options):
    bench = Bench(cfg, rng, **options)
    bench.start(*work)
    simulate([bench], [bench.finish], disturb)
    return bench


# --- tests --------------------------------------------------------------------------------------

@each_config
@pytest.mark.parametrize("stall", [0.0, 0.5])
def test_images(cfg, stall):
    rng = random.Random(f"{cfg}{stall}")
    run(cfg, rng, random_commands(cfg, rng, 10), stall=stall, disturb=stall)


@each_config
@pytest.mark.parametrize(("stall", "pause"), [(0.0, 15), (0.4, 0)])
def test_both_destinations_scatters_and_raw_images(cfg, stall, pause):
    rng = random.Random(f"{cfg}{stall}")
    bench = run(cfg, rng, random_commands(cfg, rng, 12, chip=0.5, scatter=0.3, raws=4),
                stall=stall, disturb=stall, pause=pause)
    assert bench.rows
    assert bench.raw_dones


def test_rows_that_the_memory_keeps_waiting():
    cfg = Config(tile=5, axi_width=32, outstanding=1, write_buffer=4, **SMALL)
    rng = random.Random(4)
    run(cfg, rng, random_commands(cfg, rng, 8, bfp=1, rows=5), pause=30)


@some_configs
def test_raw_images_and_tiles_on_chip_end_together(cfg):
    rng = random.Random(str(cfg))
    for pause in 0, 10:
        run(cfg, rng, random_commands(cfg, rng, 30, chip=1, rows=1, raws=30), pause=pause,
            raw_rate=0.7)


@some_configs
def test_bursts_of_training_are_short(cfg):
    rng = random.Random(str(cfg))
    for most in (0,), (1,), (2, 5, 3, 0):
        run(cfg, rng, random_commands(cfg, rng, 10, raws=2), stall=0.2, max_beats=most)


@each_config
def test_memory_that_takes_data_before_addresses(cfg):
    rng = random.Random(str(cfg))
    run(cfg, rng, random_commands(cfg, rng, 8, raws=3), stall=0.2, wait_for_w=True)


@some_configs
def test_two_units_share_a_quantiser(cfg):
    rng = random.Random(str(cfg))
    benches = [Bench(cfg, rng, stall=0.1) for _ in range(2)]
    for bench in benches:
        bench.start(*random_commands(cfg, rng, 14, bfp=1, chip=0.3, raws=2))
    simulate(benches, [bench.finish for bench in benches], disturb=0.5)


@pytest.mark.parametrize(("write_buffer", "base", "most", "bursts"), [
    (512, 0x1000_0000, 256, [256, 33]),
    (512, 0x1000_0FC0, 256, [16, 256, 17]),
    (64, 0x1000_0000, 256, [32] * 9 + [1]),
    (512, 0x1000_0FC0, 100, [16, 100, 100, 73]),
])
def test_bursts_are_as_long_as_the_rules_allow(write_buffer, base, most, bursts):
    cfg = Config(tile=17, axi_width=32, write_buffer=write_buffer, spad_kib=16, acc_kib=8)
    rng = random.Random(1)
    bench = Bench(cfg, rng, max_beats=(most,))
    bench.base = base
    bench.start(*random_commands(cfg, rng, 1, bfp=0, rows=17, addr=0))
    simulate([bench], [bench.finish])
    assert [b.beats for b in bench.raised] == bursts


@each_config
def test_error_responses(cfg):
    rng = random.Random(str(cfg))
    bench = Bench(cfg, rng, stall=0.3, bad=(9, 11, 12))
    bench.start(*random_commands(cfg, rng, 20, raws=5))
    images = dict(bench.images)

    async def process(ctx):
        await bench.finish(ctx)
        assert len(bench.errors) == 3
        good = [b.image for b in bench.raised[:9] if b.final]
        dones = bench.store_dones + bench.raw_dones
        assert dones == len(good), "no store_done at or after an error"

    simulate([bench], [process])
    assert len(images) == 25


def test_an_error_of_a_raw_image_is_told():
    cfg, rng = CONFIGS[4], random.Random(3)
    bench = run(cfg, rng, random_commands(cfg, rng, 0, raws=6), bad=(2, 4))
    assert bench.errors == [bench.raw[2][0], bench.raw[4][0]]
    assert bench.raw_dones == 2


@each_config
@pytest.mark.parametrize("wait_for_w", [False, True])
def test_abort_finishes_what_is_owed_and_the_unit_starts_afresh(cfg, wait_for_w):
    rng = random.Random(str(cfg))
    bench = Bench(cfg, rng, stall=0.3, wait_for_w=wait_for_w)

    async def process(ctx):
        ctx.set(bench.dut.seed, bench.seed)
        ctx.set(bench.dut.base, bench.base)
        for _ in range(3):
            bench.start(*random_commands(cfg, rng, 20, chip=rng.choice([0, 0, 1]), raws=3))
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
            assert bench.filling == bench.accepted == bench.answers == len(bench.raised)
            for _ in range(rng.choice([0, 5])):
                await bench.step(ctx, abort=1)
                assert ctx.get(bench.dut.idle)
            ctx.set(bench.reset, 1)
            ctx.set(bench.dut.cmd.valid, 0)
            ctx.set(bench.dut.raw.valid, 0)
            await ctx.tick()
            ctx.set(bench.reset, 0)
        bench.start(*random_commands(cfg, rng, 6, chip=0.4, raws=3))
        await bench.finish(ctx)

    simulate([bench], [process], disturb=0.3)


def rate(cfg, count, image_bytes, **fixed):
    """Clocks per tile in which `count` tiles leave when nothing stalls."""
    rng = random.Random(5)
    work = random_commands(cfg, rng, count, rows=cfg.tile, **fixed)
    for k, cmd in enumerate(work[0]):
        cmd["addr"] = k * image_bytes
    bench = Bench(cfg, rng)
    bench.base = 0x1000_0000
    bench.start(*work)
    simulate([bench], [bench.finish])
    return (bench.last_w - bench.first_w + 1) / count


@pytest.mark.parametrize("row_exp", [0, 1])
def test_bfp_tiles_leave_at_a_beat_per_clock(row_exp):
    cfg = Config()
    assert cfg.axi_width == cfg.tile * cfg.container
    assert rate(cfg, 8, cfg.bfp_bytes, bfp=1, row_exp=row_exp) <= cfg.bfp_beats + 0.25


def test_fp32_tiles_leave_at_a_beat_per_clock():
    cfg = Config()
    assert rate(cfg, 3, cfg.fp32_bytes, bfp=0) == cfg.fp32_beats


def test_tiles_stay_on_chip_at_a_row_per_clock():
    cfg, rng, count = Config(), random.Random(6), 8
    bench = run(cfg, rng, random_commands(cfg, rng, count, chip=1, rows=cfg.tile))
    assert bench.clock <= count * (cfg.tile + 1) + 40
