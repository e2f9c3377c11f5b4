"""The sequencer: expands one instruction into tile commands, tracking residency in hardware.

Implements the orders of IGO (MICRO 2023) as loop nests over one lookup mechanism
(docs/architecture.md, "Sequencer").
"""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import DIM_BITS, OFFSET_BITS, Config
from hw.control.address import TileAddress
from hw.control.commands import Destination, exec_command, load_command, store_command
from hw.control.numbers import LOW_BITS, NUMBER_BITS, age, reached
from hw.control.walker import Walker
from hw.isa import INSTRUCTION, Kind, Opcode, Order
from hw.lib.ram import Ram

#: Bits of the counter of instructions by which tags become invalid.
EPOCH_BITS = 8


def queued_load(cfg: Config) -> data.StructLayout:
    """A load and the numbers it waits for: operations read, stores read, stores done."""
    return data.StructLayout({"cmd": load_command(cfg), "exec_read": NUMBER_BITS,
                              "store_read": NUMBER_BITS, "store_done": NUMBER_BITS})


def queued_exec(cfg: Config) -> data.StructLayout:
    """An operation and the numbers it waits for: loads done, stores read."""
    return data.StructLayout({"cmd": exec_command(cfg), "load_done": NUMBER_BITS,
                              "store_read": NUMBER_BITS})


def queued_store(cfg: Config) -> data.StructLayout:
    """A store and the numbers it waits for: operations done, loads done."""
    return data.StructLayout({"cmd": store_command(cfg), "exec_done": NUMBER_BITS,
                              "load_done": NUMBER_BITS})


class Purpose(enum.Enum, shape=unsigned(3)):
    """What an address is computed for."""

    OPERAND = 0  #: Load of A or B.
    SPILL = 1  #: Store of the partial sums that are in the way.
    ACC = 2  #: Load of the accumulator tile.
    RESULT = 3  #: Store of a result.


