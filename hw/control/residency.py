"""Which tiles of an operation are on chip, and the numbers of the commands that it must follow."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring

from hw.control.directory import AccDirectory, SpadDirectory
from hw.control.epilogue import EpilogueOperand
from hw.control.numbers import LOW_BITS, NUMBER_BITS, later
from hw.control.operation import Operation


class Residency:
    """Looks the tiles of operation `op` up, for the commands of `sequencer`, in module `m`.

    The sequencer sets `read`, `write` and `load` of the directories and the epilogue's operand, and
    calls the methods, in the clocks in which it finds the tiles or queues the commands concerned.

    Attributes
    ----------
    tags : SpadDirectory, at the operand looked up
    reprobe : dY is in neither of two windows; that of this gradient is read again
    a_slot, b_slot, b_hit : where A and B are; B is not loaded by this operation
    wait_load : youngest load that the operation needs
    wait_old_exec : last operation in the slot of the operand looked up
    acc_tags : AccDirectory, at the accumulator tile
    spilled, loaded, fresh : the operation has queued its spill, the load of its accumulator tile,
        neither of both
    old_i, old_j : row and column of the tile to be spilled
    wait_store, wait_spill, wait_acc_exec : last store read, spill and operation of the slot
    last_store, last_spill : low bits of the numbers of its last store and spill, unless `fresh`
    epilogue : EpilogueOperand
    load_next, store_next : numbers of the next load and store
    """

    def __init__(self, m: Module, sequencer: wiring.Component, op: Operation):
        self._sequencer, self._op = sequencer, op
        m.submodules.tags = self.tags = SpadDirectory(sequencer.cfg)
        m.submodules.acc_tags = self.acc_tags = AccDirectory(sequencer.cfg)
        m.submodules.operand = self.epilogue = EpilogueOperand(sequencer.cfg)
        self.load_next = Signal(NUMBER_BITS)
        self.store_next = Signal(NUMBER_BITS)
        m.d.comb += [self.load_next.eq(sequencer.load_issued + 1),
                     self.store_next.eq(sequencer.store_issued + 1)]
        self._operands(m)
        self._accumulator(m)
        self._epilogue(m)

    def _numbers(self, part, *names):
        return [getattr(part, n).eq(getattr(self._sequencer, n)) for n in names]

    def _operands(self, m):
        op, tags = self._op, self.tags
        self.reprobe = Signal()
        self.a_slot = Signal(len(tags.slot))
        self.b_slot = Signal(len(tags.slot))
        self.b_hit = Signal()
        self.wait_load = Signal(NUMBER_BITS)
        self.wait_old_exec = Signal(NUMBER_BITS)
        m.d.comb += [
            tags.start.eq(self._sequencer.start), tags.drop.eq(self._sequencer.forget),
            tags.slot.eq(op.probe), tags.read_slot.eq(op.probe),
            tags.row.eq(op.row_of), tags.col.eq(op.col_of),
            tags.keep.eq(Mux(op.want_w, op.i.w_keep, 0)),
            *self._numbers(tags, "load_issued", "load_done", "exec_issued", "exec_read"),
        ]

    def _accumulator(self, m):
        op, tags, index = self._op, self.acc_tags, self._sequencer.cfg.index_bits
        self.spilled = Signal()
        self.loaded = Signal()
        self.fresh = ~self.spilled & ~self.loaded
        self.old_i = Signal(index)
        self.old_j = Signal(index)
        self.wait_store = Signal(NUMBER_BITS)
        self.wait_spill = Signal(NUMBER_BITS)
        self.wait_acc_exec = Signal(NUMBER_BITS)
        self.last_store = Signal(LOW_BITS)
        self.last_spill = Signal(LOW_BITS)
        m.d.comb += [
            tags.slot.eq(op.acc_slot), tags.row.eq(op.walker.row), tags.col.eq(op.walker.col),
            tags.unfinished.eq(1), tags.last_exec.eq(self._sequencer.exec_issued + 1),
            tags.last_store.eq(Mux(self.fresh, tags.old_store, self.last_store)),
            tags.last_spill.eq(Mux(self.fresh, tags.old_spill, self.last_spill)),
            *self._numbers(tags, "exec_issued", "exec_done", "store_issued", "store_read",
                           "store_done"),
        ]

    def _epilogue(self, m):
        op, epilogue = self._op, self.epilogue
        m.d.comb += [
            epilogue.start.eq(self._sequencer.start), epilogue.forget.eq(self._sequencer.forget),
            epilogue.window.eq(op.i.e_window), epilogue.keep.eq(Mux(op.bias, op.i.w_keep, 0)),
            epilogue.cols.eq(op.size["count_n"]),
            epilogue.row.eq(Mux(op.bias, 0, op.walker.row)), epilogue.col.eq(op.walker.col),
            *self._numbers(epilogue, "load_issued", "load_done", "vector_issued", "vector_done"),
        ]

    # --- what the sequencer does ----------------------------------------------------------

    def begin(self, m):
        """Begin an operation."""
        m.d.sync += [self.spilled.eq(0), self.loaded.eq(0),
                     self.wait_load.eq(self._sequencer.load_done)]

    def found(self, m):
        """The operand looked up is in its slot."""
        m.d.comb += self.tags.write.eq(1)
        m.d.sync += [self.wait_load.eq(later(self.tags.wait_load, self.wait_load)),
                     self.b_hit.eq(self._op.second)]
        self._next_operand(m)

    def load_operand(self, m):
        """Its load is queued."""
        m.d.comb += [self.tags.write.eq(1), self.tags.load.eq(1)]
        m.d.sync += [self.wait_load.eq(self.load_next), self.b_hit.eq(0)]
        self._next_operand(m)

    def _next_operand(self, m):
        op = self._op
        m.d.sync += [op.alternate.eq(0), self.reprobe.eq(0), op.second.eq(~op.second)]
        with m.If(op.second):
            m.d.sync += self.b_slot.eq(op.b_probe)
        with m.Else():
            m.d.sync += self.a_slot.eq(op.a_probe)

    def keep_entry(self, m):
        """Keep what the accumulator's directory says, until the operation is queued."""
        tags = self.acc_tags
        m.d.sync += [self.old_i.eq(tags.old_row), self.old_j.eq(tags.old_col),
                     self.last_store.eq(tags.old_store), self.last_spill.eq(tags.old_spill),
                     self.wait_store.eq(tags.wait_store), self.wait_spill.eq(tags.wait_spill),
                     self.wait_acc_exec.eq(tags.wait_exec)]

    def spill(self, m):
        """The store of the tile in the way is queued."""
        m.d.sync += [self.spilled.eq(1), self.wait_store.eq(self.store_next),
                     self.last_store.eq(self.store_next), self.last_spill.eq(self.store_next)]

    def load_acc(self, m):
        """The load of the accumulator tile is queued."""
        m.d.sync += [self.loaded.eq(1), self.wait_load.eq(self.load_next)]

    def finish(self, m, stored):
        """The result is complete, and on its way to DRAM or the scratchpad if `stored`."""
        tags = self.acc_tags
        m.d.comb += [tags.write.eq(1), tags.unfinished.eq(0),
                     tags.last_exec.eq(self._sequencer.exec_issued)]
        with m.If(stored):
            m.d.comb += tags.last_store.eq(self.store_next)
