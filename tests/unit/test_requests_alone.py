"""The request unit, one thing at a time."""

from requests_alone import TINY, pulse, simulate, write
from requests_units import REGION, tensor_bytes


async def ready_requests(ctx, dut, count):
    """Post requests whose inputs then are there; returns the clocks since the doorbell."""
    await write(ctx, dut, "control", ctx.get(dut.control) | 1)
    await ctx.tick().repeat(10)
    assert not await write(ctx, dut, "doorbell", count)
    for _ in range(count):
        await pulse(ctx, dut.descriptor_valid)
    await ctx.tick().repeat(40 - count)
    for _ in range(count):
        await pulse(ctx, dut.load_done)
    return 41 + count


async def clocks_to_start(ctx, dut, most=100):
    for n in range(most):
        if ctx.get(dut.start):
            return n
        await ctx.tick()
    return None


def test_timeout_launches_in_time():
    async def bench(ctx, dut):
        since = await ready_requests(ctx, dut, 3)
        wait = await clocks_to_start(ctx, dut)
        assert since + wait == 50 + 1  # it is registered
        await ctx.tick()
        assert ctx.get(dut.batch_rows) == 3

    simulate(bench)


def test_timeout_counts_from_the_oldest():
    """A second request comes 20 clocks after the first."""
    async def bench(ctx, dut):
        await write(ctx, dut, "control", 1)
        await ctx.tick().repeat(10)
        for posted in (1, 2):
            await write(ctx, dut, "doorbell", posted)
            await pulse(ctx, dut.descriptor_valid)
            await ctx.tick().repeat(17)
            await pulse(ctx, dut.load_done)
        assert await clocks_to_start(ctx, dut) == 50 + 1 - 2 * 20
        await ctx.tick()
        assert ctx.get(dut.batch_rows) == 2

    simulate(bench)


def test_a_batch_that_is_to_be_launched_takes_no_more():
    """It only waits for what is being gathered."""
    async def bench(ctx, dut):
        await write(ctx, dut, "control", 1)
        for posted in (1, 2):
            await ctx.tick().repeat(60)
            assert not await write(ctx, dut, "doorbell", posted)
            await pulse(ctx, dut.descriptor_valid)
        await ctx.tick().repeat(20)
        assert not ctx.get(dut.start)
        await pulse(ctx, dut.load_done)
        assert ctx.get(dut.start)
        await ctx.tick()
        assert ctx.get(dut.batch_rows) == 1

    simulate(bench)


def test_full_batch_launches_at_once():
    async def bench(ctx, dut):
        await ready_requests(ctx, dut, 4)
        assert await clocks_to_start(ctx, dut) == 0

    simulate(bench, batch_timeout=2**32 - 1)


def test_launch_idle():
    async def bench(ctx, dut):
        await write(ctx, dut, "control", 2)
        await ready_requests(ctx, dut, 1)
        assert await clocks_to_start(ctx, dut) is None
        ctx.set(dut.array_idle, 1)
        assert await clocks_to_start(ctx, dut) == 0

    simulate(bench, batch_timeout=2**32 - 1)


def test_a_busy_context_is_waited_for():
    """By the launch, and by the pulse that forgets kept tiles."""
    async def bench(ctx, dut):
        ctx.set(dut.context_busy, 1)
        await ready_requests(ctx, dut, 4)
        for _ in range(20):
            assert not ctx.get(dut.drop)
            assert not ctx.get(dut.start)
            await ctx.tick()
        ctx.set(dut.context_busy, 0)
        assert ctx.get(dut.drop)
        await ctx.tick()
        assert not ctx.get(dut.drop)
        assert await clocks_to_start(ctx, dut) == 0

    simulate(bench)


def test_enable_waits_for_the_end():
    """Set again while requests are in flight it stays 0, and they are served."""
    async def bench(ctx, dut):
        ctx.set(dut.context_busy, 1)
        await ready_requests(ctx, dut, 2)
        for value in (0, 1, 3):
            assert await write(ctx, dut, "control", value) == value & 1
            assert ctx.get(dut.control) == value & 2
            assert ctx.get(dut.attached)
        ctx.set(dut.context_busy, 0)
        assert await clocks_to_start(ctx, dut) is not None  # though the batch is not full

    simulate(bench, batch_timeout=2**32 - 1)


