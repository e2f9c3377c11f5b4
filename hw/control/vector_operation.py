"""The operation that an instruction of the vector stream is at: its commands and its slots."""

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import enum, wiring

from hw.control.functions import (
    BROADCAST,
    LOSSES,
    REDUCING,
    ROWS,
    TWO_OPERANDS,
    is_one_of,
)
from hw.control.vector_walker import VectorWalker
from hw.isa import INSTRUCTION, Function, Opcode

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


class VectorOperation:
    """A tile of X and what is done with it, by the instruction that `sequencer` takes with `start`.

    Signals of module `m`, valid from two clocks after `start` or one after `advance` on.

    Attributes
    ----------
    i : the instruction
    walker : the position in the loops; advance : set by the sequencer, go to the next operation
    convert, column_sum, to_column, loss, softmax, sgd, broadcast, reducing, use_w : what it does;
        to_column: Y is a column of tiles; broadcast: W is a row of tiles
    wanted : commands of the operation, a bit for each `Step`
    number : the set of slots in use; operations take sets in turns
    base : first slot of that set
    """

    def __init__(self, m: Module, sequencer: wiring.Component):
        self.i = i = Signal(INSTRUCTION, name="i", reset_less=True)
        m.submodules.walker = self.walker = walker = VectorWalker(sequencer.cfg)
        self.advance = Signal()
        started = Signal()
        m.d.sync += started.eq(sequencer.start)
        m.d.comb += [walker.start.eq(started), walker.next.eq(self.advance)]
        for name in ("count_m", "count_n", "rest_m", "rest_n"):
            own = Signal.like(getattr(sequencer, name), name=f"own_{name}", reset_less=True)
            m.d.comb += getattr(walker, name).eq(own)
            with m.If(sequencer.start):
                m.d.sync += own.eq(getattr(sequencer, name))
        with m.If(sequencer.start):
            m.d.sync += i.eq(sequencer.instr)
        self._function(m)
        self._steps(m)
        self._sets(m, started, len(sequencer.store.p.cmd.slot))

    def _function(self, m):
        i = self.i
        self.convert = Signal()
        self.column_sum = Signal()
        self.to_column = Signal()
        self.loss = Signal()
        self.softmax = Signal()
        self.sgd = Signal()
        self.broadcast = Signal()
        self.reducing = Signal()
        self.use_w = Signal()
        m.d.comb += [
            self.convert.eq(i.opcode == Opcode.CONVERT.value),
            *(s.eq(is_one_of(i.function, *functions)) for s, functions in (
                (self.column_sum, [Function.COLUMN_SUM]), (self.to_column, ROWS),
                (self.loss, LOSSES), (self.softmax, [Function.SOFTMAX]),
                (self.sgd, [Function.SGD]), (self.broadcast, BROADCAST),
                (self.reducing, REDUCING), (self.use_w, TWO_OPERANDS))),
            self.walker.by_columns.eq(self.column_sum), self.walker.turns.eq(self.softmax),
        ]

    def _steps(self, m):
        i, walker = self.i, self.walker
        last_turn = ~self.softmax | (walker.turn == 2)
        self.wanted = Signal(len(Step))
        m.d.comb += self.wanted.eq(Cat({
            Step.LOAD_X: 1,
            Step.LOAD_W: self.use_w & last_turn,
            Step.LOAD_DY: self.sgd,
            Step.VECTOR: ~self.convert,
            Step.STORE_W: self.sgd,
            Step.STORE_DY: self.sgd,
            Step.STORE_Y: Mux(self.column_sum | self.to_column, walker.last,
                              last_turn & ~(i.y_off & (self.loss | self.sgd))),
            Step.STORE_DW: self.loss & last_turn & walker.last & ~i.dw_off,
        }[s] for s in Step))

    def _sets(self, m, started, slot_bits):
        """Sets of slots in `y_window`; the first one holds the state of a function that reduces."""
        window = self.i.y_window
        set_log2 = Signal(2)  # slots of a set
        sets_log2 = Signal(range(SETS_LOG2 + 1))
        spare = Signal(6)
        self.number = number = Signal(SETS_LOG2)
        self.base = Signal(slot_bits)
        m.d.comb += [
            set_log2.eq(Mux(self.sgd, 2, self.use_w | self.reducing)),
            spare.eq(window.h_log2 + window.w_log2 - set_log2),
            sets_log2.eq(Mux(spare < SETS_LOG2, spare, SETS_LOG2)),
            self.base.eq(window.base + (number << set_log2)),
        ]
        with m.If(started):
            m.d.sync += number.eq(self.reducing)
        with m.Elif(self.advance):
            with m.If(number + 1 == 1 << sets_log2):
                m.d.sync += number.eq(self.reducing)
            with m.Else():
                m.d.sync += number.eq(number + 1)
