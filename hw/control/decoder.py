"""Instruction checks, and sizes in tiles."""

from amaranth.hdl import C, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import DIM_BITS, Config, clog2
from hw.control.commands import ContextId
from hw.control.functions import BROADCAST, LOSSES, REDUCING, TWO_OPERANDS, is_one_of
from hw.control.windows import acc_window, spad_window
from hw.isa import (
    FIELDS,
    INSTRUCTION,
    Error,
    Function,
    Kind,
    Opcode,
    Order,
    XSource,
    YTarget,
)


class TileCount(wiring.Component):
    """Tiles along one dimension: `count` = ceil(size / T), `rest` = valid elements of the last.

    A shift if T is a power of two: valid in the clock of `start`. Else a serial division: valid
    when `done` is high again, DIM_BITS + 1 clocks after `start`.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({"start": In(1), "size": In(DIM_BITS), "done": Out(1, init=1),
                          "count": Out(cfg.index_bits + 1), "rest": Out(cfg.count_bits)})

    def elaborate(self, platform):
        m = Module()
        tile = self.cfg.tile
        before = Signal(DIM_BITS)  # the last element's index
        m.d.comb += before.eq(self.size - 1)
        if tile & (tile - 1) == 0:
            shift = clog2(tile)
            m.d.comb += [self.done.eq(1), self.count.eq(before[shift:] + 1),
                         self.rest.eq(before[:shift] + 1)]
            return m
        quotient = Signal(DIM_BITS)
        remainder = Signal(range(tile))
        left = Signal(range(DIM_BITS + 1))
        trial = Signal(range(2 * tile))
        m.d.comb += [trial.eq(Cat(quotient[-1], remainder)), self.done.eq(left == 0),
                     self.count.eq(quotient + 1), self.rest.eq(remainder + 1)]
        with m.If(self.start):
            m.d.sync += [quotient.eq(before), remainder.eq(0), left.eq(DIM_BITS)]
        with m.Elif(left != 0):
            fits = trial >= tile
            m.d.sync += [left.eq(left - 1), quotient.eq(Cat(fits, quotient[:-1])),
                         remainder.eq(Mux(fits, trial - tile, trial))]
        return m


class Decoder(wiring.Component):
    """Checks one instruction of `context` and computes its sizes in tiles.

    Results are valid when `done` is high again, from 2 clocks (T a power of two) to DIM_BITS + 2
    clocks after `start`; the inputs must be stable from `start` on.

    Members
    -------
    start : In(1)
    instr : In(INSTRUCTION), with `run_m` the rows of the batch in `m`
    batch_buffer : In(1), where the running batch's inputs are
    spad_first, spad_last, acc_first, acc_last : In(16), slots of the context
    done : Out(1)
    error : Out(Error), BAD_OPCODE, WRONG_CONFIG, BAD_FIELD or BAD_WINDOW, in this order of
        precedence
    count_{m,n,k} : Out(index_bits + 1), tiles
    rest_{m,n,k} : Out(count_bits), valid elements of the last tile
    """

    def __init__(self, cfg: Config, context: ContextId):
        self.cfg, self.context = cfg, context
        super().__init__({
            "start": In(1), "instr": In(INSTRUCTION), "batch_buffer": In(1),
            "spad_first": In(16), "spad_last": In(16), "acc_first": In(16), "acc_last": In(16),
            "done": Out(1), "error": Out(Error),
            **{f"count_{d}": Out(cfg.index_bits + 1) for d in "mnk"},
            **{f"rest_{d}": Out(cfg.count_bits) for d in "mnk"},
        })

    def _windows(self, used):
        """Whether one of the windows does not exist; whether one leaves the context's slots.

        They are given as (condition of its use, kind, base, window).
        """
        missing, outside = [], []
        for use, kind, base, window in used:
            slots = (self.spad_first, self.spad_last) if kind is spad_window else \
                (self.acc_first, self.acc_last)
            absent, foreign = kind(self.cfg, base, window.h_log2 + window.w_log2, *slots)
            missing.append(use & absent)
            outside.append(use & foreign)
        return Cat(missing).any(), Cat(outside).any()

    def elaborate(self, platform):
        m = Module()
        cfg, i = self.cfg, self.instr
        done = [~self.start]
        for d in "mnk":
            m.submodules[f"tiles_{d}"] = tiles = TileCount(cfg)
            m.d.comb += [tiles.start.eq(self.start), tiles.size.eq(i[d]),
                         getattr(self, f"count_{d}").eq(tiles.count),
                         getattr(self, f"rest_{d}").eq(tiles.rest)]
            done.append(tiles.done)
        sized = Signal()
        settled = Signal()  # so are the checks that need sizes
        m.d.comb += [sized.eq(Cat(done).all()), self.done.eq(sized & settled)]
        m.d.sync += settled.eq(sized)

        op = {o: Signal(name=f"is_{o.name.lower()}") for o in Opcode}
        m.d.comb += [s.eq(i.opcode == o.value) for o, s in op.items()]
        gemm, grad, convert, vector = (op[o] for o in (Opcode.GEMM, Opcode.GRAD, Opcode.CONVERT,
                                                       Opcode.VECTOR))
        array = gemm | grad

        def function_in(*functions):
            return is_one_of(i.function, *functions)

        def holds(window, rows, cols):
            """Whether `window` has a slot for every tile of a matrix."""
            rows, cols = (getattr(self, f"count_{d}") - 1 for d in (rows, cols))
            return ((rows >> window.h_log2) == 0) & ((cols >> window.w_log2) == 0)

        f = Function
        none = function_in(f.NONE)
        sgd = function_in(f.SGD)
        e_size_log2 = i.e_window.h_log2 + i.e_window.w_log2
        slots_log2 = i.y_window.h_log2 + i.y_window.w_log2
        kept_bias = gemm & function_in(*BROADCAST) & i.w_keep.any()
        operand = (gemm & function_in(*BROADCAST)) | (grad & function_in(f.RELU_GRAD))
        step = cfg.beat_bytes - 1
        unused = [i[name] for name in FIELDS if name.startswith("unused")]
        unused += [i[name].unused for name in FIELDS if name.endswith("_window")]
        misaligned = [(i[name] & step).any() for name in FIELDS if name.endswith("_addr")]

        # Operands on chip. The inputs of the second buffer lie behind those of the first.
        from_dram = i.x_source == XSource.DRAM.value
        requests = i.x_source == XSource.REQUEST.value
        to_dram = i.y_target == YTarget.DRAM.value
        to_chip, to_acc = (gemm & (i.y_target == t.value) for t in (YTarget.CHIP, YTarget.ACC))
        x_base = Signal(18)
        x_size_log2 = i.x_window.h_log2 + i.x_window.w_log2
        m.d.comb += x_base.eq(i.x_window.base + Mux(requests & self.batch_buffer,
                                                    (1 << x_size_log2)[:17], 0))
        serves = C(self.context is ContextId.INFERENCE)
        on_chip = Cat(i.x_source, i.y_target, i.run_m, i.w_keep).any()

        spad, acc = spad_window, acc_window
        missing, outside = self._windows([
            (array, spad, x_base, i.x_window),
            (array, spad, i.w_window.base, i.w_window),
            (grad, spad, i.dy_window.base, i.dy_window),
            (grad & (i.order == Order.INTERLEAVED.value), spad, i.dy2_window.base, i.dy2_window),
            (to_chip, spad, i.dw_window.base, i.dw_window),
            (~grad | ~i.y_off, acc, i.y_window.base, i.y_window),
            (grad & ~i.dw_off, acc, i.dw_window.base, i.dw_window),
            (operand, acc, i.e_window.base, i.e_window),
        ])
        bad = [
            i.order > max(o.value for o in Order),
            *(i[f"{t}_kind"] > max(k.value for k in Kind) for t in ("x", "w", "dy", "y")),
            (i.m == 0) | (i.n == 0) | ((i.k == 0) & array),
            Cat(misaligned).any(),
            (i.y_accumulate & i.y_bfp) | (i.dw_accumulate & i.dw_bfp),
            grad & (i.x_row | i.y_row | (i.y_off & i.dw_off)),
            missing,
            operand & (e_size_log2 > 2),
            kept_bias & (self.count_n > (C(cfg.tile) << e_size_log2[:2])),
            gemm & ~(none | function_in(f.RELU, *BROADCAST)),
            grad & ~(none | (function_in(f.RELU_GRAD) & ~i.y_off)),
            convert & ~none,
            vector & (none | (i.function > max(v.value for v in Function))),
            vector & (i.y_accumulate | i.dw_accumulate | i.dw_bfp),
            vector & (slots_log2 < Mux(function_in(*REDUCING) | sgd, 2,
                                       function_in(*TWO_OPERANDS))),
            vector & ((sgd & ~i.w_fp32) | (function_in(*LOSSES) & i.y_off & i.dw_off)),
            i.x_source > max(s.value for s in XSource),
            i.y_target > max(t.value for t in YTarget),
            requests & ~serves,
            ~from_dram & ~holds(i.x_window, "m", "k"),
            ~to_dram & i.y_accumulate,
            to_chip & (~i.y_bfp | ~holds(i.dw_window, "m", "n")),
            to_acc & (i.y_bfp | ~holds(i.y_window, "m", "n")),
        ]
        bad_operation = Signal()
        bad_any = Signal()
        bad_window = Signal()
        known = Signal()
        for_us = Signal()
        m.d.sync += [
            known.eq(Cat(op.values()).any()),
            for_us.eq(i.config_hash == cfg.hash),
            bad_any.eq(Cat(f.any() for f in unused).any() | (on_chip & ~gemm)),
            bad_operation.eq((array | convert | vector) & Cat(bad).any()),
            bad_window.eq((array | convert | vector) & outside),
        ]
        with m.If(~known):
            m.d.comb += self.error.eq(Error.BAD_OPCODE)
        with m.Elif(~for_us):
            m.d.comb += self.error.eq(Error.WRONG_CONFIG)
        with m.Elif(bad_any | bad_operation):
            m.d.comb += self.error.eq(Error.BAD_FIELD)
        with m.Elif(bad_window):
            m.d.comb += self.error.eq(Error.BAD_WINDOW)
        with m.Else():
            m.d.comb += self.error.eq(Error.NONE)
        return m
