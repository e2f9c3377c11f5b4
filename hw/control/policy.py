"""Scheduling: what the registers ask for, as the arbiters and units take it."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.memory.axi import MAX_BEATS

FAIR, EXCLUSIVE = 1, 2
#: Limits that inference's units have: none.
NO_CREDIT_LIMIT = 0xFFFF


class Policy(wiring.Component):
    """Decides who gets a shared unit, and how much memory traffic training may have.

    Members
    -------
    policy, max_burst_beats, read_credits, read_credits_idle, spike_threshold : In(32), registers
    queue : In(16), requests posted and not launched
    active : In(1), inference is active
    priority, fair : Out(1), the policy is this one
    spike : Out(1), the spike guard holds training
    hold : Out(1), training is held
    max_beats : Out(9), most beats of a burst of training, 1..256
    credits : Out(16), most beats of its reads that are outstanding
    most_credits : Out(16), the most that `credits` ever is with these registers
    """

    def __init__(self):
        super().__init__({
            **{name: In(32) for name in ("policy", "max_burst_beats", "read_credits",
                                         "read_credits_idle", "spike_threshold")},
            "queue": In(16), "active": In(1), "priority": Out(1), "fair": Out(1), "spike": Out(1),
            "hold": Out(1), "max_beats": Out(9), "credits": Out(16), "most_credits": Out(16),
        })

    def elaborate(self, platform):
        m = Module()
        beats = self.max_burst_beats
        busy = Signal(16)
        idle = Signal(16)
        exclusive = self.policy == EXCLUSIVE
        m.d.comb += [
            self.fair.eq(self.policy == FAIR), self.priority.eq(~self.fair & ~exclusive),
            self.spike.eq((self.spike_threshold != 0) & (self.queue > self.spike_threshold)),
            self.hold.eq(exclusive | self.spike),
            self.max_beats.eq(Mux(beats == 0, 1, Mux(beats > MAX_BEATS, MAX_BEATS, beats))),
            busy.eq(Mux(self.read_credits > NO_CREDIT_LIMIT, NO_CREDIT_LIMIT, self.read_credits)),
            idle.eq(Mux(self.read_credits_idle > NO_CREDIT_LIMIT, NO_CREDIT_LIMIT,
                        self.read_credits_idle)),
            self.credits.eq(Mux(self.active, busy, idle)),
            self.most_credits.eq(Mux(busy > idle, busy, idle)),
        ]
        return m
