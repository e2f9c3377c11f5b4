"""The contexts' arbiter: nothing lost, inference first, hold, turns."""

from functools import partial

from amaranth.hdl import Mux, Signal

from hw.control.commands import ContextId
from hw.lib.context_arbiter import ContextArbiter
from tests.formal.proof import check, free, prove

TRAINING, INFERENCE = ContextId.TRAINING.value, ContextId.INFERENCE.value


def build(m, ports, connected=True):
    hold = free(1, "hold", ports)
    m.submodules.dut = dut = ContextArbiter(4)
    for n, stream in enumerate(dut.i):
        m.d.comb += [stream.valid.eq(free(1, f"valid{n}", ports)),
                     stream.payload.eq(free(4, f"payload{n}", ports))]
    m.d.comb += [dut.fair.eq(free(1, "fair", ports)), dut.hold.eq(hold & connected),
                 dut.o.ready.eq(free(1, "ready", ports))]
    took = [s.valid & s.ready for s in dut.i]
    taken = dut.o.valid & dut.o.ready
    # One is taken from the inputs exactly when one leaves, with its payload and name.
    check(m, taken == (took[0] | took[1]))
    check(m, ~(took[0] & took[1]))
    with m.If(taken):
        check(m, dut.context.as_value() == took[1])
        check(m, dut.o.payload == Mux(took[1], dut.i[1].payload, dut.i[0].payload))
    # Training has what inference leaves, but not when held; inference never waits without need.
    check(m, ~(took[0] & hold))
    asks = [s.valid for s in dut.i]
    with m.If(dut.o.ready & asks[TRAINING] & ~asks[INFERENCE] & ~hold):
        check(m, took[TRAINING])
    with m.If(dut.o.ready & asks[INFERENCE] & (~dut.fair | hold)):
        check(m, took[INFERENCE])
    # In turns: who has lost in the clock before gets the next grant.
    lost = [Signal(name=f"lost{n}") for n in range(2)]
    for n in range(2):
        m.d.sync += lost[n].eq(asks[n] & taken & ~took[n])
        with m.If(asks[n] & dut.fair & ~hold & dut.o.ready & lost[n]):
            check(m, took[n])


def test_context_arbiter(tmp_path):
    assert prove(build, tmp_path, depth=4) == "PASS"


def test_without_hold(tmp_path):
    """The assertions see an arbiter that does not hold training back."""
    assert prove(partial(build, connected=False), tmp_path, depth=4) == "FAIL"