class Sequencer(wiring.Component):
    """Turns GEMM, GRAD and CONVERT into load, execute and store commands, in program order.

    Four clocks for an operation that finds its operands, four or five more for every load, spill
    or store it causes. After reset it clears its directories (`ready` is low), one slot a clock.

    Members
    -------
    ready : Out(1), can take an instruction
    start : In(1), take `instr` (checked by the decoder, stable until `ready` is high again)
    instr : In(INSTRUCTION)
    count_{m,n,k}, rest_{m,n,k} : In, sizes in tiles and valid elements of the last tile
    region_size : In(32), bytes
    load, exec, store : Out(stream) of queued commands
    *_issued : Out(24), number of the last command queued
    load_done, exec_read, exec_done, store_read, store_done : In(24), numbers reached
    bad_address : Out(1), pulse: an image would leave the region; the instruction is abandoned
    bad_offset : Out(32), its offset
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "ready": Out(1), "start": In(1), "instr": In(INSTRUCTION),
            **{f"count_{d}": In(cfg.index_bits + 1) for d in "mnk"},
            **{f"rest_{d}": In(cfg.count_bits) for d in "mnk"},
            "region_size": In(OFFSET_BITS),
            "load": Out(stream.Signature(queued_load(cfg))),
            "exec": Out(stream.Signature(queued_exec(cfg))),
            "store": Out(stream.Signature(queued_store(cfg))),
            **{f"{q}_issued": Out(NUMBER_BITS) for q in ("load", "exec", "store")},
            **{n: In(NUMBER_BITS) for n in ("load_done", "exec_read", "exec_done", "store_read",
                                            "store_done")},
            "bad_address": Out(1), "bad_offset": Out(OFFSET_BITS),
        })

    def elaborate(self, platform):
        m = Module()
        cfg, i = self.cfg, self.instr
        index = unsigned(cfg.index_bits)

        # --- position in the loops ---------------------------------------------------------------
        m.submodules.walker = walker = Walker(cfg)
        advance = Signal()
        grad = Signal()
        convert = Signal()
        m.d.comb += [
            walker.start.eq(self.start), walker.next.eq(advance), walker.instr.eq(i),
            grad.eq(i.opcode == Opcode.GRAD.value), convert.eq(i.opcode == Opcode.CONVERT.value),
        ]
        for d in "mnk":
            for size in (f"count_{d}", f"rest_{d}"):
                m.d.comb += getattr(walker, size).eq(getattr(self, size))
        pos, last, valid = ({d: getattr(walker, f"{prefix}{d}") for d in "mnk"}
                            for prefix in ("", "last_", "valid_"))
        is_dw, is_dx = walker.is_dw, walker.is_dx

        # --- the operation acc(i, j) += A(i, r) B(r, j) ------------------------------------------
        def by_output(y, dx, dw):
            return Mux(is_dw, dw, Mux(is_dx, dx, y))

        second = Signal()  # looking up B, not A
        alternate = Signal()  # in the other dY window
        reprobe = Signal()  # in the first dY window again: a miss in both
        want_dy = Signal()  # the operand looked up is dY
        want_w = Signal()  # is W; else it is X
        row_of = Signal(index)
        col_of = Signal(index)
        m.d.comb += [
            want_dy.eq(Mux(second, is_dw, is_dx)), want_w.eq(second & ~is_dw),
            row_of.eq(Mux(want_w, pos["k"], pos["m"])),
            col_of.eq(Mux(want_dy | want_w, pos["n"], pos["k"])),
        ]
        acc_i = Signal(index)
        acc_j = Signal(index)
        first_r = Signal()
        last_r = Signal()
        acc_rows = Signal(cfg.count_bits)
        acc_cols = Signal(cfg.count_bits)
        result = {f: Signal(INSTRUCTION[f"y_{f}"].shape, name=f"result_{f}")
                  for f in ("addr", "pitch", "part_addr", "part_pitch", "window", "bfp",
                            "accumulate", "row0", "col0")}
        m.d.comb += [
            acc_i.eq(by_output(pos["m"], pos["m"], pos["k"])),
            acc_j.eq(by_output(pos["n"], pos["k"], pos["n"])),
            first_r.eq(by_output(pos["k"], pos["n"], pos["m"]) == 0),
            last_r.eq(by_output(last["k"], last["n"], last["m"])),
            acc_rows.eq(by_output(valid["m"], valid["m"], valid["k"])),
            acc_cols.eq(by_output(valid["n"], valid["k"], valid["n"])),
            *(s.eq(Mux(is_dw, i[f"dw_{f}"], i[f"y_{f}"])) for f, s in result.items()),
        ]
        result_kind = Signal(Kind)
        m.d.comb += result_kind.eq(Mux(convert, i.y_kind, by_output(Kind.Y, Kind.DX, Kind.DW)))

        # --- directories -------------------------------------------------------------------------
        entry_layout = data.StructLayout({
            "valid": 1, "epoch": EPOCH_BITS, "row": index, "col": index,
            "last_exec": LOW_BITS, "load": LOW_BITS})
        acc_layout = data.StructLayout({
            "valid": 1, "row": index, "col": index,
            "last_exec": LOW_BITS, "last_store": LOW_BITS, "last_spill": LOW_BITS})
        m.submodules.tags = tags = Ram(entry_layout.size, 1 << cfg.spad_slot_bits)
        m.submodules.acc_tags = acc_tags = Ram(acc_layout.size, cfg.acc_slots)
        entry = data.View(entry_layout, tags.r_data)
        acc_entry = data.View(acc_layout, acc_tags.r_data)
        new_entry = Signal(entry_layout)
        new_acc = Signal(acc_layout)
        epoch = Signal(EPOCH_BITS)
        m.d.comb += [tags.w_data.eq(new_entry), acc_tags.w_data.eq(new_acc)]

        def slot_of(window, row, col, width):
            inside = (((row & ((1 << window.h_log2) - 1)) << window.w_log2)
                      | (col & ((1 << window.w_log2) - 1)))
            return (window.base + inside)[:width]

        # Slots of A and B; `interleaved` searches both dY windows.
        both_dy = i.order == Order.INTERLEAVED.value
        use_dy2 = Signal()
        dy_window = Mux(use_dy2, i.dy2_window, i.dy_window)
        a_window = Signal.like(i.x_window)
        b_window = Signal.like(i.x_window)
        a_probe = Signal(cfg.spad_slot_bits)
        b_probe = Signal(cfg.spad_slot_bits)
        m.d.comb += [
            use_dy2.eq(both_dy & (is_dw ^ alternate)),
            a_window.eq(Mux(is_dx, dy_window, i.x_window)),
            b_window.eq(Mux(is_dw, dy_window, i.w_window)),
            a_probe.eq(slot_of(a_window, pos["m"], Mux(is_dx, pos["n"], pos["k"]),
                               cfg.spad_slot_bits)),
            b_probe.eq(slot_of(b_window, Mux(is_dw, pos["m"], pos["k"]), pos["n"],
                               cfg.spad_slot_bits)),
        ]
        probe = Mux(second, b_probe, a_probe)
        acc_slot = Signal(cfg.acc_slot_bits)
        m.d.comb += acc_slot.eq(slot_of(result["window"], acc_i, acc_j, cfg.acc_slot_bits))

        # --- numbers of the commands to come -----------------------------------------------------
        exec_next = Signal(NUMBER_BITS)
        load_next = Signal(NUMBER_BITS)
        store_next = Signal(NUMBER_BITS)
        m.d.comb += [exec_next.eq(self.exec_issued + 1), load_next.eq(self.load_issued + 1),
                     store_next.eq(self.store_issued + 1)]
        fence = Signal(NUMBER_BITS)  # stores before this instruction
        fenced = Signal()  # they are done
        with m.If(self.start):
            m.d.sync += [fence.eq(self.store_issued), fenced.eq(0)]
        with m.Elif(reached(self.store_done, fence)):
            m.d.sync += fenced.eq(1)
        # Loads that the operation waits for: the youngest, by age.
        load_age = Signal(LOW_BITS)
        acc_store_age = Signal(LOW_BITS)
        acc_spill_age = Signal(LOW_BITS)
        acc_exec_age = Signal(LOW_BITS)
        old_exec_age = Signal(LOW_BITS)
        wait_load = Signal(NUMBER_BITS)
        wait_store = Signal(NUMBER_BITS)  # the accumulator slot's last store
        wait_spill = Signal(NUMBER_BITS)
        wait_acc_exec = Signal(NUMBER_BITS)
        wait_old_exec = Signal(NUMBER_BITS)
        entry_load = Signal(NUMBER_BITS)
        m.d.comb += [
            load_age.eq(age(self.load_issued, self.load_done, entry.load)),
            entry_load.eq(self.load_issued - load_age),
            old_exec_age.eq(age(self.exec_issued, self.exec_read, entry.last_exec)),
            acc_store_age.eq(age(self.store_issued, self.store_read, acc_entry.last_store)),
            acc_spill_age.eq(age(self.store_issued, self.store_done, acc_entry.last_spill)),
            acc_exec_age.eq(age(self.exec_issued, self.exec_done, acc_entry.last_exec)),
        ]

        def later(a, b):
            return Mux(reached(a, b), a, b)

        # --- address of a tile image -------------------------------------------------------------
        m.submodules.image = image = TileAddress(cfg)
        purpose = Signal(Purpose)
        steps = Signal(range(image.LATENCY))  # clocks until the address is there
        old_i = Signal(index)  # row and column of the tile to be spilled
        old_j = Signal(index)
        m.d.comb += [image.i.eq(acc_i), image.j.eq(acc_j), image.fp32.eq(1),
                     image.base.eq(result["part_addr"]), image.pitch.eq(result["part_pitch"]),
                     image.region_size.eq(self.region_size)]
        with m.Switch(purpose):
            with m.Case(Purpose.OPERAND):
                m.d.comb += [image.i.eq(row_of), image.j.eq(col_of), image.fp32.eq(0)]
                with m.If(want_dy):
                    m.d.comb += [image.base.eq(i.dy_addr), image.pitch.eq(i.dy_pitch)]
                with m.Elif(want_w):
                    m.d.comb += [image.base.eq(i.w_addr), image.pitch.eq(i.w_pitch)]
                with m.Else():
                    m.d.comb += [image.base.eq(i.x_addr), image.pitch.eq(i.x_pitch)]
            with m.Case(Purpose.SPILL):
                m.d.comb += [image.i.eq(old_i), image.j.eq(old_j)]
            with m.Case(Purpose.ACC):
                with m.If(convert):
                    m.d.comb += [image.base.eq(i.x_addr), image.pitch.eq(i.x_pitch),
                                 image.fp32.eq(i.x_fp32)]
                with m.Elif(first_r):
                    m.d.comb += [image.base.eq(result["addr"]), image.pitch.eq(result["pitch"])]
            with m.Case(Purpose.RESULT):
                m.d.comb += [image.base.eq(result["addr"]), image.pitch.eq(result["pitch"]),
                             image.fp32.eq(~result["bfp"])]

        spilled = Signal()  # the present operation has queued its spill
        loaded = Signal()  # and the load of its accumulator tile
        fresh = ~spilled & ~loaded
        match = acc_entry.valid & (acc_entry.row == acc_i) & (acc_entry.col == acc_j)
        slot_store = Signal(NUMBER_BITS)
        m.d.comb += slot_store.eq(self.store_issued - acc_store_age)

        # --- commands ----------------------------------------------------------------------------
        load, store, execute = self.load.p, self.store.p, self.exec.p
        a_slot = Signal(cfg.spad_slot_bits)
        b_slot = Signal(cfg.spad_slot_bits)
        b_hit = Signal()
        previous_b = Signal(cfg.spad_slot_bits)
        previous_col = Signal()
        previous_ok = Signal()
        to_acc = purpose == Purpose.ACC
        operand_rows = Mux(want_w, valid["k"], valid["m"])
        operand_cols = Mux(want_dy | want_w, valid["n"], valid["k"])
        independent = Mux(want_dy, i.dy_independent,
                          Mux(want_w, i.w_independent, i.x_independent))
        unordered = Mux(to_acc, convert & i.x_independent, independent)
        after_fence = Mux(unordered | fenced, self.store_done, fence)
        acc_kind = Mux(convert, i.x_kind, Mux(first_r, result_kind.as_value(),
                                              Kind.PARTIAL.value))
        m.d.comb += [
            load.cmd.dest.eq(Mux(to_acc, Destination.ACC, Destination.SPAD)),
            load.cmd.kind.eq(Mux(to_acc, acc_kind, Mux(want_dy, Kind.DY, Mux(want_w, Kind.W,
                                                                             Kind.X)))),
            load.cmd.fp32.eq(image.fp32),
            load.cmd.row_exp.eq(i.x_row & ~grad & ~want_w),
            load.cmd.slot.eq(Mux(to_acc, acc_slot, probe)),
            load.cmd.rows.eq(Mux(to_acc, acc_rows, operand_rows)),
            load.cmd.cols.eq(Mux(to_acc, acc_cols, operand_cols)),
            load.cmd.addr.eq(image.address),
            load.exec_read.eq(Mux(to_acc, self.exec_read, wait_old_exec)),
            load.store_read.eq(Mux(to_acc, wait_store, self.store_read)),
            load.store_done.eq(Mux(to_acc & ~first_r & ~convert, wait_spill, after_fence)),
            execute.cmd.a_slot.eq(a_slot), execute.cmd.a_col.eq(is_dw),
            execute.cmd.b_slot.eq(b_slot), execute.cmd.b_col.eq(is_dx),
            execute.cmd.b_reuse.eq(previous_ok & b_hit & (previous_b == b_slot)
                                   & (previous_col == is_dx)),
            execute.cmd.acc_slot.eq(acc_slot), execute.cmd.rows.eq(acc_rows),
            execute.load_done.eq(wait_load),
            execute.store_read.eq(Mux(fresh, slot_store, wait_store)),
        ]
        spill = purpose == Purpose.SPILL
        old_last = [(old + 1) == count for old, count in
                    ((old_i, Mux(is_dw, self.count_k, self.count_m)),
                     (old_j, Mux(is_dx, self.count_k, self.count_n)))]
        rest_i = Mux(is_dw, self.rest_k, self.rest_m)
        rest_j = Mux(is_dx, self.rest_k, self.rest_n)
        m.d.comb += [
            store.cmd.slot.eq(acc_slot),
            store.cmd.kind.eq(Mux(spill, Kind.PARTIAL.value, result_kind.as_value())),
            store.cmd.bfp.eq(~image.fp32), store.cmd.row_exp.eq(i.y_row),
            store.cmd.stochastic.eq(i.stochastic), store.cmd.final.eq(~spill),
            store.cmd.rows.eq(Mux(spill, Mux(old_last[0], rest_i, cfg.tile), acc_rows)),
            store.cmd.cols.eq(Mux(spill, Mux(old_last[1], rest_j, cfg.tile), acc_cols)),
            store.cmd.addr.eq(image.address), store.cmd.salt.eq(i.salt + is_dw),
            store.cmd.row0.eq((result["row0"] + acc_i * cfg.tile)[:DIM_BITS]),
            store.cmd.col0.eq((result["col0"] + acc_j * cfg.tile)[:DIM_BITS]),
            store.exec_done.eq(Mux(convert, self.exec_done,
                                   Mux(spill, wait_acc_exec, self.exec_issued))),
            store.load_done.eq(Mux(convert, self.load_issued, self.load_done)),
        ]
        for queue in ("load", "exec", "store"):
            port = getattr(self, queue)
            with m.If(port.valid & port.ready):
                issued = getattr(self, f"{queue}_issued")
                m.d.sync += issued.eq(issued + 1)

        # --- one operation after another ---------------------------------------------------------
        clear = Signal(range(max(1 << cfg.spad_slot_bits, cfg.acc_slots)))
        m.d.comb += execute.cmd.overwrite.eq(~(match | loaded))
        hit = (entry.valid & (entry.epoch == epoch) & (entry.row == row_of)
               & (entry.col == col_of))
        m.d.comb += [
            new_entry.valid.eq(1), new_entry.epoch.eq(epoch), new_entry.row.eq(row_of),
            new_entry.col.eq(col_of), new_entry.last_exec.eq(exec_next),
            new_entry.load.eq(entry.load),
            new_acc.valid.eq(~last_r), new_acc.row.eq(acc_i), new_acc.col.eq(acc_j),
            new_acc.last_exec.eq(exec_next),
            acc_tags.r_addr.eq(acc_slot), tags.r_addr.eq(probe),
            tags.w_addr.eq(probe), acc_tags.w_addr.eq(acc_slot),
        ]
        last_store = Signal(LOW_BITS)
        last_spill = Signal(LOW_BITS)
        m.d.comb += [new_acc.last_store.eq(Mux(fresh, acc_entry.last_store, last_store)),
                     new_acc.last_spill.eq(Mux(fresh, acc_entry.last_spill, last_spill))]

        with m.FSM(name="sequencer"):
            with m.State("CLEAR"):  # invalidate every slot
                m.d.comb += [
                    tags.w_en.eq(1), tags.w_addr.eq(clear), new_entry.as_value().eq(0),
                    acc_tags.w_en.eq(clear < cfg.acc_slots), acc_tags.w_addr.eq(clear),
                    new_acc.as_value().eq(0),
                ]
                m.d.sync += clear.eq(clear + 1)
                with m.If(clear == max(1 << cfg.spad_slot_bits, cfg.acc_slots) - 1):
                    m.d.sync += clear.eq(0)
                    m.next = "IDLE"
            with m.State("IDLE"):
                m.d.comb += self.ready.eq(1)
                with m.If(self.start):
                    m.d.sync += [epoch.eq(epoch + 1), previous_ok.eq(0)]
                    m.next = "STARTED"
            with m.State("STARTED"):  # the epoch came round: old tags must not look new
                with m.If((epoch == 0) & (self.exec_read != self.exec_issued)):
                    pass  # slots in use keep the number of their last operation until then
                with m.Elif(epoch == 0):
                    m.d.comb += [tags.w_en.eq(1), tags.w_addr.eq(clear),
                                 new_entry.as_value().eq(0)]
                    m.d.sync += clear.eq(clear + 1)
                    with m.If(clear == (1 << cfg.spad_slot_bits) - 1):
                        m.d.sync += [clear.eq(0), epoch.eq(1)]
                with m.Else():
                    m.next = "LOOKUP"
            with m.State("LOOKUP"):  # read A's entry, and the accumulator tile's
                m.d.comb += acc_tags.r_en.eq(1)
                m.d.sync += [spilled.eq(0), loaded.eq(0), wait_load.eq(self.load_done)]
                with m.If(walker.finished):
                    m.next = "IDLE"
                with m.Elif(convert):
                    m.next = "ACC"
                with m.Else():
                    m.d.comb += tags.r_en.eq(1)
                    m.next = "CHECK"
            with m.State("PROBE"):  # read one entry
                m.d.comb += tags.r_en.eq(1)
                m.next = "CHECK"
            with m.State("CHECK"):  # A's entry, then B's
                m.d.sync += wait_old_exec.eq(self.exec_issued - old_exec_age)
                with m.If(hit):
                    m.d.comb += tags.w_en.eq(1)
                    m.d.sync += [wait_load.eq(later(entry_load, wait_load)), b_hit.eq(second),
                                 alternate.eq(0), reprobe.eq(0), second.eq(~second)]
                    with m.If(second):
                        m.d.sync += b_slot.eq(b_probe)
                        m.next = "ACC"
                    with m.Else():  # read B's
                        m.d.comb += [tags.r_en.eq(1), tags.r_addr.eq(b_probe)]
                        m.d.sync += a_slot.eq(a_probe)
                with m.Elif(want_dy & both_dy & ~reprobe):  # the other window, then this one again
                    m.d.sync += [alternate.eq(~alternate), reprobe.eq(alternate)]
                    m.next = "PROBE"
                with m.Else():
                    m.d.sync += purpose.eq(Purpose.OPERAND)
                    m.next = "ADDRESS"
            with m.State("ACC"):  # the accumulator tile: make room, fetch it, use it
                with m.If(fresh):
                    m.d.sync += [old_i.eq(acc_entry.row), old_j.eq(acc_entry.col),
                                 wait_spill.eq(self.store_issued - acc_spill_age),
                                 wait_store.eq(slot_store), last_store.eq(acc_entry.last_store),
                                 last_spill.eq(acc_entry.last_spill),
                                 wait_acc_exec.eq(self.exec_issued - acc_exec_age)]
                with m.If(acc_entry.valid & ~match & fresh):
                    m.d.sync += purpose.eq(Purpose.SPILL)
                    m.next = "ADDRESS"
                with m.Elif((convert | (~match & (~first_r | result["accumulate"]))) & ~loaded):
                    m.d.sync += purpose.eq(Purpose.ACC)
                    m.next = "ADDRESS"
                with m.Elif(convert):
                    m.d.sync += purpose.eq(Purpose.RESULT)
                    m.next = "ADDRESS"
                with m.Else():
                    m.d.comb += self.exec.valid.eq(1)
                    with m.If(self.exec.ready):
                        m.d.sync += [previous_b.eq(b_slot), previous_col.eq(is_dx),
                                     previous_ok.eq(1)]
                        with m.If(last_r):
                            m.d.sync += purpose.eq(Purpose.RESULT)
                            m.next = "ADDRESS"
                        with m.Else():
                            m.d.comb += [acc_tags.w_en.eq(1), advance.eq(1)]
                            m.next = "LOOKUP"
            with m.State("ADDRESS"):
                m.d.sync += steps.eq(steps + 1)
                with m.If(steps == image.LATENCY - 1):
                    m.d.sync += steps.eq(0)
                    m.next = "QUEUE"
            with m.State("QUEUE"):
                with m.If(image.outside):
                    m.d.comb += [self.bad_address.eq(1), self.bad_offset.eq(image.address)]
                    m.next = "STUCK"
                with m.Else():
                    with m.Switch(purpose):
                        with m.Case(Purpose.OPERAND):
                            m.d.comb += self.load.valid.eq(1)
                            with m.If(self.load.ready):
                                m.d.comb += [tags.w_en.eq(1), new_entry.load.eq(load_next)]
                                m.d.sync += [wait_load.eq(load_next), alternate.eq(0),
                                             reprobe.eq(0), b_hit.eq(0), second.eq(~second)]
                                with m.If(second):
                                    m.d.sync += b_slot.eq(b_probe)
                                    m.next = "ACC"
                                with m.Else():
                                    m.d.sync += a_slot.eq(a_probe)
                                    m.next = "PROBE"
                        with m.Case(Purpose.SPILL):
                            m.d.comb += self.store.valid.eq(1)
                            with m.If(self.store.ready):
                                m.d.sync += [spilled.eq(1), wait_store.eq(store_next),
                                             last_store.eq(store_next), last_spill.eq(store_next)]
                                m.next = "ACC"
                        with m.Case(Purpose.ACC):
                            m.d.comb += self.load.valid.eq(1)
                            with m.If(self.load.ready):
                                m.d.sync += [loaded.eq(1), wait_load.eq(load_next)]
                                m.next = "ACC"
                        with m.Case(Purpose.RESULT):
                            m.d.comb += self.store.valid.eq(1)
                            with m.If(self.store.ready):
                                m.d.comb += [acc_tags.w_en.eq(1), advance.eq(1),
                                             new_acc.valid.eq(0),
                                             new_acc.last_exec.eq(self.exec_issued),
                                             new_acc.last_store.eq(store_next)]
                                m.next = "LOOKUP"
            with m.State("STUCK"):  # until reset
                pass
        return m
