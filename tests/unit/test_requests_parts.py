import random

import pytest
from amaranth.sim import Simulator

from hw.config import Config, load
from hw.requests.coalesce import Coalesce
from hw.requests.fetch import Fetch
from hw.requests.images import RowImages
from hw.requests.ring import Ring
from hw.requests.shape import Shape


def simulate(dut, bench):
    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()


@pytest.mark.parametrize("log2", [0, 3, 7])
def test_ring_loses_and_doubles_nothing(log2):
    """Counts in Python beside it, from just before 65536 on."""
    dut, rng = Ring(), random.Random(log2)

    async def bench(ctx):
        start = 2**16 - 50
        posted = completed = consumed = start
        for counter in (dut.posted, dut.completed, dut.consumed):
            ctx.set(counter, start)
        ctx.set(dut.ring_log2, log2)
        seen = [0, 0]
        for _ in range(3000):
            space = 2**log2 - (posted - consumed)
            assert ctx.get(dut.space) == space
            assert ctx.get(dut.posted) == posted % 2**16
            assert ctx.get(dut.consumed) == consumed % 2**16
            assert ctx.get(dut.completed) == completed
            opened, what = rng.random() < 0.9, rng.randrange(3)
            n = rng.choice([0, 1, rng.randint(0, space), space, space + 1, -1, 2**15])
            k = rng.choice([0, 1, completed - consumed, completed - consumed + 1, -1, 2**15])
            complete = completed < posted and rng.random() < 0.4
            ctx.set(dut.open, opened)
            ctx.set(dut.doorbell_write, what == 1)
            ctx.set(dut.consumed_write, what == 2)
            ctx.set(dut.complete, complete)
            value = posted + n if what == 1 else consumed + k
            ctx.set(dut.wdata, value % 2**16 | rng.getrandbits(16) << 16)
            right = opened and 0 <= n <= space if what == 1 else 0 <= k <= completed - consumed
            assert ctx.get(dut.ring_error) == (what > 0 and not right)
            assert ctx.get(dut.doorbell) == (what == 1 and right and n > 0)
            seen[right] += what > 0
            if what == 1 and right:
                posted += n
            if what == 2 and right:
                consumed += k
            completed += complete
            await ctx.tick()
        assert posted > 2**16 + 20
        assert min(seen) > 100
        ctx.set(dut.complete, 0)
        ctx.set(dut.doorbell_write, 0)
        ctx.set(dut.consumed_write, 0)
        ctx.set(dut.clear, 1)
        await ctx.tick()
        assert [ctx.get(x) for x in (dut.posted, dut.completed, dut.consumed, dut.space)] == [
            0, 0, 0, 2**log2]

    simulate(dut, bench)


@pytest.mark.parametrize(("count", "clocks"), [(0, 0), (1, 7), (4, 0), (4, 9), (3, 1), (100, 25)])
def test_coalescing(count, clocks):
    dut, rng = Coalesce(), random.Random(count)

    async def bench(ctx):
        ctx.set(dut.count, count)
        ctx.set(dut.clocks, clocks)
        waiting, first, events = 0, None, 0
        for clock in range(2000):
            complete = rng.random() < rng.choice([0.02, 0.3])
            clear = rng.random() < 0.005
            ctx.set(dut.complete, complete)
            ctx.set(dut.clear, clear)
            if waiting == 0:
                first = clock
            waiting += complete
            due = (complete and waiting >= max(1, count)) or (
                waiting and clocks and clock > first and clock - first >= clocks)
            assert ctx.get(dut.event) == bool(due)
            events += bool(due)
            if due or clear:
                waiting = 0
            await ctx.tick()
        assert events > 10

    simulate(dut, bench)


@pytest.mark.parametrize("bfp", [False, True])
@pytest.mark.parametrize("cfg", [
    load("tiny"), load("small45"), Config(tile=3, mant_width=12, axi_width=1024, acc_kib=8)],
    ids=["tiny", "small45", "wide"])
