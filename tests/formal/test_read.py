"""ReadBursts: an image's beats once and in order, within pages, room and credits."""

from functools import partial

import pytest
from amaranth.hdl import Mux, Shape, Signal, Value

from hw.config import Config
from hw.isa import Kind
from hw.memory.axi import PAGE_BYTES
from hw.memory.read import ReadBursts
from tests.formal.proof import add, assume, check, free, past, prove

#: Two bursts in flight, room for 32 beats, 32 beats in a page.
CFG = Config(tile=4, axi_width=1024, addr_width=32, spad_kib=4, acc_kib=4, outstanding=2)
PAGE = PAGE_BYTES // CFG.beat_bytes
#: Most beats of an image: more than the room, so that an image needs several bursts.
MOST = 40
KIND_BITS = Shape.cast(Kind).width


def build(m, ports, broken=None):
    dut = ReadBursts(CFG, MOST)
    inner = add(m, "dut", dut)
    start, address = free(1, "start", ports), free(CFG.addr_width, "address", ports)
    beats, kind = free(range(MOST + 1), "beats", ports), free(KIND_BITS, "kind", ports)
    max_beats, credits_ = free(9, "max_beats", ports), free(16, "credits", ports)
    buffered, abort = free(16, "buffered", ports), free(1, "abort", ports)
    ready, beat, last = (free(1, name, ports) for name in ("ready", "beat", "last"))
    m.d.comb += [
        dut.start.eq(start), dut.address.eq(address), dut.beats.eq(beats), dut.kind.eq(kind),
        dut.max_beats.eq(0 if broken == "limit" else max_beats),
        dut.credits.eq(credits_ + (broken == "credits")),
        dut.buffered.eq(0 if broken == "room" else buffered), dut.abort.eq(abort),
        dut.ar_ready.eq(ready), dut.beat.eq(beat), dut.last.eq(last),
    ]
    if broken != "start":
        assume(m, ~start | dut.ready)
    assume(m, (beats != 0) & (beats <= MOST) & (address[:CFG.beat_bytes.bit_length() - 1] == 0))
    # What has arrived is buffered or used.
    assume(m, buffered <= past(m, buffered) + past(m, beat))

    ar_kind = Value.cast(dut.ar_kind)
    # A burst is new in the first clock of its offer; the limits are those of the clock before.
    new = dut.ar_valid & ~past(m, dut.ar_valid & ~ready)
    length = Signal(9)
    m.d.comb += length.eq(dut.ar_len + 1)
    # The memory answers bursts in order: beats left of the oldest, and of the next one.
    left = [Signal(9, name=f"left{n}") for n in range(CFG.outstanding)]
    ends = beat & (left[0] == 1)
    with m.If(dut.ar_valid & ready & ((left[0] == 0) | (ends & (left[1] == 0)))):
        m.d.sync += [left[0].eq(length), left[1].eq(0)]
    with m.Elif(dut.ar_valid & ready):
        m.d.sync += [left[0].eq(Mux(ends, left[1], left[0] - beat)), left[1].eq(length)]
    with m.Else():
        m.d.sync += [left[0].eq(Mux(ends, left[1], left[0] - beat)),
                     left[1].eq(Mux(ends, 0, left[1]))]
    assume(m, ~beat | (left[0] != 0))
    assume(m, last == (left[0] == 1))

    # --- an image: its next beat, and how many are left ------------------------------------------
    index, rest, its_kind = Signal(CFG.addr_width - 7), Signal(range(MOST + 1)), Signal(KIND_BITS)
    index_now, rest_now = Signal.like(index), Signal.like(rest)
    m.d.comb += [index_now.eq(index + Mux(new, length, 0)),
                 rest_now.eq(rest - Mux(new, length, 0))]
    m.d.sync += [index.eq(Mux(start, address[7:], index_now)),
                 rest.eq(Mux(start, beats, rest_now)), its_kind.eq(Mux(start, kind, its_kind))]
    owed, aborted = past(m, dut.owed), past(m, abort)
    most, allowed = past(m, max_beats), past(m, credits_)
    with m.If(new):
        check(m, length <= rest)
        check(m, dut.ar_addr == index << 7)
        check(m, ar_kind == its_kind)
        check(m, ~aborted)
        # Within a page, and the limits.
        check(m, index[:PAGE.bit_length() - 1] + length <= PAGE)
        check(m, (length == 1) | (length <= most))
        check(m, (owed == 0) | (owed + length <= allowed))
    offer = dut.ar_valid & ~ready
    check(m, ~past(m, offer) | dut.ar_valid)
    for value in dut.ar_addr, dut.ar_len, ar_kind:
        check(m, ~past(m, offer) | (value == past(m, value)))
    check(m, dut.ready == (rest_now == 0))
    # Nothing is left out: an image that is not done goes on when nothing is owed or buffered.
    check(m, new | ~past(m, (rest_now != 0) & (dut.owed == 0) & (buffered == 0) & ~abort))
    on_offer = Mux(dut.ar_valid, length, 0)
    check(m, dut.owed == left[0] + left[1] + on_offer)
    check(m, dut.owed + buffered <= CFG.read_buffer)
    bursts = (left[0] != 0) + (left[1] != 0) + dut.ar_valid
    check(m, dut.idle == (bursts == 0))
    check(m, bursts <= CFG.outstanding)

    check(m, inner["in_flight"] == bursts)
    check(m, (inner["index"] == index_now) & (inner["left"] == rest_now))
    check(m, (rest <= MOST) & ((rest_now == 0) | (inner["kind"] == its_kind)))
    check(m, (left[0] != 0) | (left[1] == 0))
    check(m, (left[0] <= CFG.read_buffer) & (left[1] <= CFG.read_buffer))
    check(m, ~dut.ar_valid | (length <= CFG.read_buffer))


def test_read_bursts(tmp_path):
    assert prove(build, tmp_path, depth=2) == "PASS"


@pytest.mark.parametrize("broken", ["credits", "room", "start"])
def test_broken(tmp_path, broken):
    assert prove(partial(build, broken=broken), tmp_path, depth=8, mode="bmc") == "FAIL"
