"""Resets, stops and errors while both contexts work: each keeps to its own."""

from copy import copy
from functools import cache

import numpy as np
import pytest

from hw.config import load
from hw.isa import Error
from sw.golden.serving import Status
from tb.colocation import SharedProgram, Solo, slots, step
from tb.serving import Serving, case, run

TINY = load("tiny")
#: Clocks after which a context that was stopped is idle.
IDLE = 1200
COUNT = 12
OK, ABORTED, FAILED = Status.OK, Status.ABORTED, Status.FAILED


@cache
def serving(count=COUNT):
    return Serving(TINY, count=count)


@cache
def training(turns=1):
    """Layers in the slots that `serving` leaves; running it again changes nothing."""
    p = SharedProgram(TINY, 2, *slots(TINY, serving().plan.rest))
    with p.loop(turns):
        step(p, 9, 8, 7)
        step(p, 5, 12, 9)
    start = p.end()
    return Solo.of(TINY, p.memory(), start, seed=2)


def moments(seed, count, most):
    """Random clocks."""
    return [int(c) for c in np.random.default_rng(seed).integers(20, most, count)]


def test_reset():
    """Reset in any moment of both, then both again from what they had left."""
    model, program, clocks = serving(), training(), range(0, 2400, 200)
    cases = []
    for at in moments(0, 16, 3000):
        first = case(model, clocks, program, latency=8, reset_after=at)
        first.check = lambda result: [f"bus: {text}" for text in result.protocol_errors]
        cases += [first, case(model, clocks, program, fresh=False)]
    run(TINY, cases)


# --- STOP ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("held", ["", "exclusive", "spike"])
def test_stop_of_training(held):
    """Training is stopped in any moment, held or not, and started again."""
    model, program, cases = serving(), training(), []
    for at in moments(1, 12, 3500):
        registers, writes = {"BATCH_TIMEOUT": 100}, []
        if held == "exclusive":
            writes = [(max(0, at - 200), "POLICY", 2), (at + IDLE - 10, "POLICY", 0)]
        if held == "spike":  # requests wait from then on
            registers = {"BATCH_TIMEOUT": 3000, "SPIKE_THRESHOLD": 1, "BATCH_MAX": 4}
        clocks = range(0, COUNT * 200, 200) if held != "spike" else \
            [max(0, at - 300)] * 3 + [at + 2 * IDLE] * (COUNT - 3)
        writes += [(at, "CONTROL", 2), (at + IDLE, "CONTROL", 1)]
        cases.append(case(model, clocks, program, writes=writes, registers=registers,
                          counters=False, latency=8))
    for result in run(TINY, cases):
        assert result.registers["STATUS"] == 2
        assert len(result.log.ended) == 2


def in_order(result, count, end):
    """Statuses that came: OK, then `end` to the last; each tag once."""
    status = [Status(int(s)) for s in result.log.completions[:, 2]]
    good = status.count(OK)
    assert status == [OK] * good + [end] * (len(status) - good)
    assert len(status) <= count
    return status


def judged(early_ones, cases, end):
    """Run `cases`. Statuses of the early ones are those found, which must be in order."""
    def early(c):
        def check(result):
            c.statuses = in_order(result, COUNT, end)
            return type(c).check(c, result)
        return check

    for c in early_ones:
        c.check = early(c)
    return run(TINY, cases)


def test_stop_of_inference():
    """All that was posted completes once, training does not notice; then more is served."""
    model, program, cases, kinds = serving(), training(), [], set()
    for at in moments(2, 16, 2000):
        first = case(model, [50 * n for n in range(COUNT)], program, latency=8,
                     registers={"BATCH_TIMEOUT": 200}, writes=[(at, "INFERENCE_CONTROL", 2)])
        cases += [first, case(model, [0] * COUNT, program, fresh=False)]
    results = judged(cases[::2], cases, ABORTED)
    for c, result in list(zip(cases, results, strict=True))[::2]:
        assert result.registers["REQUEST_CONTROL"] & 1 == 0
        assert not len(result.log.failed)
        kinds.add((OK in c.statuses, ABORTED in c.statuses, len(c.statuses) < COUNT))
    assert len(kinds) >= 3


# --- errors -------------------------------------------------------------------------------------

def ranges(kind, model, base, seed):
    """Settings of a memory that fails in a request's input or output, or in its completion."""
    n = seed % COUNT
    if kind == "input":
        at = base + model.requests[n].input
        return {"read_errors": (at, at + 8)}
    if kind == "descriptor":
        at = base + model.plan.ring + n % 8 * TINY.entry_bytes
        return {"read_errors": (at, at + 8)}
    at = base + (model.requests[n].output if kind == "output" else
                 model.plan.completions + n % 8 * TINY.entry_bytes)
    return {"write_errors": (at, at + 8)}


