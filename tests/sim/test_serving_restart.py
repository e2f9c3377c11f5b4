"""ENABLE refused, and ENABLE after an error on the bus: then all is served, training beside it."""

from copy import copy

import pytest
from test_serving_faults import (
    COUNT,
    FAILED,
    TINY,
    in_order,
    judged,
    moments,
    ranges,
    region,
    serving,
    training,
)

from hw.isa import WINDOW, Error
from tb.serving import case, run


def window(fields, **changes):
    """Value of a window register."""
    return WINDOW.const(fields | changes).as_bits()


def misfits(plan):
    """Registers with which ENABLE is refused, in most of them by one."""
    x, y, rest = plan.service.input_window, plan.service.output_window, plan.rest
    columns = {name: TINY.tile << w["w_log2"] for name, w in (("INPUTS", x), ("OUTPUTS", y))}
    spad, acc = region(x, 2), region(y, 1)
    return [
        {"REQUEST_RING": plan.ring + 4}, {"COMPLETION_RING": 1 << 31},
        # Into training's slots: all, or the second buffer, or the last slot.
        {"INPUT_WINDOW": window(x, base=rest.spad[0])},
        {"INPUT_WINDOW": window(x, base=plan.share.spad[-1])},
        {"OUTPUT_WINDOW": window(y, base=rest.acc[0])},
        {"OUTPUT_WINDOW": window(y, base=plan.share.acc[-1], h_log2=0, w_log2=1)},
        {"INFERENCE_SPAD_REGION": spad - (1 << 16)}, {"INFERENCE_SPAD_REGION": spad + 1},
        {"INFERENCE_ACC_REGION": acc - (1 << 16)}, {"INFERENCE_ACC_REGION": acc + 1},
        {"INPUT_WINDOW": window(x, base=TINY.spad_slots - 1),
         "INFERENCE_SPAD_REGION": 0xFFFF << 16},
        {"OUTPUT_WINDOW": window(y, base=TINY.acc_slots), "INFERENCE_ACC_REGION": 0xFFFF << 16},
        {"REQUEST_INPUTS": columns["INPUTS"] + 1}, {"REQUEST_OUTPUTS": columns["OUTPUTS"] + 1},
    ]


def test_refused_enable():
    """Nothing is posted, served or changed; with the right registers all is."""
    model, program, cases = serving(), training(), []
    for n, wrong in enumerate(misfits(model.plan)):
        clocks = range(300 * (n % 2), 3000, 150)[:COUNT]  # before or after the host sees it
        cases += [case(model, clocks, program, registers=wrong, statuses=[]),
                  case(model, clocks, program, fresh=False)]
    results = run(TINY, cases)
    for result in results[::2]:
        assert result.registers["REQUEST_CONTROL"] == 0
        assert result.registers["COMPLETED"] == 0
        assert len(result.log.refused) >= 1
        assert not len(result.log.completions)
        assert not result.registers["INFERENCE_ERROR_CODE"]


def test_enable_is_refused_until_all_is_completed():
    """Cleared and set while requests are under way: they are served, and no more are taken."""
    model, program = serving(), training()
    cases = []
    for at in moments(8, 8, 900):
        writes = [(at, "REQUEST_CONTROL", 0), (at + 1, "REQUEST_CONTROL", 1)]
        first = case(model, [0] * COUNT, program, writes=writes, latency=60)
        first.check = lambda result, c=first: early(c, result)
        cases += [first, case(model, [0] * COUNT, program, fresh=False)]
    for result in run(TINY, cases)[::2]:
        assert result.registers["REQUEST_CONTROL"] == 0
        assert len(result.log.refused) >= 1
        assert 0 < len(result.log.completions) < COUNT


def early(c, result):
    """Check a case of which only the first requests were served."""
    c.statuses = c.serving.statuses[:len(result.log.completions)]
    return type(c).check(c, result)


@pytest.mark.parametrize(("kind", "times"), [
    ("descriptor", 1), ("descriptor", 2), ("input", 1), ("output", 1), ("completion", 1),
    ("completion", 2), ("completion", 3)])
def test_serving_again_after_bus_errors(kind, times):
    """So many error answers, then none. Requests end with an error; enabled again, all are OK."""
    model, program, cases = serving(), training(), []
    base = case(model, [0] * COUNT, program).bases[-1]
    for seed, gap in enumerate(moments(9, 12, 150)):
        asked = copy(model)
        if (kind, times) == ("descriptor", 2):  # what was not read has no tag
            asked.requests = list(model.requests)
            n = seed % COUNT % 8
            asked.requests[n] = asked.requests[n]._replace(tag=0)
        first = case(asked, [gap * n for n in range(COUNT)], program, latency=8,
                     registers={"BATCH_TIMEOUT": 5 * seed}, error_limit=times,
                     **ranges(kind, model, base, seed))
        if times == 3:  # completions were given up
            first.check = lambda result, c=first: c.training.problems(result, "", c.bases[0])
        cases += [first, case(model, [gap * n for n in range(COUNT)], program, fresh=False)]
    firsts = [] if times == 3 else cases[::2]
    results = judged(firsts, cases, FAILED)
    code = Error.READ_ERROR if kind in ("descriptor", "input") else Error.WRITE_ERROR
    for result in results[::2]:
        assert result.registers["INFERENCE_ERROR_CODE"] == code.value
        assert result.registers["REQUEST_CONTROL"] & 1 == 0
        assert times == 3 or FAILED in in_order(result, COUNT, FAILED)
    for result in results[1::2]:
        assert not result.registers["INFERENCE_ERROR_CODE"]
        assert result.registers["COMPLETED"] == COUNT
