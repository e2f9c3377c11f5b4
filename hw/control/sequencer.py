"""The array stream's sequencer: expands GEMM and GRAD into tile commands, tracking residency.

Implements the orders of IGO (MICRO 2023) as loop nests over one lookup mechanism
(docs/architecture.md, "Sequencer").
"""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import DIM_BITS, OFFSET_BITS, Config
from hw.control.address import TileAddress
from hw.control.commands import Destination, Source
from hw.control.directory import AccDirectory, SpadDirectory
from hw.control.epilogue import EpilogueOperand
from hw.control.numbers import LOW_BITS, NUMBER_BITS, Fence, reached
from hw.control.queued import queued_exec, queued_load, queued_store, queued_vector
from hw.control.walker import Walker
from hw.isa import INSTRUCTION, Function, Kind, Order, XSource, YTarget

#: Queues, and the events of the units that commands wait for.
QUEUES = ("load", "exec", "vector", "store")
EVENTS = ("load_done", "exec_read", "exec_done", "vector_done", "store_read", "store_done")


class Purpose(enum.Enum, shape=unsigned(3)):
    """What an address is computed for."""

    OPERAND = 0  #: Load of A or B.
    SPILL = 1  #: Store of the partial sums that are in the way.
    ACC = 2  #: Load of the accumulator tile.
    EPILOGUE = 3  #: Load of the epilogue's operand.
    RESULT = 4  #: Store of a result.