@pytest.mark.parametrize("kind", ["input", "descriptor", "output"])
def test_bus_errors_of_requests(kind):
    model, program, cases = serving(), training(), []
    base = case(model, [0] * COUNT, program).bases[-1]
    for seed, gap in enumerate(moments(4, 12, 150)):
        asked = copy(model)
        if kind == "descriptor":  # what was not read has no tag
            asked.requests = list(model.requests)
            n = seed % COUNT % 8
            asked.requests[n] = asked.requests[n]._replace(tag=0)
        cases.append(case(asked, [gap * n for n in range(COUNT)], program, latency=8,
                          registers={"BATCH_TIMEOUT": 5 * seed}, **ranges(kind, model, base, seed)))
    code = Error.WRITE_ERROR if kind == "output" else Error.READ_ERROR
    for c, result in zip(cases, judged(cases, cases, FAILED), strict=True):
        assert result.registers["INFERENCE_ERROR_CODE"] == code.value
        assert set(result.log.failed[:, 1]) == {1}  # twice if the descriptor fails again
        assert FAILED in c.statuses
        assert result.registers["REQUEST_CONTROL"] & 1 == 0


def test_bus_errors_of_completions():
    """The completion that cannot be written is lost, but counted; nothing hangs."""
    model, program, cases = serving(), training(), []
    base = case(model, [0] * COUNT, program).bases[-1]
    for seed, gap in enumerate(moments(5, 10, 150)):
        first = case(model, [gap * n for n in range(COUNT)], program, latency=8,
                     **ranges("completion", model, base, seed))
        first.check = lambda result, c=first: c.training.problems(result, "", c.bases[0])
        cases.append(first)
    for result in run(TINY, cases):
        assert result.registers["INFERENCE_ERROR_CODE"] == Error.WRITE_ERROR.value
        assert result.registers["COMPLETED"] == len(result.log.completions)


def region(window, times):
    """Slots of a window, `times` over."""
    size = times << window["h_log2"] + window["w_log2"]
    return window["base"] | window["base"] + size - 1 << 16


def test_errors_of_the_served_program():
    """A bad opcode, a slot outside, an address outside; then all is right and served."""
    model, program, cases, codes = serving(), training(), [], []
    plan = model.plan
    spad, acc = (region(window, n) for window, n in ((plan.service.input_window, 2),
                                                     (plan.service.output_window, 1)))
    wrong = (({"INFERENCE_PROGRAM_ADDR": plan.size // 128 * 128}, None),
             ({"INFERENCE_SPAD_REGION": spad}, Error.BAD_WINDOW),  # no weights
             ({"INFERENCE_ACC_REGION": acc}, Error.BAD_WINDOW),  # no biases
             ({"INFERENCE_PROGRAM_ADDR": 1 << 31}, Error.BAD_ADDRESS))
    for (registers, code), gap in [(w, g) for w in wrong for g in moments(6, 3, 300)]:
        first = case(model, [gap * n for n in range(COUNT)], program, registers=registers)
        first.check = lambda result, c=first: (
            [] if set(in_order(result, COUNT, FAILED)) == {FAILED} else ["something was served"]
        ) + c.training.problems(result, "", c.bases[0])
        cases += [first, case(model, [gap * n for n in range(COUNT)], program, fresh=False)]
        codes.append(code)
    for result, code in zip(run(TINY, cases)[::2], codes, strict=True):
        found = result.registers["INFERENCE_ERROR_CODE"]
        assert found == code.value if code else found in (1, 2)
        assert not result.registers["ERROR_CODE"]


def failing(kind):
    """A training region whose program fails at its end, or at once."""
    p = SharedProgram(TINY, 3, *slots(TINY, serving().plan.rest))
    step(p, 9, 8, 7)
    if kind == "opcode":
        p.gemm(p.bfp(4, 4), p.bfp(4, 4), p.room(4, 4, False), m=0)
    elif kind == "address":
        p.gemm(p.bfp(4, 4), p.bfp(4, 4), p.room(4, 4, False), y_addr=2**32 - 8)
    elif kind == "window":
        p.gemm(p.bfp(4, 4), p.bfp(4, 4), p.room(4, 4, False), y_window={"base": 0, "h_log2": 0,
                                                                        "w_log2": 0})
    start = p.end()
    return p.memory(), start


@pytest.mark.parametrize(("kind", "code"), [
    ("opcode", Error.BAD_FIELD), ("address", Error.BAD_ADDRESS), ("window", Error.BAD_WINDOW),
    ("read", Error.READ_ERROR), ("write", Error.WRITE_ERROR)])
def test_errors_of_training(kind, code):
    """The requests do not notice; then training's next program is right."""
    model, good, cases = serving(), training(), []
    memory, start = failing(kind)
    share = model.plan.rest
    regions = {"SPAD_REGION": share.spad[0] | share.spad[-1] << 16,
               "ACC_REGION": share.acc[0] | share.acc[-1] << 16}
    for at in moments(7, 6, 1200):
        bad = Solo(memory, start, memory, None, 0)
        settings = {} if code.value not in (5, 6) else {
            f"{kind}_errors": (8 * (at % 70), 8 * (at % 70) + len(memory) // 4)}
        first = case(model, [n * 150 for n in range(COUNT)], bad, start=at, registers=regions,
                     latency=8, **settings)
        first.check = lambda result, c=first: model.problems(result, c.bases[-1])
        again = case(model, [n * 150 for n in range(COUNT)], good, start=at)
        cases += [first, again]
    for result in run(TINY, cases)[::2]:
        assert result.registers["ERROR_CODE"] == code.value
        assert result.log.failed[:, 1].tolist() == [0]
        assert not result.registers["INFERENCE_ERROR_CODE"]
