"""Coalesce: the interrupt comes exactly when documented, so no completion waits for ever."""

from functools import partial

import pytest
from amaranth.hdl import Mux, Signal

from hw.requests.coalesce import Coalesce
from tests.formal.proof import add, check, fixed, free, past, prove


def build(m, ports, broken=None):
    dut = Coalesce()
    inner = add(m, "dut", dut)
    count, clocks = fixed(m, 16, "count", ports), fixed(m, 32, "clocks", ports)
    complete, clear = free(1, "complete", ports), free(1, "clear", ports)
    last = past(m, complete)
    m.d.comb += [
        dut.clear.eq(clear), dut.complete.eq(complete & ~((broken == "lost") & last)),
        dut.count.eq(count + (broken == "count")), dut.clocks.eq(clocks + (broken == "clocks")),
    ]
    # Completions for which it was not raised, and clocks since the first one.
    waiting, age = Signal(17), Signal(33)
    total = Signal(18)
    full, late = Signal(), Signal()
    m.d.comb += [total.eq(waiting + complete), full.eq(complete & (total >= count)),
                 late.eq((waiting != 0) & (clocks != 0) & (age == clocks))]
    m.d.sync += [waiting.eq(Mux(full | late | clear, 0, total)),
                 age.eq(Mux(waiting == 0, 1, Mux(age.all(), age, age + 1)))]
    check(m, dut.event == (full | late))
    with m.If((waiting != 0) & (clocks != 0)):
        check(m, age <= clocks)
    check(m, waiting == inner["waiting"])
    check(m, (waiting == 0) | (waiting < count))
    with m.If(waiting != 0):
        check(m, inner["age"] == Mux(age[32], 2**32 - 1, age))


def test_coalesce(tmp_path):
    assert prove(build, tmp_path, depth=2) == "PASS"


@pytest.mark.parametrize("broken", ["count", "clocks", "lost"])
def test_broken(tmp_path, broken):
    assert prove(partial(build, broken=broken), tmp_path, depth=8) == "FAIL"
