"""Load unit: reads tile images, instructions and descriptors from DRAM and unpacks them."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect

from hw.config import Config, clog2
from hw.control.commands import Destination, Source, load_command
from hw.isa import INSTRUCTION_BYTES, Kind
from hw.lib.fifo import Fifo
from hw.memory.axi import image_beats
from hw.memory.gearbox import Gearbox
from hw.memory.read import ReadBursts
from hw.memory.unpack import TileRows, tile_header

#: Bits of a request descriptor; the rest of its ring entry is dropped.
DESCRIPTOR_BITS = 128


class LoadUnit(wiring.Component):
    """Executes load commands in order; reads run ahead of the data by `outstanding` bursts.

    Unpacks one row per clock and takes one beat per clock while it is not waiting for rows: T = 16,
    m = 8 on 128 bits takes 17 clocks per image, one for each of its 17 beats. There is room for all
    beats that are asked for (`Config.read_buffer`), so `r_ready` is always high and rows that wait
    for `w_ready` or `l_w_ready` do not hold up the other context's data on the bus.

    After `abort` the unit must be reset (once `idle`) before it takes commands again.

    Members
    -------
    cmd : In(stream.Signature(load_command(cfg)))
    base : In(addr_width), address of the region, stable
    max_beats : In(9), most beats of a burst; 0 counts as 1
    credits : In(16), a burst is raised only if `owed` and its beats are no more than this together,
        or if nothing is owed; both limits may change at any time
    owed : Out(16), beats of bursts that are raised which have not arrived
    ar_valid, ar_ready, ar_addr, ar_len, r_valid, r_ready, r_data, r_resp, r_last : AXI4 read
        channels; INCR bursts of whole beats, one ID
    w_valid, w_ready, w_slot, w_row, w_data, w_exp : a row for the scratchpad
    l_w_valid, l_w_ready, l_w_slot, l_w_row, l_w_data : a row for the accumulator
    instr_valid : Out(1), pulse: `instr` is a new instruction. It stays until the data of the next
        PROGRAM command arrives
    descriptor_valid : Out(1), pulse: `descriptor` is a new one, its first 16 bytes, word 0 lowest.
        It stays until the data of the next DESCRIPTOR command arrives
    load_done : Out(1), pulse per SPAD or ACC command, in order, in the clock in which its last row
        is accepted; load_source : Out(Source), the command's, with it
    count_en : Out(1), pulse: a burst of `count_bytes` of `count_kind` was accepted
    error : Out(1), pulse: a beat came with an error response; `error_addr` is the offset of the
        image. The image is unpacked nevertheless, but is no instruction and no descriptor
    abort : In(1), take no command, raise no burst (one that is raised stays until accepted), take
        and drop all data
    idle : Out(1), no burst is raised or unanswered
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "cmd": In(stream.Signature(load_command(cfg))), "base": In(cfg.addr_width),
            "max_beats": In(9), "credits": In(16), "owed": Out(16),
            "ar_valid": Out(1), "ar_ready": In(1), "ar_addr": Out(cfg.addr_width),
            "ar_len": Out(8),
            "r_valid": In(1), "r_ready": Out(1), "r_data": In(cfg.axi_width), "r_resp": In(2),
            "r_last": In(1),
            "w_valid": Out(1), "w_ready": In(1), "w_slot": Out(cfg.spad_slot_bits),
            "w_row": Out(cfg.row_bits), "w_data": Out(data.ArrayLayout(cfg.mant_width, cfg.tile)),
            "w_exp": Out(8),
            "l_w_valid": Out(1), "l_w_ready": In(1), "l_w_slot": Out(cfg.acc_slot_bits),
            "l_w_row": Out(cfg.row_bits), "l_w_data": Out(data.ArrayLayout(32, cfg.tile)),
            "instr_valid": Out(1), "instr": Out(8 * INSTRUCTION_BYTES),
            "descriptor_valid": Out(1), "descriptor": Out(DESCRIPTOR_BITS),
            "load_done": Out(1), "load_source": Out(Source),
            "count_en": Out(1), "count_kind": Out(Kind), "count_bytes": Out(16),
            "error": Out(1), "error_addr": Out(32), "abort": In(1), "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        cfg = self.cfg
        program_beats = max(1, INSTRUCTION_BYTES // cfg.beat_bytes)
        entry_beats = cfg.entry_bytes // cfg.beat_bytes
        most = max(cfg.bfp_beats, cfg.fp32_beats, program_beats)

        # --- requests: commands become bursts, and wait for their data in `queue` ----------------
        m.submodules.bursts = bursts = ReadBursts(cfg, most)
        waiting = data.StructLayout({"command": load_command(cfg), "beats": range(most + 1)})
        m.submodules.queue = queue = Fifo(waiting, max(2, cfg.outstanding))
        command = self.cmd.payload
        beats = queue.i.payload.beats
        with m.Switch(command.dest):
            with m.Case(Destination.PROGRAM):
                m.d.comb += beats.eq(program_beats)
            with m.Case(Destination.DESCRIPTOR):
                m.d.comb += beats.eq(entry_beats)
            with m.Default():
                m.d.comb += beats.eq(image_beats(cfg, ~command.fp32, command.rows))
        m.d.comb += [
            self.cmd.ready.eq(bursts.ready & queue.i.ready & ~self.abort),
            bursts.start.eq(self.cmd.valid & self.cmd.ready),
            bursts.address.eq(self.base + command.addr), bursts.beats.eq(beats),
            bursts.kind.eq(command.kind), bursts.abort.eq(self.abort),
            bursts.max_beats.eq(self.max_beats), bursts.credits.eq(self.credits),
            bursts.beat.eq(self.r_valid & self.r_ready), bursts.last.eq(self.r_last),
            queue.i.valid.eq(bursts.start), queue.i.payload.command.eq(command),
            self.ar_valid.eq(bursts.ar_valid), bursts.ar_ready.eq(self.ar_ready),
            self.ar_addr.eq(bursts.ar_addr), self.ar_len.eq(bursts.ar_len),
            self.count_en.eq(self.ar_valid & self.ar_ready), self.count_kind.eq(bursts.ar_kind),
            self.count_bytes.eq((self.ar_len + 1) << clog2(cfg.beat_bytes)),
            self.owed.eq(bursts.owed), self.idle.eq(bursts.idle),
        ]

        # --- beats: exponents, mantissas or words, instruction, descriptor -----------------------
        layout = data.StructLayout({"data": cfg.axi_width, "error": 1})
        m.submodules.incoming = fifo = Fifo(layout, cfg.read_buffer)
        m.submodules.mantissas = mantissas = Gearbox(cfg.axi_width, cfg.tile * cfg.container)
        m.submodules.words = words = Gearbox(cfg.axi_width, cfg.tile * 32)
        m.submodules.rows = rows = TileRows(cfg)
        head, beat = queue.o.payload.command, fifo.o.payload
        number = Signal(range(most))               # of the beat in its image
        taken = Signal()
        last_beat = Signal()
        failed = Signal()
        good = Signal()                            # all beats came without an error
        program = Signal()
        descriptor = Signal()
        tile = Signal()
        header = Signal()
        # The image whose rows come next: it is known from its last exponent or first word on.
        known = Signal()
        room = Signal()
        pending = Signal()
        following = Signal(tile_header(cfg), reset_less=True)

        m.d.comb += [
            fifo.i.valid.eq(self.r_valid & ~self.abort), self.r_ready.eq(1),
            bursts.buffered.eq(fifo.level),
            fifo.i.payload.data.eq(self.r_data), fifo.i.payload.error.eq(self.r_resp[1]),
            program.eq(head.dest == Destination.PROGRAM),
            descriptor.eq(head.dest == Destination.DESCRIPTOR), tile.eq(~program & ~descriptor),
            header.eq(tile & ~head.fp32 & (number < cfg.exp_beats)),
            known.eq(tile & (number == Mux(head.fp32, 0, cfg.exp_beats - 1))),
            room.eq(~pending | rows.tile.ready),
            mantissas.i.payload.data.eq(beat.data), words.i.payload.data.eq(beat.data),
            taken.eq(fifo.o.valid & fifo.o.ready), good.eq(~failed & ~beat.error),
            last_beat.eq(number + 1 == queue.o.payload.beats),
        ]
        with m.If(queue.o.valid):
            with m.If(~tile):
                m.d.comb += fifo.o.ready.eq(1)
            with m.Elif(header):
                m.d.comb += fifo.o.ready.eq(room)
            with m.Elif(head.fp32):
                m.d.comb += [words.i.valid.eq(fifo.o.valid & (~known | room)),
                             fifo.o.ready.eq(words.i.ready & (~known | room))]
            with m.Else():
                m.d.comb += [mantissas.i.valid.eq(fifo.o.valid), fifo.o.ready.eq(mantissas.i.ready)]
        m.d.comb += queue.o.ready.eq(taken & last_beat)
        m.d.sync += [self.instr_valid.eq(taken & program & last_beat & good),
                     self.descriptor_valid.eq(taken & descriptor & last_beat & good),
                     self.error.eq(taken & beat.error)]
        exponents = following.exponents
        with m.If(taken):
            m.d.sync += [number.eq(Mux(last_beat, 0, number + 1)), self.error_addr.eq(head.addr),
                         failed.eq(~last_beat & ~good)]
            with m.If(program):
                m.d.sync += self.instr.eq(Cat(self.instr, beat.data)[-len(self.instr):])
            with m.If(descriptor):
                m.d.sync += self.descriptor.eq(
                    beat.data if cfg.axi_width >= DESCRIPTOR_BITS
                    else Cat(self.descriptor, beat.data)[-DESCRIPTOR_BITS:])
            with m.If(header):
                m.d.sync += exponents.eq(Cat(exponents, beat.data)[-len(exponents):])
        with m.If(taken & known):
            m.d.sync += [following.command.eq(head), pending.eq(1)]
        with m.Elif(rows.tile.ready):
            m.d.sync += pending.eq(0)

        # --- rows --------------------------------------------------------------------------------
        connect(m, mantissas.o, rows.mantissas)
        connect(m, words.o, rows.words)
        m.d.comb += [
            rows.tile.valid.eq(pending), rows.tile.payload.eq(following),
            mantissas.drop.eq(rows.drop), words.drop.eq(rows.drop),
            self.load_done.eq(rows.done), self.load_source.eq(rows.done_source),
        ]
        for port, fields in ("w", ("slot", "row", "data", "exp")), ("l_w", ("slot", "row", "data")):
            m.d.comb += [getattr(self, f"{port}_{n}").eq(getattr(rows, f"{port}_{n}"))
                         for n in ("valid", *fields)]
            m.d.comb += getattr(rows, f"{port}_ready").eq(getattr(self, f"{port}_ready"))
        return m
