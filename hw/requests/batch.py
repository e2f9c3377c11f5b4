"""Forms batches and launches them."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import MAX_REQUESTS, Config
from hw.requests.fetch import CLOCK_BITS, INDEX_BITS, POINTER_BITS


class Batch(wiring.Component):
    """Lets fetched requests join the forming batch; launches it; hands it on when it has run.

    Requests join in order, one after the other, until the batch is full or is to be launched; then
    those that are being gathered are waited for. The next batch forms in the other buffer while
    one runs, and is launched only when the outputs of that one have left the accumulator.

    The parent resets it at ENABLE and when transfers are lost.

    Members
    -------
    h_log2 : In(4), of the input window
    batch_max : In(8), batch_timeout : In(32), launch_idle : In(1), now : In(48)
    enable : In(1), requests may join
    hurry : In(1), launch what is there: no more requests will come
    hold : In(1), launch nothing
    fetched : In(8), pointer
    take : Out(1), index : Out(7), gather this request; gather_free : In(1)
    join : In(1), posted_at : In(48), its loads have been given
    settled : In(1), all loads given are done
    context_busy, context_finished, array_idle : In(1)
    start : Out(1), pulse: launch
    rows : Out(range(MAX_REQUESTS + 1)), requests of the batch that runs, else 0
    buffer : Out(1), of the batch that runs
    forming : Out(1), buffer of the batch that forms
    joined, launched : Out(8), pointers
    launched_at : Out(48), clock of the latest launch
    deliver : Out(1), pulse: the batch that ran is to be delivered; only while `deliver_free`
    deliver_free, released : In(1)
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "h_log2": In(4), "batch_max": In(8), "batch_timeout": In(32), "launch_idle": In(1),
            "now": In(CLOCK_BITS), "enable": In(1), "hurry": In(1), "hold": In(1),
            "fetched": In(POINTER_BITS), "take": Out(1), "index": Out(INDEX_BITS),
            "gather_free": In(1), "join": In(1), "posted_at": In(CLOCK_BITS), "settled": In(1),
            "context_busy": In(1), "context_finished": In(1), "array_idle": In(1),
            "start": Out(1), "rows": Out(range(MAX_REQUESTS + 1)), "buffer": Out(1),
            "forming": Out(1), "joined": Out(POINTER_BITS), "launched": Out(POINTER_BITS),
            "launched_at": Out(CLOCK_BITS), "deliver": Out(1), "deliver_free": In(1),
            "released": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        size = Signal(POINTER_BITS)  # of the forming batch
        limit = Signal(POINTER_BITS)
        oldest = Signal(CLOCK_BITS)
        expired = Signal()
        closing = Signal()
        ready = Signal()  # no batch runs, and the outputs of the last one are gone

        asked = Mux(self.batch_max == 0, 1, self.batch_max)
        window_rows = self.cfg.tile << self.h_log2
        most = Mux(window_rows > MAX_REQUESTS, MAX_REQUESTS, window_rows)
        m.d.sync += [limit.eq(Mux(asked < most, asked, most)),
                     expired.eq((size != 0) & (self.now - oldest >= self.batch_timeout))]

        m.d.comb += [
            size.eq(self.joined - self.launched),
            closing.eq(ready & ~self.context_busy & ~self.hold & (size != 0)
                       & ((size == limit) | expired | self.hurry
                          | (self.launch_idle & self.array_idle))),
            self.take.eq(self.enable & ~closing & (size < limit) & (self.joined != self.fetched)
                         & self.gather_free),
            self.index.eq(self.joined), self.start.eq(closing & self.settled),
        ]
        with m.If(self.join):
            m.d.sync += self.joined.eq(self.joined + 1)
            with m.If(size == 0):
                m.d.sync += oldest.eq(self.posted_at)

        with m.FSM(name="run"):
            with m.State("READY"):
                m.d.comb += ready.eq(1)
                with m.If(self.start):
                    m.d.sync += [self.launched.eq(self.joined), self.launched_at.eq(self.now),
                                 self.rows.eq(size), self.buffer.eq(self.forming),
                                 self.forming.eq(~self.forming)]
                    m.next = "RUN"
            with m.State("RUN"):
                with m.If(self.context_finished):
                    m.d.sync += self.rows.eq(0)
                    m.next = "HAND"
            with m.State("HAND"):
                with m.If(self.deliver_free):
                    m.d.comb += self.deliver.eq(1)
                    m.next = "RELEASE"
            with m.State("RELEASE"):
                with m.If(self.released):
                    m.next = "READY"
        return m
