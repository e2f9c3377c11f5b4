"""The operand of an epilogue: which accumulator slot holds it, or is to be loaded with it."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.control.numbers import LOW_BITS, NUMBER_BITS, age
from hw.isa import WINDOW

#: Most slots of the ring of operands.
SLOTS = 4


class EpilogueOperand(wiring.Component):
    """Ring of slots in `e_window`; remembers the tile of the epilogue before.

    Outputs are combinational. `load` and `use` are pulses in a clock in which `row`, `col` and
    `window` are valid; after a `load` of a tile it hits.

    Members
    -------
    start : In(1), begin an instruction: no tile, first slot of the ring
    window : In(WINDOW), at most `SLOTS` slots
    row, col : In(index_bits), tile that the epilogue wants
    load : In(1), its load is queued
    use : In(1), a vector command that uses it is queued
    load_issued, load_done, vector_issued, vector_done : In(24)
    hit : Out(1), it is the tile of the epilogue before
    slot : Out(acc_slot_bits), where it is (`hit`) or is to be loaded
    wait_vector : Out(24), number of the vector command that its load waits for
    wait_load : Out(24), number of the load that its vector command waits for (`hit`)
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "start": In(1), "window": In(WINDOW),
            "row": In(cfg.index_bits), "col": In(cfg.index_bits), "load": In(1), "use": In(1),
            **{n: In(NUMBER_BITS) for n in ("load_issued", "load_done", "vector_issued",
                                            "vector_done")},
            "hit": Out(1), "slot": Out(cfg.acc_slot_bits),
            "wait_vector": Out(NUMBER_BITS), "wait_load": Out(NUMBER_BITS),
        })

    def elaborate(self, platform):
        m = Module()
        present = Signal(range(SLOTS))  # slot of the tile before
        following = Signal(range(SLOTS))  # slot of the next load
        valid = Signal()
        row = Signal(self.cfg.index_bits, reset_less=True)
        col = Signal(self.cfg.index_bits, reset_less=True)
        loaded = Signal(LOW_BITS, reset_less=True)  # number of the tile's load
        used = [Signal(LOW_BITS, name=f"used{s}", reset_less=True) for s in range(SLOTS)]
        mask = Signal(range(SLOTS))
        m.d.comb += [
            mask.eq((1 << (self.window.h_log2 + self.window.w_log2)[:2]) - 1),
            self.hit.eq(valid & (row == self.row) & (col == self.col)),
            self.slot.eq(self.window.base + Mux(self.hit, present, following)),
            self.wait_vector.eq(self.vector_issued - age(self.vector_issued, self.vector_done,
                                                         Array(used)[following])),
            self.wait_load.eq(self.load_issued - age(self.load_issued, self.load_done, loaded)),
        ]
        with m.If(self.start):
            m.d.sync += [valid.eq(0), following.eq(0), *(u.eq(self.vector_issued) for u in used)]
        with m.If(self.load):
            m.d.sync += [valid.eq(1), row.eq(self.row), col.eq(self.col), present.eq(following),
                         following.eq((following + 1) & mask), loaded.eq(self.load_issued + 1)]
        with m.If(self.use):
            for s, u in enumerate(used):
                with m.If(present == s):
                    m.d.sync += u.eq(self.vector_issued + 1)
        return m
