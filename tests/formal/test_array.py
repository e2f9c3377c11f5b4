"""The array of two contexts: operations pass unchanged, stationary tiles, bound of `held`."""

from functools import partial

import pytest
from amaranth.hdl import Fragment, Signal
from amaranth.lib import data

from hw.array.arbiter import ArrayArbiter
from hw.array.execute import ExecuteUnit
from hw.array.issue import Issue
from hw.config import Config
from hw.control.commands import ContextId, exec_command
from tests.formal.proof import add, assume, check, free, prove

TRAINING, INFERENCE = (context.value for context in ContextId)
#: (tile, dot width): a wavefront through as many rows of PEs as the tile has, through half, one.
SHAPES = [(2, 1), (2, 2), (3, 1), (4, 1), (4, 2), (4, 4)]


def config(tile, dot_width=1):
    return Config(tile=tile, dot_width=dot_width, axi_width=64, spad_kib=1, acc_kib=1,
                  spad_banks=2, acc_banks=2)


def operations(m, cfg, dut, ports):
    """Free operations of both contexts: any of them in any clock, also withdrawn."""
    for n in range(2):
        payload = dut.i[n].payload
        m.d.comb += [dut.i[n].valid.eq(free(1, f"valid{n}", ports)),
                     payload.as_value().eq(free(exec_command(cfg).size, f"operation{n}", ports))]
        assume(m, (payload.rows >= 1) & (payload.rows <= cfg.tile))


def build_arbiter(m, ports, broken=None):
    cfg = config(4)
    dut = ArrayArbiter(cfg)
    inner = add(m, "dut", dut)
    operations(m, cfg, dut, ports)
    hold, fair = free(1, "hold", ports), free(1, "fair", ports)
    m.d.comb += [dut.hold.eq(hold & (broken != "hold")), dut.fair.eq(fair),
                 dut.inside.eq(free(1, "inside", ports)), dut.o.ready.eq(free(1, "ready", ports))]
    took = [i.valid & i.ready for i in dut.i]
    taken = dut.o.valid & dut.o.ready
    # One is taken exactly when one leaves, with all its fields.
    check(m, taken == (took[0] | took[1]))
    check(m, ~(took[0] & took[1]))
    check(m, ~(took[TRAINING] & hold))
    owner, loaded = Signal(), Signal()
    with m.If(taken):
        m.d.sync += [owner.eq(took[INFERENCE]), loaded.eq(1)]
    for n in range(2):
        with m.If(took[n]):
            given, out = dut.i[n].payload, dut.o.payload
            check(m, out.context.as_value() == n)
            for name in exec_command(cfg).members:
                if name not in ("context", "b_reuse"):
                    check(m, out[name] == given[name])
            mine = 1 if broken == "owner" else (owner == n)
            check(m, out.b_reuse == (given.b_reuse & loaded & mine))
    check(m, inner["owner"] == owner)
    check(m, inner["loaded"] == loaded)


def build(m, ports, tile, dot_width=1, less=0, priority=True):
    cfg = config(tile, dot_width)
    unit = ExecuteUnit(cfg)
    Fragment.get(unit, None)  # it is not part of the proof, but its bound and interlock are
    arbiter, issue = ArrayArbiter(cfg), Issue(cfg, interlock=unit.INTERLOCK)
    add(m, "arbiter", arbiter)
    inner = add(m, "issue", issue)
    operations(m, cfg, arbiter, ports)
    m.d.comb += [
        arbiter.hold.eq(free(1, "hold", ports)),
        arbiter.fair.eq(0 if priority else free(1, "fair", ports)),
        issue.cmd.valid.eq(arbiter.o.valid), arbiter.o.ready.eq(issue.cmd.ready),
        issue.cmd.payload.eq(arbiter.o.payload), arbiter.inside.eq(issue.inside[TRAINING]),
    ]
    check(m, arbiter.held <= unit.HOLD_BOUND - less)
    # No bank is read twice in one clock.
    banks = [slot[cfg.slot_index_bits:] for slot in (issue.a_slot, issue.b_slot)]
    check(m, ~(issue.a_en & issue.b_en) | (banks[0] != banks[1]))
    # An induction shall not begin with rows that there are not.
    op = data.View(exec_command(cfg), inner["op"])
    check(m, ~inner["waiting"] | ((op.rows >= 1) & (op.rows <= tile)))
    check(m, ~issue.b_en | (issue.b_index < tile))
    check(m, ~issue.a_en | ((issue.a_index <= inner["last_row"]) & (inner["last_row"] < tile)))
    check(m, inner["left"] <= tile)


def test_arbiter(tmp_path):
    assert prove(build_arbiter, tmp_path, depth=2) == "PASS"


@pytest.mark.parametrize("broken", ["hold", "owner"])
def test_arbiter_broken(tmp_path, broken):
    assert prove(partial(build_arbiter, broken=broken), tmp_path, depth=4) == "FAIL"


@pytest.mark.parametrize(("tile", "dot_width"), SHAPES)
def test_bound(tmp_path, tile, dot_width):
    """All that an operation waits for is over after two bounds, so induction needs no more."""
    build_it = partial(build, tile=tile, dot_width=dot_width)
    assert prove(build_it, tmp_path, depth=14) == "PASS"


@pytest.mark.parametrize("broken", [{"tile": 2, "less": 1}, {"tile": 4, "less": 1},
                                    {"tile": 2, "priority": False}])
def test_bound_broken(tmp_path, broken):
    """The bound is reached, and is no bound when contexts take turns."""
    assert prove(partial(build, **broken), tmp_path, depth=24, mode="bmc") == "FAIL"