def test_shape(cfg, bfp):
    dut, rng = Shape(cfg, bfp), random.Random(0)

    async def bench(ctx):
        square = cfg.tile**2
        for elements in (0, 1, cfg.tile, cfg.tile + 1, square, square + 1, 3 * square,
                         *(rng.randrange(1, 40 * square) for _ in range(10))):
            ctx.set(dut.elements, elements)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            while not ctx.get(dut.done):
                await ctx.tick()
            k = max(1, elements)
            last = (k - 1) // square
            rows = -(-(k - last * square) // cfg.tile)
            assert (ctx.get(dut.last_image), ctx.get(dut.last_rows)) == (last, rows)
            assert ctx.get(dut.bytes) == (last * cfg.image_bytes(bfp)
                                          + cfg.image_beats(bfp, rows) * cfg.beat_bytes)

    simulate(dut, bench)


@pytest.mark.parametrize("bfp", [False, True])
@pytest.mark.parametrize(("h", "w"), [(0, 3), (1, 4), (2, 2)])
def test_images_of_a_batch(bfp, h, w):
    """Tile rows beyond the window come round."""
    cfg = load("tiny")
    dut, rng = RowImages(cfg, bfp), random.Random(h)

    async def bench(ctx):
        ctx.set(dut.window, {"base": 5, "h_log2": h, "w_log2": w})
        for _ in range(4):
            last, rows, second = rng.randrange(3), rng.randint(1, cfg.tile), rng.randrange(2)
            ctx.set(dut.last_image, last)
            ctx.set(dut.last_rows, rows)
            ctx.set(dut.second, second)
            ctx.set(dut.clear, 1)
            await ctx.tick()
            ctx.set(dut.clear, 0)
            for q in range(cfg.tile * 2**h + 6):
                skip, addr = rng.random() < 0.3, rng.randrange(2**20)
                ctx.set(dut.addr, addr)
                ctx.set(dut.skip, skip)
                ctx.set(dut.start, not skip)
                await ctx.tick()
                ctx.set(dut.skip, 0)
                ctx.set(dut.start, 0)
                for i in range(0 if skip else last + 1):
                    o = ctx.get(dut.o.payload)
                    assert ctx.get(dut.o.valid)
                    assert (o.addr, o.rows, o.row) == (
                        addr + i * cfg.image_bytes(bfp), rows if i == last else cfg.tile,
                        q % cfg.tile)
                    assert o.slot == (5 + second * 2**(h + w) + q // cfg.tile % 2**h * 2**w
                                      + i * cfg.tile)
                    ctx.set(dut.o.ready, 0)
                    await ctx.tick().repeat(1 + rng.randrange(2))
                    ctx.set(dut.o.ready, 1)
                    await ctx.tick()
                assert not ctx.get(dut.busy)

    simulate(dut, bench)


def test_descriptors_are_checked():
    dut = Fetch(load("tiny"))

    async def bench(ctx):
        for name, value in {"region_size": 2**32 - 8, "input_bytes": 0x100,
                            "output_bytes": 0x200, "enable": 1, "posted": 100}.items():
            ctx.set(getattr(dut, name), value)
        last_in, last_out = 2**32 - 0x108, 2**32 - 0x208
        for source, target, zero, bad in (
                (0, 0, 0, 0), (last_in, last_out, 0, 0), (last_in + 8, 0, 0, 1),
                (0, last_out + 8, 0, 1), (2**32 - 8, 0, 0, 1), (0, 2**32 - 8, 0, 1),
                (4, 0, 0, 1), (0, 4, 0, 1), (1, 0, 0, 1), (0, 1, 0, 1), (0, 0, 1, 1),
                (0, 0, 2**31, 1)):
            ctx.set(dut.descriptor, {"input": source, "output": target, "tag": 7, "zero": zero})
            ctx.set(dut.descriptor_valid, 1)
            await ctx.tick()
            ctx.set(dut.descriptor_valid, 0)
            assert ctx.get(dut.valid)
            assert ctx.get(dut.request.bad) == bad
            assert ctx.get(dut.request.tag) == 7

    simulate(dut, bench)


@pytest.mark.parametrize("seed", range(3))
def test_descriptors_survive_a_restart_in_any_clock(seed):
    """Also in the clock in which one comes: each is taken once, in order, with its clock."""
    dut, rng = Fetch(load("tiny")), random.Random(seed)
    count = 100

    async def bench(ctx):
        for name, value in {"region_size": 2**32 - 8, "enable": 1, "ring_log2": 7}.items():
            ctx.set(getattr(dut, name), value)
        expected, taken, under_way, together, now = [], [], [], 0, 0
        while len(taken) < count:
            now += 1
            ctx.set(dut.now, now)
            rings = min(rng.choice([0, 0, 0, 1, 3]), count - len(expected))
            ctx.set(dut.doorbell, rings > 0)
            comes = bool(under_way) and under_way[0][0] <= now
            ctx.set(dut.descriptor_valid, comes)
            if comes:
                ctx.set(dut.descriptor, {"tag": under_way[0][1], "zero": 0})
            restart = rng.random() < (0.3 if comes else 0.03)
            together += comes and restart
            ctx.set(dut.restart, restart)
            ctx.set(dut.o.ready, rng.random() < 0.5)
            asks = ctx.get(dut.o.valid & dut.o.ready)
            entry = ctx.get(dut.o.payload.addr) // dut.cfg.entry_bytes
            await ctx.tick()
            if comes:
                del under_way[0]
            if asks:
                due = now + rng.randrange(1, 6)
                under_way.append((max(due, under_way[-1][0] + 1 if under_way else 0), entry))
            if restart:
                under_way.clear()
            expected += [(len(expected) + n, now) for n in range(rings)]
            ctx.set(dut.posted, len(expected))
            if ctx.get(dut.valid):
                request = dut.request
                assert ctx.get(dut.index) == ctx.get(request.tag)
                taken.append((ctx.get(request.tag), ctx.get(request.posted_at)))
        assert taken == expected
        assert together > 10

    simulate(dut, bench)
