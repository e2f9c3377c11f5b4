"""Lanes of the vector unit: one row at a time, inference waits for the row in the lanes only."""

from functools import partial

import pytest
from amaranth.hdl import Mux, Signal

from hw.config import Config
from hw.control.commands import ContextId
from hw.vector.share import LaneArbiter
from tests.formal.proof import add, assume, check, fixed, free, past, prove

TRAINING, INFERENCE = (context.value for context in ContextId)
#: 8 chunks in a row.
CFG = Config(tile=16, vector_lanes=2)


def build(m, ports, less=0, broken=None):
    dut = LaneArbiter(CFG)
    inner = add(m, "dut", dut)
    fair = free(1, "fair", ports)
    m.d.comb += dut.fair.eq(fair)
    priority = fixed(m, 1, "priority", ports)  # for ever; the bound holds then
    assume(m, ~(priority & fair))
    for n in range(2):
        asks, accepted = free(1, f"asks{n}", ports), free(1, f"accepted{n}", ports)
        steps = free(dut.steps_shape, f"steps{n}", ports)
        assume(m, steps < CFG.chunks)
        free_now = 1 if broken == "not free" else dut.free
        m.d.comb += [dut.asks[n].eq(asks), dut.steps[n].eq(steps),
                     # As `RowFetch` does; `accepted` is up to the accumulator.
                     dut.takes[n].eq(asks & free_now & dut.grant[n] & accepted)]
    taken = dut.takes[0] | dut.takes[1]
    check(m, ~(dut.grant[0] & dut.grant[1]))
    check(m, ~(dut.takes[0] & dut.takes[1]))
    # No row takes the lanes before the one in them has left.
    left, owner = Signal(range(CFG.chunks + 1)), Signal()
    steps = Mux(dut.takes[1], dut.steps[1], dut.steps[0])
    m.d.sync += left.eq(Mux(taken, steps, left - (left != 0)))
    with m.If(taken):
        m.d.sync += owner.eq(dut.takes[1])
    check(m, ~taken | (left == 0))
    check(m, dut.free == (left == 0))
    # Whoever asks alone is granted; both: inference, in turns the other one.
    with m.If(dut.asks[0] | dut.asks[1]):
        both = dut.asks[0] & dut.asks[1]
        check(m, dut.grant[1] == Mux(both, ~(fair & owner), dut.asks[1]))
    # `held` counts the clocks that inference has to wait because of training, and the bound.
    waited = Signal(8)
    theirs = (owner == TRAINING) & (left != 0) if broken == "turn" else \
        Mux(left != 0, owner, dut.grant[1]) == TRAINING
    m.d.sync += waited.eq(Mux(dut.asks[INFERENCE] & theirs, waited + ~waited.all(), 0))
    check(m, (dut.held == waited) | (waited.all() & (dut.held >= waited)))
    took = past(m, dut.takes[1])
    with m.If(priority):
        check(m, dut.held <= CFG.chunks - 1 - less)
        check(m, (dut.held == 0) | (left + dut.held <= CFG.chunks - 1) | took)
    check(m, inner["wait"] == left)
    check(m, inner["owner"] == owner)
    check(m, inner["arbiter.last"] == owner)


def test_lanes(tmp_path):
    assert prove(build, tmp_path, depth=3) == "PASS"


@pytest.mark.parametrize("broken", [{"less": 1}, {"broken": "not free"}, {"broken": "turn"}])
def test_broken(tmp_path, broken):
    assert prove(partial(build, **broken), tmp_path, depth=CFG.chunks + 4) == "FAIL"
