"""Tile images' rows to scratchpad and accumulator."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config, clog2
from hw.control.commands import Destination, Source, load_command
from hw.memory.gearbox import word
from hw.numerics.fp32 import canonical
from hw.numerics.rounding import NAN


def tile_header(cfg: Config) -> data.StructLayout:
    """What is known of an image when its rows begin: its command and its exponent bytes."""
    return data.StructLayout({
        "command": load_command(cfg),
        "exponents": cfg.exp_beats * cfg.axi_width,  # BFP: byte r is that of row r
    })


class UnpackLane(wiring.Component):
    """One column of a row: DRAM code to {sign, magnitude}, and either image format to FP32.

    Members
    -------
    keep : In(1), the row and column are valid; else the element is zero
    code : In(container), a BFP mantissa; its low `mant_width` bits count
    scaled : In(1), the row's exponent byte is neither 0 nor 255; else the mantissa is zero
    take : In(1), put `code` into `mant`
    mant : Out(mant_width), 1 clock after `take`
    exponent : In(8), exponent byte of the row in `mant`
    word : In(32), an FP32 element
    put_mant, put_word : In(1), put `mant` (with `exponent`) or `word` into `value`
    value : Out(32), FP32, 1 clock after `put_mant` or `put_word`
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "keep": In(1), "code": In(cfg.container), "scaled": In(1), "take": In(1),
            "mant": Out(cfg.mant_width), "exponent": In(8), "word": In(32),
            "put_mant": In(1), "put_word": In(1), "value": Out(32),
        })

    def elaborate(self, platform):
        if platform is None:
            return self._contents(self)
        return platform.instance(self, f"unpack_m{self.cfg.mant_width}", self._contents)

    def _contents(self, io):
        m = Module()
        bits = self.cfg.mag_width
        sign, low = io.code[bits], io.code[:bits]
        magnitude = Signal(bits)
        kept = Signal(reset_less=True)
        # -2**bits counts as -(2**bits - 1): the one code with a sign and no other bit set.
        m.d.comb += magnitude.eq(Mux(sign, Mux(low.any(), -low, -1), low))
        with m.If(io.take):
            m.d.sync += [io.mant.eq(Mux(io.keep & io.scaled, Cat(magnitude, sign), 0)),
                         kept.eq(io.keep)]

        # A mantissa has at most 15 bits, so its FP32 value is exact or below 2**-126.
        fraction, places = io.mant[:bits], []
        for step in (1 << k for k in reversed(range(clog2(bits)))):
            empty = Signal(name=f"empty{step}")
            shifted = Signal(bits, name=f"shifted{step}")
            m.d.comb += [empty.eq(~fraction[-step:].any()),
                         shifted.eq(Mux(empty, fraction << step, fraction))]
            fraction = shifted
            places.insert(0, empty)
        field = Signal(signed(9))
        m.d.comb += field.eq(io.exponent - Cat(places))
        with m.If(io.put_word):
            m.d.sync += io.value.eq(Mux(io.keep, canonical(io.word), 0))
        with m.Elif(io.put_mant):
            m.d.sync += io.value.eq(
                Mux(kept & (io.exponent == 255), NAN,
                    Mux(fraction[-1] & (field > 0),
                        Cat(Const(0, 24 - bits), fraction[:-1], field[:8], io.mant[-1]), 0)))
        return m


