"""Scatters the outputs of a batch, then writes its completions."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import MAX_REQUESTS, OFFSET_BITS, Config, clog2
from hw.control.commands import Source, store_command
from hw.isa import WINDOW, Kind
from hw.lib.ram import Ram
from hw.memory.write import image_beat
from hw.requests.fetch import CLOCK_BITS, INDEX_BITS, POINTER_BITS, REQUEST
from hw.requests.images import RowImages
from hw.requests.shape import image_bits


class Status(enum.Enum, shape=2):
    """How a request ended."""

    OK = 0  #: The output is in memory.
    BAD_DESCRIPTOR = 1  #: The descriptor was refused.
    ABORTED = 2  #: STOP.
    FAILED = 3  #: An error stopped the context.


#: What the RAMs keep of a request, for the scatters and for the completion.
_OUTPUT = data.StructLayout({"addr": OFFSET_BITS, "bad": 1})
_ENTRY = data.StructLayout({"tag": 32, "bad": 1, "posted_at": CLOCK_BITS})


class Deliver(wiring.Component):
    """Ends one batch after the other: requests `completed` .. `end` - 1.

    Scatters the outputs of all that were not refused; when their writes are acknowledged, writes
    the completions; counts each one that is acknowledged. Of `store_done` it is not known what is
    done, so scatters and completions are never under way together.

    The parent resets it when transfers are lost; what the RAMs keep stays.

    Members
    -------
    window : In(WINDOW), last_image, last_rows : In, of an output, as from `Shape`
    completion_ring : In(32), ring_log2 : In(3)
    start : In(1), begin a batch; only while `free`
    status : In(Status), of all its requests: if not OK, only completions are written; stays
    end : In(8), launched_at, now : In(48)
    completed : In(32), the ring's; counts `complete`
    free : Out(1)
    released : Out(1), pulse: the outputs have left the accumulator
    complete : Out(1), pulse per acknowledged completion
    time_valid : Out(1), pulse, with `complete`, if the status written was OK
    wait, service, latency : Out(48), with it
    w_valid : In(1), w_index : In(7), request : In(REQUEST), requests as they are fetched
    store : Out(stream.Signature(store_command(cfg)))
    raw : Out(stream.Signature(image_beat(cfg)))
    store_read, store_done : In(1)
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "window": In(WINDOW), "last_image": In(image_bits(cfg)),
            "last_rows": In(cfg.count_bits), "completion_ring": In(OFFSET_BITS),
            "ring_log2": In(3), "start": In(1), "status": In(Status), "end": In(POINTER_BITS),
            "launched_at": In(CLOCK_BITS), "now": In(CLOCK_BITS), "completed": In(32),
            "free": Out(1), "released": Out(1), "complete": Out(1), "time_valid": Out(1),
            "wait": Out(CLOCK_BITS), "service": Out(CLOCK_BITS), "latency": Out(CLOCK_BITS),
            "w_valid": In(1), "w_index": In(INDEX_BITS), "request": In(REQUEST),
            "store": Out(stream.Signature(store_command(cfg))),
            "raw": Out(stream.Signature(image_beat(cfg))),
            "store_read": In(1), "store_done": In(1),
        })

    def elaborate(self, platform):
        cfg, m = self.cfg, Module()
        m.submodules.outputs = outputs = Ram(_OUTPUT.size, MAX_REQUESTS)
        m.submodules.entries = entries = Ram(_ENTRY.size, MAX_REQUESTS)
        m.submodules.images = images = RowImages(cfg, bfp=False)
        w_output, output = Signal(_OUTPUT), Signal(_OUTPUT)
        w_entry, entry = Signal(_ENTRY), Signal(_ENTRY)
        m.d.comb += [
            w_output.addr.eq(self.request.output), w_output.bad.eq(self.request.bad),
            *(w_entry[name].eq(self.request[name]) for name in _ENTRY.members),
            outputs.w_data.eq(w_output), entries.w_data.eq(w_entry),
            output.eq(outputs.r_data), entry.eq(entries.r_data),
        ]
        for ram in (outputs, entries):
            m.d.comb += [ram.w_en.eq(self.w_valid), ram.w_addr.eq(self.w_index)]

        end = Signal(POINTER_BITS)
        scattered = Signal(POINTER_BITS)
        written = Signal(32)
        launched_at = Signal(CLOCK_BITS, reset_less=True)
        ended_at = Signal(CLOCK_BITS, reset_less=True)  # the last output is acknowledged
        entering = Signal()  # completions are being written

        # Scatters.
        given = Signal()
        unread = Signal(image_bits(cfg) + POINTER_BITS)
        undone = Signal.like(unread)
        command = self.store.payload
        m.d.comb += [
            outputs.r_addr.eq(scattered), images.window.eq(self.window),
            images.last_image.eq(self.last_image), images.last_rows.eq(self.last_rows),
            images.addr.eq(output.addr),
            self.store.valid.eq(images.o.valid), images.o.ready.eq(self.store.ready),
            command.source.eq(Source.REQUEST), command.scatter.eq(1), command.kind.eq(Kind.Y),
            command.final.eq(1), command.cols.eq(cfg.tile),
            *(command[n].eq(images.o.payload[n]) for n in ("slot", "row", "rows", "addr")),
            given.eq(self.store.valid & self.store.ready),
        ]
        m.d.sync += [unread.eq(unread + given - self.store_read),
                     undone.eq(undone + given - (self.store_done & ~entering))]
        with m.If(self.store_done & ~entering):
            m.d.sync += ended_at.eq(self.now)

        # Completions: beats of an entry.
        beats = cfg.entry_bytes // cfg.beat_bytes
        beat = Signal(range(max(2, beats)))
        words = Signal(128)
        place = Signal(INDEX_BITS)
        status = Signal(Status)

        def short(clocks):
            return Mux(clocks[32:] != 0, 0xFFFFFFFF, clocks[:32])

        m.d.comb += [
            status.eq(Mux((self.status == Status.OK) & entry.bad, Status.BAD_DESCRIPTOR,
                          self.status)),
            self.latency.eq(ended_at - entry.posted_at),
            self.wait.eq(launched_at - entry.posted_at), self.service.eq(ended_at - launched_at),
            words.eq(Cat(entry.tag, status, Const(0, 30), short(self.latency),
                         Mux(status == Status.OK, short(self.service), 0))),
            place.eq(written & ((1 << self.ring_log2) - 1)),
            self.raw.payload.data.eq(words.word_select(beat, min(128, cfg.axi_width))),
            self.raw.payload.last.eq(beat == beats - 1),
            self.raw.payload.offset.eq(self.completion_ring + (place << clog2(cfg.entry_bytes))),
            self.raw.payload.kind.eq(Kind.REQUEST), self.raw.payload.source.eq(Source.REQUEST),
        ]

        # Completions: acknowledgements, counted two clocks later at the earliest.
        acknowledged = Signal(POINTER_BITS)
        look = Signal()
        looked = Signal()
        may_look = Signal()  # nobody needs the entry that was read last
        m.d.comb += [
            look.eq(may_look & (acknowledged != 0) & ~looked),
            entries.r_addr.eq(Mux(look, self.completed, written)),
            self.complete.eq(looked), self.time_valid.eq(looked & (status == Status.OK)),
        ]
        m.d.sync += [acknowledged.eq(acknowledged + (self.store_done & entering) - look),
                     looked.eq(look)]

        with m.FSM(name="deliver"):
            with m.State("FREE"):
                m.d.comb += [self.free.eq(1), images.clear.eq(self.start)]
                with m.If(self.start):
                    m.d.sync += [scattered.eq(self.completed), written.eq(self.completed),
                                 end.eq(self.end), launched_at.eq(self.launched_at),
                                 ended_at.eq(self.now)]
                    m.next = "NEXT"
                    with m.If(self.status != Status.OK):
                        m.next = "READ"
            with m.State("NEXT"):
                m.d.comb += outputs.r_en.eq(1)
                m.next = "LOOK"
                with m.If(scattered == end):
                    m.next = "RELEASE"
            with m.State("LOOK"):
                m.d.comb += [images.skip.eq(output.bad), images.start.eq(~output.bad)]
                m.d.sync += scattered.eq(scattered + 1)
                m.next = "GIVE"
            with m.State("GIVE"):
                with m.If(~images.busy):
                    m.next = "NEXT"
            with m.State("RELEASE"):
                with m.If(unread == 0):
                    m.d.comb += self.released.eq(1)
                    m.next = "OUTPUTS"
            with m.State("OUTPUTS"):
                with m.If(undone == 0):
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += [entering.eq(1), may_look.eq(1), entries.r_en.eq(1)]
                with m.If(written[:POINTER_BITS] == end):
                    m.next = "ACKNOWLEDGE"
                with m.Elif(~look):
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += [entering.eq(1), self.raw.valid.eq(1)]
                with m.If(self.raw.ready):
                    m.d.sync += beat.eq(beat + 1)
                    with m.If(self.raw.payload.last):
                        m.d.sync += [beat.eq(0), written.eq(written + 1)]
                        m.next = "READ"
            with m.State("ACKNOWLEDGE"):
                m.d.comb += [entering.eq(1), may_look.eq(1), entries.r_en.eq(1)]
                with m.If(self.completed[:POINTER_BITS] == end):
                    m.next = "FREE"
        return m
