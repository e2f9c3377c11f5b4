"""Bus: nothing lost, stable channels, write data in order, inference first, bounds of `held`."""

from functools import partial

import pytest
from amaranth.hdl import Cat, Mux, Signal

from hw.config import Config
from hw.control.commands import ContextId
from hw.memory.bus import AddressChannel, Bus
from tests.formal.proof import add, assume, check, fixed, free, past, prove

TRAINING, INFERENCE = (context.value for context in ContextId)
#: Two bursts of each context in flight are enough for all orders.
CFG = Config(tile=4, axi_width=32, addr_width=32, spad_kib=4, acc_kib=4, outstanding=2)
DEPTH = 2 * CFG.outstanding
#: MAX_BURST_BEATS here: bursts of training have 1 .. BURST beats, those of inference any number.
BURST = 3
#: READ_CREDITS here.
CREDITS = 5


def stable(m, valid, ready, *payload):
    """What is not taken stays: the condition."""
    word = Cat(valid, *payload)
    return ~past(m, valid & ~ready) | (valid & (word == past(m, word)))


class Order:
    """Bursts on a bus in order: of whom, and how many beats are left of each; the first leaves."""

    def __init__(self, m, name, entered, context, beats, moves):
        self.count = Signal(range(DEPTH + 1), name=f"{name}_count")
        self.who = [Signal(name=f"{name}_who{n}") for n in range(DEPTH)]
        self.left = [Signal(9, name=f"{name}_left{n}") for n in range(DEPTH)]
        self.ends = moves & (self.left[0] == 1)
        at = Signal(range(DEPTH + 1), name=f"{name}_at")
        m.d.comb += at.eq(self.count - self.ends)
        m.d.sync += self.count.eq(at + entered)
        for n in range(DEPTH):
            behind = n + 1 if n + 1 < DEPTH else n
            m.d.sync += [
                self.who[n].eq(Mux(self.ends, self.who[behind], self.who[n])),
                self.left[n].eq(Mux(self.ends, self.left[behind],
                                    self.left[n] - (moves if n == 0 else 0)))]
            with m.If(entered & (at == n)):
                m.d.sync += [self.who[n].eq(context), self.left[n].eq(beats)]
        self.valid = [n < self.count for n in range(DEPTH)]
        check(m, self.count <= DEPTH)
        for valid, left in zip(self.valid, self.left, strict=True):
            check(m, ~valid | (left != 0))

    def number(self, context):
        """Bursts of the context."""
        return sum(valid & (who == context)
                   for valid, who in zip(self.valid, self.who, strict=True))

    def training(self):
        """Beats of training in all bursts, and in those before the first of inference."""
        zero, all_, ahead, before = 0, 0, 0, 1
        for valid, who, left in zip(self.valid, self.who, self.left, strict=True):
            mine = valid & (who == TRAINING)
            before = before & mine
            all_ += Mux(mine, left, zero)
            ahead += Mux(before, left, zero)
        return all_, ahead


def build_channel(m, ports, broken=None):
    dut = AddressChannel()
    inner = add(m, "dut", dut)
    fair = free(1, "fair", ports)
    m.d.comb += [dut.fair.eq(~fair if broken == "fair" else fair),
                 dut.m_ready.eq(free(1, "m_ready", ports))]
    asks = []
    for n in range(2):
        valid, allowed = free(1, f"valid{n}", ports), free(1, f"allowed{n}", ports)
        m.d.comb += [dut.valid[n].eq(valid), dut.allowed[n].eq(allowed)]
        if broken != "withdrawn":
            assume(m, stable(m, valid, dut.ready[n]))
        asks.append(valid & allowed)
    took = [dut.valid[n] & dut.ready[n] for n in range(2)]
    accepted = dut.m_valid & dut.m_ready
    locked = past(m, dut.m_valid & ~dut.m_ready)
    check(m, stable(m, dut.m_valid, dut.m_ready, dut.context))
    # An accepted burst is one that was offered, and leaves its context once.
    check(m, accepted == (took[0] | took[1]))
    check(m, ~(took[0] & took[1]))
    check(m, ~accepted | (dut.context == took[1]))
    check(m, ~(dut.ready[0] | dut.ready[1]) | accepted)
    last = Signal()
    with m.If(accepted):
        m.d.sync += last.eq(dut.context)
    with m.If(~locked):
        # One that is allowed goes on the channel, and only such a one; then priority, or turns.
        check(m, dut.m_valid == (asks[0] | asks[1]))
        with m.If(dut.m_valid):
            check(m, Mux(dut.context, asks[1], asks[0]))
        with m.If(asks[0] & asks[1]):
            check(m, dut.context == ~(fair & last))
    check(m, inner["locked"] == locked)
    check(m, ~locked | Mux(inner["kept"], dut.valid[1], dut.valid[0]))
    check(m, inner["last"] == last)


