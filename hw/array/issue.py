"""Timing of tile operations: which scratchpad rows are read in which clock."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.control.commands import ContextId, exec_command
from hw.lib.delay import delay


def row_tags(cfg: Config) -> data.StructLayout:
    """What goes with a streamed row to the accumulator."""
    return data.StructLayout({"last": 1, "overwrite": 1, "context": ContextId,
                              "acc_slot": cfg.acc_slot_bits})


class Issue(wiring.Component):
    """Reads the operands of tile operations so that passes follow each other without a bubble.

    One operation waits (its stationary tile may be read already) while the one before it streams.
    Its A is read in `rows` successive clocks, B in T. With G = T/w, in clocks of the first reads:

    * A not before T - G clocks after its own B (w = 1: together);
    * B not before G clocks after the A of the last operation that loaded a B;
    * A and B never in one bank in one clock: B before A of the same operation, and never in the way
      of the A before it;
    * A not within `interlock` clocks after an operation on the same accumulator slot, unless it
      overwrites. Rows come at one per clock, so what holds for row 0 holds for all.

    The first read comes in the second clock after the command at the earliest.

    Parameters
    ----------
    cfg : Config
    interlock : clocks, after a row's read from the accumulator, in which it cannot be read again

    Members
    -------
    cmd : In(stream.Signature(exec_command))
    a_en, a_slot, a_index, a_col : Out, scratchpad read of a streamed row
    b_en, b_slot, b_index, b_col : Out, scratchpad read of a stationary row
    swap : Out(1), with `a_en`: the first row that a new stationary tile multiplies
    load : Out(1), with `b_en`: row 0 of a stationary tile
    tags : Out(row_tags), with `a_en`
    exec_read : Out(1).array(2), T - 1 clocks after the first row of an operation of the context;
        its reads are done by then
    occupied : Out(1).array(2), by an operation of the context, from its first row on: for `rows`
        clocks, or T if it loads a B and that is more
    inside : Out(1).array(2), an operation of the context waits or occupies the array
    stall_bank, stall_weights, stall_acc : Out(1).array(2), an operation of the context waits and no
        row is read in this clock: for B in its own A's bank (or held up by the bank of the A before
        it); else for B, or because it has just come; else for the adder
    """

    def __init__(self, cfg: Config, interlock: int):
        self.cfg, self.interlock = cfg, interlock
        reads = {f"{port}_{name}": Out(shape) for port in "ab" for name, shape in (
            ("en", 1), ("slot", cfg.spad_slot_bits), ("index", cfg.row_bits), ("col", 1))}
        super().__init__({
            "cmd": In(stream.Signature(exec_command(cfg))), **reads,
            "swap": Out(1), "load": Out(1), "tags": Out(row_tags(cfg)),
            **{name: Out(1).array(2) for name in (
                "exec_read", "occupied", "inside", "stall_bank", "stall_weights", "stall_acc")},
        })

    def elaborate(self, platform):
        cfg, m = self.cfg, Module()
        lead, hold = cfg.tile - cfg.pe_rows, cfg.pe_rows

        def one_bank(slot, other):
            return slot[cfg.slot_index_bits:] == other[cfg.slot_index_bits:]

        waiting = Signal()
        op = Signal(exec_command(cfg))
        loaded = Signal()            # the reads of the waiting operation's B have begun
        last_row = Signal(cfg.row_bits)
        start_a = Signal()
        start_b = Signal()
        a_continues = Signal()  # a read is due in the next clock anyway
        b_continues = Signal()
        m.d.comb += [
            a_continues.eq(self.a_en & (self.a_index != last_row)),
            b_continues.eq(self.b_en & (self.b_index != cfg.tile - 1)),
            self.cmd.ready.eq(~waiting | start_a),
        ]
        with m.If(self.cmd.ready):
            m.d.sync += [waiting.eq(self.cmd.valid), op.eq(self.cmd.payload)]

        # Stationary tile.
        held = Signal(range(hold + 1))  # clocks until the second weight registers are free
        needs_b = Signal()
        b_barred = Signal()
        m.d.comb += [
            needs_b.eq(waiting & ~op.b_reuse & ~loaded & (held == 0)),
            b_barred.eq(a_continues & one_bank(op.b_slot, self.a_slot)),
            start_b.eq(needs_b & ~b_barred),
            self.load.eq(self.b_en & (self.b_index == 0)),
        ]
        m.d.sync += [
            loaded.eq((loaded | start_b) & ~start_a),
            held.eq(Mux(start_a & ~op.b_reuse, hold - 1, held - (held != 0))),
            self.b_en.eq(start_b | b_continues),
            self.b_index.eq(Mux(start_b, 0, self.b_index + 1)),
        ]
        with m.If(start_b):
            m.d.sync += [self.b_slot.eq(op.b_slot), self.b_col.eq(op.b_col)]

        # Streamed rows.
        fed = Signal()
        a_barred = Signal()
        in_adder = Signal()
        if lead == 0:
            far = loaded | start_b
        elif lead == 1:  # any row of B will do
            far = loaded
        else:
            far = loaded & (~self.b_en | (self.b_index >= lead - 1))
        recent = [Signal(1 + cfg.acc_slot_bits, name=f"recent{n}") for n in range(self.interlock)]
        first = Signal()
        fresh = Signal()
        m.d.comb += [
            fed.eq(op.b_reuse | far),
            a_barred.eq(b_continues & one_bank(op.a_slot, self.b_slot)
                        | start_b & one_bank(op.a_slot, op.b_slot)),
            in_adder.eq(~op.overwrite & Cat(e == Cat(1, op.acc_slot) for e in recent).any()),
            start_a.eq(waiting & fed & ~a_barred & ~in_adder & ~a_continues),
            self.swap.eq(first & fresh),
            self.tags.last.eq(self.a_index == last_row),
        ]
        m.d.sync += [
            self.a_en.eq(start_a | a_continues), first.eq(start_a),
            self.a_index.eq(Mux(start_a, 0, self.a_index + 1)),
            Cat(recent).eq(Cat(start_a, op.acc_slot, recent)),
        ]
        with m.If(start_a):
            m.d.sync += [
                self.a_slot.eq(op.a_slot), self.a_col.eq(op.a_col), fresh.eq(~op.b_reuse),
                self.tags.overwrite.eq(op.overwrite), self.tags.context.eq(op.context),
                self.tags.acc_slot.eq(op.acc_slot),
                last_row.eq(op.rows - 1),
            ]

        # Clocks for which the array will be occupied: an operation that reuses the B of the last
        # one may begin and end while that is still read.
        left = Signal(range(cfg.tile + 1))
        rest = Signal.like(left)
        needs = Mux(op.b_reuse, op.rows, cfg.tile)
        m.d.comb += rest.eq(left - (left != 0))
        m.d.sync += left.eq(Mux(start_a & (needs > rest), needs, rest))

        # Why no row will be read in the next clock.
        b_late = Signal()
        waits = Signal()
        by_bank = Signal()
        comes = Signal()
        m.d.comb += [waits.eq(waiting & ~start_a & ~a_continues),
                     comes.eq(self.cmd.valid & ~waiting & ~a_continues),
                     by_bank.eq(a_barred | b_late & ~fed)]
        m.d.sync += b_late.eq((b_late | needs_b & b_barred) & ~start_a)
        for n, context in enumerate(ContextId):
            streams = self.tags.context == context
            own = waits & (op.context == context)
            m.d.comb += [
                self.exec_read[n].eq(delay(m, first & streams, cfg.tile - 1,
                                           name=f"reads_done{n}", reset=True)),
                self.occupied[n].eq((left != 0) & streams),
                self.inside[n].eq(self.occupied[n] | waiting & (op.context == context)),
            ]
            m.d.sync += [
                self.stall_bank[n].eq(own & by_bank),
                self.stall_weights[n].eq(own & ~by_bank & ~fed
                                         | comes & (self.cmd.payload.context == context)),
                self.stall_acc[n].eq(own & ~by_bank & fed),
            ]
        return m
