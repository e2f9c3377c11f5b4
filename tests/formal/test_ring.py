"""Ring: counts stay in order, refused writes change nothing, every request once, its own entry."""

from functools import partial

import pytest
from amaranth.hdl import Const, Mux, Signal

from hw.requests.ring import Ring
from tests.formal.proof import add, assume, check, fixed, free, past, prove

WIDTH = 18  # of the counts here, which do not wrap


def build(m, ports, extra_entry=0, any_complete=False, shut=True):
    """`extra_entry` and `shut` break the design, `any_complete` drops an assumption."""
    dut = Ring()
    clear = free(1, "clear", ports)
    log2 = free(3, "log2", ports)
    opened = free(1, "opened", ports)
    doorbell = free(1, "doorbell", ports)
    consume = free(1, "consume", ports)
    wdata = free(32, "wdata", ports)
    complete = free(1, "complete", ports)
    add(m, "dut", dut)
    m.d.comb += [
        dut.clear.eq(clear), dut.ring_log2.eq(log2 + extra_entry), dut.open.eq(opened | (not shut)),
        dut.doorbell_write.eq(doorbell), dut.consumed_write.eq(consume), dut.wdata.eq(wdata),
        dut.complete.eq(complete),
    ]
    # Requests posted, completed and consumed since `clear`: fewer than 2**WIDTH - 2**16.
    posted, completed, consumed = (Signal(WIDTH, name=f"{n}_count") for n in
                                   ("posted", "completed", "consumed"))
    entries = Signal(8)
    more, fewer = Signal(16), Signal(16)
    post, took = Signal(), Signal()
    m.d.comb += [
        entries.eq(1 << log2), more.eq(wdata - posted), fewer.eq(wdata - consumed),
        post.eq(doorbell & opened & (posted + more <= consumed + entries)),
        took.eq(consume & (consumed + fewer <= completed)),
    ]
    assume(m, ~(doorbell & consume))
    assume(m, past(m, clear, init=1) | (log2 == past(m, log2)))
    assume(m, posted < 2**WIDTH - 2**16)
    if not any_complete:
        assume(m, ~complete | (completed != posted))
    with m.If(clear):
        m.d.sync += [posted.eq(0), completed.eq(0), consumed.eq(0)]
    with m.Else():
        m.d.sync += [posted.eq(posted + Mux(post, more, 0)), completed.eq(completed + complete),
                     consumed.eq(consumed + Mux(took, fewer, 0))]
    # Accepted writes count exactly, refused ones change nothing and are told.
    check(m, dut.posted == posted[:16])
    check(m, dut.completed == completed)
    check(m, dut.consumed == consumed[:16])
    check(m, dut.doorbell == (post & (more != 0)))
    check(m, dut.ring_error == ((doorbell & ~post) | (consume & ~took)))
    # The order, and the credit.
    check(m, (consumed <= completed) & (completed <= posted) & (posted <= consumed + entries))
    check(m, dut.space == consumed + entries - posted)

    # Any request: posted once, then completed once; its entry is its own until it is consumed.
    one, other = (fixed(m, WIDTH, name, ports) for name in ("one", "other"))
    is_posted, is_completed = Signal(), Signal()
    posts, completes = Signal(), Signal()
    m.d.comb += [
        posts.eq(dut.doorbell & (one >= posted)
                 & (one - posted < (wdata[:16] - dut.posted)[:16])),
        completes.eq(dut.complete & (dut.completed == one)),
    ]
    with m.If(clear):
        m.d.sync += [is_posted.eq(0), is_completed.eq(0)]
    with m.Else():
        m.d.sync += [is_posted.eq(is_posted | posts), is_completed.eq(is_completed | completes)]
    check(m, ~posts | ~is_posted)
    check(m, ~completes | (is_posted & ~is_completed))
    check(m, is_posted == (one < posted))
    check(m, is_completed == (one < completed))
    inside = [(number >= consumed) & (number < posted) for number in (one, other)]
    same_entry = ((one ^ other) & (entries - Const(1, 8)))[:8] == 0
    check(m, ~(inside[0] & inside[1] & same_entry) | (one == other))


def test_ring(tmp_path):
    assert prove(build, tmp_path, depth=1) == "PASS"


@pytest.mark.parametrize("broken", [{"extra_entry": 1}, {"any_complete": True}, {"shut": False}])
def test_broken(tmp_path, broken):
    assert prove(partial(build, **broken), tmp_path, depth=3) == "FAIL"
