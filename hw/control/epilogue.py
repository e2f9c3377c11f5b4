"""The operand of an epilogue: which accumulator slot holds it, or is to be loaded with it."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.control.directory import KEEP_BITS
from hw.control.numbers import LOW_BITS, NUMBER_BITS, age
from hw.isa import WINDOW

#: Most slots of `e_window`.
SLOTS = 4


class EpilogueOperand(wiring.Component):
    """Finds the operand in `e_window`.

    Without `keep` the slots are a ring, and it remembers the tile of the epilogue before. With
    `keep` the window holds all tiles (0, col) of a bias, one row each, T to a slot. They stay until
    the next `forget`: the first instruction with this `keep` loads them, later ones find them.

    Outputs are combinational. `load` and `use` are pulses in a clock in which `row`, `col`,
    `window`, `keep` and `cols` are valid; after a `load` of a tile it hits.

    Members
    -------
    start : In(1), begin an instruction: no tile but kept ones, first slot of the ring
    forget : In(1), forget kept tiles; only between instructions
    window : In(WINDOW), at most `SLOTS` slots
    keep : In(4), number of the matrix whose bias is kept; 0: none
    cols : In(index_bits + 1), with `keep`, tiles of the bias, no more than the window holds
    row, col : In(index_bits), tile that the epilogue wants. With `keep`, `row` is 0, and a new
        `col` is one more than the one before
    load : In(1), its load is queued
    use : In(1), a vector command that uses it is queued
    load_issued, load_done, vector_issued, vector_done : In(24)
    hit : Out(1), it is the tile of the epilogue before, or a kept one that is there
    slot : Out(acc_slot_bits), where it is (`hit`) or is to be loaded
    slot_row : Out(row_bits), with `keep`, its row there; else 0
    wait_vector : Out(24), number of the vector command that its load waits for
    wait_load : Out(24), number of the load that its vector command waits for (`hit`)
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "start": In(1), "forget": In(1), "window": In(WINDOW), "keep": In(KEEP_BITS),
            "cols": In(cfg.index_bits + 1),
            "row": In(cfg.index_bits), "col": In(cfg.index_bits), "load": In(1), "use": In(1),
            **{n: In(NUMBER_BITS) for n in ("load_issued", "load_done", "vector_issued",
                                            "vector_done")},
            "hit": Out(1), "slot": Out(cfg.acc_slot_bits), "slot_row": Out(cfg.row_bits),
            "wait_vector": Out(NUMBER_BITS), "wait_load": Out(NUMBER_BITS),
        })

    def elaborate(self, platform):
        m = Module()
        present = Signal(range(SLOTS))  # slot of the tile before
        following = Signal(range(SLOTS))  # slot of the next load
        valid = Signal()
        row = Signal(self.cfg.index_bits, reset_less=True)
        col = Signal(self.cfg.index_bits, reset_less=True)
        loaded = Signal(LOW_BITS, reset_less=True)  # number of the last load
        used = [Signal(LOW_BITS, name=f"used{s}", reset_less=True) for s in range(SLOTS)]
        mask = Signal(range(SLOTS))
        at = Signal(range(SLOTS))

        # Results of the first block of M come by ascending column, so that these columns, and all
        # when a second block begins, are those before the next one to be loaded.
        kept = self.keep.any()
        complete = Signal(1 << KEEP_BITS)  # biases of which all tiles are there, by `keep`
        next_col = Signal(self.cfg.index_bits + 1)
        there = complete.bit_select(self.keep, 1) | (self.col < next_col)
        slot_of = Signal(range(SLOTS))
        row_of = Signal(self.cfg.row_bits)
        m.d.comb += row_of.eq(self.col)
        for s in range(1, SLOTS):
            with m.If(self.col >= s * self.cfg.tile):
                m.d.comb += [slot_of.eq(s), row_of.eq(self.col - s * self.cfg.tile)]

        m.d.comb += [
            mask.eq((1 << (self.window.h_log2 + self.window.w_log2)[:2]) - 1),
            self.hit.eq(Mux(kept, there, valid & (row == self.row) & (col == self.col))),
            at.eq(Mux(kept, slot_of, Mux(self.hit, present, following))),
            self.slot.eq(self.window.base + at), self.slot_row.eq(Mux(kept, row_of, 0)),
            # The load of a kept tile waits for no use of its slot: those were of other rows.
            self.wait_vector.eq(self.vector_issued - age(self.vector_issued, self.vector_done,
                                                         Array(used)[following])),
            # Loads are done in order, so that the last one is enough for all before it.
            self.wait_load.eq(self.load_issued - age(self.load_issued, self.load_done, loaded)),
        ]
        with m.If(self.start):
            m.d.sync += [valid.eq(0), following.eq(0), next_col.eq(0),
                         *(u.eq(self.vector_issued) for u in used)]
        with m.If(self.forget):
            m.d.sync += complete.eq(0)
        with m.If(self.load):
            m.d.sync += loaded.eq(self.load_issued + 1)
            with m.If(kept):
                m.d.sync += next_col.eq(self.col + 1)
                with m.If(self.col + 1 == self.cols):
                    m.d.sync += complete.bit_select(self.keep, 1).eq(1)
            with m.Else():
                m.d.sync += [valid.eq(1), row.eq(self.row), col.eq(self.col),
                             present.eq(following), following.eq((following + 1) & mask)]
        with m.If(self.use & ~kept):
            for s, u in enumerate(used):
                with m.If(present == s):
                    m.d.sync += u.eq(self.vector_issued + 1)
        return m