class TileRows(wiring.Component):
    """Rows of images through the lanes to the scratchpad (1 clock) or the accumulator (2, FP32 1).

    One row per clock as long as the memories take them; rows are written in order. Rows that are
    not valid need no data.

    Members
    -------
    tile : In(stream.Signature(tile_header(cfg))), an image whose rows follow
    mantissas, words : In(stream.Signature(word(...))), valid rows of BFP and of FP32 images
    drop : Out(1), the row being taken is the image's last valid one
    w_valid, w_ready, w_slot, w_row, w_data, w_exp : a row for the scratchpad
    l_w_valid, l_w_ready, l_w_slot, l_w_row, l_w_data : a row for the accumulator
    done : Out(1), pulse per image in the clock in which its last row is accepted; done_source :
        Out(Source), the command's, with it
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "tile": In(stream.Signature(tile_header(cfg))),
            "mantissas": In(stream.Signature(word(cfg.tile * cfg.container))),
            "words": In(stream.Signature(word(cfg.tile * 32))), "drop": Out(1),
            "w_valid": Out(1), "w_ready": In(1), "w_slot": Out(cfg.spad_slot_bits),
            "w_row": Out(cfg.row_bits), "w_data": Out(data.ArrayLayout(cfg.mant_width, cfg.tile)),
            "w_exp": Out(8),
            "l_w_valid": Out(1), "l_w_ready": In(1), "l_w_slot": Out(cfg.acc_slot_bits),
            "l_w_row": Out(cfg.row_bits), "l_w_data": Out(data.ArrayLayout(32, cfg.tile)),
            "done": Out(1), "done_source": Out(Source),
        })

    def elaborate(self, platform):
        m = Module()
        cfg = self.cfg
        current = Signal(load_command(cfg), reset_less=True)
        active = Signal()
        row = Signal(cfg.row_bits)
        valid_row = Signal()
        last_valid = Signal()
        last_row = Signal()
        to_acc = Signal()
        row_exponents = Signal(8 * cfg.tile, reset_less=True)  # the row's is byte 0
        exponent = Signal(8)
        # `first` holds mantissas: of a scratchpad row (`w_valid`), or of an accumulator row on its
        # way to `second`, which holds FP32 values.
        first = Signal()
        first_last = Signal()
        second_last = Signal()
        first_free = Signal()
        second_free = Signal()
        first_slot = Signal.like(current.slot, reset_less=True)
        first_row = Signal(cfg.row_bits, reset_less=True)
        first_source = Signal(Source, reset_less=True)
        second_source = Signal(Source, reset_less=True)
        ready = Signal()
        take_mant = Signal()
        take_word = Signal()
        take = Signal()
        put_mant = Signal()

        m.d.comb += [
            valid_row.eq(row < current.rows), last_valid.eq(row + 1 == current.rows),
            last_row.eq(Mux(current.gather, last_valid, row == cfg.tile - 1)),
            to_acc.eq(current.dest == Destination.ACC),
            exponent.eq(Mux(valid_row | ~current.row_exp, row_exponents[:8], 0)),
            second_free.eq(~self.l_w_valid | self.l_w_ready), put_mant.eq(first & second_free),
            # No row overtakes one before it, and no two are done in one clock.
            first_free.eq((~self.w_valid | self.w_ready)
                          & (~first | (to_acc & ~current.fp32))),
            ready.eq(active & first_free & second_free),
            self.mantissas.ready.eq(ready & ~current.fp32 & valid_row),
            self.words.ready.eq(ready & current.fp32 & valid_row), self.drop.eq(last_valid),
            take_mant.eq(ready & ~current.fp32 & (self.mantissas.valid | ~valid_row)),
            take_word.eq(ready & current.fp32 & (self.words.valid | ~valid_row)),
            take.eq(take_mant | take_word), self.tile.ready.eq(~active | (take & last_row)),
        ]
        with m.If(take):
            m.d.sync += row.eq(Mux(last_row, 0, row + 1))
            with m.If(current.row_exp):
                m.d.sync += row_exponents.eq(row_exponents >> 8)
        with m.If(self.tile.ready):
            m.d.sync += active.eq(self.tile.valid)
        with m.If(self.tile.valid & self.tile.ready):
            m.d.sync += [current.eq(self.tile.payload.command),
                         row_exponents.eq(self.tile.payload.exponents)]

        with m.If(take_mant):
            m.d.sync += [self.w_exp.eq(exponent), first_last.eq(last_row),
                         first_source.eq(current.source),
                         first_slot.eq(current.slot + Mux(current.gather, row, 0)),
                         first_row.eq(Mux(current.gather, current.row, row))]
        with m.If(take_mant | put_mant):
            m.d.sync += first.eq(take_mant & to_acc)
        with m.If(take_mant | self.w_ready):
            m.d.sync += self.w_valid.eq(take_mant & ~to_acc)
        with m.If(put_mant):
            m.d.sync += [self.l_w_slot.eq(first_slot), self.l_w_row.eq(first_row),
                         second_last.eq(first_last), second_source.eq(first_source)]
        with m.Elif(take_word):
            m.d.sync += [self.l_w_slot.eq(current.slot),
                         self.l_w_row.eq(Mux(current.gather, current.row, row)),
                         second_last.eq(last_row), second_source.eq(current.source)]
        with m.If(second_free):
            m.d.sync += self.l_w_valid.eq(put_mant | take_word)
        m.d.comb += [
            self.w_slot.eq(first_slot), self.w_row.eq(first_row),
            self.done.eq((self.w_valid & self.w_ready & first_last)
                         | (self.l_w_valid & self.l_w_ready & second_last)),
            self.done_source.eq(Mux(self.w_valid, first_source, second_source)),
        ]

        for c in range(cfg.tile):
            m.submodules[f"lane{c}"] = lane = UnpackLane(cfg)
            m.d.comb += [
                lane.keep.eq(valid_row & (c < current.cols)),
                lane.code.eq(self.mantissas.payload.data.word_select(c, cfg.container)),
                lane.scaled.eq((exponent != 0) & (exponent != 255)), lane.take.eq(take_mant),
                self.w_data[c].eq(lane.mant), lane.exponent.eq(self.w_exp),
                lane.word.eq(self.words.payload.data.word_select(c, 32)),
                lane.put_mant.eq(put_mant), lane.put_word.eq(take_word),
                self.l_w_data[c].eq(lane.value),
            ]
        return m