class Sequencer(wiring.Component):
    """Turns GEMM and GRAD into load, execute, vector and store commands, in program order.

    Four clocks for an operation that finds its operands, three if X is on chip, four or five more
    for every load, spill or store to DRAM it causes, one for an epilogue and for a result that
    stays on chip. After reset it clears its directories (`ready` is low), one slot a clock.

    Members
    -------
    ready : Out(1), can take an instruction: all commands of the one before are queued, and done if
        it leaves its result in the accumulator
    start : In(1), take `instr` (checked by the decoder) and the sizes
    forget : In(1), forget kept tiles; only between instructions
    instr : In(INSTRUCTION)
    batch_buffer : In(1), where the running batch's inputs are; with `start`
    count_{m,n,k}, rest_{m,n,k} : In, sizes in tiles and valid elements of the last tile
    region_size : In(32), bytes
    load, exec, vector, store : Out(stream) of queued commands
    *_issued : Out(24), number of the last command queued
    load_done, exec_read, exec_done, vector_done, store_read, store_done : In(24), numbers reached
    bad_address : Out(1), an image would leave the region; the instruction is abandoned, and the
        sequencer stays as it is until reset
    bad_offset : Out(32), its offset
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "ready": Out(1), "start": In(1), "forget": In(1), "instr": In(INSTRUCTION),
            "batch_buffer": In(1),
            **{f"count_{d}": In(cfg.index_bits + 1) for d in "mnk"},
            **{f"rest_{d}": In(cfg.count_bits) for d in "mnk"},
            "region_size": In(OFFSET_BITS),
            "load": Out(stream.Signature(queued_load(cfg))),
            "exec": Out(stream.Signature(queued_exec(cfg))),
            "vector": Out(stream.Signature(queued_vector(cfg))),
            "store": Out(stream.Signature(queued_store(cfg))),
            **{f"{q}_issued": Out(NUMBER_BITS) for q in QUEUES},
            **{e: In(NUMBER_BITS) for e in EVENTS},
            "bad_address": Out(1), "bad_offset": Out(OFFSET_BITS),
        })

    def elaborate(self, platform):
        m = Module()
        cfg = self.cfg
        index = unsigned(cfg.index_bits)

        # --- the instruction ---------------------------------------------------------------------
        i = Signal(INSTRUCTION, reset_less=True)
        size = {f"{s}_{d}": Signal.like(getattr(self, f"{s}_{d}"), name=f"own_{s}_{d}",
                                        reset_less=True)
                for s in ("count", "rest") for d in "mnk"}
        in_acc = Signal()  # its result stays in the accumulator
        x_window = self.instr.x_window
        with m.If(self.start):
            m.d.sync += [i.eq(self.instr), *(s.eq(getattr(self, n)) for n, s in size.items()),
                         in_acc.eq(self.instr.y_target == YTarget.ACC.value)]
            with m.If((self.instr.x_source == XSource.REQUEST.value) & self.batch_buffer):
                m.d.sync += i.x_window.base.eq(
                    x_window.base + (1 << (x_window.h_log2 + x_window.w_log2)))
        x_on_chip = i.x_source != XSource.DRAM.value
        y_on_chip = i.y_target == YTarget.CHIP.value

        # --- position in the loops ---------------------------------------------------------------
        m.submodules.walker = walker = Walker(cfg)
        advance = Signal()
        started = Signal()
        m.d.sync += started.eq(self.start)
        m.d.comb += [walker.start.eq(started), walker.next.eq(advance), walker.instr.eq(i),
                     *(getattr(walker, n).eq(s) for n, s in size.items())]
        is_dw, is_dx = walker.is_dw, walker.is_dx

        # --- the operation acc(i, j) += A(i, r) B(r, j) ------------------------------------------
        second = Signal()  # looking up B, not A
        alternate = Signal()  # in the other dY window
        reprobe = Signal()  # in the first dY window again: a miss in both
        want_dy = Signal()  # the operand looked up is dY
        want_w = Signal()  # is W; else it is X
        row_of = Signal(index)
        col_of = Signal(index)
        m.d.comb += [
            want_dy.eq(Mux(second, is_dw, is_dx)), want_w.eq(second & ~is_dw),
            row_of.eq(Mux(want_w, walker.k, walker.m)),
            col_of.eq(Mux(want_dy | want_w, walker.n, walker.k)),
        ]
        result = {f: Signal(INSTRUCTION[f"y_{f}"].shape, name=f"result_{f}")
                  for f in ("addr", "pitch", "part_addr", "part_pitch", "window", "bfp",
                            "accumulate", "row0", "col0")}
        result_kind = Signal(Kind)
        m.d.comb += [*(s.eq(Mux(is_dw, i[f"dw_{f}"], i[f"y_{f}"])) for f, s in result.items()),
                     result_kind.eq(Mux(is_dw, Kind.DW, Mux(is_dx, Kind.DX, Kind.Y)))]

        # --- directories -------------------------------------------------------------------------
        m.submodules.tags = tags = SpadDirectory(cfg)
        m.submodules.acc_tags = acc_tags = AccDirectory(cfg)

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
            a_probe.eq(slot_of(a_window, walker.m, Mux(is_dx, walker.n, walker.k),
                               cfg.spad_slot_bits)),
            b_probe.eq(slot_of(b_window, Mux(is_dw, walker.m, walker.k), walker.n,
                               cfg.spad_slot_bits)),
        ]
        probe = Mux(second, b_probe, a_probe)
        acc_slot = Signal(cfg.acc_slot_bits)
        m.d.comb += acc_slot.eq(slot_of(result["window"], walker.row, walker.col,
                                        cfg.acc_slot_bits))

        # --- numbers -----------------------------------------------------------------------------
        for queue in QUEUES:
            port, issued = getattr(self, queue), getattr(self, f"{queue}_issued")
            with m.If(port.valid & port.ready):
                m.d.sync += issued.eq(issued + 1)
        # Stores and vector commands before this instruction.
        m.submodules.stores_before = stores_before = Fence()
        m.submodules.vectors_before = vectors_before = Fence()
        # Operations up to the last instruction before this one whose X was on chip.
        m.submodules.on_chip_before = on_chip_before = Fence()
        m.d.comb += [
            stores_before.start.eq(self.start), stores_before.issued.eq(self.store_issued),
            stores_before.done.eq(self.store_done),
            vectors_before.start.eq(self.start), vectors_before.issued.eq(self.vector_issued),
            vectors_before.done.eq(self.vector_done),
            on_chip_before.start.eq(self.start & x_on_chip),
            on_chip_before.issued.eq(self.exec_issued), on_chip_before.done.eq(self.exec_read),
        ]
        wait_load = Signal(NUMBER_BITS)  # the youngest that the operation needs
        wait_store = Signal(NUMBER_BITS)  # the accumulator slot's last store
        wait_spill = Signal(NUMBER_BITS)
        wait_acc_exec = Signal(NUMBER_BITS)
        wait_old_exec = Signal(NUMBER_BITS)
        load_next = Signal(NUMBER_BITS)
        store_next = Signal(NUMBER_BITS)
        m.d.comb += [load_next.eq(self.load_issued + 1), store_next.eq(self.store_issued + 1)]

        def later(a, b):
            return Mux(reached(a, b), a, b)

        # --- epilogue ----------------------------------------------------------------------------
        bias = Signal()
        relu_grad = Signal()
        has_epilogue = Signal()  # of the present result
        m.submodules.operand = operand = EpilogueOperand(cfg)
        m.d.comb += [
            bias.eq((i.function == Function.BIAS.value)
                    | (i.function == Function.BIAS_RELU.value)),
            relu_grad.eq(i.function == Function.RELU_GRAD.value),
            has_epilogue.eq((i.function != Function.NONE.value) & ~is_dw),
            operand.start.eq(self.start), operand.forget.eq(self.forget),
            operand.window.eq(i.e_window), operand.keep.eq(Mux(bias, i.w_keep, 0)),
            operand.cols.eq(size["count_n"]),
            operand.row.eq(Mux(bias, 0, walker.row)), operand.col.eq(walker.col),
            operand.load_issued.eq(self.load_issued), operand.load_done.eq(self.load_done),
            operand.vector_issued.eq(self.vector_issued),
            operand.vector_done.eq(self.vector_done),
        ]

        # --- commands and addresses by purpose ---------------------------------------------------
        m.submodules.image = image = TileAddress(cfg)
        purpose = Signal(Purpose)
        steps = Signal(range(image.LATENCY))  # clocks until the address is there
        old_i = Signal(index)  # row and column of the tile to be spilled
        old_j = Signal(index)
        load, vector, store = self.load.p, self.vector.p, self.store.p
        m.d.comb += [
            image.i.eq(walker.row), image.j.eq(walker.col), image.fp32.eq(1),
            image.base.eq(result["addr"]), image.pitch.eq(result["pitch"]),
            image.region_size.eq(self.region_size),
            load.cmd.source.eq(Source.ARRAY), load.cmd.dest.eq(Destination.ACC),
            load.cmd.fp32.eq(image.fp32), load.cmd.slot.eq(acc_slot),
            load.cmd.rows.eq(walker.rows), load.cmd.cols.eq(walker.cols),
            load.cmd.addr.eq(image.address),
            load.exec_read.eq(self.exec_read), load.store_read.eq(self.store_read),
            load.store_done.eq(self.store_done), load.vector_done.eq(self.vector_done),
            store.cmd.source.eq(Source.ARRAY), store.cmd.slot.eq(acc_slot),
            store.cmd.bfp.eq(~image.fp32), store.cmd.row_exp.eq(i.y_row),
            store.cmd.stochastic.eq(i.stochastic), store.cmd.addr.eq(image.address),
            store.cmd.spad_slot.eq(slot_of(i.dw_window, walker.row, walker.col,
                                           cfg.spad_slot_bits)),
            store.cmd.rows.eq(walker.rows), store.cmd.cols.eq(walker.cols),
            store.cmd.salt.eq(i.salt + is_dw),
            store.cmd.row0.eq((result["row0"] + walker.row * cfg.tile)[:DIM_BITS]),
            store.cmd.col0.eq((result["col0"] + walker.col * cfg.tile)[:DIM_BITS]),
            store.load_done.eq(self.load_done),
            store.exec_done.eq(self.exec_issued), store.vector_done.eq(self.vector_done),
        ]
        with m.Switch(purpose):
            with m.Case(Purpose.OPERAND):
                m.d.comb += [
                    image.i.eq(row_of), image.j.eq(col_of), image.fp32.eq(0),
                    load.cmd.dest.eq(Destination.SPAD), load.cmd.slot.eq(probe),
                    load.cmd.row_exp.eq(i.x_row & ~is_dx & ~is_dw & ~want_w),
                    load.cmd.rows.eq(Mux(want_w, walker.valid_k, walker.valid_m)),
                    load.cmd.cols.eq(Mux(want_dy | want_w, walker.valid_n, walker.valid_k)),
                    load.exec_read.eq(later(wait_old_exec, on_chip_before.number)),
                ]
                for wanted, name, kind in ((want_dy, "dy", Kind.DY), (want_w, "w", Kind.W),
                                           (~want_dy & ~want_w, "x", Kind.X)):
                    with m.If(wanted):
                        m.d.comb += [image.base.eq(i[f"{name}_addr"]), load.cmd.kind.eq(kind),
                                     image.pitch.eq(i[f"{name}_pitch"])]
                        with m.If(~i[f"{name}_independent"]):
                            m.d.comb += load.store_done.eq(stores_before.number)
            with m.Case(Purpose.SPILL):
                ends = [old + 1 == count for old, count in (
                    (old_i, Mux(is_dw, size["count_k"], size["count_m"])),
                    (old_j, Mux(is_dx, size["count_k"], size["count_n"])))]
                m.d.comb += [
                    image.i.eq(old_i), image.j.eq(old_j),
                    image.base.eq(result["part_addr"]), image.pitch.eq(result["part_pitch"]),
                    store.cmd.kind.eq(Kind.PARTIAL), store.exec_done.eq(wait_acc_exec),
                    store.cmd.rows.eq(Mux(ends[0], Mux(is_dw, size["rest_k"], size["rest_m"]),
                                          cfg.tile)),
                    store.cmd.cols.eq(Mux(ends[1], Mux(is_dx, size["rest_k"], size["rest_n"]),
                                          cfg.tile)),
                ]
            with m.Case(Purpose.ACC):
                m.d.comb += [load.cmd.kind.eq(result_kind), load.store_read.eq(wait_store),
                             load.store_done.eq(stores_before.number),
                             load.vector_done.eq(vectors_before.number)]
                with m.If(~walker.first):
                    m.d.comb += [
                        image.base.eq(result["part_addr"]), image.pitch.eq(result["part_pitch"]),
                        load.cmd.kind.eq(Kind.PARTIAL), load.store_done.eq(wait_spill),
                    ]
            with m.Case(Purpose.EPILOGUE):
                m.d.comb += [
                    image.i.eq(operand.row), image.fp32.eq(bias),
                    image.base.eq(Mux(bias, i.dy_addr, i.x_addr)),
                    image.pitch.eq(Mux(bias, i.dy_pitch, i.x_pitch)),
                    load.cmd.kind.eq(Mux(bias, Kind.BIAS, Kind.X)),
                    load.cmd.slot.eq(operand.slot), load.vector_done.eq(operand.wait_vector),
                    load.store_read.eq(stores_before.number),
                ]
                with m.If(bias):
                    m.d.comb += [load.cmd.rows.eq(1), load.cmd.row.eq(operand.slot_row),
                                 load.cmd.gather.eq(i.w_keep.any())]
                with m.If(~Mux(bias, i.dy_independent, i.x_independent)):
                    m.d.comb += load.store_done.eq(stores_before.number)
            with m.Case(Purpose.RESULT):
                m.d.comb += [image.fp32.eq(~result["bfp"]), store.cmd.kind.eq(result_kind),
                             store.cmd.final.eq(1), store.cmd.spad.eq(y_on_chip)]
                with m.If(y_on_chip):
                    m.d.comb += store.cmd.addr.eq(0)
                with m.If(has_epilogue):
                    m.d.comb += store.vector_done.eq(self.vector_issued)

        spilled = Signal()  # the present operation has queued its spill
        loaded = Signal()  # and the load of its accumulator tile
        fresh = ~spilled & ~loaded
        execute = self.exec.p
        a_slot = Signal(cfg.spad_slot_bits)
        b_slot = Signal(cfg.spad_slot_bits)
        b_hit = Signal()
        previous_b = Signal(cfg.spad_slot_bits)
        previous_col = Signal()
        previous_ok = Signal()
        m.d.comb += [
            execute.cmd.a_slot.eq(a_slot), execute.cmd.a_col.eq(is_dw),
            execute.cmd.b_slot.eq(b_slot), execute.cmd.b_col.eq(is_dx),
            execute.cmd.b_reuse.eq(previous_ok & b_hit & (previous_b == b_slot)
                                   & (previous_col == is_dx)),
            execute.cmd.acc_slot.eq(acc_slot), execute.cmd.rows.eq(walker.rows),
            execute.cmd.overwrite.eq(~(acc_tags.match | loaded)),
            execute.load_done.eq(wait_load),
            execute.store_read.eq(Mux(fresh, acc_tags.wait_store, wait_store)),
            execute.store_done.eq(Mux(x_on_chip, stores_before.number, self.store_done)),
            execute.vector_done.eq(vectors_before.number),
            vector.cmd.source.eq(Source.ARRAY), vector.cmd.function.eq(i.function),
            vector.cmd.a.eq(acc_slot), vector.cmd.b.eq(operand.slot),
            vector.cmd.b_row.eq(operand.slot_row),
            vector.cmd.rows.eq(walker.rows), vector.cmd.cols.eq(walker.cols),
            vector.exec_done.eq(self.exec_issued), vector.store_read.eq(self.store_read),
            vector.load_done.eq(Mux(operand.hit, operand.wait_load, self.load_done)),
        ]

        # --- one operation after another ---------------------------------------------------------
        last_store = Signal(LOW_BITS)
        last_spill = Signal(LOW_BITS)
        m.d.comb += [
            tags.start.eq(self.start), tags.drop.eq(self.forget),
            tags.slot.eq(probe), tags.read_slot.eq(probe),
            tags.row.eq(row_of), tags.col.eq(col_of), tags.keep.eq(Mux(want_w, i.w_keep, 0)),
            acc_tags.slot.eq(acc_slot), acc_tags.row.eq(walker.row), acc_tags.col.eq(walker.col),
            acc_tags.unfinished.eq(1), acc_tags.last_exec.eq(self.exec_issued + 1),
            acc_tags.last_store.eq(Mux(fresh, acc_tags.old_store, last_store)),
            acc_tags.last_spill.eq(Mux(fresh, acc_tags.old_spill, last_spill)),
            *(getattr(tags, n).eq(getattr(self, n))
              for n in ("load_issued", "load_done", "exec_issued", "exec_read")),
            *(getattr(acc_tags, n).eq(getattr(self, n))
              for n in ("exec_issued", "exec_done", "store_issued", "store_read", "store_done")),
        ]

        outside = Signal()
        executed = Signal()  # all operations and epilogues
        to_dram = (purpose != Purpose.RESULT) | ~(in_acc | y_on_chip)
        m.d.comb += [outside.eq(image.outside & to_dram),
                     executed.eq((self.exec_done == self.exec_issued)
                                 & (self.vector_done == self.vector_issued))]

        def finish():
            """Store the result, or leave it on chip, which takes no address."""
            m.d.sync += purpose.eq(Purpose.RESULT)
            m.next = "ADDRESS"
            with m.If(in_acc | y_on_chip):
                m.next = "QUEUE"

        with m.FSM(name="sequencer"):
            with m.State("IDLE"):
                # No store tells others when a result in the accumulator is there.
                m.d.comb += self.ready.eq(tags.ready & acc_tags.ready & (executed | ~in_acc))
                with m.If(self.start):
                    m.d.sync += previous_ok.eq(0)
                    m.next = "STARTED"
            with m.State("STARTED"):
                with m.If(tags.ready):
                    m.next = "LOOKUP"
            with m.State("LOOKUP"):  # read A's entry, and the accumulator tile's
                m.d.comb += [tags.read.eq(1), acc_tags.read.eq(1)]
                m.d.sync += [spilled.eq(0), loaded.eq(0), wait_load.eq(self.load_done)]
                m.next = "CHECK"
                with m.If(walker.finished):
                    m.next = "IDLE"
                with m.Elif(x_on_chip):  # there is nothing to look up: B's
                    m.d.comb += tags.read_slot.eq(b_probe)
                    m.d.sync += [a_slot.eq(a_probe), second.eq(1)]
            with m.State("PROBE"):  # read one entry
                m.d.comb += tags.read.eq(1)
                m.next = "CHECK"
            with m.State("CHECK"):  # A's entry, then B's
                m.d.sync += wait_old_exec.eq(tags.wait_exec)
                with m.If(tags.hit):
                    m.d.comb += tags.write.eq(1)
                    m.d.sync += [wait_load.eq(later(tags.wait_load, wait_load)), b_hit.eq(second),
                                 alternate.eq(0), reprobe.eq(0), second.eq(~second)]
                    with m.If(second):
                        m.d.sync += b_slot.eq(b_probe)
                        m.next = "ACC"
                    with m.Else():  # read B's
                        m.d.comb += [tags.read.eq(1), tags.read_slot.eq(b_probe)]
                        m.d.sync += a_slot.eq(a_probe)
                with m.Elif(want_dy & both_dy & ~reprobe):  # the other window, then this one again
                    m.d.sync += [alternate.eq(~alternate), reprobe.eq(alternate)]
                    m.next = "PROBE"
                with m.Else():
                    m.d.sync += purpose.eq(Purpose.OPERAND)
                    m.next = "ADDRESS"
            with m.State("ACC"):  # the accumulator tile: make room, fetch it, use it
                with m.If(fresh):
                    m.d.sync += [old_i.eq(acc_tags.old_row), old_j.eq(acc_tags.old_col),
                                 last_store.eq(acc_tags.old_store),
                                 last_spill.eq(acc_tags.old_spill),
                                 wait_store.eq(acc_tags.wait_store),
                                 wait_spill.eq(acc_tags.wait_spill),
                                 wait_acc_exec.eq(acc_tags.wait_exec)]
                with m.If(acc_tags.other & fresh):
                    m.d.sync += purpose.eq(Purpose.SPILL)
                    m.next = "ADDRESS"
                with m.Elif(~acc_tags.match & (~walker.first | result["accumulate"]) & ~loaded):
                    m.d.sync += purpose.eq(Purpose.ACC)
                    m.next = "ADDRESS"
                with m.Else():
                    m.d.comb += self.exec.valid.eq(1)
                    with m.If(self.exec.ready):
                        m.d.sync += [previous_b.eq(b_slot), previous_col.eq(is_dx),
                                     previous_ok.eq(1)]
                        with m.If(walker.last & has_epilogue):
                            m.next = "EPILOGUE"
                        with m.Elif(walker.last):
                            finish()
                        with m.Else():
                            m.d.comb += [acc_tags.write.eq(1), advance.eq(1)]
                            m.next = "LOOKUP"
            with m.State("EPILOGUE"):  # fetch its operand, then apply it
                with m.If((bias | relu_grad) & ~operand.hit):
                    m.d.sync += purpose.eq(Purpose.EPILOGUE)
                    m.next = "ADDRESS"
                with m.Else():
                    m.d.comb += [self.vector.valid.eq(1), operand.use.eq(self.vector.ready)]
                    with m.If(self.vector.ready):
                        finish()
            with m.State("ADDRESS"):
                m.d.sync += steps.eq(steps + 1)
                with m.If(steps == image.LATENCY - 1):
                    m.d.sync += steps.eq(0)
                    m.next = "QUEUE"
            with m.State("QUEUE"):
                with m.If(outside):
                    m.next = "REFUSED"
                with m.Else():
                    with m.Switch(purpose):
                        with m.Case(Purpose.OPERAND):
                            m.d.comb += self.load.valid.eq(1)
                            with m.If(self.load.ready):
                                m.d.comb += [tags.write.eq(1), tags.load.eq(1)]
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
                        with m.Case(Purpose.EPILOGUE):
                            m.d.comb += [self.load.valid.eq(1), operand.load.eq(self.load.ready)]
                            with m.If(self.load.ready):
                                m.next = "EPILOGUE"
                        with m.Case(Purpose.RESULT):
                            m.d.comb += self.store.valid.eq(~in_acc)
                            with m.If(self.store.ready | in_acc):
                                m.d.comb += [advance.eq(1), acc_tags.write.eq(1),
                                             acc_tags.unfinished.eq(0),
                                             acc_tags.last_exec.eq(self.exec_issued)]
                                with m.If(~in_acc):
                                    m.d.comb += acc_tags.last_store.eq(store_next)
                                m.next = "LOOKUP"
            with m.State("REFUSED"):  # until reset
                m.d.comb += [self.bad_address.eq(1), self.bad_offset.eq(image.address)]
        return m
