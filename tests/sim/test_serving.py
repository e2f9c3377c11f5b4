"""Requests beside a training program: nothing is lost, nothing changes, everything is counted."""

from functools import cache

import numpy as np
import pytest

from hw.config import load
from hw.control.occupancy import USES
from hw.isa import Function, Order
from hw.regs import BINS, TIMES, UNITS
from sw.golden.serving import Status
from tb.colocation import SharedProgram, Solo, slots, step
from tb.serving import READS, Serving, case, run

TINY = load("tiny")
#: Clocks by which a request's time is longer than the bus's: the store unit reports an
#: acknowledgement a clock later.
REPORT = 1
#: Clocks from the time that a batch may be launched to its launch, which is registered.
LAUNCH = 1


@cache
def serving(count=8, **options):
    return Serving(TINY, count=count, **options)


#: Slots for training.
REST = slots(TINY, serving(1, batch_max=8, sizes=(8, 5, 6)).plan.rest)


@cache
def training(kind="steps", turns=1):
    """A program for slots that no `serving` takes: "steps", or a "short" one."""
    p = SharedProgram(TINY, 1, *REST)
    if kind == "short":  # all units for a moment
        x, w, dy = p.bfp(4, 4), p.bfp(4, 4), p.bfp(4, 4)
        p.grad(x, w, dy, p.room(4, 4, True), p.room(4, 4, False), Order.INTERLEAVED,
               function=Function.RELU_GRAD, stochastic=1)
    else:
        with p.loop(turns):
            step(p, 9, 8, 7)
    start = p.end()
    return Solo.of(TINY, p.memory(), start, seed=1)


def launches(result):
    """Clocks of the batches' launches by request, from the log and the completions."""
    return doorbells(result) + waits(result)


def doorbells(result):
    """Clock of each request's doorbell, in the order of posting."""
    log = result.log
    numbers = np.arange(len(log.completions))
    return log.doorbells[np.searchsorted(log.doorbells[:, 1], numbers, "right"), 0]


def waits(result):
    return result.log.completions[:, 3] - result.log.completions[:, 4]


# --- moments ------------------------------------------------------------------------------------

@pytest.mark.parametrize("half", range(2))
def test_a_request_in_every_clock_of_a_program(half):
    model, program = serving(1, batch_max=1), training("short")
    names = [name for name in READS if not name.startswith("INFERENCE_")]
    names += ["CYCLES_TOTAL", "INFERENCE_ERROR_CODE", *(
        f"INFERENCE_{name}" for name in model.counters)]
    cases = [case(model, [clock], program, latency=1, reads=names)
             for clock in range(290 * half, 290 * half + 291)]
    results = run(TINY, cases)
    posted = {int(r.log.doorbells[0, 0]) for r in results}
    ended = results[-1].registers["CYCLES_TOTAL"] + 3 if half else max(posted)
    assert posted >= set(range(min(posted), ended))
    assert max(posted) >= ended


def test_a_doorbell_in_every_clock_of_a_launch():
    """The second request comes before, in and after the clock in which the first is launched."""
    model = serving(2, batch_max=4)
    cases = [case(model, [0, clock], registers={"BATCH_TIMEOUT": timeout}, latency=2)
             for timeout in (0, 40) for clock in range(100)]
    results = run(TINY, cases)
    assert {r.registers["BATCHES"] for r in results} == {1, 2}
    apart = [int(doorbells(r)[1] - launches(r)[0]) for r in results]
    assert set(range(-10, 11)) <= set(apart), sorted(set(apart))


# --- rings and batches --------------------------------------------------------------------------

def test_small_rings_wrap():
    """Rings of 1, 2 and 4 entries; the host posts when there is space."""
    cases = []
    for ring_log2 in range(3):
        model = serving(13, ring_log2=ring_log2)
        cases += [case(model, [0] * 13, program, registers={"BATCH_TIMEOUT": timeout}, latency=5)
                  for program in (None, training()) for timeout in (0, 200)]
    for result in run(TINY, cases):
        assert result.registers["COMPLETED"] == 13
        assert not len(result.log.refused)


