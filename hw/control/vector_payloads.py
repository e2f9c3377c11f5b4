"""Payloads of the vector sequencer's commands, and the addresses of the tile images they move."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import wiring

from hw.config import DIM_BITS
from hw.control.address import TileAddress
from hw.control.commands import Destination, Source
from hw.control.numbers import LOW_BITS, Fence, age
from hw.control.vector_operation import SETS_LOG2, Step, VectorOperation
from hw.isa import Kind


class VectorPayloads:
    """Drives the payloads of all commands of `sequencer` that operation `op` may need.

    Those of loads and stores, with their addresses, are those of `step`, and valid `image.LATENCY`
    clocks after it was set.

    Attributes
    ----------
    step : Signal(Step), set by the sequencer
    image : TileAddress
    """

    def __init__(self, m: Module, sequencer: wiring.Component, op: VectorOperation):
        self._sequencer, self._op = sequencer, op
        self.step = Signal(Step)
        m.submodules.image = self.image = TileAddress(sequencer.cfg)
        m.submodules.stores_before = self._stores_before = Fence()
        m.d.comb += [self._stores_before.start.eq(sequencer.start),
                     self._stores_before.issued.eq(sequencer.store_issued),
                     self._stores_before.done.eq(sequencer.store_done)]
        self._last_uses(m)
        self._load(m)
        self._vector(m)
        self._store(m)
        with m.Switch(self.step):
            for step, change in (
                    (Step.LOAD_X, self._load_x), (Step.LOAD_W, self._load_w),
                    (Step.LOAD_DY, self._load_dy), (Step.STORE_W, self._store_w),
                    (Step.STORE_DY, self._store_dy), (Step.STORE_Y, self._store_y),
                    (Step.STORE_DW, self._store_dw)):
                with m.Case(step):
                    change(m)

    def _last_uses(self, m):
        """Last use of every set, and of the state; at first that is all that came before."""
        sequencer, number = self._sequencer, self._op.number
        vector, store = sequencer.vector, sequencer.store
        last_vector = [Signal(LOW_BITS, name=f"last_vector{s}", reset_less=True)
                       for s in range(1 << SETS_LOG2)]
        last_store = [Signal(LOW_BITS, name=f"last_store{s}", reset_less=True)
                      for s in range(1 << SETS_LOG2)]
        self._state_store = Signal(LOW_BITS, name="state_store", reset_less=True)
        self._to_state = Signal(name="to_state")  # the present store is of the state
        with m.If(sequencer.start):
            m.d.sync += [*(s.eq(sequencer.vector_issued) for s in last_vector),
                         *(s.eq(sequencer.store_issued) for s in last_store),
                         self._state_store.eq(sequencer.store_issued)]
        with m.If(vector.valid & vector.ready):
            m.d.sync += Array(last_vector)[number].eq(sequencer.vector_issued + 1)
        with m.If(store.valid & store.ready):
            with m.If(self._to_state):
                m.d.sync += self._state_store.eq(sequencer.store_issued + 1)
            with m.Else():
                m.d.sync += Array(last_store)[number].eq(sequencer.store_issued + 1)
        self._last_vector, self._last_store = Array(last_vector)[number], Array(last_store)[number]

    def _wait(self, queue, event, low):
        """The number that ends in `low`, of a command of `queue` that causes `event`."""
        issued = getattr(self._sequencer, f"{queue}_issued")
        return issued - age(issued, getattr(self._sequencer, event), low)

    # --- as most steps have them ----------------------------------------------------------

    def _load(self, m):
        op, image, load = self._op, self.image, self._sequencer.load.p
        m.d.comb += [
            image.i.eq(op.walker.m), image.j.eq(op.walker.n), image.fp32.eq(1),
            image.region_size.eq(self._sequencer.region_size),
            load.cmd.source.eq(Source.VECTOR), load.cmd.dest.eq(Destination.ACC),
            load.cmd.fp32.eq(image.fp32), load.cmd.slot.eq(op.base),
            load.cmd.rows.eq(op.walker.rows), load.cmd.cols.eq(op.walker.cols),
            load.cmd.addr.eq(image.address),
            load.vector_done.eq(self._wait("vector", "vector_done", self._last_vector)),
            load.store_read.eq(self._wait("store", "store_read", self._last_store)),
            load.store_done.eq(self._stores_before.number),
        ]

    def _vector(self, m):
        sequencer, op, vector = self._sequencer, self._op, self._sequencer.vector.p
        walker, window = op.walker, op.i.y_window
        m.d.comb += [
            vector.cmd.source.eq(Source.VECTOR), vector.cmd.function.eq(op.i.function),
            vector.cmd.turn.eq(walker.turn), vector.cmd.first.eq(walker.first),
            vector.cmd.last.eq(walker.last),
            vector.cmd.a.eq(op.base), vector.cmd.b.eq(op.base + 1), vector.cmd.c.eq(op.base + 2),
            vector.cmd.t0.eq(window.base), vector.cmd.t1.eq(window.base + 1),
            vector.cmd.rows.eq(walker.rows), vector.cmd.cols.eq(walker.cols),
            vector.cmd.scalar.eq(op.i.scalar), vector.load_done.eq(sequencer.load_issued),
            vector.store_read.eq(Mux(op.reducing,
                                     self._wait("store", "store_read", self._state_store),
                                     sequencer.store_read)),
        ]

    def _store(self, m):
        sequencer, op, store = self._sequencer, self._op, self._sequencer.store.p
        i, image, tile = op.i, self.image, sequencer.cfg.tile
        m.d.comb += [
            store.cmd.source.eq(Source.VECTOR), store.cmd.slot.eq(op.base),
            store.cmd.bfp.eq(~image.fp32), store.cmd.row_exp.eq(i.y_row),
            store.cmd.stochastic.eq(i.stochastic), store.cmd.final.eq(1),
            store.cmd.rows.eq(op.walker.rows), store.cmd.cols.eq(op.walker.cols),
            store.cmd.addr.eq(image.address), store.cmd.salt.eq(i.salt),
            store.cmd.row0.eq((i.y_row0 + image.i * tile)[:DIM_BITS]),
            store.cmd.col0.eq((i.y_col0 + image.j * tile)[:DIM_BITS]),
            store.vector_done.eq(Mux(op.convert, sequencer.vector_done, sequencer.vector_issued)),
            store.load_done.eq(Mux(op.convert, sequencer.load_issued, sequencer.load_done)),
        ]

    # --- what the steps change ------------------------------------------------------------

    def _tensor(self, m, name):
        m.d.comb += [self.image.base.eq(self._op.i[f"{name}_addr"]),
                     self.image.pitch.eq(self._op.i[f"{name}_pitch"])]

    def _independent(self, m, name):
        """The tensor may be loaded before the stores of earlier instructions."""
        with m.If(self._op.i[f"{name}_independent"]):
            m.d.comb += self._sequencer.load.p.store_done.eq(self._sequencer.store_done)

    def _load_x(self, m):
        i, load = self._op.i, self._sequencer.load.p
        self._tensor(m, "x")
        m.d.comb += [self.image.fp32.eq(i.x_fp32), load.cmd.kind.eq(i.x_kind),
                     load.cmd.row_exp.eq(i.x_row)]
        self._independent(m, "x")

    def _load_w(self, m):
        op, load = self._op, self._sequencer.load.p
        self._tensor(m, "w")
        m.d.comb += [self.image.fp32.eq(op.i.w_fp32), load.cmd.kind.eq(op.i.w_kind),
                     load.cmd.slot.eq(op.base + 1)]
        with m.If(op.broadcast):
            m.d.comb += [self.image.i.eq(0), load.cmd.rows.eq(1)]
        self._independent(m, "w")

    def _load_dy(self, m):
        op, load = self._op, self._sequencer.load.p
        self._tensor(m, "dy")
        m.d.comb += [load.cmd.kind.eq(op.i.dy_kind), load.cmd.slot.eq(op.base + 2)]
        self._independent(m, "dy")

    def _store_w(self, m):
        op, store = self._op, self._sequencer.store.p
        self._tensor(m, "w")
        m.d.comb += [store.cmd.kind.eq(op.i.w_kind), store.cmd.slot.eq(op.base + 1)]

    def _store_dy(self, m):
        op, store = self._op, self._sequencer.store.p
        self._tensor(m, "dy")
        m.d.comb += [store.cmd.kind.eq(op.i.dy_kind), store.cmd.slot.eq(op.base + 2)]

    def _store_y(self, m):
        op, image, store = self._op, self.image, self._sequencer.store.p
        self._tensor(m, "y")
        m.d.comb += [image.fp32.eq(~op.i.y_bfp), store.cmd.kind.eq(op.i.y_kind)]
        with m.If(op.column_sum):
            m.d.comb += [image.i.eq(0), store.cmd.rows.eq(1)]
        with m.If(op.to_column):
            m.d.comb += [image.j.eq(0), store.cmd.cols.eq(1)]
        with m.If(op.column_sum | op.to_column):
            m.d.comb += [self._to_state.eq(1), store.cmd.slot.eq(op.i.y_window.base)]
        with m.If(op.sgd):  # a copy of dY
            m.d.comb += store.cmd.slot.eq(op.base + 2)

    def _store_dw(self, m):
        store = self._sequencer.store.p
        self._tensor(m, "dw")
        m.d.comb += [self.image.j.eq(0), store.cmd.cols.eq(1), store.cmd.kind.eq(Kind.LOSS),
                     self._to_state.eq(1), store.cmd.slot.eq(self._op.i.y_window.base + 1)]
