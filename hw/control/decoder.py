"""Instruction checks, and sizes in tiles."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import DIM_BITS, Config, clog2
from hw.control.functions import BROADCAST, LOSSES, REDUCING, TWO_OPERANDS, is_one_of
from hw.isa import FIELDS, INSTRUCTION, Error, Function, Kind, Opcode, Order


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
    """Checks one instruction and computes its sizes in tiles.

    Results are valid when `done` is high again, from 1 clock (T a power of two) to DIM_BITS + 1
    clocks after `start`; `instr` must be stable from `start` on.

    Members
    -------
    start : In(1)
    instr : In(INSTRUCTION)
    done : Out(1)
    error : Out(Error), BAD_OPCODE, WRONG_CONFIG or BAD_FIELD, in this order of precedence
    count_{m,n,k} : Out(index_bits + 1), tiles
    rest_{m,n,k} : Out(count_bits), valid elements of the last tile
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "start": In(1), "instr": In(INSTRUCTION), "done": Out(1), "error": Out(Error),
            **{f"count_{d}": Out(cfg.index_bits + 1) for d in "mnk"},
            **{f"rest_{d}": Out(cfg.count_bits) for d in "mnk"},
        })

    def _spad_window_bad(self, window):
        """Whether a scratchpad window reaches beyond its bank (or the scratchpad)."""
        cfg = self.cfg
        size_log2 = window.h_log2 + window.w_log2
        size = (1 << size_log2)[:17]
        if cfg.bank_slots & (cfg.bank_slots - 1) == 0:
            return (size_log2 > 16) | (window.base + size > cfg.spad_slots)
        index = window.base[:cfg.slot_index_bits]
        bank = window.base[cfg.slot_index_bits:]
        return (size_log2 > 16) | (index + size > cfg.bank_slots) | (bank >= cfg.spad_banks)

    def _acc_window_bad(self, window):
        """Whether an accumulator window reaches beyond the accumulator memory."""
        size_log2 = window.h_log2 + window.w_log2
        return (size_log2 > 16) | (window.base + (1 << size_log2)[:17] > self.cfg.acc_slots)

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
        m.d.comb += self.done.eq(Cat(done).all())

        op = {o: Signal(name=f"is_{o.name.lower()}") for o in Opcode}
        m.d.comb += [s.eq(i.opcode == o.value) for o, s in op.items()]
        gemm, grad, convert, vector = (op[o] for o in (Opcode.GEMM, Opcode.GRAD, Opcode.CONVERT,
                                                       Opcode.VECTOR))
        array = gemm | grad

        def function_in(*functions):
            return is_one_of(i.function, *functions)

        f = Function
        none = function_in(f.NONE)
        sgd = function_in(f.SGD)
        slots_log2 = i.y_window.h_log2 + i.y_window.w_log2
        operand = (gemm & function_in(*BROADCAST)) | (grad & function_in(f.RELU_GRAD))
        step = cfg.beat_bytes - 1
        unused = [i[name] for name in FIELDS if name.startswith("unused")]
        unused += [i[name].unused for name in FIELDS if name.endswith("_window")]
        misaligned = [(i[name] & step).any() for name in FIELDS if name.endswith("_addr")]
        bad = [
            i.order > max(o.value for o in Order),
            *(i[f"{t}_kind"] > max(k.value for k in Kind) for t in ("x", "w", "dy", "y")),
            (i.m == 0) | (i.n == 0) | ((i.k == 0) & array),
            Cat(misaligned).any(),
            (i.y_accumulate & i.y_bfp) | (i.dw_accumulate & i.dw_bfp),
            grad & (i.x_row | i.y_row | (i.y_off & i.dw_off)),
            array & (self._spad_window_bad(i.x_window) | self._spad_window_bad(i.w_window)),
            grad & self._spad_window_bad(i.dy_window),
            grad & (i.order == Order.INTERLEAVED.value) & self._spad_window_bad(i.dy2_window),
            (~grad | ~i.y_off) & self._acc_window_bad(i.y_window),
            grad & ~i.dw_off & self._acc_window_bad(i.dw_window),
            operand & self._acc_window_bad(i.e_window),
            operand & (i.e_window.h_log2 + i.e_window.w_log2 > 2),
            gemm & ~(none | function_in(f.RELU, *BROADCAST)),
            grad & ~(none | (function_in(f.RELU_GRAD) & ~i.y_off)),
            convert & ~none,
            vector & (none | (i.function > max(v.value for v in Function))),
            vector & (i.y_accumulate | i.dw_accumulate | i.dw_bfp),
            vector & (slots_log2 < Mux(function_in(*REDUCING) | sgd, 2,
                                       function_in(*TWO_OPERANDS))),
            vector & ((sgd & ~i.w_fp32) | (function_in(*LOSSES) & i.y_off & i.dw_off)),
        ]
        bad_operation = Signal()
        bad_any = Signal()
        known = Signal()
        for_us = Signal()
        m.d.sync += [
            known.eq(Cat(op.values()).any()),
            for_us.eq(i.config_hash == cfg.hash),
            bad_any.eq(Cat(f.any() for f in unused).any()),
            bad_operation.eq((array | convert | vector) & Cat(bad).any()),
        ]
        with m.If(~known):
            m.d.comb += self.error.eq(Error.BAD_OPCODE)
        with m.Elif(~for_us):
            m.d.comb += self.error.eq(Error.WRONG_CONFIG)
        with m.Elif(bad_any | bad_operation):
            m.d.comb += self.error.eq(Error.BAD_FIELD)
        with m.Else():
            m.d.comb += self.error.eq(Error.NONE)
        return m
