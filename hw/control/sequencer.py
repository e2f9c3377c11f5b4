"""The array stream's sequencer: expands GEMM and GRAD into tile commands, tracking residency.

Implements the orders of IGO (MICRO 2023) as loop nests over one lookup mechanism
(docs/architecture.md, "Sequencer").
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import OFFSET_BITS, Config
from hw.control.numbers import NUMBER_BITS, count_issued
from hw.control.operation import Operation
from hw.control.payloads import Payloads, Purpose
from hw.control.queued import queued_exec, queued_load, queued_store, queued_vector
from hw.control.residency import Residency
from hw.isa import INSTRUCTION

#: Queues, and the events of the units that commands wait for.
QUEUES = ("load", "exec", "vector", "store")
EVENTS = ("load_done", "exec_read", "exec_done", "vector_done", "store_read", "store_done")


class Sequencer(wiring.Component):
    """Turns GEMM and GRAD into load, execute, vector and store commands, in program order.

    Four clocks for an operation that finds its operands, three if X is on chip, four or five more
    for every load, spill or store to DRAM it causes, one for an epilogue and for a result that
    stays on chip. After reset it clears its directories (`ready` is low), one slot a clock.

    Members
    -------
    ready : Out(1), can take an instruction: all commands of the one before are queued, and done if
        it leaves its result in the accumulator
    start : In(1), take `instr` (checked by the decoder) and the sizes
    forget : In(1), forget kept tiles; only between instructions
    instr : In(INSTRUCTION)
    batch_buffer : In(1), where the running batch's inputs are; with `start`
    count_{m,n,k}, rest_{m,n,k} : In, sizes in tiles and valid elements of the last tile
    region_size : In(32), bytes
    load, exec, vector, store : Out(stream) of queued commands
    *_issued : Out(24), number of the last command queued
    load_done, exec_read, exec_done, vector_done, store_read, store_done : In(24), numbers reached
    bad_address : Out(1), an image would leave the region; the instruction is abandoned, and the
        sequencer stays as it is until reset
    bad_offset : Out(32), its offset
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "ready": Out(1), "start": In(1), "forget": In(1), "instr": In(INSTRUCTION),
            "batch_buffer": In(1),
            **{f"count_{d}": In(cfg.index_bits + 1) for d in "mnk"},
            **{f"rest_{d}": In(cfg.count_bits) for d in "mnk"},
            "region_size": In(OFFSET_BITS),
            "load": Out(stream.Signature(queued_load(cfg))),
            "exec": Out(stream.Signature(queued_exec(cfg))),
            "vector": Out(stream.Signature(queued_vector(cfg))),
            "store": Out(stream.Signature(queued_store(cfg))),
            **{f"{q}_issued": Out(NUMBER_BITS) for q in QUEUES},
            **{e: In(NUMBER_BITS) for e in EVENTS},
            "bad_address": Out(1), "bad_offset": Out(OFFSET_BITS),
        })

    def elaborate(self, platform):
        m = Module()
        op = Operation(m, self)
        tiles = Residency(m, self, op)
        payloads = Payloads(m, self, op, tiles)
        count_issued(m, self, QUEUES)
        with m.FSM(name="sequencer"):
            self._begin(m, op, tiles, payloads)
            self._look_up(m, op, tiles, payloads)
            self._operate(m, op, tiles, payloads)
            self._queue(m, op, tiles, payloads)
        return m

    def _begin(self, m, op, tiles, payloads):
        """States between instructions."""
        executed = Signal()  # all operations and epilogues
        m.d.comb += executed.eq((self.exec_done == self.exec_issued)
                                & (self.vector_done == self.vector_issued))
        with m.State("IDLE"):
            # No store tells others when a result in the accumulator is there.
            m.d.comb += self.ready.eq(tiles.tags.ready & tiles.acc_tags.ready
                                      & (executed | ~op.in_acc))
            with m.If(self.start):
                m.d.sync += payloads.previous_ok.eq(0)
                m.next = "STARTED"
        with m.State("STARTED"):
            with m.If(tiles.tags.ready):
                m.next = "LOOKUP"

    def _look_up(self, m, op, tiles, payloads):
        """States that find the operands."""
        tags = tiles.tags
        with m.State("LOOKUP"):  # read A's entry, and the accumulator tile's
            m.d.comb += [tags.read.eq(1), tiles.acc_tags.read.eq(1)]
            tiles.begin(m)
            m.next = "CHECK"
            with m.If(op.walker.finished):
                m.next = "IDLE"
            with m.Elif(op.x_on_chip):  # there is nothing to look up: B's
                m.d.comb += tags.read_slot.eq(op.b_probe)
                m.d.sync += [tiles.a_slot.eq(op.a_probe), op.second.eq(1)]
        with m.State("PROBE"):  # read one entry
            m.d.comb += tags.read.eq(1)
            m.next = "CHECK"
        with m.State("CHECK"):  # A's entry, then B's
            m.d.sync += tiles.wait_old_exec.eq(tags.wait_exec)
            with m.If(tags.hit):
                tiles.found(m)
                with m.If(op.second):
                    m.next = "ACC"
                with m.Else():  # read B's
                    m.d.comb += [tags.read.eq(1), tags.read_slot.eq(op.b_probe)]
            with m.Elif(op.want_dy & op.both_dy & ~tiles.reprobe):
                # the other window, then this one again
                m.d.sync += [op.alternate.eq(~op.alternate), tiles.reprobe.eq(op.alternate)]
                m.next = "PROBE"
            with m.Else():
                self._move(m, payloads, Purpose.OPERAND)

    def _operate(self, m, op, tiles, payloads):
        """States that queue the operation, and the epilogue of a result."""
        acc_tags, epilogue = tiles.acc_tags, tiles.epilogue
        with m.State("ACC"):  # the accumulator tile: make room, fetch it, use it
            with m.If(tiles.fresh):
                tiles.keep_entry(m)
            with m.If(acc_tags.other & tiles.fresh):
                self._move(m, payloads, Purpose.SPILL)
            with m.Elif(~acc_tags.match & (~op.walker.first | op.result["accumulate"])
                        & ~tiles.loaded):
                self._move(m, payloads, Purpose.ACC)
            with m.Else():
                m.d.comb += self.exec.valid.eq(1)
                with m.If(self.exec.ready):
                    with m.If(op.walker.last & op.has_epilogue):
                        m.next = "EPILOGUE"
                    with m.Elif(op.walker.last):
                        self._finish(m, op, payloads)
                    with m.Else():
                        m.d.comb += [acc_tags.write.eq(1), op.advance.eq(1)]
                        m.next = "LOOKUP"
        with m.State("EPILOGUE"):  # fetch its operand, then apply it
            with m.If((op.bias | op.relu_grad) & ~epilogue.hit):
                self._move(m, payloads, Purpose.EPILOGUE)
            with m.Else():
                m.d.comb += [self.vector.valid.eq(1), epilogue.use.eq(self.vector.ready)]
                with m.If(self.vector.ready):
                    self._finish(m, op, payloads)

    def _move(self, m, payloads, purpose):
        """Queue the load or store of a tile, as soon as its address is there."""
        m.d.sync += payloads.purpose.eq(purpose)
        m.next = "ADDRESS"

    def _finish(self, m, op, payloads):
        """Store the result, or leave it on chip, which takes no address."""
        self._move(m, payloads, Purpose.RESULT)
        with m.If(op.in_acc | op.y_on_chip):
            m.next = "QUEUE"

    def _queue(self, m, op, tiles, payloads):
        """States that compute an address and queue the load or store that it is for."""
        image, purpose = payloads.image, payloads.purpose
        steps = Signal(range(image.LATENCY))  # clocks until the address is there
        outside = Signal()
        to_dram = (purpose != Purpose.RESULT) | ~(op.in_acc | op.y_on_chip)
        m.d.comb += outside.eq(image.outside & to_dram)
        with m.State("ADDRESS"):
            m.d.sync += steps.eq(steps + 1)
            with m.If(steps == image.LATENCY - 1):
                m.d.sync += steps.eq(0)
                m.next = "QUEUE"
        with m.State("QUEUE"):
            with m.If(outside):
                m.next = "REFUSED"
            with m.Else():
                with m.Switch(purpose):
                    with m.Case(Purpose.OPERAND):
                        m.d.comb += self.load.valid.eq(1)
                        with m.If(self.load.ready):
                            tiles.load_operand(m)
                            m.next = "PROBE"
                            with m.If(op.second):
                                m.next = "ACC"
                    with m.Case(Purpose.SPILL):
                        m.d.comb += self.store.valid.eq(1)
                        with m.If(self.store.ready):
                            tiles.spill(m)
                            m.next = "ACC"
                    with m.Case(Purpose.ACC):
                        m.d.comb += self.load.valid.eq(1)
                        with m.If(self.load.ready):
                            tiles.load_acc(m)
                            m.next = "ACC"
                    with m.Case(Purpose.EPILOGUE):
                        m.d.comb += [self.load.valid.eq(1),
                                     tiles.epilogue.load.eq(self.load.ready)]
                        with m.If(self.load.ready):
                            m.next = "EPILOGUE"
                    with m.Case(Purpose.RESULT):
                        m.d.comb += self.store.valid.eq(~op.in_acc)
                        with m.If(self.store.ready | op.in_acc):
                            m.d.comb += op.advance.eq(1)
                            tiles.finish(m, stored=~op.in_acc)
                            m.next = "LOOKUP"
        with m.State("REFUSED"):  # until reset
            m.d.comb += [self.bad_address.eq(1), self.bad_offset.eq(image.address)]
