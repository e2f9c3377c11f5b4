"""Bus: nothing lost, doubled, changed or out of order; priority, turns, hold, bounds."""

import random
from collections import deque
from dataclasses import dataclass, field

import pytest
from amaranth.sim import Simulator

from hw.config import Config
from hw.memory.bus import Bus

CFG = Config(tile=4, axi_width=64, spad_kib=4, acc_kib=4, outstanding=4)
T, I = 0, 1  # noqa: E741


@dataclass
class Reader:
    """A load unit: raises bursts at random, its beats come back in order."""

    limit: int = 64                                # beats that it has outstanding at most
    burst: tuple | None = None                     # (address, beats) on offer
    expected: deque = field(default_factory=deque)  # (data, last) of beats to come
    bursts: int = 0                                # accepted and not answered
    beats: int = 0                                 # beats that have come


@dataclass
class Writer:
    """A store unit: raises bursts whose data are there."""

    burst: tuple | None = None
    data: deque = field(default_factory=deque)     # (data, last) of raised bursts
    owing: int = 0                                 # bursts accepted whose data are not all gone
    answers: deque = field(default_factory=deque)  # B responses to come
    in_flight: int = 0                             # bursts raised and not answered
    beats: int = 0


class Bench:
    """Units and a memory around a `Bus`; every rule is checked in every clock."""

    def __init__(self, rng, *, offer=(0.5, 0.5), ready=0.6, in_order=False, longest=4,
                 policy=lambda rng: (rng.random() < 0.5, rng.random() < 0.3)):
        self.dut, self.rng = Bus(CFG), rng
        self.offer, self.ready, self.in_order, self.longest = offer, ready, in_order, longest
        self.policy, self.fair, self.hold = policy, False, False
        self.readers, self.writers = [Reader(), Reader()], [Writer(), Writer()]
        self.reads = deque()                # (context, data, last) that the memory still sends
        self.writes = deque()               # (context, data, last) that the memory still expects
        self.answers = [deque(), deque()]   # of written bursts
        self.waiting = {"ar": None, "aw": None, "w": None}  # on the channel, not accepted
        self.last = {"ar": T, "aw": T}
        self.beat = self.answer = None      # on R, on B
        self.held = {"read": 0, "write": 0}
        self.most_held = {"read": 0, "write": 0}
        self.seen = dict.fromkeys(("turn", "inference first", "held back", "lock", "two owed"), 0)
        self.number = 0

    def fresh(self):
        self.number += 1
        return self.number

    def run(self, clocks):
        async def bench(ctx):
            for _ in range(clocks):
                self.clock(ctx)
                await ctx.tick()

        sim = Simulator(self.dut)
        sim.add_clock(1e-6)
        sim.add_testbench(bench)
        sim.run()

    def clock(self, ctx):
        dut, rng = self.dut, self.rng
        if rng.random() < 0.1:
            self.fair, self.hold = self.policy(rng)
        ctx.set(dut.fair, self.fair)
        ctx.set(dut.hold, self.hold)
        for n in T, I:
            self.raise_bursts(ctx, n)
        chance = {name: rng.random() < self.ready for name in ("ar", "aw", "w")}
        for name, value in chance.items():
            ctx.set(getattr(dut, f"m_{name}ready"), value)
        self.choose_replies()
        ctx.set(dut.m_rvalid, self.beat is not None)
        if self.beat:
            ctx.set(dut.m_rid, self.beat[0])
            ctx.set(dut.m_rdata, self.beat[1])
            ctx.set(dut.m_rlast, self.beat[2])
            ctx.set(dut.m_rresp, self.beat[1] % 4)
        ctx.set(dut.m_bvalid, self.answer is not None)
        if self.answer:
            ctx.set(dut.m_bid, self.answer[0])
            ctx.set(dut.m_bresp, self.answer[1])

        owing = sum(w.owing for w in self.writers)
        asks = {"read": [r.burst is not None or r.bursts > 0 for r in self.readers],
                "write": [w.burst is not None or w.owing > 0 for w in self.writers]}
        for name, pair in asks.items():
            for n in T, I:
                assert ctx.get(getattr(dut, f"{name}_asks")[n]) == pair[n]
            assert ctx.get(getattr(dut, f"{name}_held")) == self.held[name]
            self.most_held[name] = max(self.most_held[name], self.held[name])
        used = {"read": self.read_data(ctx), "write": self.write_data(ctx)}
        self.responses(ctx)
        self.address(ctx, "ar", self.readers, (not self.hold, True))
        yields = self.fair and self.writers[T].burst is not None and not self.hold
        self.address(ctx, "aw", self.writers, (not self.hold and owing <= 1,
                                               owing <= 1 or not yields))
        self.seen["two owed"] += owing > 1 and self.writers[T].burst is not None
        for name, context in used.items():
            for n in T, I:
                assert ctx.get(getattr(dut, f"{name}_use")[n]) == (context == n)
            if not asks[name][I] or context == I:
                self.held[name] = 0
            elif context == T:
                self.held[name] += 1

    def raise_bursts(self, ctx, n):
        dut, rng, reader, writer = self.dut, self.rng, self.readers[n], self.writers[n]
        beats = rng.randint(1, self.longest)
        if not reader.burst and reader.bursts < CFG.outstanding and rng.random() < self.offer[n] \
                and (not reader.expected or len(reader.expected) + beats <= reader.limit):
            reader.burst = self.fresh(), beats
        ctx.set(dut.ar_valid[n], reader.burst is not None)
        beats = rng.randint(1, self.longest)
        if not writer.burst and writer.in_flight < CFG.outstanding and rng.random() < self.offer[n]:
            writer.burst = self.fresh(), beats
            writer.in_flight += 1
            writer.data += [(self.fresh(), k == beats - 1) for k in range(beats)]
        ctx.set(dut.aw_valid[n], writer.burst is not None)
        for name, unit in ("ar", reader), ("aw", writer):
            address, beats = unit.burst or (rng.getrandbits(20), rng.randint(1, 256))
            ctx.set(getattr(dut, f"{name}_addr")[n], address)
            ctx.set(getattr(dut, f"{name}_len")[n], beats - 1)
        ctx.set(dut.w_valid[n], bool(writer.data))
        if writer.data:
            ctx.set(dut.w_data[n], writer.data[0][0])
            ctx.set(dut.w_last[n], writer.data[0][1])
        ctx.set(dut.r_ready[n], rng.random() < self.ready)
        ctx.set(dut.b_ready[n], rng.random() < self.ready)

    def choose_replies(self):
        """Next R beat and B response: those of one ID are in order, IDs in any order."""
        rng = self.rng
        if self.beat is None and self.reads and rng.random() < max(self.ready, self.in_order):
            first = {}
            for item in self.reads:
                first.setdefault(item[0], item)
            self.beat = self.reads[0] if self.in_order else rng.choice([*first.values()])
            self.reads.remove(self.beat)
        if self.answer is None and any(self.answers) and rng.random() < self.ready:
            n = rng.choice([n for n in (T, I) if self.answers[n]])
            self.answer = n, self.answers[n].popleft()

    def address(self, ctx, name, units, allowed):
        """Check who is on an address channel, and accept."""
        dut, valid = self.dut, ctx.get(getattr(self.dut, f"m_{name}valid"))
        context, address, length = (ctx.get(getattr(dut, f"m_{name}{f}"))
                                    for f in ("id", "addr", "len"))
        asks = [unit.burst is not None for unit in units]
        able = [a and b for a, b in zip(asks, allowed, strict=True)]
        waiting = self.waiting[name]
        assert valid == (any(able) or waiting is not None), "work is there, or none"
        if waiting:
            assert (context, address, length + 1) == waiting, "changed while it waited"
            self.seen["lock"] += context == T and asks[I]
        elif valid:
            assert able[context]
            self.seen["held back"] += asks[T] and not able[T]
            if all(able):
                assert context == ((1 - self.last[name]) if self.fair else I)
                self.seen["turn" if self.fair else "inference first"] += 1
        ready = valid and ctx.get(getattr(dut, f"m_{name}ready"))
        for n in T, I:
            assert ctx.get(getattr(dut, f"{name}_ready")[n]) == bool(ready and context == n)
        if name == "aw" and valid and not waiting:  # data may go from the next clock on
            units[context].owing += 1
            started = sum(n == context for n, *_ in self.writes)
            self.writes += [(context, *beat) for beat in
                            list(units[context].data)[started:started + length + 1]]
        self.waiting[name] = (context, address, length + 1) if valid and not ready else None
        if not ready:
            return
        unit, self.last[name] = units[context], context
        assert unit.burst == (address, length + 1)
        unit.burst = None
        if name == "ar":
            beats = [(self.fresh(), k == length) for k in range(length + 1)]
            unit.expected += beats
            unit.bursts += 1
            self.reads += [(context, *beat) for beat in beats]

    def read_data(self, ctx):
        """Check R; returns whose beat moved."""
        dut = self.dut
        got = [n for n in (T, I) if ctx.get(dut.r_valid[n])]
        assert got == ([] if self.beat is None else [self.beat[0]])
        if not got or not ctx.get(dut.r_ready[got[0]]):
            assert not got or not ctx.get(dut.m_rready)
            return None
        assert ctx.get(dut.m_rready)
        context, data, last = self.beat
        reader, self.beat = self.readers[context], None
        assert (data, last) == reader.expected.popleft()
        assert (ctx.get(dut.r_data), ctx.get(dut.r_last), ctx.get(dut.r_resp)) == (
            data, last, data % 4)
        reader.bursts -= last
        reader.beats += 1
        return context

    def write_data(self, ctx):
        """Check W; returns whose beat moved."""
        dut = self.dut
        valid = ctx.get(dut.m_wvalid)
        assert valid == bool(self.writes), "data with no address, or none"
        ready = [ctx.get(dut.w_ready[n]) for n in (T, I)]
        if not valid:
            assert not any(ready)
            return None
        context, *beat = self.writes[0]
        assert [ctx.get(dut.m_wdata), ctx.get(dut.m_wlast)] == beat
        moves = ctx.get(dut.m_wready)
        assert ready == [moves and context == n for n in (T, I)]
        if not moves:
            return None
        self.writes.popleft()
        writer = self.writers[context]
        assert list(writer.data.popleft()) == beat
        writer.beats += 1
        if beat[1]:
            writer.owing -= 1
            response = self.rng.randrange(4)
            self.answers[context].append(response)
            writer.answers.append(response)
        return context

    def responses(self, ctx):
        dut = self.dut
        got = [n for n in (T, I) if ctx.get(dut.b_valid[n])]
        assert got == ([] if self.answer is None else [self.answer[0]])
        taken = bool(got) and ctx.get(dut.b_ready[got[0]])
        assert not got or ctx.get(dut.m_bready) == taken
        if taken:
            writer = self.writers[got[0]]
            assert ctx.get(dut.b_resp) == writer.answers.popleft() == self.answer[1]
            writer.in_flight -= 1
            self.answer = None


