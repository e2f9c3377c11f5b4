"""Bookkeeping of the request and completion rings."""

from amaranth.hdl import Assert, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Ring(wiring.Component):
    """Counts requests: posted by the host, completed, consumed by the host.

    One credit covers both rings: a request takes an entry from the doorbell until it is consumed,
    so consumed <= completed <= posted <= consumed + 2**ring_log2 (asserted). A write that would
    break this is refused whole. Counts are modulo 65536, `completed` modulo 2**32; they change in
    the clock after their cause.

    Members
    -------
    clear : In(1), all counts become 0
    ring_log2 : In(3), log2 of the entries; changes only with `clear`
    open : In(1), doorbells are accepted
    doorbell_write, consumed_write : In(1), never both
    wdata : In(32), requests posted so far, or completions consumed so far; the low 16 bits count
    complete : In(1), one request is completed; only while `posted` is ahead
    posted, consumed : Out(16)
    completed : Out(32), also the number of the next request to complete
    space : Out(16), requests that can be posted
    doorbell : Out(1), a doorbell for at least one request is accepted in this clock
    ring_error : Out(1), a write is refused in this clock
    """

    def __init__(self):
        super().__init__({
            "clear": In(1), "ring_log2": In(3), "open": In(1),
            "doorbell_write": In(1), "consumed_write": In(1), "wdata": In(32), "complete": In(1),
            "posted": Out(16), "consumed": Out(16), "completed": Out(32), "space": Out(16),
            "doorbell": Out(1), "ring_error": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        entries = Signal(16)
        used = Signal(16)
        value = Signal(16)
        more = Signal(16)  # requests posted by this doorbell
        fewer = Signal(16)  # completions consumed by this write
        unconsumed = Signal(16)
        post = Signal()
        consume = Signal()
        m.d.comb += [
            entries.eq(1 << self.ring_log2), used.eq(self.posted - self.consumed),
            self.space.eq(entries - used), value.eq(self.wdata),
            more.eq(value - self.posted), fewer.eq(value - self.consumed),
            unconsumed.eq(self.completed - self.consumed),
            post.eq(self.doorbell_write & self.open & (more <= self.space)),
            consume.eq(self.consumed_write & (fewer <= unconsumed)),
            self.doorbell.eq(post & (more != 0)),
            self.ring_error.eq(Mux(self.doorbell_write, ~post, self.consumed_write & ~consume)),
        ]
        with m.If(post):
            m.d.sync += self.posted.eq(value)
        with m.If(consume):
            m.d.sync += self.consumed.eq(value)
        with m.If(self.complete):
            m.d.sync += self.completed.eq(self.completed + 1)
        with m.If(self.clear):
            m.d.sync += [self.posted.eq(0), self.consumed.eq(0), self.completed.eq(0)]
        with m.Else():
            m.d.sync += [Assert(used <= entries), Assert(unconsumed <= used),
                         Assert(~self.complete | (unconsumed != used))]
        return m
