"""Fetch of instructions."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import OFFSET_BITS, Config
from hw.control.cache import ProgramCache
from hw.control.commands import ContextId, Destination, load_command
from hw.isa import INSTRUCTION, INSTRUCTION_BYTES, Kind


class Fetch(wiring.Component):
    """Fetches one instruction after the other; that of INFERENCE has a program cache.

    An instruction is asked for 1 clock after `start`; `ready` comes with the instruction, 3 clocks
    after `start` if it is in the cache, which takes a clock also if it is not.

    Members
    -------
    start : In(1), fetch the instruction at `pc`; the one before was taken, or there is none
    pc, region_size : In(32); `pc` stays until `ready` or `outside`
    cached : In(1), look it up in the cache and keep it there; stable from `start` on. TRAINING: 0
    clear : In(1), empty the cache; not while an instruction is fetched
    abort : In(1), offer no command
    load : Out(stream) of commands
    instr_valid, instr : In, the load unit's instruction, which stays
    ready : Out(1), `o` is here, until `take`
    take : In(1)
    o : Out(INSTRUCTION), stays until the next `start`
    outside : Out(1), it would leave the region; until reset
    pending : Out(1), a command's answer is to come
    """

    def __init__(self, cfg: Config, context: ContextId):
        self.cfg, self.context = cfg, context
        super().__init__({
            "start": In(1), "pc": In(OFFSET_BITS), "region_size": In(OFFSET_BITS),
            "cached": In(1), "clear": In(1), "abort": In(1),
            "load": Out(stream.Signature(load_command(cfg))),
            "instr_valid": In(1), "instr": In(INSTRUCTION),
            "ready": Out(1), "take": In(1), "o": Out(INSTRUCTION),
            "outside": Out(1), "pending": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        ask = Signal()  # a command to give
        want = Signal()  # it has to come from memory
        hit = Signal()
        start = Signal()  # inside the region
        beyond = self.pc + INSTRUCTION_BYTES > self.region_size
        with m.If(self.start & beyond):
            m.d.sync += self.outside.eq(1)
        m.d.comb += [
            start.eq(self.start & ~beyond),
            self.load.valid.eq(ask & ~self.abort), self.load.payload.kind.eq(Kind.PROGRAM),
            self.load.payload.dest.eq(Destination.PROGRAM), self.load.payload.addr.eq(self.pc),
        ]
        if self.context is ContextId.INFERENCE:
            m.submodules.cache = cache = ProgramCache()
            looking = Signal()
            from_cache = Signal()
            m.d.sync += looking.eq(cache.read)
            m.d.comb += [
                cache.addr.eq(self.pc), cache.read.eq(start & self.cached),
                cache.clear.eq(self.clear),
                cache.write.eq(self.instr_valid & self.cached), cache.i.eq(self.instr),
                hit.eq(looking & cache.hit),
                want.eq(Mux(self.cached, looking & ~cache.hit, start)),
                self.o.eq(Mux(from_cache, cache.o, self.instr)),
            ]
            with m.If(self.start):
                m.d.sync += from_cache.eq(0)
            with m.Elif(hit):
                m.d.sync += from_cache.eq(1)
        else:
            m.d.comb += [want.eq(start), self.o.eq(self.instr)]

        with m.If(self.load.valid & self.load.ready):
            m.d.sync += ask.eq(0)
        with m.If(want):
            m.d.sync += [ask.eq(1), self.pending.eq(1)]
        with m.If(self.take):
            m.d.sync += self.ready.eq(0)
        with m.If(self.instr_valid):
            m.d.sync += self.pending.eq(0)
        with m.If(self.instr_valid | hit):
            m.d.sync += self.ready.eq(1)
        return m
