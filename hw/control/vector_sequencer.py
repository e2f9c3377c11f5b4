"""The vector stream's sequencer: expands VECTOR and CONVERT into tile commands."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import OFFSET_BITS, Config
from hw.control.numbers import NUMBER_BITS, count_issued
from hw.control.queued import queued_load, queued_store, queued_vector
from hw.control.vector_operation import Step, VectorOperation
from hw.control.vector_payloads import VectorPayloads
from hw.isa import INSTRUCTION

#: Queues, and the events of the units that commands wait for.
QUEUES = ("load", "vector", "store")
EVENTS = ("load_done", "vector_done", "store_read", "store_done")


class VectorSequencer(wiring.Component):
    """Turns VECTOR and CONVERT into load, vector and store commands, in program order.

    Four clocks for a load or store, one for a vector command and two more for every operation.

    Members
    -------
    ready : Out(1), can take an instruction: all commands of the one before are queued
    start : In(1), take `instr` (checked by the decoder) and the sizes
    instr : In(INSTRUCTION)
    count_{m,n}, rest_{m,n} : In, sizes in tiles and valid elements of the last tile
    region_size : In(32), bytes
    load, vector, store : Out(stream) of queued commands
    *_issued : Out(24), number of the last command queued
    load_done, vector_done, store_read, store_done : In(24), numbers reached
    bad_address : Out(1), an image would leave the region; the instruction is abandoned, and the
        sequencer stays as it is until reset
    bad_offset : Out(32), its offset
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "ready": Out(1), "start": In(1), "instr": In(INSTRUCTION),
            **{f"count_{d}": In(cfg.index_bits + 1) for d in "mn"},
            **{f"rest_{d}": In(cfg.count_bits) for d in "mn"},
            "region_size": In(OFFSET_BITS),
            "load": Out(stream.Signature(queued_load(cfg))),
            "vector": Out(stream.Signature(queued_vector(cfg))),
            "store": Out(stream.Signature(queued_store(cfg))),
            **{f"{q}_issued": Out(NUMBER_BITS) for q in QUEUES},
            **{e: In(NUMBER_BITS) for e in EVENTS},
            "bad_address": Out(1), "bad_offset": Out(OFFSET_BITS),
        })

    def elaborate(self, platform):
        m = Module()
        op = VectorOperation(m, self)
        payloads = VectorPayloads(m, self, op)
        image, step = payloads.image, payloads.step
        count_issued(m, self, QUEUES)
        todo = Signal(len(Step))  # commands of the operation; the least is the present one
        for s in reversed(Step):
            with m.If(todo[s.value]):
                m.d.comb += step.eq(s)
        wait = Signal(range(image.LATENCY))  # clocks until the address is there
        is_load = Signal()
        queued = Signal()
        port_ready = Mux(is_load, self.load.ready, self.store.ready)
        m.d.comb += is_load.eq(todo[:Step.VECTOR.value].any())
        with m.If(queued):
            m.d.sync += todo.eq(todo & (todo - 1))
        with m.FSM(name="vector_sequencer"):
            with m.State("IDLE"):
                m.d.comb += self.ready.eq(1)
                with m.If(self.start):
                    m.next = "STARTED"
            with m.State("STARTED"):
                m.next = "OPERATION"
            with m.State("OPERATION"):  # which commands it has
                m.d.sync += todo.eq(op.wanted)
                m.next = "ADDRESS"
                with m.If(op.walker.finished):
                    m.next = "IDLE"
            with m.State("ADDRESS"):
                with m.If(~todo.any()):
                    m.d.comb += op.advance.eq(1)
                    m.next = "OPERATION"
                with m.Elif(step == Step.VECTOR):
                    m.d.comb += [self.vector.valid.eq(1), queued.eq(self.vector.ready)]
                with m.Else():
                    m.d.sync += wait.eq(wait + 1)
                    with m.If(wait == image.LATENCY - 1):
                        m.d.sync += wait.eq(0)
                        m.next = "QUEUE"
            with m.State("QUEUE"):
                with m.If(image.outside):
                    m.next = "REFUSED"
                with m.Else():
                    m.d.comb += [self.load.valid.eq(is_load), self.store.valid.eq(~is_load),
                                 queued.eq(port_ready)]
                    with m.If(port_ready):
                        m.next = "ADDRESS"
            with m.State("REFUSED"):  # until reset
                m.d.comb += [self.bad_address.eq(1), self.bad_offset.eq(image.address)]
        return m