def test_completion_event():
    async def bench(ctx, dut):
        await ready_requests(ctx, dut, 2)
        await write(ctx, dut, "control", 0)
        await pulse(ctx, dut.context_restart)
        events = []
        for clock in range(60):
            ctx.set(dut.store_done, clock in (30, 40))
            if ctx.get(dut.completion_event):
                events.append((clock, ctx.get(dut.completed)))
            await ctx.tick()
        (clock, before), = events
        assert 40 < clock < 45
        assert before == 1
        assert not ctx.get(dut.attached)

    simulate(bench, coalesce_count=2)


def test_an_offer_is_withdrawn_when_transfers_are_lost():
    """A load that was not taken before; the descriptor is asked for again."""
    async def bench(ctx, dut):
        ctx.set(dut.load.ready, 0)
        await write(ctx, dut, "control", 1)
        await ctx.tick().repeat(10)
        assert not await write(ctx, dut, "doorbell", 1)
        await ctx.tick().repeat(3)
        offer = ctx.get(dut.load.payload.as_value())
        assert ctx.get(dut.load.valid)
        await pulse(ctx, dut.context_restart)
        assert not ctx.get(dut.load.valid)
        ctx.set(dut.load.ready, 1)
        loads = []
        for _ in range(20):
            if ctx.get(dut.load.valid):
                loads.append(ctx.get(dut.load.payload.as_value()))
            await ctx.tick()
        assert loads == [offer]

    simulate(bench)


def test_descriptors_are_given_up():
    """One of two comes before the second error: the other has no tag, and no more is asked for."""
    async def bench(ctx, dut):
        await write(ctx, dut, "control", 1)
        await ctx.tick().repeat(10)
        assert not await write(ctx, dut, "doorbell", 2)
        await ctx.tick().repeat(10)
        ctx.set(dut.descriptor, 0x1234 << 64 | 1 << 96)  # bad, but FAILED goes before
        await pulse(ctx, dut.descriptor_valid)
        ctx.set(dut.context_failed, 1)
        loads, beats = [], []
        for clock in range(70):
            ctx.set(dut.context_restart, clock in (0, 15))
            ctx.set(dut.store_done, clock in (50, 60))
            loads += [clock] * ctx.get(dut.load.valid)
            beats += [ctx.get(dut.raw.payload.data)] * ctx.get(dut.raw.valid)
            assert ctx.get(dut.attached) or clock > 60
            await ctx.tick()
        (load,) = loads
        assert load < 15
        assert beats[::2] == [0x1234 | 3 << 32, 3 << 32]
        assert not ctx.get(dut.attached)

    simulate(bench)


def test_a_request_at_once_is_checked_with_its_size():
    """Posted in the clock after ENABLE, when the images of so large inputs are not counted yet."""
    last = REGION - tensor_bytes(TINY, True, 500)

    async def bench(ctx, dut):
        for offset in (last + TINY.beat_bytes, last):
            await write(ctx, dut, "control", 1)
            assert not await write(ctx, dut, "doorbell", 1)
            ctx.set(dut.descriptor, offset)
            loads = 0
            for _ in range(300):
                descriptor = ctx.get(dut.load.valid) and loads == 0
                loads += ctx.get(dut.load.valid)
                await ctx.tick()
                ctx.set(dut.descriptor_valid, descriptor)
            assert loads == (33 if offset == last else 1)
            await write(ctx, dut, "control", 0)
            await pulse(ctx, dut.context_restart)
            while not ctx.get(dut.raw.valid):
                await ctx.tick()
            await pulse(ctx, dut.store_done)
            await ctx.tick().repeat(10)
            assert not ctx.get(dut.attached)

    simulate(bench, inputs=500, input_window={"base": 0, "h_log2": 0, "w_log2": 7},
             batch_timeout=2**32 - 1)
