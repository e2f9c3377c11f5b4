import random
from dataclasses import replace

import pytest
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
    setup = Setup(TINY, batch_max=255, input_window=(0, 6, 0), output_window=(0, 5, 0), inputs=3,
                  outputs=2, ring_log2=7, group=128, requests=300, doorbells=0.5, consume=0.5,
                  pace=1, latency=3, bad=0.02, timeout=1500, host_programs=0,
                  clocks=20000)
    bench = run(setup, seed=2)
    assert max(b.rows for b in bench.batches) == 128


def test_enabled_again():
    """After an end without STOP or error, with other registers."""
    bench = run(Setup(TINY, requests=13), Setup(
        TINY, requests=17, ring_log2=2, inputs=40, outputs=2, input_window=(9, 0, 4),
        output_window=(1, 1, 0), batch_max=3), seed=1)
    assert len(bench.completions) == 17


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
