"""Directory of the scratchpad: a hit is the tile that is there, of this number, not forgotten."""

from functools import partial
from unittest import mock

import pytest
from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config, clog2
from hw.control import directory
from hw.control.directory import SpadDirectory
from tests.formal.proof import add, assume, check, fixed, free, prove

#: 4 slots, and counters that come round after 8 instructions and after 2 times `drop`.
CFG = Config(tile=256, axi_width=1024, spad_kib=256, acc_kib=1024, spad_banks=1)
SIZES = {"KEEP_BITS": 2, "EPOCH_BITS": 3, "GENERATION_BITS": 1}


class Rows(wiring.Component):
    """`hw.lib.ram.Ram` with its rows as registers, which assertions can name.

    Reading the row that is written gives the old one, so that must not matter.
    """

    def __init__(self, width, depth):
        addr = max(1, clog2(depth))
        self.rows = Array(Signal(width, name=f"row{n}") for n in range(depth))
        super().__init__({
            "w_en": In(1), "w_addr": In(addr), "w_data": In(width),
            "r_en": In(1), "r_addr": In(addr), "r_data": Out(width)})

    def elaborate(self, platform):
        m = Module()
        with m.If(self.w_en):
            m.d.sync += self.rows[self.w_addr].eq(self.w_data)
        with m.If(self.r_en):
            m.d.sync += self.r_data.eq(self.rows[self.r_addr])
        return m


def build(m, ports, broken=None):
    made = []

    def ram(width, depth):
        made.append(Rows(width, depth))
        return made[-1]

    with mock.patch.multiple(directory, **SIZES, Ram=ram):
        dut = SpadDirectory(CFG)
        inner = add(m, "dut", dut)
    names = ("row", "col", "keep", "load", "exec_issued", "exec_read", "load_issued", "load_done")
    for name in names:
        m.d.comb += getattr(dut, name).eq(free(len(getattr(dut, name)), name, ports))
    start, drop, read, write = (free(1, name, ports) for name in ("start", "drop", "read", "write"))
    slot, read_slot = (free(CFG.spad_slot_bits, name, ports) for name in ("slot", "read_slot"))
    m.d.comb += [dut.start.eq(start & (broken != "start")),
                 dut.drop.eq(drop & (broken != "drop")), dut.read.eq(read),
                 dut.read_slot.eq(read_slot), dut.slot.eq(slot), dut.write.eq(write)]

    # --- how the sequencer uses it ---------------------------------------------------------------
    running = Signal()  # the last one of `start` and `drop` was `start`
    looked = Signal()   # the outputs describe slot `at`, as it is
    at = Signal(CFG.spad_slot_bits)
    with m.If(start | drop):
        m.d.sync += running.eq(start)
    with m.If(read):
        m.d.sync += [looked.eq(1), at.eq(read_slot)]
    with m.Elif(write | start | drop):
        m.d.sync += looked.eq(0)
    assume(m, start + drop + (read | write) <= 1)
    assume(m, ~(read & write) | (slot != read_slot))
    assume(m, dut.ready | ~(start | read))
    assume(m, ~drop | dut.ready | ~running)  # between instructions
    assume(m, ~write | (looked & (slot == at)))

    # --- any slot: the tile in it ----------------------------------------------------------------
    one = fixed(m, CFG.spad_slot_bits, "one", ports)
    here = Signal()
    keep, row, col = Signal.like(dut.keep), Signal.like(dut.row), Signal.like(dut.col)
    last_exec, load = Signal(8), Signal(8)
    mine = write & (slot == one)
    with m.If(mine):
        m.d.sync += [here.eq(1), keep.eq(dut.keep), row.eq(dut.row), col.eq(dut.col)]
    with m.Elif(Mux(keep != 0, drop, start)):
        m.d.sync += here.eq(0)
    with m.If(mine):
        m.d.sync += last_exec.eq(dut.exec_issued + 1)
    with m.If(mine & dut.load):
        m.d.sync += load.eq(dut.load_issued + 1)
    with m.If(looked & (at == one)):
        check(m, dut.hit == (here & (keep == dut.keep) & (row == dut.row) & (col == dut.col)))

    # --- which states there are ------------------------------------------------------------------
    state = inner["directory_state"]  # 0 CLEAR, 1 READY, 2 LOOK, 3 REMOVE
    epoch, generation, old_kept = inner["epoch"], inner["generation"], inner["old_kept"]
    cursor = inner["at"]
    layout = data.StructLayout({
        "valid": 1, "kept": 1, "keep": SIZES["KEEP_BITS"], "generation": SIZES["GENERATION_BITS"],
        "row": CFG.index_bits, "col": CFG.index_bits, "last_exec": 8, "load": 8})
    ram, = made
    entry = data.View(layout, ram.rows[one])
    age = Cat(entry.keep, entry.generation)
    clearing, passing = state == 0, state >= 2
    check(m, dut.ready == (state == 1))
    check(m, ~looked | (dut.ready & (ram.r_data == ram.rows[at])))
    check(m, (state != 3) | (ram.r_data == ram.rows[cursor]))
    with m.If(clearing):
        check(m, ~here & ~running & ((one >= cursor) | (ram.rows[one] == 0)))
        check(m, (last_exec == 0) & (load == 0))
    with m.Else():
        check(m, (entry.last_exec == last_exec) & (entry.load == load))
    with m.If(dut.ready):
        check(m, cursor == 0)
    with m.If(here):
        check(m, entry.valid & (entry.kept == (keep != 0)))
        check(m, (entry.row == row) & (entry.col == col))
        check(m, age == Mux(keep != 0, Cat(keep, generation), epoch))
        check(m, (keep != 0) | inner["used"])
    with m.Elif(entry.valid & ~clearing):
        # An old tile: older than the counter, or removed by the pass that goes on.
        removed = passing & (entry.kept == old_kept)
        check(m, Mux(removed, one >= cursor,
                     Mux(entry.kept, entry.generation < generation, age < epoch)))
    with m.If(passing):
        check(m, running == ~old_kept)
        check(m, old_kept | (epoch == 0))
        check(m, ~here | ((keep != 0) != old_kept))


def test_directory(tmp_path):
    assert prove(build, tmp_path, depth=2) == "PASS"


@pytest.mark.parametrize("broken", ["start", "drop"])
def test_broken(tmp_path, broken):
    assert prove(partial(build, broken=broken), tmp_path, depth=10, mode="bmc") == "FAIL"
