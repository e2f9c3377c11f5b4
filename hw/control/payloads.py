"""Payloads of the array sequencer's commands, and the addresses of the tile images they move."""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import enum, wiring

from hw.config import DIM_BITS
from hw.control.address import TileAddress
from hw.control.commands import Destination, Source
from hw.control.numbers import Fence, later
from hw.control.operation import Operation, slot_of
from hw.control.residency import Residency
from hw.isa import Kind


class Purpose(enum.Enum, shape=unsigned(3)):
    """What an address is computed for."""

    OPERAND = 0  #: Load of A or B.
    SPILL = 1  #: Store of the partial sums that are in the way.
    ACC = 2  #: Load of the accumulator tile.
    EPILOGUE = 3  #: Load of the epilogue's operand.
    RESULT = 4  #: Store of a result.


class Payloads:
    """Drives the payloads of all commands of `sequencer` that operation `op` may need.

    Those of loads and stores, with their addresses, are by `purpose`, and valid `image.LATENCY`
    clocks after it was set.

    Attributes
    ----------
    purpose : Signal(Purpose), set by the sequencer
    image : TileAddress
    previous_ok : the array holds the B of the operation before; the sequencer clears it when it
        takes an instruction
    """

    def __init__(self, m: Module, sequencer: wiring.Component, op: Operation, tiles: Residency):
        self._sequencer, self._op, self._tiles = sequencer, op, tiles
        self._tile = sequencer.cfg.tile
        m.submodules.image = self.image = TileAddress(sequencer.cfg)
        self.purpose = Signal(Purpose)
        start = sequencer.start
        # Stores and vector commands before this instruction.
        self._stores_before = self._fence(m, "stores_before", "store_issued", "store_done", start)
        self._vectors_before = self._fence(m, "vectors_before", "vector_issued", "vector_done",
                                           start)
        # Operations up to the last instruction before this one whose X was on chip.
        self._on_chip_before = self._fence(m, "on_chip_before", "exec_issued", "exec_read",
                                           start & op.x_on_chip)
        self._load(m)
        self._store(m)
        with m.Switch(self.purpose):
            for purpose, change in (
                    (Purpose.OPERAND, self._operand), (Purpose.SPILL, self._spill),
                    (Purpose.ACC, self._acc), (Purpose.EPILOGUE, self._epilogue),
                    (Purpose.RESULT, self._result)):
                with m.Case(purpose):
                    change(m)
        self._exec(m)
        self._vector(m)

    def _fence(self, m, name, issued, done, start):
        m.submodules[name] = fence = Fence()
        m.d.comb += [fence.start.eq(start), fence.issued.eq(getattr(self._sequencer, issued)),
                     fence.done.eq(getattr(self._sequencer, done))]
        return fence.number

    # --- loads and stores, as most purposes have them -------------------------------------

    def _load(self, m):
        sequencer, op, image, load = self._sequencer, self._op, self.image, self._sequencer.load.p
        m.d.comb += [
            image.i.eq(op.walker.row), image.j.eq(op.walker.col), image.fp32.eq(1),
            image.base.eq(op.result["addr"]), image.pitch.eq(op.result["pitch"]),
            image.region_size.eq(sequencer.region_size),
            load.cmd.source.eq(Source.ARRAY), load.cmd.dest.eq(Destination.ACC),
            load.cmd.fp32.eq(image.fp32), load.cmd.slot.eq(op.acc_slot),
            load.cmd.rows.eq(op.walker.rows), load.cmd.cols.eq(op.walker.cols),
            load.cmd.addr.eq(image.address),
            load.exec_read.eq(sequencer.exec_read), load.store_read.eq(sequencer.store_read),
            load.store_done.eq(sequencer.store_done), load.vector_done.eq(sequencer.vector_done),
        ]

    def _store(self, m):
        sequencer, op, store = self._sequencer, self._op, self._sequencer.store.p
        i, walker, result, tile = op.i, op.walker, op.result, self._tile
        m.d.comb += [
            store.cmd.source.eq(Source.ARRAY), store.cmd.slot.eq(op.acc_slot),
            store.cmd.bfp.eq(~self.image.fp32), store.cmd.row_exp.eq(i.y_row),
            store.cmd.stochastic.eq(i.stochastic), store.cmd.addr.eq(self.image.address),
            store.cmd.spad_slot.eq(slot_of(i.dw_window, walker.row, walker.col,
                                           len(store.cmd.spad_slot))),
            store.cmd.rows.eq(walker.rows), store.cmd.cols.eq(walker.cols),
            store.cmd.salt.eq(i.salt + op.is_dw),
            store.cmd.row0.eq((result["row0"] + walker.row * tile)[:DIM_BITS]),
            store.cmd.col0.eq((result["col0"] + walker.col * tile)[:DIM_BITS]),
            store.load_done.eq(sequencer.load_done),
            store.exec_done.eq(sequencer.exec_issued), store.vector_done.eq(sequencer.vector_done),
        ]

    # --- what the purposes change ---------------------------------------------------------

    def _operand(self, m):
        op, walker, image, load = self._op, self._op.walker, self.image, self._sequencer.load.p
        want_dy, want_w = op.want_dy, op.want_w
        m.d.comb += [
            image.i.eq(op.row_of), image.j.eq(op.col_of), image.fp32.eq(0),
            load.cmd.dest.eq(Destination.SPAD), load.cmd.slot.eq(op.probe),
            load.cmd.row_exp.eq(op.i.x_row & ~op.is_dx & ~op.is_dw & ~want_w),
            load.cmd.rows.eq(Mux(want_w, walker.valid_k, walker.valid_m)),
            load.cmd.cols.eq(Mux(want_dy | want_w, walker.valid_n, walker.valid_k)),
            load.exec_read.eq(later(self._tiles.wait_old_exec, self._on_chip_before)),
        ]
        for wanted, name, kind in ((want_dy, "dy", Kind.DY), (want_w, "w", Kind.W),
                                   (~want_dy & ~want_w, "x", Kind.X)):
            with m.If(wanted):
                m.d.comb += [image.base.eq(op.i[f"{name}_addr"]), load.cmd.kind.eq(kind),
                             image.pitch.eq(op.i[f"{name}_pitch"])]
                with m.If(~op.i[f"{name}_independent"]):
                    m.d.comb += load.store_done.eq(self._stores_before)

    def _spill(self, m):
        op, tiles, size, store = self._op, self._tiles, self._op.size, self._sequencer.store.p
        last_row = tiles.old_i + 1 == Mux(op.is_dw, size["count_k"], size["count_m"])
        last_col = tiles.old_j + 1 == Mux(op.is_dx, size["count_k"], size["count_n"])
        self._partial(m)
        m.d.comb += [
            self.image.i.eq(tiles.old_i), self.image.j.eq(tiles.old_j),
            store.cmd.kind.eq(Kind.PARTIAL), store.exec_done.eq(tiles.wait_acc_exec),
            store.cmd.rows.eq(Mux(last_row, Mux(op.is_dw, size["rest_k"], size["rest_m"]),
                                  self._tile)),
            store.cmd.cols.eq(Mux(last_col, Mux(op.is_dx, size["rest_k"], size["rest_n"]),
                                  self._tile)),
        ]

    def _acc(self, m):
        load = self._sequencer.load.p
        m.d.comb += [load.cmd.kind.eq(self._op.result_kind),
                     load.store_read.eq(self._tiles.wait_store),
                     load.store_done.eq(self._stores_before),
                     load.vector_done.eq(self._vectors_before)]
        with m.If(~self._op.walker.first):
            self._partial(m)
            m.d.comb += [load.cmd.kind.eq(Kind.PARTIAL),
                         load.store_done.eq(self._tiles.wait_spill)]

    def _partial(self, m):
        """Address of partial sums."""
        m.d.comb += [self.image.base.eq(self._op.result["part_addr"]),
                     self.image.pitch.eq(self._op.result["part_pitch"])]

    def _epilogue(self, m):
        i, bias, epilogue = self._op.i, self._op.bias, self._tiles.epilogue
        image, load = self.image, self._sequencer.load.p
        m.d.comb += [
            image.i.eq(epilogue.row), image.fp32.eq(bias),
            image.base.eq(Mux(bias, i.dy_addr, i.x_addr)),
            image.pitch.eq(Mux(bias, i.dy_pitch, i.x_pitch)),
            load.cmd.kind.eq(Mux(bias, Kind.BIAS, Kind.X)),
            load.cmd.slot.eq(epilogue.slot), load.vector_done.eq(epilogue.wait_vector),
            load.store_read.eq(self._stores_before),
        ]
        with m.If(bias):
            m.d.comb += [load.cmd.rows.eq(1), load.cmd.row.eq(epilogue.slot_row),
                         load.cmd.gather.eq(i.w_keep.any())]
        with m.If(~Mux(bias, i.dy_independent, i.x_independent)):
            m.d.comb += load.store_done.eq(self._stores_before)

    def _result(self, m):
        op, store = self._op, self._sequencer.store.p
        m.d.comb += [self.image.fp32.eq(~op.result["bfp"]), store.cmd.kind.eq(op.result_kind),
                     store.cmd.final.eq(1), store.cmd.spad.eq(op.y_on_chip)]
        with m.If(op.y_on_chip):
            m.d.comb += store.cmd.addr.eq(0)
        with m.If(op.has_epilogue):
            m.d.comb += store.vector_done.eq(self._sequencer.vector_issued)

    # --- operations and epilogues ---------------------------------------------------------

    def _exec(self, m):
        sequencer, op, tiles, execute = (self._sequencer, self._op, self._tiles,
                                         self._sequencer.exec.p)
        previous_b = Signal(len(tiles.b_slot))
        previous_col = Signal()
        self.previous_ok = Signal()
        m.d.comb += [
            execute.cmd.a_slot.eq(tiles.a_slot), execute.cmd.a_col.eq(op.is_dw),
            execute.cmd.b_slot.eq(tiles.b_slot), execute.cmd.b_col.eq(op.is_dx),
            execute.cmd.b_reuse.eq(self.previous_ok & tiles.b_hit & (previous_b == tiles.b_slot)
                                   & (previous_col == op.is_dx)),
            execute.cmd.acc_slot.eq(op.acc_slot), execute.cmd.rows.eq(op.walker.rows),
            execute.cmd.overwrite.eq(~(tiles.acc_tags.match | tiles.loaded)),
            execute.load_done.eq(tiles.wait_load),
            execute.store_read.eq(Mux(tiles.fresh, tiles.acc_tags.wait_store, tiles.wait_store)),
            execute.store_done.eq(Mux(op.x_on_chip, self._stores_before, sequencer.store_done)),
            execute.vector_done.eq(self._vectors_before),
        ]
        with m.If(sequencer.exec.valid & sequencer.exec.ready):
            m.d.sync += [previous_b.eq(tiles.b_slot), previous_col.eq(op.is_dx),
                         self.previous_ok.eq(1)]

    def _vector(self, m):
        sequencer, op, epilogue, vector = (self._sequencer, self._op, self._tiles.epilogue,
                                           self._sequencer.vector.p)
        m.d.comb += [
            vector.cmd.source.eq(Source.ARRAY), vector.cmd.function.eq(op.i.function),
            vector.cmd.a.eq(op.acc_slot), vector.cmd.b.eq(epilogue.slot),
            vector.cmd.b_row.eq(epilogue.slot_row),
            vector.cmd.rows.eq(op.walker.rows), vector.cmd.cols.eq(op.walker.cols),
            vector.exec_done.eq(sequencer.exec_issued),
            vector.store_read.eq(sequencer.store_read),
            vector.load_done.eq(Mux(epilogue.hit, epilogue.wait_load, sequencer.load_done)),
        ]
