"""Load unit: reads tile images and instructions from DRAM and unpacks them."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config, clog2
from hw.control.commands import Destination, Source, load_command
from hw.isa import INSTRUCTION_BYTES, Kind
from hw.lib.fifo import Fifo
from hw.memory.axi import MAX_BEATS, PAGE_BYTES
from hw.memory.gearbox import Gearbox
from hw.numerics.fp32 import NAN, canonical


class ReadBursts(wiring.Component):
    """Splits images into INCR bursts.

    An image is taken in one clock, then one burst is raised per clock as long as `ar_ready` and
    `grant` are high. A raised burst stays until it is accepted.

    Members
    -------
    start : In(1), take `address`, `beats` (1 ..) and `kind`; only while `ready`
    ready : Out(1)
    grant : In(1), a burst may be raised
    raised : Out(1), pulse: a burst is raised from the next clock on
    ar_valid, ar_ready, ar_addr, ar_len : AXI4 read address channel
    ar_kind : Out(Kind), with `ar_addr`
    """

    def __init__(self, cfg: Config, max_beats: int):
        self.cfg = cfg
        super().__init__({
            "start": In(1), "address": In(cfg.addr_width), "beats": In(range(max_beats + 1)),
            "kind": In(Kind), "ready": Out(1), "grant": In(1), "raised": Out(1),
            "ar_valid": Out(1), "ar_ready": In(1), "ar_addr": Out(cfg.addr_width),
            "ar_len": Out(8), "ar_kind": Out(Kind),
        })

    def elaborate(self, platform):
        m = Module()
        page_beats = PAGE_BYTES // self.cfg.beat_bytes
        beat_bits = clog2(self.cfg.beat_bytes)
        index = Signal(self.cfg.addr_width - beat_bits)  # next beat's number in DRAM
        left = Signal.like(self.beats)
        kind = Signal(Kind)
        room = Signal(range(page_beats + 1))
        burst = Signal(range(MAX_BEATS + 1))
        m.d.comb += [
            self.ready.eq(left == 0),
            room.eq(page_beats - index[:clog2(page_beats)]),
            burst.eq(Mux(left < room, left, room)),
            self.raised.eq((left != 0) & self.grant & (~self.ar_valid | self.ar_ready)),
        ]
        if page_beats > MAX_BEATS:
            with m.If((left > MAX_BEATS) & (room > MAX_BEATS)):
                m.d.comb += burst.eq(MAX_BEATS)
        with m.If(self.ar_ready):
            m.d.sync += self.ar_valid.eq(0)
        with m.If(self.raised):
            m.d.sync += [
                self.ar_valid.eq(1), self.ar_addr.eq(Cat(Const(0, beat_bits), index)),
                self.ar_len.eq(burst - 1), self.ar_kind.eq(kind),
                index.eq(index + burst), left.eq(left - burst),
            ]
        with m.If(self.start):
            m.d.sync += [index.eq(self.address[beat_bits:]), left.eq(self.beats),
                         kind.eq(self.kind)]
        return m


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


class LoadUnit(wiring.Component):
    """Executes load commands in order; reads run ahead of the data by `outstanding` bursts.

    Unpacks one row per clock and takes one beat per clock while it is not waiting for rows: T = 16,
    m = 8 on 128 bits takes 17 clocks per image, one for each of its 17 beats. `r_ready` goes low
    when rows wait for `l_w_ready`.

    After `abort` the unit must be reset (once `idle`) before it takes commands again.

    Members
    -------
    cmd : In(stream.Signature(load_command(cfg)))
    base : In(addr_width), address of the region, stable
    ar_valid, ar_ready, ar_addr, ar_len, r_valid, r_ready, r_data, r_resp, r_last : AXI4 read
        channels; INCR bursts of whole beats, one ID
    w_en, w_slot, w_row, w_data, w_exp : Out, a row for the scratchpad, always accepted
    l_w_valid, l_w_ready, l_w_slot, l_w_row, l_w_data : a row for the accumulator
    instr_valid : Out(1), pulse: `instr` is a new instruction. It stays until the data of the next
        PROGRAM command arrives
    load_done : Out(1), pulse per SPAD or ACC command, in order, in the clock that writes its last
        row; load_source : Out(Source), the command's, with it
    count_en : Out(1), pulse: a burst of `count_bytes` of `count_kind` was accepted
    error : Out(1), pulse: a beat came with an error response; `error_addr` is the offset of the
        image. The image is unpacked nevertheless, but is no instruction
    abort : In(1), take no command, raise no burst (one that is raised stays until accepted), take
        and drop all data
    idle : Out(1), no burst is raised or unanswered
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "cmd": In(stream.Signature(load_command(cfg))), "base": In(cfg.addr_width),
            "ar_valid": Out(1), "ar_ready": In(1), "ar_addr": Out(cfg.addr_width),
            "ar_len": Out(8),
            "r_valid": In(1), "r_ready": Out(1), "r_data": In(cfg.axi_width), "r_resp": In(2),
            "r_last": In(1),
            "w_en": Out(1), "w_slot": Out(cfg.spad_slot_bits), "w_row": Out(cfg.row_bits),
            "w_data": Out(data.ArrayLayout(cfg.mant_width, cfg.tile)), "w_exp": Out(8),
            "l_w_valid": Out(1), "l_w_ready": In(1), "l_w_slot": Out(cfg.acc_slot_bits),
            "l_w_row": Out(cfg.row_bits), "l_w_data": Out(data.ArrayLayout(32, cfg.tile)),
            "instr_valid": Out(1), "instr": Out(8 * INSTRUCTION_BYTES),
            "load_done": Out(1), "load_source": Out(Source),
            "count_en": Out(1), "count_kind": Out(Kind), "count_bytes": Out(16),
            "error": Out(1), "error_addr": Out(32), "abort": In(1), "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        cfg = self.cfg
        program_beats = max(1, INSTRUCTION_BYTES // cfg.beat_bytes)
        max_beats = max(cfg.bfp_beats, cfg.fp32_beats, program_beats)

        def beats(command):
            return Mux(command.dest == Destination.PROGRAM, program_beats,
                       Mux(command.fp32, cfg.fp32_beats, cfg.bfp_beats))

        # --- requests: commands become bursts, and wait for their data in `queue` ----------------
        m.submodules.bursts = bursts = ReadBursts(cfg, max_beats)
        m.submodules.queue = queue = Fifo(load_command(cfg), max(2, cfg.outstanding))
        in_flight = Signal(range(cfg.outstanding + 1))
        command = self.cmd.payload
        m.d.comb += [
            self.cmd.ready.eq(bursts.ready & queue.i.ready & ~self.abort),
            bursts.start.eq(self.cmd.valid & self.cmd.ready),
            bursts.address.eq(self.base + command.addr), bursts.beats.eq(beats(command)),
            bursts.kind.eq(command.kind),
            bursts.grant.eq((in_flight != cfg.outstanding) & ~self.abort),
            queue.i.valid.eq(bursts.start), queue.i.payload.eq(command),
            self.ar_valid.eq(bursts.ar_valid), bursts.ar_ready.eq(self.ar_ready),
            self.ar_addr.eq(bursts.ar_addr), self.ar_len.eq(bursts.ar_len),
            self.count_en.eq(self.ar_valid & self.ar_ready), self.count_kind.eq(bursts.ar_kind),
            self.count_bytes.eq((self.ar_len + 1) << clog2(cfg.beat_bytes)),
            self.idle.eq(in_flight == 0),
        ]
        m.d.sync += in_flight.eq(
            in_flight + bursts.raised - (self.r_valid & self.r_ready & self.r_last))

        # --- beats: exponents, mantissas or words, instruction -----------------------------------
        layout = data.StructLayout({"data": cfg.axi_width, "error": 1})
        m.submodules.incoming = fifo = Fifo(layout, 2)
        m.submodules.mantissas = mantissas = Gearbox(cfg.axi_width, cfg.tile * cfg.container)
        m.submodules.words = words = Gearbox(cfg.axi_width, cfg.tile * 32)
        head, beat = queue.o.payload, fifo.o.payload
        number = Signal(range(max_beats))          # of the beat in its image
        taken = Signal()
        last_beat = Signal()
        failed = Signal()
        program = Signal()
        bfp = Signal()
        header = Signal()
        # The image whose rows come next: it is known from its last exponent or first word on.
        known = Signal()
        pending = Signal()
        following = Signal(load_command(cfg), reset_less=True)
        exponents = Signal(cfg.exp_beats * cfg.axi_width, reset_less=True)
        turn = Signal()                            # `following` becomes `current`

        m.d.comb += [
            fifo.i.valid.eq(self.r_valid & ~self.abort), self.r_ready.eq(fifo.i.ready | self.abort),
            fifo.i.payload.data.eq(self.r_data), fifo.i.payload.error.eq(self.r_resp[1]),
            program.eq(head.dest == Destination.PROGRAM),
            bfp.eq(~program & ~head.fp32),
            header.eq(bfp & (number < cfg.exp_beats)),
            known.eq(~program & (number == Mux(bfp, cfg.exp_beats - 1, 0))),
            mantissas.i.payload.data.eq(beat.data), words.i.payload.data.eq(beat.data),
            taken.eq(fifo.o.valid & fifo.o.ready), last_beat.eq(number == beats(head) - 1),
        ]
        with m.If(queue.o.valid):
            # Exponents wait until `following` is free. For words it always is: until then, rows of
            # `current` or `following` fill the words' gearbox or hold up the mantissas before them.
            with m.If(program):
                m.d.comb += fifo.o.ready.eq(1)
            with m.Elif(header):
                m.d.comb += fifo.o.ready.eq(~pending | turn)
            with m.Elif(bfp):
                m.d.comb += [mantissas.i.valid.eq(fifo.o.valid), fifo.o.ready.eq(mantissas.i.ready)]
            with m.Else():
                m.d.comb += [words.i.valid.eq(fifo.o.valid), fifo.o.ready.eq(words.i.ready)]
        m.d.comb += queue.o.ready.eq(taken & last_beat)
        m.d.sync += [self.instr_valid.eq(0), self.error.eq(taken & beat.error)]
        with m.If(taken):
            m.d.sync += [number.eq(Mux(last_beat, 0, number + 1)), self.error_addr.eq(head.addr),
                         failed.eq(~last_beat & (failed | beat.error))]
            with m.If(program):
                m.d.sync += [self.instr.eq(Cat(self.instr, beat.data)[-len(self.instr):]),
                             self.instr_valid.eq(last_beat & ~failed & ~beat.error)]
            with m.If(header):
                m.d.sync += exponents.eq(Cat(exponents, beat.data)[-len(exponents):])
        with m.If(taken & known):
            m.d.sync += [following.eq(head), pending.eq(1)]
        with m.Elif(turn):
            m.d.sync += pending.eq(0)

        # --- rows: through the lanes to the scratchpad (1 clock) or the accumulator (2 or 1) -----
        current = Signal(load_command(cfg), reset_less=True)
        active = Signal()
        row = Signal(cfg.row_bits)
        last_row = Signal()
        valid_row = Signal()
        row_exponents = Signal(8 * cfg.tile, reset_less=True)  # the row's is byte 0
        exponent = Signal(8)
        # In `first`, mantissas of an accumulator row; in `second`, FP32 values.
        first = Signal()
        first_last = Signal()
        second_last = Signal()
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
            last_row.eq(row == cfg.tile - 1), valid_row.eq(row < current.rows),
            exponent.eq(Mux(valid_row | ~current.row_exp, row_exponents[:8], 0)),
            second_free.eq(~self.l_w_valid | self.l_w_ready),
            put_mant.eq(first & second_free),
            # No row overtakes one on its way to the accumulator.
            ready.eq(active & second_free
                     & (~first | ((current.dest == Destination.ACC) & ~current.fp32))),
            mantissas.o.ready.eq(ready & ~current.fp32), words.o.ready.eq(ready & current.fp32),
            mantissas.drop.eq(last_row), words.drop.eq(last_row),
            take_mant.eq(mantissas.o.valid & mantissas.o.ready),
            take_word.eq(words.o.valid & words.o.ready), take.eq(take_mant | take_word),
            turn.eq(pending & (~active | (take & last_row))),
        ]
        with m.If(take):
            m.d.sync += row.eq(Mux(last_row, 0, row + 1))
            with m.If(current.row_exp):
                m.d.sync += row_exponents.eq(row_exponents >> 8)
        with m.If(turn):
            m.d.sync += [active.eq(1), current.eq(following), row_exponents.eq(exponents)]
        with m.Elif(take & last_row):
            m.d.sync += active.eq(0)

        m.d.sync += self.w_en.eq(take_mant & (current.dest == Destination.SPAD))
        with m.If(take_mant):
            m.d.sync += [first.eq(current.dest == Destination.ACC), self.w_exp.eq(exponent),
                         first_slot.eq(current.slot), first_row.eq(row), first_last.eq(last_row),
                         first_source.eq(current.source)]
        with m.Elif(put_mant):
            m.d.sync += first.eq(0)
        with m.If(put_mant):
            m.d.sync += [self.l_w_slot.eq(first_slot), self.l_w_row.eq(first_row),
                         second_last.eq(first_last), second_source.eq(first_source)]
        with m.Elif(take_word):
            m.d.sync += [self.l_w_slot.eq(current.slot), self.l_w_row.eq(row),
                         second_last.eq(last_row), second_source.eq(current.source)]
        with m.If(second_free):
            m.d.sync += self.l_w_valid.eq(put_mant | take_word)
        m.d.comb += [
            self.w_slot.eq(first_slot), self.w_row.eq(first_row),
            self.load_done.eq((self.w_en & first_last)
                              | (self.l_w_valid & self.l_w_ready & second_last)),
            self.load_source.eq(Mux(self.w_en, first_source, second_source)),
        ]

        for c in range(cfg.tile):
            m.submodules[f"lane{c}"] = lane = UnpackLane(cfg)
            m.d.comb += [
                lane.keep.eq(valid_row & (c < current.cols)),
                lane.code.eq(mantissas.o.payload.data.word_select(c, cfg.container)),
                lane.scaled.eq((exponent != 0) & (exponent != 255)), lane.take.eq(take_mant),
                self.w_data[c].eq(lane.mant), lane.exponent.eq(self.w_exp),
                lane.word.eq(words.o.payload.data.word_select(c, 32)),
                lane.put_mant.eq(put_mant), lane.put_word.eq(take_word),
                self.l_w_data[c].eq(lane.value),
            ]
        return m