@pytest.mark.parametrize("ready", [0.4, 0.8, 1.0])
@pytest.mark.parametrize("offer", [(1.0, 0.3), (0.5, 0.5), (1.0, 1.0)])
def test_random_traffic(offer, ready):
    bench = Bench(random.Random(str((offer, ready))), offer=offer, ready=ready)
    bench.run(1500)
    for unit in (*bench.readers, *bench.writers):
        assert unit.beats > 20
    assert min(n for name, n in bench.seen.items() if name != "lock" or ready < 1) > 5


@pytest.mark.parametrize("ready", [0.5, 1.0])
@pytest.mark.parametrize("fair", [False, True])
def test_inference_waits_no_longer_than_the_bound(fair, ready):
    """Before inference: the beats that training has asked for, two write bursts of training."""
    bench = Bench(random.Random(str((fair, ready))), offer=(1.0, 0.1), ready=ready, in_order=True,
                  longest=6, policy=lambda rng: (fair, False))
    bench.readers[T].limit = 14
    bench.run(1800)
    assert 6 < bench.most_held["write"] <= 12
    # in turns one burst more
    assert 6 < bench.most_held["read"] <= 14 + 6 * fair
    assert bench.readers[I].beats > 50
    assert bench.writers[I].beats > 50


@pytest.mark.parametrize("context", [T, I])
@pytest.mark.parametrize("longest", [1, 4])
def test_a_context_alone_loses_no_clock(context, longest):
    offer = (1.0, 0.0) if context == T else (0.0, 1.0)
    bench = Bench(random.Random(0), offer=offer, ready=1.0, in_order=True, longest=longest,
                  policy=lambda rng: (rng.random() < 0.5, False))
    bench.run(400)
    assert bench.readers[context].beats >= 395
    assert bench.writers[context].beats >= 395


def test_a_held_context_gets_nothing_and_loses_nothing():
    bench = Bench(random.Random(1), offer=(1.0, 0.0), ready=0.7,
                  policy=lambda rng: (False, True))
    bench.hold = True
    bench.run(200)
    assert (bench.readers[T].beats, bench.writers[T].beats) == (0, 0)
    bench = Bench(random.Random(1), offer=(1.0, 0.0), ready=1.0,
                  policy=lambda rng: (False, rng.random() < 0.5))
    bench.run(600)
    assert min(bench.readers[T].beats, bench.writers[T].beats) > 100


def test_turns_share_both_channels():
    bench = Bench(random.Random(1), offer=(1.0, 1.0), ready=1.0, in_order=True,
                  policy=lambda rng: (True, False))
    bench.run(800)
    for units in bench.readers, bench.writers:
        assert min(unit.beats for unit in units) > 350
