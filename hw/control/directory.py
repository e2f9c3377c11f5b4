"""Directories: which tile is in a slot, and which commands used it last."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.control.numbers import LOW_BITS, NUMBER_BITS, age
from hw.lib.ram import Ram

#: Bits of the number of a matrix whose tiles are kept (field `w_keep`).
KEEP_BITS = 4
#: Bits of the counter of instructions by which tags become invalid.
EPOCH_BITS = 8
#: Bits of the same for kept tiles, which counts `drop`.
GENERATION_BITS = EPOCH_BITS - KEEP_BITS


class SpadDirectory(wiring.Component):
    """Directory of the scratchpad's slots.

    A tile is (row, col), and of matrix `keep` if that is not 0. An instruction starts with all
    slots invalid but for those that hold such kept tiles, which stay until the next `drop`.

    `read` looks slot `read_slot` up: from the next clock on, until the next `read`, the outputs
    describe it. `write` makes the tile that of `slot`, the one read last, used by the operation to
    come; it was there before, or is loaded (`load`) by the load to come.

    After reset all entries are cleared, one a clock. Every 2**EPOCH_BITS instructions that have
    written tiles which are not kept, and every 2**GENERATION_BITS times `drop`, tiles of old
    instructions or old kept tiles are removed, which takes two clocks an entry and leaves the
    others, and all numbers. `ready` is low meanwhile. A served network, whose tiles are all kept,
    is never held up.

    Members
    -------
    ready : Out(1), can be read
    start : In(1), begin an instruction; only while `ready`, not with `write`
    drop : In(1), forget kept tiles; only between instructions
    read : In(1), read_slot : In(spad_slot_bits)
    slot : In(spad_slot_bits), row, col : In(index_bits), keep : In(4)
    write, load : In(1)
    load_issued, load_done, exec_issued, exec_read : In(24)
    hit : Out(1), the tile that was read is (row, col) of `keep`
    wait_exec : Out(24), number of the slot's last operation
    wait_load : Out(24), number of the load of its tile
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        slot = cfg.spad_slot_bits
        super().__init__({
            "ready": Out(1), "start": In(1), "drop": In(1), "read": In(1), "read_slot": In(slot),
            "slot": In(slot), "row": In(cfg.index_bits), "col": In(cfg.index_bits),
            "keep": In(KEEP_BITS), "write": In(1), "load": In(1),
            **{n: In(NUMBER_BITS) for n in ("load_issued", "load_done", "exec_issued",
                                            "exec_read")},
            "hit": Out(1), "wait_exec": Out(NUMBER_BITS), "wait_load": Out(NUMBER_BITS),
        })

    def elaborate(self, platform):
        m = Module()
        cfg = self.cfg
        layout = data.StructLayout({
            "valid": 1, "kept": 1, "age": EPOCH_BITS, "row": cfg.index_bits,
            "col": cfg.index_bits, "last_exec": LOW_BITS, "load": LOW_BITS})
        m.submodules.ram = ram = Ram(layout.size, 1 << cfg.spad_slot_bits)
        entry = data.View(layout, ram.r_data)
        new = Signal(layout)
        epoch = Signal(EPOCH_BITS)
        used = Signal()  # by a tile
        generation = Signal(GENERATION_BITS)
        kept = Signal()
        present = Signal(EPOCH_BITS)  # `age` of a tile that is valid
        at = Signal(cfg.spad_slot_bits)  # entry that is cleared or looked through
        old_kept = Signal()  # tiles that are removed: kept ones, else the others
        removing = Signal()
        m.d.comb += [
            kept.eq(self.keep != 0), present.eq(Mux(kept, Cat(self.keep, generation), epoch)),
            ram.r_en.eq(self.read), ram.r_addr.eq(self.read_slot),
            ram.w_en.eq(self.write), ram.w_addr.eq(self.slot), ram.w_data.eq(new),
            self.hit.eq(entry.valid & (entry.kept == kept) & (entry.age == present)
                        & (entry.row == self.row) & (entry.col == self.col)),
            self.wait_exec.eq(self.exec_issued - age(self.exec_issued, self.exec_read,
                                                     entry.last_exec)),
            self.wait_load.eq(self.load_issued - age(self.load_issued, self.load_done,
                                                     entry.load)),
            new.eq(entry),
        ]
        with m.If(removing):
            m.d.comb += new.valid.eq(entry.valid & (entry.kept != old_kept))
        with m.Else():
            m.d.comb += [new.last_exec.eq(self.exec_issued + 1), new.valid.eq(1),
                         new.kept.eq(kept), new.age.eq(present), new.row.eq(self.row),
                         new.col.eq(self.col)]
            with m.If(self.load):
                m.d.comb += new.load.eq(self.load_issued + 1)
        with m.If(self.write & ~kept):
            m.d.sync += used.eq(1)
        with m.If(self.drop):
            m.d.sync += generation.eq(generation + 1)
        last = at == (1 << cfg.spad_slot_bits) - 1
        with m.FSM(name="directory"):
            with m.State("CLEAR"):
                m.d.comb += [ram.w_en.eq(1), ram.w_addr.eq(at), new.as_value().eq(0)]
                m.d.sync += at.eq(at + 1)
                with m.If(last):
                    m.next = "READY"
            with m.State("READY"):
                m.d.comb += self.ready.eq(1)
                with m.If(self.start):
                    m.d.sync += [epoch.eq(epoch + used), used.eq(0), old_kept.eq(0)]
                    with m.If(used & (epoch == (1 << EPOCH_BITS) - 1)):
                        m.next = "LOOK"
                with m.Elif(self.drop):
                    m.d.sync += old_kept.eq(1)
                    with m.If(generation == (1 << GENERATION_BITS) - 1):
                        m.next = "LOOK"
            with m.State("LOOK"):  # a counter came round: old tiles must not look new
                m.d.comb += [ram.r_en.eq(1), ram.r_addr.eq(at)]
                m.next = "REMOVE"
            with m.State("REMOVE"):
                m.d.comb += [removing.eq(1), ram.w_en.eq(1), ram.w_addr.eq(at)]
                m.d.sync += at.eq(at + 1)
                m.next = "LOOK"
                with m.If(last):
                    m.next = "READY"
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
