"""Execute unit: tile operations on the array, into the accumulator."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.array.edge import Edge
from hw.array.issue import Issue
from hw.array.systolic import SystolicArray, array_latency
from hw.config import Config
from hw.control.commands import ContextId, exec_command
from hw.lib.delay import delay
from hw.memory.scratchpad import Scratchpad
from hw.numerics.fp32 import Fp32Add

#: Outputs per context that the unit passes on from `Issue`.
SIGNALS = ("exec_read", "occupied", "inside", "stall_bank", "stall_weights", "stall_acc")


class ExecuteUnit(wiring.Component):
    """acc = (overwrite ? 0 : acc) + A B for one tile operation after the other.

    Sustained, an operation that loads a B takes T clocks of the array, one that reuses it `rows`;
    see `Issue` for what makes it wait. A row of the result is written `LATENCY` clocks after its
    A was read. Roundings as in docs/numerics.md.

    Members
    -------
    cmd : In(stream.Signature(exec_command)), one more is taken while an operation streams
    a_en, a_slot, a_index, a_col, b_en, b_slot, b_index, b_col : Out, scratchpad reads
    a_data, a_exp, b_data, b_exp : In, `Scratchpad.LATENCY` clocks later
    x_r_en, x_r_slot, x_r_row : Out, accumulator read; `x_r_data` : In, in the next clock
    x_w_en, x_w_slot, x_w_row, x_w_data : Out, accumulator write
    All that follow are Out(1).array(2), by the operation's ContextId.

    exec_read : once per operation, in order: its operands' slots may be written from the next clock
        on
    exec_done : the same: its accumulator tile may be read from the next clock on
    overflow : a finite product or sum became Inf
    busy : a streamed row is read in this clock
    occupied : the array is taken: from an operation's first row on for `rows` clocks, or T if it
        loads a B and that is more
    inside : an operation waits or occupies the array
    stall_bank, stall_weights, stall_acc : an operation waits in this clock (see `Issue`)
    """

    #: Clocks after the read of an accumulator row in which it cannot be read again: it can be in
    #: the clock after its write.
    INTERLOCK = Fp32Add.LATENCY + 1

    def __init__(self, cfg: Config):
        self.cfg = cfg
        #: Clocks from the read of a streamed row to the write of its result.
        self.LATENCY = Scratchpad.LATENCY + array_latency(cfg) + Edge.LATENCY
        #: Most clocks for which an operation of inference is on offer and not taken while one of
        #: training is inside, if the arbiter before the unit offers inference first.
        #:
        #: An offer is taken at once, or when the operation that waits, W, starts. Let S be the one
        #: that streams, s the clock in which it started; its rows are read in s + 1 .. s + T at
        #: most. W is taken in s (later it waits no longer), and the offer comes in the next clock:
        #: else it would have been taken in W's place. W's B starts at s + T at the latest: S's rows
        #: no longer bar its bank, and the second weight registers are free since s + G. W's A
        #: starts T clocks later at most (in the bank of its B), or K + 1 clocks after an operation
        #: on the same accumulator tile, which S may be, K being the interlock. So W starts at
        #: s + max(2 T, K + 1) at the latest; the offer waited from s + 1 to the clock before that.
        #: If W is inference's own and only S is training's, S is inside for T clocks at most.
        self.HOLD_BOUND = max(2 * cfg.tile - 1, self.INTERLOCK)
        mantissas = data.ArrayLayout(cfg.mant_width, cfg.tile)
        words = data.ArrayLayout(32, cfg.tile)
        members = {"cmd": In(stream.Signature(exec_command(cfg)))}
        for port in "ab":
            members |= {
                f"{port}_en": Out(1), f"{port}_slot": Out(cfg.spad_slot_bits),
                f"{port}_index": Out(cfg.row_bits), f"{port}_col": Out(1),
                f"{port}_data": In(mantissas), f"{port}_exp": In(8)}
        for port in ("x_r", "x_w"):
            members |= {f"{port}_en": Out(1), f"{port}_slot": Out(cfg.acc_slot_bits),
                        f"{port}_row": Out(cfg.row_bits)}
        super().__init__(members | {
            "x_r_data": In(words), "x_w_data": Out(words),
            **{name: Out(1).array(2) for name in (
                "exec_done", "overflow", "busy", *SIGNALS)}})

    def elaborate(self, platform):
        cfg, m = self.cfg, Module()
        m.submodules.array = array = SystolicArray(cfg)
        m.submodules.issue = issue = Issue(cfg, interlock=self.INTERLOCK)
        wiring.connect(m, wiring.flipped(self.cmd), issue.cmd)
        m.d.comb += [getattr(self, f"{port}_{name}").eq(getattr(issue, f"{port}_{name}"))
                     for port in "ab" for name in ("en", "slot", "index", "col")]
        for n, context in enumerate(ContextId):
            m.d.comb += [self.busy[n].eq(issue.a_en & (issue.tags.context == context)),
                         *(getattr(self, name)[n].eq(getattr(issue, name)[n])
                           for name in SIGNALS)]

        load = delay(m, issue.load, Scratchpad.LATENCY, name="load", reset=True)
        swap = delay(m, issue.swap, Scratchpad.LATENCY, name="swap", reset=True)
        m.d.comb += [array.a.eq(self.a_data), array.swap.eq(swap),
                     array.w.eq(self.b_data), array.load.eq(load)]
        scale, nan = self._scale(m, load, swap)

        row, written_by = self._tags(m, issue)
        overwrite = Signal()
        m.d.sync += overwrite.eq(row.overwrite)
        overflows = []
        for c in range(cfg.tile):
            m.submodules[f"edge_{c}"] = edge = Edge(cfg.sum_width)
            m.d.comb += [edge.sum.eq(array.sums[c]), edge.scale.eq(scale), edge.nan.eq(nan),
                         edge.acc.eq(self.x_r_data[c]), edge.overwrite.eq(overwrite),
                         self.x_w_data[c].eq(edge.y)]
            overflows.append(edge.overflow)
        m.d.sync += [overflow.eq(self.x_w_en & Cat(overflows).any() & (written_by == context))
                     for overflow, context in zip(self.overflow, ContextId, strict=True)]
        return m

    def _scale(self, m, load, swap):
        """Scale and NaN of a row with its sums."""
        b_next = Signal(8, reset_less=True)
        b_exp = Signal(8, reset_less=True)
        swap_next = Signal()
        a_exp = delay(m, self.a_exp, 2, name="a_exp")
        m.d.sync += swap_next.eq(swap)
        with m.If(load):
            m.d.sync += b_next.eq(self.b_exp)
        with m.If(swap_next):
            m.d.sync += b_exp.eq(b_next)
        scale = Signal(signed(11))
        nan = (a_exp == 255) | (b_exp == 255)
        with m.If((a_exp == 0) | (b_exp == 0)):
            m.d.comb += scale.eq(-1024)  # every product becomes +0
        with m.Else():
            m.d.comb += scale.eq(a_exp + b_exp - (254 + 2 * (self.cfg.mant_width - 2)))
        both = delay(m, Cat(scale, nan), array_latency(self.cfg) - 2, name="scale_line")
        return both[:-1], both[-1]

    def _tags(self, m, issue):
        """Drive the accumulator's ports; the tags of the row that it reads, whose it writes."""
        # the accumulator answers in the next clock
        read = Scratchpad.LATENCY + array_latency(self.cfg) + Edge.ACC_DELAY - 1
        valid = delay(m, issue.a_en, read, name="valid_line", reset=True)
        tags = data.View(issue.tags.shape(), delay(m, issue.tags, read, name="tags_line"))
        row = Signal(self.cfg.row_bits)
        with m.If(valid):
            m.d.sync += row.eq(Mux(tags.last, 0, row + 1))
        m.d.comb += [self.x_r_en.eq(valid & ~tags.overwrite), self.x_r_slot.eq(tags.acc_slot),
                     self.x_r_row.eq(row)]
        left = self.LATENCY - read
        last = Signal()
        written_by = Signal(ContextId)
        m.d.comb += [
            self.x_w_en.eq(delay(m, valid, left, name="write_valid_line", reset=True)),
            Cat(self.x_w_slot, self.x_w_row, last, written_by).eq(
                delay(m, Cat(tags.acc_slot, row, tags.last, tags.context), left,
                      name="write_tags_line")),
            *(done.eq(self.x_w_en & last & (written_by == context))
              for done, context in zip(self.exec_done, ContextId, strict=True)),
        ]
        return tags, written_by
