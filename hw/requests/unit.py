"""Request unit: rings, batches, launches."""

from itertools import pairwise

from amaranth.hdl import Assert, C, Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import DIM_BITS, MAX_REQUESTS, OFFSET_BITS, Config, clog2
from hw.control.commands import load_command, store_command
from hw.control.windows import acc_window, spad_window
from hw.isa import WINDOW
from hw.memory.write import image_beat
from hw.requests.batch import Batch
from hw.requests.coalesce import Coalesce
from hw.requests.deliver import Deliver, Status
from hw.requests.fetch import CLOCK_BITS, POINTER_BITS, Fetch
from hw.requests.gather import Gather
from hw.requests.ring import Ring
from hw.requests.shape import Shape


class RequestUnit(wiring.Component):
    """Serves the requests of the host in batches (docs/serving.md, "Requests").

    `Fetch` gets descriptors, `Gather` the inputs, `Batch` launches, `Deliver` writes outputs and
    completions; pointers to requests follow each other: completed <= launched <= joined <= fetched
    <= asked <= posted (asserted). ENABLE is refused while `attached`, and if rings, windows and
    sizes do not fit (`_fits`).

    `context_restart` loses all transfers: then *ending*, which completes what is posted with
    ABORTED or FAILED. Descriptors that have not come are fetched once more; a second error gives
    them up (tag 0), a third one gives up writing completions.

    Members
    -------
    control_write, doorbell_write, consumed_write : In(1), at most one at a time; wdata : In(32)
    control : Out(2), {ENABLE, LAUNCH_IDLE}, ENABLE lowest
    consumed, completed, space : Out(16), as the registers; queued : Out(16), REQUEST_QUEUE
    batch_rows : Out(range(MAX_REQUESTS + 1)), batch_buffer : Out(1), of the batch that runs, from
        the clock after `start` to that of `context_finished`
    request_ring, completion_ring : In(32), ring_log2 : In(3), batch_max : In(8),
        batch_timeout, inputs, outputs : In(32), input_window, output_window : In(WINDOW),
        coalesce_count : In(16), coalesce_clocks, region_size : In(32), spad_first, spad_last,
        acc_first, acc_last : In(16)
        registers, those from region_size on the context's; stable while `attached`
    completion_event, ring_error : Out(1), pulses for the interrupt flags
    start : Out(1), pulse, only while not `context_busy`: run the program
    drop : Out(1), pulse after ENABLE, only while not `context_busy`: forget kept tiles
    attached : Out(1), ENABLE is set or requests are not completed
    context_busy, context_finished : In(1), the program's state, and the pulse of its end
    context_restart : In(1), all transfers of this unit are lost in this clock; ignored unless
        `attached`
    context_failed : In(1), with `context_restart`: because of an error
    array_idle : In(1), no operation is in the array or on offer
    load : Out(stream.Signature(load_command(cfg))), load_done : In(1), for gathers
    descriptor_valid : In(1), descriptor : In(128), in the order of their loads
    store : Out(stream.Signature(store_command(cfg))), the scatters; store_read : In(1)
    raw : Out(stream.Signature(image_beat(cfg))), the completions
    store_done : In(1), a scatter or a completion is acknowledged
    time_valid : Out(1), pulse per request completed with status OK; wait, service,
        latency : Out(48), with it
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "control_write": In(1), "doorbell_write": In(1), "consumed_write": In(1),
            "wdata": In(32), "control": Out(2), "consumed": Out(16), "completed": Out(16),
            "space": Out(16), "queued": Out(16), "batch_rows": Out(range(MAX_REQUESTS + 1)),
            "batch_buffer": Out(1), "request_ring": In(OFFSET_BITS),
            "completion_ring": In(OFFSET_BITS), "ring_log2": In(3), "batch_max": In(8),
            "batch_timeout": In(32), "inputs": In(32), "outputs": In(32),
            "input_window": In(WINDOW), "output_window": In(WINDOW), "region_size": In(OFFSET_BITS),
            "spad_first": In(16), "spad_last": In(16), "acc_first": In(16), "acc_last": In(16),
            "coalesce_count": In(16), "coalesce_clocks": In(32), "completion_event": Out(1),
            "ring_error": Out(1), "start": Out(1), "drop": Out(1), "attached": Out(1),
            "context_busy": In(1), "context_finished": In(1), "context_restart": In(1),
            "context_failed": In(1), "array_idle": In(1),
            "load": Out(stream.Signature(load_command(cfg))), "load_done": In(1),
            "descriptor_valid": In(1), "descriptor": In(128),
            "store": Out(stream.Signature(store_command(cfg))), "store_read": In(1),
            "raw": Out(stream.Signature(image_beat(cfg))), "store_done": In(1),
            "time_valid": Out(1), "wait": Out(CLOCK_BITS), "service": Out(CLOCK_BITS),
            "latency": Out(CLOCK_BITS),
        })

    def _ring_fits(self, offset):
        """A ring at `offset` lies in the region, at a multiple of a beat."""
        end = offset + (self.cfg.entry_bytes << self.ring_log2)
        return (end <= self.region_size) & (offset[:clog2(self.cfg.beat_bytes)] == 0)

    def _row_fits(self, elements, window):
        """A request's row of tiles has no more columns than `window`, so it stays inside."""
        columns = C(self.cfg.tile) << window.w_log2
        return (elements <= columns) & (elements[DIM_BITS:] == 0)

    def _fits(self):
        """What ENABLE asks for: nothing of what is served touches what is not the context's."""
        cfg, x, y = self.cfg, self.input_window, self.output_window
        both = x.h_log2 + x.w_log2 + 1  # windows of two batches
        wrong = [
            *spad_window(cfg, x.base, both, self.spad_first, self.spad_last),
            *acc_window(cfg, y.base, y.h_log2 + y.w_log2, self.acc_first, self.acc_last),
        ]
        return (self._ring_fits(self.request_ring) & self._ring_fits(self.completion_ring)
                & self._row_fits(self.inputs, x) & self._row_fits(self.outputs, y)
                & ~Cat(wrong).any())

    def elaborate(self, platform):
        cfg, m = self.cfg, Module()
        now = Signal(CLOCK_BITS)
        m.d.sync += now.eq(now + 1)
        enable, launch_idle = self.control
        wanted = Signal()  # ENABLE, which is not set
        clear = Signal()  # it is set
        restart = Signal()
        lost = ResetInserter(clear | restart)
        m.submodules.ring = ring = Ring()
        m.submodules.fetch = fetch = Fetch(cfg)
        m.submodules.gather = gather = lost(Gather(cfg))
        m.submodules.batch = batch = lost(Batch(cfg))
        m.submodules.deliver = deliver = lost(Deliver(cfg))
        m.submodules.coalesce = coalesce = Coalesce()
        m.submodules.input = input_shape = Shape(cfg, bfp=True)
        m.submodules.output = output_shape = Shape(cfg, bfp=False)
        shaped = input_shape.done & output_shape.done

        # --- ENABLE, and the end of it ---------------------------------------------------------
        unfinished = Signal()
        ending = Signal()
        give_up = Signal()  # on descriptors that have not come
        mute = Signal()  # write no completions
        status = Signal(Status)  # of what is posted, when ending
        drop_due = Signal()
        m.d.comb += [
            unfinished.eq(ring.posted != self.completed),
            self.attached.eq(enable | unfinished | ending),
            restart.eq(self.context_restart & self.attached),
            wanted.eq(self.control_write & self.wdata[0] & ~enable),
            clear.eq(wanted & ~self.attached & self._fits()),
            self.drop.eq(drop_due & ~self.context_busy),
        ]
        with m.If(self.control_write):
            m.d.sync += [launch_idle.eq(self.wdata[1]), enable.eq(clear | (enable & self.wdata[0]))]
        with m.If(clear):
            m.d.sync += drop_due.eq(1)
        with m.Elif(self.drop):
            m.d.sync += drop_due.eq(0)
        with m.If(restart):
            m.d.sync += [enable.eq(0), ending.eq(1)]
            with m.If(~ending):
                m.d.sync += status.eq(Mux(self.context_failed, Status.FAILED, Status.ABORTED))
            with m.Elif(self.context_failed):
                m.d.sync += [give_up.eq(1), mute.eq(give_up)]
        with m.Elif(ending & ~unfinished & deliver.free):
            m.d.sync += [ending.eq(0), give_up.eq(0), mute.eq(0), status.eq(Status.OK)]

        # --- pointers and registers ------------------------------------------------------------
        end_all = Signal()  # complete all that is posted
        m.d.comb += [
            end_all.eq(ending & ~mute & unfinished & deliver.free
                       & (fetch.fetched == ring.posted[:POINTER_BITS])),
            ring.clear.eq(clear), ring.ring_log2.eq(self.ring_log2), ring.open.eq(enable),
            ring.doorbell_write.eq(self.doorbell_write),
            ring.consumed_write.eq(self.consumed_write), ring.wdata.eq(self.wdata),
            ring.complete.eq(deliver.complete | (mute & unfinished)),
            self.ring_error.eq(ring.ring_error | (wanted & ~clear)),
            self.consumed.eq(ring.consumed), self.completed.eq(ring.completed),
            self.space.eq(ring.space),
            coalesce.clear.eq(clear), coalesce.complete.eq(ring.complete),
            coalesce.count.eq(self.coalesce_count), coalesce.clocks.eq(self.coalesce_clocks),
            self.completion_event.eq(coalesce.event),
        ]
        with m.If(self.attached & ~ending):
            m.d.comb += self.queued.eq((ring.posted - batch.launched)[:POINTER_BITS])
            order = [batch.launched, batch.joined, fetch.fetched, fetch.asked,
                     ring.posted[:POINTER_BITS]]
            ahead = [(pointer - ring.completed)[:POINTER_BITS] for pointer in order]
            m.d.sync += [Assert(ahead[-1] <= MAX_REQUESTS),
                         *(Assert(a <= b) for a, b in pairwise(ahead))]

        # --- the parts -------------------------------------------------------------------------
        for part in (fetch, batch, deliver):
            m.d.comb += part.now.eq(now)
        for part in (gather, deliver):
            m.d.comb += [part.w_valid.eq(fetch.valid), part.w_index.eq(fetch.index),
                         part.request.eq(fetch.request)]
        for shape, elements, part, window in (
                (input_shape, self.inputs, gather, self.input_window),
                (output_shape, self.outputs, deliver, self.output_window)):
            m.d.comb += [shape.start.eq(clear), shape.elements.eq(elements),
                         part.window.eq(window), part.last_image.eq(shape.last_image),
                         part.last_rows.eq(shape.last_rows)]
        m.d.comb += [
            fetch.clear.eq(clear), fetch.restart.eq(restart), fetch.give_up.eq(give_up),
            fetch.enable.eq(shaped & self.attached), fetch.doorbell.eq(ring.doorbell),
            fetch.posted.eq(ring.posted), fetch.request_ring.eq(self.request_ring),
            fetch.ring_log2.eq(self.ring_log2), fetch.region_size.eq(self.region_size),
            fetch.input_bytes.eq(input_shape.bytes), fetch.output_bytes.eq(output_shape.bytes),
            fetch.descriptor_valid.eq(self.descriptor_valid), fetch.descriptor.eq(self.descriptor),
            gather.second.eq(batch.forming), gather.clear.eq(batch.start),
            gather.take.eq(batch.take), gather.index.eq(batch.index),
            gather.load_done.eq(self.load_done),
            batch.h_log2.eq(self.input_window.h_log2), batch.batch_max.eq(self.batch_max),
            batch.batch_timeout.eq(self.batch_timeout), batch.launch_idle.eq(launch_idle),
            batch.enable.eq(self.attached & ~ending), batch.hurry.eq(~enable),
            batch.hold.eq(drop_due), batch.fetched.eq(fetch.fetched),
            batch.gather_free.eq(gather.free), batch.join.eq(gather.join),
            batch.posted_at.eq(gather.posted_at), batch.settled.eq(gather.settled),
            batch.context_busy.eq(self.context_busy),
            batch.context_finished.eq(self.context_finished),
            batch.array_idle.eq(self.array_idle), batch.deliver_free.eq(deliver.free),
            batch.released.eq(deliver.released),
            self.start.eq(batch.start), self.batch_rows.eq(batch.rows),
            self.batch_buffer.eq(batch.buffer),
            deliver.completion_ring.eq(self.completion_ring),
            deliver.ring_log2.eq(self.ring_log2), deliver.start.eq(batch.deliver | end_all),
            deliver.status.eq(status), deliver.end.eq(Mux(ending, ring.posted, batch.launched)),
            deliver.launched_at.eq(batch.launched_at), deliver.completed.eq(ring.completed),
            deliver.store_read.eq(self.store_read), deliver.store_done.eq(self.store_done),
            *(getattr(self, name).eq(getattr(deliver, name))
              for name in ("time_valid", "wait", "service", "latency")),
        ]
        wiring.connect(m, deliver.store, wiring.flipped(self.store))
        wiring.connect(m, deliver.raw, wiring.flipped(self.raw))

        # Gathers go before descriptors; a register keeps the offer.
        free = ~self.load.valid | self.load.ready
        m.d.comb += [gather.o.ready.eq(free), fetch.o.ready.eq(free & ~gather.o.valid)]
        with m.If(free):
            m.d.sync += [
                self.load.valid.eq((gather.o.valid | fetch.o.valid) & ~restart),
                self.load.payload.eq(Mux(gather.o.valid, gather.o.payload.as_value(),
                                         fetch.o.payload.as_value())),
            ]
        with m.If(restart):
            m.d.sync += self.load.valid.eq(0)
        return m
