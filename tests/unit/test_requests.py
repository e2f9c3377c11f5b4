import random
from dataclasses import replace

import pytest
from requests_alone import pulse, simulate, write
from requests_bench import ABORTED, BAD, FAILED, OK, run
from requests_units import Setup

from hw.config import Config, load

TINY, EDGE = load("tiny"), load("edge")
WIDE = Config(tile=4, mant_width=8, axi_width=1024, spad_kib=4, acc_kib=4)
NARROW = Config(tile=3, mant_width=8, axi_width=32, spad_kib=4, acc_kib=4)

SETUPS = {
    "plain": Setup(TINY),
    "fast": Setup(TINY, pace=1, latency=1, program=2, doorbells=0.5, consume=0.5),
    "full_ring": Setup(TINY, doorbells=0.3, group=20, ring_log2=4, consume=0.05),
    "one_entry": Setup(TINY, ring_log2=0, requests=8),
    "idle_array": Setup(TINY, timeout=2**32 - 1, launch_idle=1),
    "no_timeout": Setup(TINY, timeout=0, batch_max=8),
    "many_images": Setup(TINY, inputs=40, outputs=37, input_window=(3, 1, 4),
                         output_window=(2, 1, 4), requests=20),
    "whole_images": Setup(TINY, inputs=32, outputs=16, requests=20),
    "wide_bus": Setup(WIDE, inputs=17, outputs=16),
    "narrow_bus": Setup(NARROW, inputs=10, outputs=20),
    "edge": Setup(EDGE, inputs=300, outputs=10, batch_max=20, ring_log2=5, group=20, requests=60,
                  input_window=(3, 0, 5), output_window=(2, 1, 0)),
    "batch_max_0": Setup(TINY, batch_max=0, requests=15),
    "window_limits": Setup(TINY, batch_max=200, input_window=(3, 2, 4), output_window=(2, 2, 3),
                           group=40, ring_log2=6, requests=100, doorbells=0.2, bad=0.02),
    "all_bad": Setup(TINY, bad=1, requests=20),
    "disabled": Setup(TINY, timeout=2**32 - 1, disable_at=400),
}


@pytest.mark.parametrize("name", SETUPS)
def test_every_request_is_completed_once(name):
    """The bench checks gathers, launches, scatters, completions and times."""
    setup = SETUPS[name]
    bench = run(setup, seed=name)
    statuses = {status for status, _, _ in bench.completions}
    assert (BAD if setup.bad == 1 else OK) in statuses
    assert bench.refused > 0
    assert setup.disable_at is not None or len(bench.requests) == setup.requests
    if name == "window_limits":
        assert max(b.rows for b in bench.batches) == 16


def test_largest_batch_and_pointers_come_round():
    setup = Setup(TINY, batch_max=255, input_window=(0, 5, 0), output_window=(0, 5, 0), inputs=3,
                  outputs=2, ring_log2=7, group=128, requests=300, doorbells=0.5, consume=0.5,
                  pace=1, latency=3, bad=0.02, timeout=1500, host_programs=0,
                  clocks=20000)
    bench = run(setup, seed=2)
    assert max(b.rows for b in bench.batches) == 128


@pytest.mark.parametrize("seed", range(12))
def test_stop_or_error_at_any_time(seed):
    rng = random.Random(seed)
    first = rng.randrange(5, 350)
    setup = Setup(TINY, doorbells=0.1, failing=seed % 3, timeout=20, batch_max=4, consume=0.3,
                  restarts={first: rng.randrange(2)}, host_programs=rng.choice([0, 0.05]))
    if seed % 4 == 0:  # STOP again while it ends
        setup.restarts[first + rng.randrange(1, 40)] = 0
    bench = run(setup, replace(setup, restarts={}, failing=0), seed=seed)
    assert len(bench.completions) == setup.requests, "the second session serves as the first"


def test_stop_with_nothing_posted():
    setup = Setup(TINY, doorbells=0, restarts={30: 1})
    bench = run(setup, Setup(TINY, requests=10), seed=0)
    assert len(bench.completions) == 10


@pytest.mark.parametrize(("failed", "status"), [(0, ABORTED), (1, FAILED)])
def test_status_of_what_was_posted(failed, status):
    setup = Setup(TINY, doorbells=0.5, group=8, program=2000, restarts={200: failed}, bad=0)
    bench = run(setup, seed=3)
    assert {c[0] for c in bench.completions[-4:]} == {status}
    assert [c[1] for c in bench.completions] == [r.tag for r in bench.requests]


# --- one thing at a time --------------------------------------------------------------------------

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
        assert 50 <= since + wait <= 52
        await ctx.tick()
        assert ctx.get(dut.batch_rows) == 3

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
        assert await clocks_to_start(ctx, dut) is not None

    simulate(bench)


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
