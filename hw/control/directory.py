"""Directories: which tile is in a slot, and which commands used it last."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.control.numbers import LOW_BITS, NUMBER_BITS, age
from hw.lib.ram import Ram

#: Bits of the counter of instructions by which tags become invalid.
EPOCH_BITS = 8


class SpadDirectory(wiring.Component):
    """Directory of the scratchpad's slots. An instruction starts with all of them invalid.

    `read` looks slot `read_slot` up: from the next clock on, until the next `read`, the outputs
    describe it. `write` makes (row, col) the tile of `slot`, the one read last, used by the
    operation to come; it was there before, or is loaded (`load`) by the load to come.

    After reset, and every 2**EPOCH_BITS instructions when all operations are read, all entries
    are cleared, one a clock; `ready` is low meanwhile.

    Members
    -------
    ready : Out(1), can be read
    start : In(1), begin an instruction
    read : In(1), read_slot : In(spad_slot_bits)
    slot : In(spad_slot_bits), row, col : In(index_bits)
    write, load : In(1)
    load_issued, load_done, exec_issued, exec_read : In(24)
    hit : Out(1), the tile that was read is (row, col)
    wait_exec : Out(24), number of the slot's last operation
    wait_load : Out(24), number of the load of its tile
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        slot = cfg.spad_slot_bits
        super().__init__({
            "ready": Out(1), "start": In(1), "read": In(1), "read_slot": In(slot),
            "slot": In(slot), "row": In(cfg.index_bits), "col": In(cfg.index_bits),
            "write": In(1), "load": In(1),
            **{n: In(NUMBER_BITS) for n in ("load_issued", "load_done", "exec_issued",
                                            "exec_read")},
            "hit": Out(1), "wait_exec": Out(NUMBER_BITS), "wait_load": Out(NUMBER_BITS),
        })

    def elaborate(self, platform):
        m = Module()
        cfg = self.cfg
        layout = data.StructLayout({
            "valid": 1, "epoch": EPOCH_BITS, "row": cfg.index_bits, "col": cfg.index_bits,
            "last_exec": LOW_BITS, "load": LOW_BITS})
        m.submodules.ram = ram = Ram(layout.size, 1 << cfg.spad_slot_bits)
        entry = data.View(layout, ram.r_data)
        new = Signal(layout)
        epoch = Signal(EPOCH_BITS)
        clear = Signal(cfg.spad_slot_bits)
        m.d.comb += [
            ram.r_en.eq(self.read), ram.r_addr.eq(self.read_slot),
            ram.w_en.eq(self.write), ram.w_addr.eq(self.slot), ram.w_data.eq(new),
            self.hit.eq(entry.valid & (entry.epoch == epoch) & (entry.row == self.row)
                        & (entry.col == self.col)),
            self.wait_exec.eq(self.exec_issued - age(self.exec_issued, self.exec_read,
                                                     entry.last_exec)),
            self.wait_load.eq(self.load_issued - age(self.load_issued, self.load_done,
                                                     entry.load)),
            new.valid.eq(1), new.epoch.eq(epoch), new.row.eq(self.row), new.col.eq(self.col),
            new.last_exec.eq(self.exec_issued + 1), new.load.eq(entry.load),
        ]
        with m.If(self.load):
            m.d.comb += new.load.eq(self.load_issued + 1)
        with m.FSM(name="directory"):
            with m.State("CLEAR"):
                m.d.comb += [ram.w_en.eq(1), ram.w_addr.eq(clear), new.as_value().eq(0)]
                m.d.sync += clear.eq(clear + 1)
                with m.If(clear == (1 << cfg.spad_slot_bits) - 1):
                    m.next = "READY"
            with m.State("READY"):
                m.d.comb += self.ready.eq(1)
                with m.If(self.start):
                    m.d.sync += epoch.eq(epoch + 1)
                    with m.If(epoch == (1 << EPOCH_BITS) - 1):
                        m.next = "DRAIN"
            with m.State("DRAIN"):  # the epoch came round: old tags must not look new
                with m.If(self.exec_read == self.exec_issued):  # but count in `wait_exec` till then
                    m.next = "CLEAR"
        return m


