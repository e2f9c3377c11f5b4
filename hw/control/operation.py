"""The tile operation that an array instruction is at: its operands and result, and their slots."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring

from hw.control.walker import Walker
from hw.isa import INSTRUCTION, Function, Kind, Order, XSource, YTarget

#: Sizes of an instruction: in tiles, and valid elements of the last tile.
SIZES = [f"{size}_{d}" for size in ("count", "rest") for d in "mnk"]


def slot_of(window, row: Value, col: Value, width: int) -> Value:
    """Slot, of `width` bits, of tile (row, col) in `window`."""
    inside = (((row & ((1 << window.h_log2) - 1)) << window.w_log2)
              | (col & ((1 << window.w_log2) - 1)))
    return (window.base + inside)[:width]


class Operation:
    """acc(row, col) += A B, of the instruction that `sequencer` takes with `start`, in module `m`.

    All signals that are not said to be set by the sequencer are valid from two clocks after `start`
    or one after `advance` on.

    Attributes
    ----------
    i : the instruction; `x_window` is that of the buffer which the batch is in
    size : sizes by name
    x_on_chip, y_on_chip, in_acc : X lies in its window, the result goes to one, it stays in the
        accumulator
    bias, relu_grad : the epilogue's operand is a row of biases, X; neither: it has none
    has_epilogue : of the present result
    walker : the position in the loops; advance : set by the sequencer, go to the next operation
    is_dx, is_dw : the operation is one of dX, of dW
    second, alternate : set by the sequencer, which operand is looked up: B, else A; dY of
        `interleaved`, in the window that the other gradient loads it to
    want_dy, want_w : that operand is dY, W; else X
    row_of, col_of : its tile
    both_dy : dY may be in either of two windows
    a_probe, b_probe, probe : slots of A, of B, of the one looked up
    result : fields of the result by name, without "y_" and "dw_"; result_kind : Kind
    acc_slot : slot of the accumulator tile
    """

    def __init__(self, m: Module, sequencer: wiring.Component):
        self._cfg = sequencer.cfg
        self._instruction(m, sequencer)
        m.submodules.walker = self.walker = Walker(self._cfg)
        started = Signal()
        self.advance = Signal()
        m.d.sync += started.eq(sequencer.start)
        m.d.comb += [self.walker.start.eq(started), self.walker.next.eq(self.advance),
                     self.walker.instr.eq(self.i),
                     *(getattr(self.walker, n).eq(s) for n, s in self.size.items())]
        self.is_dw, self.is_dx = self.walker.is_dw, self.walker.is_dx
        self._operand(m)
        self._slots(m)
        self._result(m)

    def _instruction(self, m, sequencer):
        """What is taken with `start`."""
        self.i = i = Signal(INSTRUCTION, name="i", reset_less=True)
        self.size = {n: Signal.like(getattr(sequencer, n), name=f"own_{n}", reset_less=True)
                     for n in SIZES}
        self.in_acc = Signal()
        instr, x_window = sequencer.instr, sequencer.instr.x_window
        with m.If(sequencer.start):
            m.d.sync += [i.eq(instr), *(s.eq(getattr(sequencer, n)) for n, s in self.size.items()),
                         self.in_acc.eq(instr.y_target == YTarget.ACC.value)]
            with m.If((instr.x_source == XSource.REQUEST.value) & sequencer.batch_buffer):
                m.d.sync += i.x_window.base.eq(
                    x_window.base + (1 << (x_window.h_log2 + x_window.w_log2)))
        self.x_on_chip = i.x_source != XSource.DRAM.value
        self.y_on_chip = i.y_target == YTarget.CHIP.value
        self.both_dy = i.order == Order.INTERLEAVED.value
        self.bias = Signal()
        self.relu_grad = Signal()
        m.d.comb += [self.bias.eq((i.function == Function.BIAS.value)
                                  | (i.function == Function.BIAS_RELU.value)),
                     self.relu_grad.eq(i.function == Function.RELU_GRAD.value)]

    def _operand(self, m):
        """Which operand is looked up."""
        walker, index = self.walker, self._cfg.index_bits
        self.second = Signal()
        self.alternate = Signal()
        self.want_dy = Signal()
        self.want_w = Signal()
        self.row_of = Signal(index)
        self.col_of = Signal(index)
        m.d.comb += [
            self.want_dy.eq(Mux(self.second, self.is_dw, self.is_dx)),
            self.want_w.eq(self.second & ~self.is_dw),
            self.row_of.eq(Mux(self.want_w, walker.k, walker.m)),
            self.col_of.eq(Mux(self.want_dy | self.want_w, walker.n, walker.k)),
        ]

    def _slots(self, m):
        """Where A and B belong."""
        i, walker, width = self.i, self.walker, self._cfg.spad_slot_bits
        use_dy2 = Signal()
        dy_window = Mux(use_dy2, i.dy2_window, i.dy_window)
        a_window = Signal.like(i.x_window)
        b_window = Signal.like(i.x_window)
        self.a_probe = Signal(width)
        self.b_probe = Signal(width)
        m.d.comb += [
            use_dy2.eq(self.both_dy & (self.is_dw ^ self.alternate)),
            a_window.eq(Mux(self.is_dx, dy_window, i.x_window)),
            b_window.eq(Mux(self.is_dw, dy_window, i.w_window)),
            self.a_probe.eq(slot_of(a_window, walker.m, Mux(self.is_dx, walker.n, walker.k),
                                    width)),
            self.b_probe.eq(slot_of(b_window, Mux(self.is_dw, walker.m, walker.k), walker.n,
                                    width)),
        ]
        self.probe = Mux(self.second, self.b_probe, self.a_probe)

    def _result(self, m):
        """The tile that is accumulated, and what becomes of it."""
        i, width = self.i, self._cfg.acc_slot_bits
        self.result = {f: Signal(INSTRUCTION[f"y_{f}"].shape, name=f"result_{f}")
                       for f in ("addr", "pitch", "part_addr", "part_pitch", "window", "bfp",
                                 "accumulate", "row0", "col0")}
        self.result_kind = Signal(Kind)
        self.acc_slot = Signal(width)
        self.has_epilogue = Signal()
        m.d.comb += [
            *(s.eq(Mux(self.is_dw, i[f"dw_{f}"], i[f"y_{f}"])) for f, s in self.result.items()),
            self.result_kind.eq(Mux(self.is_dw, Kind.DW, Mux(self.is_dx, Kind.DX, Kind.Y))),
            self.acc_slot.eq(slot_of(self.result["window"], self.walker.row, self.walker.col,
                                     width)),
            self.has_epilogue.eq((i.function != Function.NONE.value) & ~self.is_dw),
        ]
