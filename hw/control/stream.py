"""One stream of commands: a sequencer with its queues and numbers."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import OFFSET_BITS, Config
from hw.control.commands import (
    Source,
    exec_command,
    load_command,
    store_command,
    vector_command,
)
from hw.control.numbers import NUMBER_BITS, reached
from hw.control.queued import queued_exec, queued_load, queued_store, queued_vector
from hw.control.sequencer import EVENTS as ARRAY_EVENTS
from hw.control.sequencer import Sequencer
from hw.control.vector_sequencer import EVENTS as VECTOR_EVENTS
from hw.control.vector_sequencer import VectorSequencer
from hw.isa import INSTRUCTION
from hw.lib.fifo import Fifo

#: Most instructions that have left the sequencer and have stores that are not done.
UNFINISHED = 15

#: Queues of each stream: what goes in, what comes out.
QUEUES = {
    Source.ARRAY: {"load": (queued_load, load_command), "exec": (queued_exec, exec_command),
                   "vector": (queued_vector, vector_command),
                   "store": (queued_store, store_command)},
    Source.VECTOR: {"load": (queued_load, load_command), "vector": (queued_vector, vector_command),
                    "store": (queued_store, store_command)},
}
#: Event that finishes each queue's commands, and all events that each stream counts.
DONE = {"load": "load_done", "exec": "exec_done", "vector": "vector_done", "store": "store_done"}
EVENTS = {Source.ARRAY: ARRAY_EVENTS, Source.VECTOR: VECTOR_EVENTS}


class CommandStream(wiring.Component):
    """Sequences the instructions of stream `source` and offers their commands in order.

    A command is on offer when all it waits for has happened. An instruction is finished when its
    sequencer is done with it and all stores up to its last one are done.

    Members
    -------
    ready : Out(1), can take an instruction
    start : In(1), take `instr`, its sizes and its offset `pc`
    instr, count_{m,n,k}, rest_{m,n,k}, region_size : In, as of `Sequencer` (VECTOR: no k)
    forget, batch_buffer : In, ARRAY: as of `Sequencer`
    load, exec, vector, store : Out(stream) of commands (VECTOR: no exec)
    load_done .. store_done : In(1), the units' events for this stream (VECTOR: no exec_read and
        exec_done)
    abort : In(1), offer no command
    unfinished : Out(5), instructions that are not finished
    drained : Out(1), all commands are done, and the sequencer is done or has refused an address
    bad_address : Out(1), from the refusal of an image until reset; bad_offset : Out(32), the
        image's offset; bad_pc : Out(32), the instruction's
    wait_load, wait_store : Out(1), ARRAY: the next operation waits for an operand, for its
        accumulator slot
    """

    def __init__(self, cfg: Config, source: Source):
        self.cfg, self.source = cfg, source
        array = source is Source.ARRAY
        self.dimensions = "mnk" if array else "mn"
        super().__init__({
            "ready": Out(1), "start": In(1), "instr": In(INSTRUCTION), "pc": In(OFFSET_BITS),
            **{f"count_{d}": In(cfg.index_bits + 1) for d in self.dimensions},
            **{f"rest_{d}": In(cfg.count_bits) for d in self.dimensions},
            "region_size": In(OFFSET_BITS),
            **{name: Out(stream.Signature(command(cfg)))
               for name, (_, command) in QUEUES[source].items()},
            **{event: In(1) for event in EVENTS[source]},
            "abort": In(1), "unfinished": Out(range(UNFINISHED + 2)), "drained": Out(1),
            "bad_address": Out(1), "bad_offset": Out(OFFSET_BITS), "bad_pc": Out(OFFSET_BITS),
            **({"forget": In(1), "batch_buffer": In(1), "wait_load": Out(1), "wait_store": Out(1)}
               if array else {}),
        })

    def elaborate(self, platform):
        m = Module()
        cfg, queues = self.cfg, QUEUES[self.source]
        sequencer = (Sequencer if self.source is Source.ARRAY else VectorSequencer)(cfg)
        m.submodules.sequencer = sequencer
        m.d.comb += [
            sequencer.start.eq(self.start), sequencer.instr.eq(self.instr),
            sequencer.region_size.eq(self.region_size),
            *(getattr(sequencer, f"{size}_{d}").eq(getattr(self, f"{size}_{d}"))
              for size in ("count", "rest") for d in self.dimensions),
            self.bad_address.eq(sequencer.bad_address), self.bad_offset.eq(sequencer.bad_offset),
        ]

        if self.source is Source.ARRAY:
            m.d.comb += [sequencer.forget.eq(self.forget),
                         sequencer.batch_buffer.eq(self.batch_buffer)]

        number = {e: Signal(NUMBER_BITS, name=f"{e}_number") for e in EVENTS[self.source]}
        for event, n in number.items():
            with m.If(getattr(self, event)):
                m.d.sync += n.eq(n + 1)
            m.d.comb += getattr(sequencer, event).eq(n)

        for name, (queued, _) in queues.items():
            m.submodules[f"{name}_queue"] = queue = Fifo(queued(cfg), cfg.queue_depth)
            wiring.connect(m, getattr(sequencer, name), queue.i)
            head, port = queue.o.payload, getattr(self, name)
            waits = {e: queue.o.valid & ~reached(number[e], head[e])
                     for e in queue.i.payload.shape().members if e in number}
            go = Signal(name=f"{name}_go")
            m.d.comb += [
                go.eq(~Cat(waits.values()).any() & ~self.abort),
                port.valid.eq(queue.o.valid & go), port.payload.eq(head.cmd),
                queue.o.ready.eq(port.ready & go),
            ]
            if name == "exec":
                operands = waits.pop("load_done"), waits.pop("store_done")
                m.d.comb += [self.wait_load.eq(Cat(operands).any()),
                             self.wait_store.eq(Cat(waits.values()).any() & ~self.wait_load)]

        running = Signal()  # the sequencer has an instruction
        m.submodules.finishing = finishing = Fifo(NUMBER_BITS, UNFINISHED - 1)
        m.d.comb += [
            self.ready.eq(sequencer.ready & (finishing.i.ready | ~running)),
            finishing.i.valid.eq(running & sequencer.ready),
            finishing.i.payload.eq(sequencer.store_issued),
            finishing.o.ready.eq(reached(number["store_done"], finishing.o.payload)),
            self.unfinished.eq(running + finishing.level),
            self.drained.eq((~running | sequencer.bad_address) & Cat(
                number[DONE[q]] == getattr(sequencer, f"{q}_issued") for q in queues).all()),
        ]
        with m.If(self.start):
            m.d.sync += [running.eq(1), self.bad_pc.eq(self.pc)]
        with m.Elif(finishing.i.valid & finishing.i.ready):
            m.d.sync += running.eq(0)
        return m