class AccDirectory(wiring.Component):
    """Directory of the accumulator's slots: unfinished results.

    `read` looks `slot` up: from the next clock on, until the next `read`, the outputs describe it.
    `write` records the present operation's tile with the numbers given. After reset all entries
    are cleared, one a clock; `ready` is low meanwhile.

    Members
    -------
    ready : Out(1), can be read
    slot : In(acc_slot_bits), row, col : In(index_bits), the present operation's tile
    read, write : In(1)
    unfinished : In(1), to be written: (row, col) stays in the slot
    last_exec, last_store, last_spill : In(8), to be written: low bits of the slot's last numbers
    exec_issued, exec_done, store_issued, store_read, store_done : In(24)
    match : Out(1), the slot holds (row, col), unfinished
    other : Out(1), it holds another tile, unfinished
    old_row, old_col : Out(index_bits), that tile
    old_store, old_spill : Out(8), low bits of the numbers of the slot's last store and spill
    wait_exec, wait_store, wait_spill : Out(24), numbers of its last operation, store and spill
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        index = cfg.index_bits
        super().__init__({
            "ready": Out(1), "slot": In(cfg.acc_slot_bits), "row": In(index), "col": In(index),
            "read": In(1), "write": In(1), "unfinished": In(1),
            **{f"last_{n}": In(LOW_BITS) for n in ("exec", "store", "spill")},
            **{n: In(NUMBER_BITS) for n in ("exec_issued", "exec_done", "store_issued",
                                            "store_read", "store_done")},
            "match": Out(1), "other": Out(1), "old_row": Out(index), "old_col": Out(index),
            "old_store": Out(LOW_BITS), "old_spill": Out(LOW_BITS),
            **{f"wait_{n}": Out(NUMBER_BITS) for n in ("exec", "store", "spill")},
        })

    def elaborate(self, platform):
        m = Module()
        cfg = self.cfg
        layout = data.StructLayout({
            "valid": 1, "row": cfg.index_bits, "col": cfg.index_bits,
            "last_exec": LOW_BITS, "last_store": LOW_BITS, "last_spill": LOW_BITS})
        m.submodules.ram = ram = Ram(layout.size, cfg.acc_slots)
        entry = data.View(layout, ram.r_data)
        new = Signal(layout)
        clear = Signal(range(cfg.acc_slots))
        m.d.comb += [
            ram.r_en.eq(self.read), ram.r_addr.eq(self.slot),
            ram.w_en.eq(self.write), ram.w_addr.eq(self.slot), ram.w_data.eq(new),
            self.match.eq(entry.valid & (entry.row == self.row) & (entry.col == self.col)),
            self.other.eq(entry.valid & ~self.match),
            self.old_row.eq(entry.row), self.old_col.eq(entry.col),
            self.old_store.eq(entry.last_store), self.old_spill.eq(entry.last_spill),
            self.wait_exec.eq(self.exec_issued - age(self.exec_issued, self.exec_done,
                                                     entry.last_exec)),
            self.wait_store.eq(self.store_issued - age(self.store_issued, self.store_read,
                                                       entry.last_store)),
            self.wait_spill.eq(self.store_issued - age(self.store_issued, self.store_done,
                                                       entry.last_spill)),
            new.valid.eq(self.unfinished), new.row.eq(self.row), new.col.eq(self.col),
            new.last_exec.eq(self.last_exec), new.last_store.eq(self.last_store),
            new.last_spill.eq(self.last_spill),
        ]
        with m.If(~self.ready):
            m.d.comb += [ram.w_en.eq(1), ram.w_addr.eq(clear), new.as_value().eq(0)]
            m.d.sync += [clear.eq(clear + 1), self.ready.eq(clear == cfg.acc_slots - 1)]
        return m