def test_refused_doorbells_lose_nothing():
    """A doorbell beyond the space and a CONSUMED beyond the completions, the ring full or not."""
    model = serving(6, ring_log2=2, batch_max=8)
    cases = [case(model, [0] * full + [2500] * (6 - full), writes=[(1000, name, value)],
                  registers={"BATCH_TIMEOUT": 2000})
             for full in (3, 4) for name, value in (
                 ("DOORBELL", 5), ("DOORBELL", 0xFFFF), ("DOORBELL", 2), ("CONSUMED", 1),
                 ("CONSUMED", 0xFFFF))]
    for result in run(TINY, cases):
        assert len(result.log.refused) == 1


def test_every_batch_size():
    """Eight requests with one doorbell, or with one each, for BATCH_MAX 1 to 8."""
    model = serving(8, batch_max=8)
    cases = [case(model, clocks, program, registers={"BATCH_MAX": most, "BATCH_TIMEOUT": 3000})
             for program in (None, training()) for clocks in ([0] * 8, range(0, 400, 50))
             for most in range(1, 9)]
    for c, result in zip(cases, run(TINY, cases), strict=True):
        most = c.job.registers["BATCH_MAX"]
        assert result.registers["BATCHES"] == -(-8 // most)
        if c.job.host.requests[-1][0] == 0:
            assert sorted(set(result.log.doorbells[:, 1])) == [8]


def test_timeout_and_launch_idle():
    model = serving(1, batch_max=4)
    timeouts = (0, 1, 200, 201, 1000)
    cases = [case(model, [20], registers={"BATCH_TIMEOUT": t}) for t in timeouts]
    idle = {"BATCH_TIMEOUT": 5000, "REQUEST_CONTROL": 3}
    cases += [case(model, [20], registers=idle), case(model, [500], training(), registers=idle)]
    results = run(TINY, cases)
    found = [int(waits(r)[0]) for r in results]
    soonest = found[0]
    assert soonest < 200
    assert found[1] == soonest
    assert found[2:5] == [t + LAUNCH for t in timeouts[2:]]
    assert found[5] == soonest  # the array is idle
    assert soonest <= found[6] < 5000


def test_coalescing():
    """Completions are taken in the clocks that COALESCE_* say; masked interrupts come later."""
    model = serving(8, batch_max=1)
    few = {"COALESCE_COUNT": 100, "BATCH_MAX": 1}
    cases = [case(model, [0] * 8, registers={"COALESCE_COUNT": n}) for n in (0, 1, 2, 4, 8)]
    cases += [case(model, [0] * 8, registers=few | {"COALESCE_CLOCKS": n}) for n in (1, 300, 9000)]
    cases += [case(model, [0] * 8, registers={"REQUEST_IRQ_ENABLE": 0},
                   writes=[(9000, "REQUEST_IRQ_ENABLE", 3)])]
    results = run(TINY, cases)
    for c, result in zip(cases, results, strict=True):
        taken = result.log.completions[:, 0]
        done = np.sort(completion_acks(c, result))
        if "COALESCE_CLOCKS" in c.job.registers:
            # No completion waits longer than so many clocks, but for the host.
            late = taken - done
            assert late.max() <= c.job.registers["COALESCE_CLOCKS"] + 200
            assert late[0] >= c.job.registers["COALESCE_CLOCKS"]
        elif "REQUEST_IRQ_ENABLE" in c.job.registers:
            assert taken[0] > 9000 > done[-1]
        else:
            count = max(1, c.job.registers["COALESCE_COUNT"])
            first = np.arange(8) // count * count + count - 1  # raises the interrupt
            assert (taken >= done[first]).all()


def completion_acks(c, result):
    """Clocks of the acknowledgements of the completions."""
    ring = c.bases[-1] + c.serving.plan.completions
    acks = result.log.acks
    return acks[(acks[:, 1] >= ring) & (acks[:, 1] < ring + 8 * TINY.entry_bytes), 0]


# --- values -------------------------------------------------------------------------------------

def test_bad_requests_beside_good_ones():
    """NaN and Inf in an input, and bad descriptors, change nothing for the others."""
    good = serving(8)
    model = serving(8, nonfinite=frozenset({2, 5}), bad=frozenset({3}))
    assert model.statuses[3] is Status.BAD_DESCRIPTOR
    for n in {0, 1, 4, 6, 7}:
        at = slice(model.outputs[n], model.outputs[n] + model.given)
        assert np.array_equal(model.after[at], good.after[at])
    cases = [case(model, [0] * 8, program, registers={"BATCH_MAX": most, "BATCH_TIMEOUT": 300})
             for program in (None, training()) for most in range(1, 5)]
    for result in run(TINY, cases):
        assert result.registers["INFERENCE_EXCEPTIONS"] & 1
        assert result.registers["INFERENCE_NONFINITE_TILES"] == 2
        assert not result.registers["EXCEPTIONS"]


def test_slow_memory():
    """Answers after 200 clocks and more, little bandwidth, few bursts, pauses."""
    model, program = serving(8, sizes=(8, 5, 6)), training()
    settings = ({"latency": 200}, {"latency": 200, "stall": 0.5}, {"bytes_per_cycle": 1},
                {"bytes_per_cycle": 2, "latency": 600, "outstanding": 1},
                {"stall": {"b": 0.9}}, {"stall": {"r": 0.9, "aw": 0.9}})
    cases = [case(model, range(0, 800, 100), program, registers={"BATCH_TIMEOUT": timeout}, **s)
             for s in settings for timeout in (0, 500)]
    run(TINY, cases)


# --- counters -----------------------------------------------------------------------------------

def bins(times):
    """Histogram of `times`."""
    counts = [0] * BINS
    for time in times:
        counts[min(int(time).bit_length(), BINS - 1)] += 1
    return counts


TIME_READS = [f"{t}_{w}" for t, _ in TIMES for w in ("COUNT", "SUM", "MIN", "MAX")] + [
    f"{t}_BIN_{b}" for t, _ in TIMES for b in range(BINS)]
USE_READS = [f"{unit}_{what}" for unit, _ in UNITS for what in USES]


def test_counters_agree_with_the_bus():
    """Times of requests, and use of the units, are those that the testbench has seen."""
    model, program = serving(24, ring_log2=4, sizes=(8, 5, 6)), training(turns=3)
    rng = np.random.default_rng(0)
    cases = [case(model, np.sort(rng.integers(0, spread, 24)), program if n % 2 else None,
                  registers={"BATCH_TIMEOUT": int(rng.integers(0, 400)), "BATCH_MAX": 1 + n % 4},
                  reads=READS + TIME_READS + USE_READS, host={"bucket": 100},
                  stall=0.2 * (n % 3), seed=n)
             for n, spread in enumerate([100, 2000, 9000, 100, 3000, 9000, 400, 30000])]
    for c, result in zip(cases, run(TINY, cases), strict=True):
        latency = ends(c, result) - doorbells(result) + REPORT
        assert np.array_equal(latency, result.log.completions[:, 3])
        service = result.log.completions[:, 4]
        for name, times in (("WAIT", latency - service), ("SERVICE", service),
                            ("LATENCY", latency)):
            found = [result.registers[f"{name}_{what}"] for what in ("COUNT", "SUM", "MIN", "MAX")]
            assert found == [24, times.sum(), times.min(), times.max()], name
            assert [result.registers[f"{name}_BIN_{b}"] for b in range(BINS)] == bins(times)
        used = result.log.use[:, 1:].sum(0)
        names = [f"{unit}_{who}" for unit, _ in UNITS for who in ("TRAINING", "INFERENCE")]
        assert [result.registers[name] for name in names] == used.tolist()
        held = [result.registers[f"{unit}_{who}_HELD"] for unit, _ in UNITS
                for who in ("TRAINING", "INFERENCE")]
        assert any(held) == (c.training is not None)
        # Clocks until the registers of a unit are read; between units pass equally many.
        clocks = [sum(result.registers[f"{unit}_{what}"] for what in (
            "TRAINING", "INFERENCE", "UNUSED")) for unit, _ in UNITS]
        assert clocks[0] > result.log.use[-1, 0]
        assert len(set(np.diff(clocks))) == 1


def ends(c, result):
    """Clock in which the last output of each request's batch was acknowledged."""
    acks = {int(a): int(clock) for clock, a in result.log.acks}
    last = np.array([acks[c.bases[-1] + int(o)] for o in c.serving.outputs])
    launched = doorbells(result) + waits(result)
    return np.array([last[launched == at].max() for at in launched])


# --- load ---------------------------------------------------------------------------------------

def test_bounds_are_kept_and_met():
    """No hold above its bound (checked in every case), and holds of half of the bus's and more.

    Array and vector unit: tests/sim/test_contexts.py.
    """
    model, program = serving(16, sizes=(8, 5, 6)), training(turns=4)
    rng = np.random.default_rng(3)
    cases = [case(model, np.sort(rng.integers(0, 6000, 16)), program, seed=n,
                  registers={"MAX_BURST_BEATS": 8, "READ_CREDITS": 8, "READ_CREDITS_IDLE": 8,
                             "BATCH_MAX": 1 + n % 4},
                  **({"latency": 5} if n % 2 else {"bytes_per_cycle": 8, "latency": 30,
                                                   "stall": {"w": 0.5}}))
             for n in range(10)]
    results = run(TINY, cases)
    for unit in ("READ", "WRITE"):
        [bound] = {r.registers[f"{unit}_HOLD_BOUND"] for r in results}
        assert 2 * max(r.registers[f"{unit}_HOLD_MAX"] for r in results) >= bound > 0, unit


def test_spike_guard():
    """Training does nothing from the moment that too many requests wait until their launch."""
    model, program = serving(3), training(turns=4)
    cases = [case(model, [clock] * 3, program, host={"trace": 1 << 20}, registers={
        "SPIKE_THRESHOLD": 2 - n % 2, "BATCH_TIMEOUT": 2500}, latency=8)
        for n, clock in enumerate(range(100, 2500, 300))]
    for result in run(TINY, cases):
        assert result.registers["SPIKE_CYCLES"] == waits(result)[0]
        begin, end = doorbells(result)[0], launches(result)[0]
        trace = result.log.trace
        works = trace[:, 1] & sum(1 << 2 * unit for unit in range(len(UNITS))) != 0
        clocks = trace[:, 0]
        drained = (clocks > begin + 150) & (clocks <= end)  # what had begun has ended
        assert not works[drained].any()
        assert not works[clocks <= begin + 150][-1]
        assert works[clocks > end].any()


def test_overload():
    """Requests come four times faster than they are served, then end: the queue drains."""
    count = 80
    model, program = serving(count, ring_log2=5), training(turns=10)
    gap = model.plan.capacity / 4 / 4
    clocks = [int(1000 + gap * n) for n in range(count)]
    cases = [case(model, clocks, program, registers={"BATCH_TIMEOUT": 500, **registers},
                  host={"trace": 1 << 20})
             for registers in ({}, {"SPIKE_THRESHOLD": 8}, {"POLICY": 1}, {"POLICY": 2})]
    results = run(TINY, cases)
    for result in results:
        registers = result.registers
        assert registers["COMPLETED"] == count
        assert registers["REQUEST_QUEUE"] == 0
        assert registers["BATCHES"] < count / 2
        operations = result.log.served[0, 1]
        assert operations < registers["OPERATIONS"]  # training goes on
    assert results[1].registers["SPIKE_CYCLES"] > 1000
    assert results[3].log.served[0, 1] == 0  # exclusive
