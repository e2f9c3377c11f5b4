# amaranth: UnusedElaboratable=no
"""The two command streams of a context, and their way to the units."""

from amaranth.hdl import DomainRenamer, Module, Mux, Signal
from amaranth.lib import wiring

from hw.config import OFFSET_BITS
from hw.control.commands import Source, load_command, store_command, vector_command
from hw.control.stream import EVENTS, CommandStream
from hw.lib.arbiter import Arbiter

#: Events by which the units report finished commands, and the outputs that name their stream.
SOURCES = {"load_done": "load_source", "exec_read": None, "exec_done": None,
           "vector_done": "vector_source", "store_read": "store_read_source",
           "store_done": "store_done_source"}


class ContextStreams:
    """The streams of `context`, in module `m` and its clock domain "work".

    Their commands go to the ports of `context` in turns, fetches before them. What they are to do
    is left to others.

    Attributes
    ----------
    array, vector : CommandStream
    program : stream of commands, for the loads of fetches
    drained : all commands of both are done
    lost : an instruction's image would leave the region; bad_offset : its offset, bad_pc : the
        instruction's
    """

    def __init__(self, m: Module, context: wiring.Component, platform):
        work = DomainRenamer("work")
        both = {s: CommandStream(context.cfg, s) for s in EVENTS}
        for source, s in both.items():
            name = f"{source.name.lower()}_stream"
            m.submodules[name] = work(
                platform.unit(s, f"npu_{name}", source) if platform else s)
            m.d.comb += [s.abort.eq(context.abort), s.region_size.eq(context.region_size)]
            for event in EVENTS[source]:
                name = SOURCES[event]
                mine = getattr(context, name) == source if name else 1
                m.d.comb += getattr(s, event).eq(getattr(context, event) & mine)
        self.array = array = both[Source.ARRAY]
        self.vector = vector = both[Source.VECTOR]
        m.submodules.load_arbiter = work(
            loads := Arbiter(load_command(context.cfg), 3, priority=True))
        m.submodules.vector_arbiter = work(vectors := Arbiter(vector_command(context.cfg)))
        m.submodules.store_arbiter = work(stores := Arbiter(store_command(context.cfg)))
        for name, arbiter in ("load", loads), ("vector", vectors), ("store", stores):
            wiring.connect(m, getattr(array, name), arbiter.i[-2])
            wiring.connect(m, getattr(vector, name), arbiter.i[-1])
            wiring.connect(m, arbiter.o, wiring.flipped(getattr(context, name)))
        wiring.connect(m, array.exec, wiring.flipped(context.exec))
        self.program = loads.i[0]
        self.drained = Signal()
        self.lost = Signal()
        self.bad_offset = Signal(OFFSET_BITS)
        self.bad_pc = Signal(OFFSET_BITS)
        m.d.comb += [
            array.batch_buffer.eq(context.batch_buffer),
            context.wait_load.eq(array.wait_load), context.wait_store.eq(array.wait_store),
            self.drained.eq(array.drained & vector.drained),
            self.lost.eq(array.bad_address | vector.bad_address),
            *(getattr(self, n).eq(Mux(array.bad_address, getattr(array, n), getattr(vector, n)))
              for n in ("bad_offset", "bad_pc")),
        ]
