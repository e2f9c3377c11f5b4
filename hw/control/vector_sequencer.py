"""The vector stream's sequencer: expands VECTOR and CONVERT into tile commands."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, unsigned
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import DIM_BITS, OFFSET_BITS, Config
from hw.control.address import TileAddress
from hw.control.commands import Destination, Source
from hw.control.functions import (
    BROADCAST,
    LOSSES,
    REDUCING,
    ROWS,
    TWO_OPERANDS,
    is_one_of,
)
from hw.control.numbers import LOW_BITS, NUMBER_BITS, Fence, age
from hw.control.queued import queued_load, queued_store, queued_vector
from hw.control.vector_walker import VectorWalker
from hw.isa import INSTRUCTION, Function, Kind, Opcode

#: Queues, and the events of the units that commands wait for.
QUEUES = ("load", "vector", "store")
EVENTS = ("load_done", "vector_done", "store_read", "store_done")
#: Most sets of slots, as a power of two.
SETS_LOG2 = 3


class Step(enum.Enum, shape=unsigned(3)):
    """Commands of an operation, in order."""

    LOAD_X = 0
    LOAD_W = 1
    LOAD_DY = 2
    VECTOR = 3
    STORE_W = 4
    STORE_DY = 5
    STORE_Y = 6
    STORE_DW = 7


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
        cfg = self.cfg

        # --- the instruction and the position in its loops ---------------------------------------
        i = Signal(INSTRUCTION, reset_less=True)
        m.submodules.walker = walker = VectorWalker(cfg)
        advance = Signal()
        started = Signal()
        m.d.sync += started.eq(self.start)
        m.d.comb += [walker.start.eq(started), walker.next.eq(advance)]
        for name in ("count_m", "count_n", "rest_m", "rest_n"):
            own = Signal.like(getattr(self, name), name=f"own_{name}", reset_less=True)
            m.d.comb += getattr(walker, name).eq(own)
            with m.If(self.start):
                m.d.sync += own.eq(getattr(self, name))
        with m.If(self.start):
            m.d.sync += i.eq(self.instr)

        convert = Signal()
        column_sum = Signal()
        to_column = Signal()  # Y is a column of tiles
        loss = Signal()
        softmax = Signal()
        sgd = Signal()
        broadcast = Signal()
        reducing = Signal()
        use_w = Signal()
        m.d.comb += [
            convert.eq(i.opcode == Opcode.CONVERT.value),
            *(s.eq(is_one_of(i.function, *functions)) for s, functions in (
                (column_sum, [Function.COLUMN_SUM]), (to_column, ROWS), (loss, LOSSES),
                (softmax, [Function.SOFTMAX]), (sgd, [Function.SGD]), (broadcast, BROADCAST),
                (reducing, REDUCING), (use_w, TWO_OPERANDS))),
            walker.by_columns.eq(column_sum), walker.turns.eq(softmax),
        ]

        # --- sets of slots -----------------------------------------------------------------------
        set_log2 = Signal(2)  # slots of a set
        sets_log2 = Signal(range(SETS_LOG2 + 1))
        spare = Signal(6)
        m.d.comb += [
            set_log2.eq(Mux(sgd, 2, use_w | reducing)),
            spare.eq(i.y_window.h_log2 + i.y_window.w_log2 - set_log2),
            sets_log2.eq(Mux(spare < SETS_LOG2, spare, SETS_LOG2)),
        ]
        number = Signal(SETS_LOG2)  # of the set in use
        base = Signal(cfg.acc_slot_bits)
        m.d.comb += base.eq(i.y_window.base + (number << set_log2))
        with m.If(started):
            m.d.sync += number.eq(reducing)
        with m.Elif(advance):
            with m.If(number + 1 == 1 << sets_log2):
                m.d.sync += number.eq(reducing)
            with m.Else():
                m.d.sync += number.eq(number + 1)

        # --- numbers -----------------------------------------------------------------------------
        for queue in QUEUES:
            port, issued = getattr(self, queue), getattr(self, f"{queue}_issued")
            with m.If(port.valid & port.ready):
                m.d.sync += issued.eq(issued + 1)
        m.submodules.stores_before = stores_before = Fence()
        m.d.comb += [stores_before.start.eq(self.start),
                     stores_before.issued.eq(self.store_issued),
                     stores_before.done.eq(self.store_done)]
        # Last use of every set, and of the state; at first that is all that came before.
        last_vector = [Signal(LOW_BITS, name=f"last_vector{s}", reset_less=True)
                       for s in range(1 << SETS_LOG2)]
        last_store = [Signal(LOW_BITS, name=f"last_store{s}", reset_less=True)
                      for s in range(1 << SETS_LOG2)]
        state_store = Signal(LOW_BITS, reset_less=True)
        to_state = Signal()  # the present store is of the state
        with m.If(self.start):
            m.d.sync += [*(s.eq(self.vector_issued) for s in last_vector),
                         *(s.eq(self.store_issued) for s in last_store),
                         state_store.eq(self.store_issued)]
        with m.If(self.vector.valid & self.vector.ready):
            m.d.sync += Array(last_vector)[number].eq(self.vector_issued + 1)
        with m.If(self.store.valid & self.store.ready):
            with m.If(to_state):
                m.d.sync += state_store.eq(self.store_issued + 1)
            with m.Else():
                m.d.sync += Array(last_store)[number].eq(self.store_issued + 1)

        def to_wait(queue, event, low):
            issued = getattr(self, f"{queue}_issued")
            return issued - age(issued, getattr(self, event), low)

        # --- steps of an operation ---------------------------------------------------------------
        todo = Signal(len(Step))  # the least is the present one
        step = Signal(Step)
        wanted = Signal(len(Step))
        last_turn = ~softmax | (walker.turn == 2)
        for s in reversed(Step):
            with m.If(todo[s.value]):
                m.d.comb += step.eq(s)
        m.d.comb += wanted.eq(Cat({
            Step.LOAD_X: 1,
            Step.LOAD_W: use_w & last_turn,
            Step.LOAD_DY: sgd,
            Step.VECTOR: ~convert,
            Step.STORE_W: sgd,
            Step.STORE_DY: sgd,
            Step.STORE_Y: Mux(column_sum | to_column, walker.last,
                              last_turn & ~(i.y_off & (loss | sgd))),
            Step.STORE_DW: loss & last_turn & walker.last & ~i.dw_off,
        }[s] for s in Step))

        # --- commands and addresses --------------------------------------------------------------
        m.submodules.image = image = TileAddress(cfg)
        wait = Signal(range(image.LATENCY))  # clocks until the address is there
        load, vector, store = self.load.p, self.vector.p, self.store.p
        m.d.comb += [
            image.i.eq(walker.m), image.j.eq(walker.n), image.fp32.eq(1),
            image.region_size.eq(self.region_size),
            load.cmd.source.eq(Source.VECTOR), load.cmd.dest.eq(Destination.ACC),
            load.cmd.fp32.eq(image.fp32), load.cmd.slot.eq(base),
            load.cmd.rows.eq(walker.rows), load.cmd.cols.eq(walker.cols),
            load.cmd.addr.eq(image.address),
            load.vector_done.eq(to_wait("vector", "vector_done", Array(last_vector)[number])),
            load.store_read.eq(to_wait("store", "store_read", Array(last_store)[number])),
            load.store_done.eq(stores_before.number),
            vector.cmd.source.eq(Source.VECTOR), vector.cmd.function.eq(i.function),
            vector.cmd.turn.eq(walker.turn), vector.cmd.first.eq(walker.first),
            vector.cmd.last.eq(walker.last),
            vector.cmd.a.eq(base), vector.cmd.b.eq(base + 1), vector.cmd.c.eq(base + 2),
            vector.cmd.t0.eq(i.y_window.base), vector.cmd.t1.eq(i.y_window.base + 1),
            vector.cmd.rows.eq(walker.rows), vector.cmd.cols.eq(walker.cols),
            vector.cmd.scalar.eq(i.scalar), vector.load_done.eq(self.load_issued),
            vector.store_read.eq(Mux(reducing, to_wait("store", "store_read", state_store),
                                     self.store_read)),
            store.cmd.source.eq(Source.VECTOR), store.cmd.slot.eq(base),
            store.cmd.bfp.eq(~image.fp32), store.cmd.row_exp.eq(i.y_row),
            store.cmd.stochastic.eq(i.stochastic), store.cmd.final.eq(1),
            store.cmd.rows.eq(walker.rows), store.cmd.cols.eq(walker.cols),
            store.cmd.addr.eq(image.address), store.cmd.salt.eq(i.salt),
            store.cmd.row0.eq((i.y_row0 + image.i * cfg.tile)[:DIM_BITS]),
            store.cmd.col0.eq((i.y_col0 + image.j * cfg.tile)[:DIM_BITS]),
            store.vector_done.eq(Mux(convert, self.vector_done, self.vector_issued)),
            store.load_done.eq(Mux(convert, self.load_issued, self.load_done)),
        ]

        def tensor(name):
            m.d.comb += [image.base.eq(i[f"{name}_addr"]), image.pitch.eq(i[f"{name}_pitch"])]

        with m.Switch(step):
            with m.Case(Step.LOAD_X):
                tensor("x")
                m.d.comb += [image.fp32.eq(i.x_fp32), load.cmd.kind.eq(i.x_kind),
                             load.cmd.row_exp.eq(i.x_row)]
                with m.If(i.x_independent):
                    m.d.comb += load.store_done.eq(self.store_done)
            with m.Case(Step.LOAD_W):
                tensor("w")
                m.d.comb += [image.fp32.eq(i.w_fp32), load.cmd.kind.eq(i.w_kind),
                             load.cmd.slot.eq(base + 1)]
                with m.If(broadcast):
                    m.d.comb += [image.i.eq(0), load.cmd.rows.eq(1)]
                with m.If(i.w_independent):
                    m.d.comb += load.store_done.eq(self.store_done)
            with m.Case(Step.LOAD_DY):
                tensor("dy")
                m.d.comb += [load.cmd.kind.eq(i.dy_kind), load.cmd.slot.eq(base + 2)]
                with m.If(i.dy_independent):
                    m.d.comb += load.store_done.eq(self.store_done)
            with m.Case(Step.STORE_W):
                tensor("w")
                m.d.comb += [store.cmd.kind.eq(i.w_kind), store.cmd.slot.eq(base + 1)]
            with m.Case(Step.STORE_DY):
                tensor("dy")
                m.d.comb += [store.cmd.kind.eq(i.dy_kind), store.cmd.slot.eq(base + 2)]
            with m.Case(Step.STORE_Y):
                tensor("y")
                m.d.comb += [image.fp32.eq(~i.y_bfp), store.cmd.kind.eq(i.y_kind)]
                with m.If(column_sum):
                    m.d.comb += [image.i.eq(0), store.cmd.rows.eq(1)]
                with m.If(to_column):
                    m.d.comb += [image.j.eq(0), store.cmd.cols.eq(1)]
                with m.If(column_sum | to_column):
                    m.d.comb += [to_state.eq(1), store.cmd.slot.eq(i.y_window.base)]
                with m.If(sgd):  # a copy of dY
                    m.d.comb += store.cmd.slot.eq(base + 2)
            with m.Case(Step.STORE_DW):
                tensor("dw")
                m.d.comb += [image.j.eq(0), store.cmd.cols.eq(1), store.cmd.kind.eq(Kind.LOSS),
                             to_state.eq(1), store.cmd.slot.eq(i.y_window.base + 1)]

        # --- one command after another -----------------------------------------------------------
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
                m.d.sync += todo.eq(wanted)
                m.next = "ADDRESS"
                with m.If(walker.finished):
                    m.next = "IDLE"
            with m.State("ADDRESS"):
                with m.If(~todo.any()):
                    m.d.comb += advance.eq(1)
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