def build(m, ports, write_bound=2 * BURST, read_bound=CREDITS, broken=None):
    dut = Bus(CFG)
    inner = add(m, "dut", dut)
    fair, hold = free(1, "fair", ports), free(1, "hold", ports)
    m.d.comb += [dut.fair.eq(fair), dut.hold.eq(hold)]
    priority = fixed(m, 1, "priority", ports)  # for ever; the bounds hold then
    assume(m, ~(priority & fair))
    for name, member in dut.signature.members.items():
        if member.flow.value == "In" and name not in ("fair", "hold"):
            for n in range(2) if member.dimensions else (None,):
                port = getattr(dut, name)
                signal = free(member.shape, name if n is None else f"{name}{n}", ports)
                m.d.comb += (port if n is None else port[n]).eq(signal)

    ar = dut.m_arvalid & dut.m_arready
    # A write burst owes data from the clock in which it comes on the channel, accepted or not.
    aw = dut.m_awvalid & ~past(m, dut.m_awvalid & ~dut.m_awready)
    w = dut.m_wvalid & dut.m_wready
    r = dut.m_rvalid & dut.m_rready
    reads = Order(m, "reads", ar, dut.m_arid, dut.m_arlen + 1, r)
    writes = Order(m, "writes", aw, dut.m_awid, dut.m_awlen + 1, w)

    # --- the units keep their bursts' limits, and offers until they are taken --------------------
    for c, order in ("ar", reads), ("aw", writes):
        for n in range(2):
            valid, ready, addr, length = (getattr(dut, f"{c}_{name}")[n]
                                          for name in ("valid", "ready", "addr", "len"))
            assume(m, stable(m, valid, ready, addr, length))
            entered = inner["aw.locked"] & (inner["aw.kept"] == n) if c == "aw" else 0
            assume(m, ~valid | (order.number(n) < CFG.outstanding + entered))
        valid, length = getattr(dut, f"{c}_valid")[TRAINING], getattr(dut, f"{c}_len")[TRAINING]
        assume(m, ~valid | (length < BURST))
    for n in range(2):
        assume(m, stable(m, dut.w_valid[n], dut.w_ready[n], dut.w_data[n], dut.w_last[n]))
        # `w_last` comes with the last beat of the context's oldest burst.
        with m.If(dut.m_wvalid & (writes.who[0] == n)):
            assume(m, dut.w_last[n] == (writes.left[0] == 1))
    asked, asked_ahead = reads.training()
    wanted = Mux(dut.ar_valid[TRAINING], dut.ar_len[TRAINING] + 1, 0)
    assume(m, asked + wanted <= CREDITS)
    # A memory that answers reads in the order of their addresses, each beat with its ID.
    assume(m, ~dut.m_rvalid | ((reads.count != 0) & (dut.m_rid == reads.who[0])
                               & (dut.m_rlast == (reads.left[0] == 1))))

    # --- addresses ---------------------------------------------------------------------------
    for c in "ar", "aw":
        valid, ready, who, addr, length = (getattr(dut, f"m_{c}{name}") for name in
                                           ("valid", "ready", "id", "addr", "len"))
        check(m, stable(m, valid, ready, who, addr, length))
        took = [getattr(dut, f"{c}_valid")[n] & getattr(dut, f"{c}_ready")[n] for n in range(2)]
        check(m, (valid & ready) == (took[0] | took[1]))
        check(m, ~(took[0] & took[1]))
        for n in range(2):
            with m.If(took[n]):
                check(m, (who == n) & (addr == getattr(dut, f"{c}_addr")[n])
                      & (length == getattr(dut, f"{c}_len")[n]))
        locked, kept = inner[f"{c}.locked"], inner[f"{c}.kept"]
        check(m, locked == past(m, valid & ~ready))
        pair = getattr(dut, f"{c}_valid")
        check(m, ~locked | Mux(kept, pair[1], pair[0]))
        # Inference first; training as soon as it may alone.
        begins = ~locked & ~fair
        with m.If(begins & pair[INFERENCE]):
            check(m, valid & (who == INFERENCE))
        with m.If(begins & ~pair[INFERENCE]):
            may = pair[TRAINING] & ~hold & (writes.count <= 1 if c == "aw" else 1)
            check(m, valid == may)
        with m.If(~locked & hold):
            check(m, ~valid | (who == INFERENCE))
    check(m, ~(aw & (dut.m_awid == TRAINING)) | (writes.count <= 1))

    # --- read data and responses go by their IDs ---------------------------------------------
    for c in "r", "b":
        valid, ready, who = (getattr(dut, f"m_{c}{name}") for name in ("valid", "ready", "id"))
        for n in range(2):
            check(m, getattr(dut, f"{c}_valid")[n] == (valid & (who == n)))
            with m.If(who == n):
                check(m, ready == getattr(dut, f"{c}_ready")[n])
    check(m, Cat(dut.r_data, dut.r_resp, dut.r_last, dut.b_resp)
          == Cat(dut.m_rdata, dut.m_rresp, dut.m_rlast, dut.m_bresp))

    # --- write data in the order of their addresses ------------------------------------------
    first = writes.who[0]
    check(m, stable(m, dut.m_wvalid, dut.m_wready, dut.m_wdata, dut.m_wlast))
    check(m, ~dut.m_wvalid | (writes.count != 0))
    for n in range(2):
        mine = (writes.count != 0) & (first == n)
        check(m, (dut.w_valid[n] & dut.w_ready[n]) == (w & mine))
        with m.If(mine):
            check(m, dut.m_wvalid == dut.w_valid[n])
            check(m, Cat(dut.m_wdata, dut.m_wlast) == Cat(dut.w_data[n], dut.w_last[n]))
        for order in reads, writes:
            check(m, order.number(n) <= CFG.outstanding)
        check(m, inner[f"owing_{n}"] == writes.number(n))
        check(m, inner[f"unanswered_{n}"] == reads.number(n))
    check(m, ~writes.valid[0] | (first == inner["present"]))
    check(m, Mux(writes.valid[1], writes.who[1] == inner["following"],
                 inner["following"] == INFERENCE))
    for n in range(2, DEPTH):
        check(m, ~writes.valid[n] | (writes.who[n] == INFERENCE))
    for order in reads, writes:
        for n in range(DEPTH):
            check(m, ~order.valid[n] | (order.who[n] == INFERENCE) | (order.left[n] <= BURST))
    check(m, asked <= CREDITS)

    # --- what training adds to a burst of inference ------------------------------------------
    # Beats of training that will move before the next one of inference.
    _, owed_ahead = writes.training()
    for name, order, ahead, bound in (("read", reads, asked_ahead, read_bound),
                                      ("write", writes, owed_ahead, write_bound)):
        c = "ar" if name == "read" else "aw"
        length = getattr(dut, f"{c}_len")[TRAINING] + 1
        comes = (inner["ar.locked"] & (inner["ar.kept"] == TRAINING)
                 & (reads.number(INFERENCE) == 0)) if name == "read" else 0
        held = getattr(dut, f"{name}_held")
        asks = getattr(dut, f"{name}_asks")[INFERENCE]
        check(m, asks == (getattr(dut, f"{c}_valid")[INFERENCE] | (order.number(INFERENCE) != 0)))
        check(m, ~past(m, ~asks, init=1) | (held == 0))
        with m.If(asks & priority):
            check(m, held + ahead + Mux(comes, length, 0) <= bound)


def test_channel(tmp_path):
    assert prove(build_channel, tmp_path, depth=3) == "PASS"


@pytest.mark.parametrize("broken", ["fair", "withdrawn"])
def test_channel_broken(tmp_path, broken):
    assert prove(partial(build_channel, broken=broken), tmp_path, depth=4) == "FAIL"


def test_bus(tmp_path):
    assert prove(build, tmp_path, depth=2) == "PASS"


@pytest.mark.parametrize("less", [{"write_bound": 2 * BURST - 1}, {"read_bound": CREDITS - 1}])
def test_bounds_are_reached(tmp_path, less):
    assert prove(partial(build, **less), tmp_path, depth=12, mode="bmc") == "FAIL"
