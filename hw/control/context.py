"""A context: runs one program on the shared units."""

from amaranth.hdl import (
    ClockDomain,
    ClockSignal,
    DomainRenamer,
    Module,
    Mux,
    ResetSignal,
    Signal,
)
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import MAX_REQUESTS, OFFSET_BITS, Config
from hw.control.commands import (
    ContextId,
    Source,
    exec_command,
    load_command,
    store_command,
    vector_command,
)
from hw.control.decoder import Decoder
from hw.control.fetch import Fetch
from hw.control.index import AddressRegisters, LoopStack
from hw.control.numbers import LOW_BITS
from hw.control.stream import EVENTS, CommandStream
from hw.isa import INSTRUCTION, INSTRUCTION_BYTES, Error, Opcode
from hw.lib.arbiter import Arbiter

#: Events by which the units report finished commands, and the outputs that name their stream.
SOURCES = {"load_done": "load_source", "exec_read": None, "exec_done": None,
           "vector_done": "vector_source", "store_read": "store_read_source",
           "store_done": "store_done_source"}


class Context(wiring.Component):
    """Fetches, decodes and dispatches a program, and hands its commands to the units in order.

    Instructions go to one of two streams (`CommandStream`), whose commands take turns; a fetch goes
    before them. An error or `stop` ends with `restart`, high for one clock when all bus transfers
    have ended and the shared units have done all that they took. It resets all of this context but
    what the host reads (clock domain "work"); the parent must reset the context's load and store
    units with it.

    Members
    -------
    start, stop : In(1), pulses; a start while a stop or an error is dealt with is ignored
    cached : In(1), with `start`, INFERENCE: the program was launched by the request unit. It uses
        the program cache and finds tiles that were kept; any other start forgets these
    drop : In(1), pulse while not `busy`: forget kept tiles, empty the program cache
    attached : In(1), the request unit has transfers of its own: bus errors and `stop` count also
        while not `busy`, and end in the same way
    batch_rows : In(8), rows of the running batch, 0 if there is none; batch_buffer : In(1), where
        its inputs are; both stable while `busy`
    program_addr, region_size : In(32)
    spad_first, spad_last, acc_first, acc_last : In(16), slots of this context
    load, exec, vector, store : Out(stream) of commands to the units; `exec` leaves `context` 0
    instr_valid, instr : In, the load unit's instruction
    load_done .. store_done : In(1), the units' events, with load_source, vector_source,
        store_read_source, store_done_source : In(Source)
    read_error, write_error : In(1) with read_error_addr, write_error_addr : In(32)
    units_idle : In(1), no bus transfer of this context is under way
    abort : Out(1), the units must finish their bus transfers and begin none
    restart : Out(1)
    busy, done, error : Out(1), as in STATUS
    finished : Out(1), pulse when `busy` falls
    error_code : Out(8), error_addr, error_pc : Out(32)
    taken : Out(1), pulse: an instruction is executed or refused by the decoder
    decoded : Out(1), pulse: a GEMM, GRAD, CONVERT or VECTOR starts
    phase : Out(5), of the array stream's latest instruction while one of that stream is not
        finished, else of the vector stream's, else of the last one
    wait_load, wait_store : Out(1), the next operation waits for an operand, an accumulator slot
    """

    def __init__(self, cfg: Config, context: ContextId):
        self.cfg, self.context = cfg, context
        super().__init__({
            "start": In(1), "stop": In(1), "cached": In(1), "drop": In(1), "attached": In(1),
            "batch_rows": In(range(MAX_REQUESTS + 1)), "batch_buffer": In(1),
            "spad_first": In(16), "spad_last": In(16), "acc_first": In(16), "acc_last": In(16),
            "program_addr": In(OFFSET_BITS), "region_size": In(OFFSET_BITS),
            "load": Out(stream.Signature(load_command(cfg))),
            "exec": Out(stream.Signature(exec_command(cfg))),
            "vector": Out(stream.Signature(vector_command(cfg))),
            "store": Out(stream.Signature(store_command(cfg))),
            "instr_valid": In(1), "instr": In(INSTRUCTION),
            **{event: In(1) for event in SOURCES},
            **{name: In(Source) for name in SOURCES.values() if name},
            "read_error": In(1), "read_error_addr": In(OFFSET_BITS),
            "write_error": In(1), "write_error_addr": In(OFFSET_BITS),
            "units_idle": In(1), "abort": Out(1), "restart": Out(1),
            "busy": Out(1), "done": Out(1), "error": Out(1), "finished": Out(1),
            "error_code": Out(Error), "error_addr": Out(OFFSET_BITS), "error_pc": Out(OFFSET_BITS),
            "taken": Out(1), "decoded": Out(1), "phase": Out(INSTRUCTION["phase"].shape),
            "wait_load": Out(1), "wait_store": Out(1),
        })

    def _streams(self, m, platform):
        """The two streams, and the arbiters between them and the units; the input for fetches."""
        work = DomainRenamer("work")
        streams = {s: CommandStream(self.cfg, s) for s in EVENTS}
        for source, s in streams.items():
            name = f"{source.name.lower()}_stream"
            m.submodules[name] = work(
                platform.unit(s, f"npu_{name}", source) if platform else s)
            m.d.comb += [s.abort.eq(self.abort), s.region_size.eq(self.region_size)]
            for event in EVENTS[source]:
                name = SOURCES[event]
                mine = getattr(self, name) == source if name else 1
                m.d.comb += getattr(s, event).eq(getattr(self, event) & mine)
        array, vector = streams.values()
        m.submodules.load_arbiter = work(
            loads := Arbiter(load_command(self.cfg), 3, priority=True))
        m.submodules.vector_arbiter = work(vectors := Arbiter(vector_command(self.cfg)))
        m.submodules.store_arbiter = work(stores := Arbiter(store_command(self.cfg)))
        for name, arbiter in ("load", loads), ("vector", vectors), ("store", stores):
            wiring.connect(m, getattr(array, name), arbiter.i[-2])
            wiring.connect(m, getattr(vector, name), arbiter.i[-1])
            wiring.connect(m, arbiter.o, wiring.flipped(getattr(self, name)))
        wiring.connect(m, array.exec, wiring.flipped(self.exec))
        m.d.comb += [array.batch_buffer.eq(self.batch_buffer),
                     self.wait_load.eq(array.wait_load), self.wait_store.eq(array.wait_store)]
        return array, vector, loads.i[0]

    def _inside(self, m, port, done):
        """Commands of `port` that a shared unit has taken and not done. No restart resets them."""
        inside = Signal(LOW_BITS, name=f"inside_{done}")
        m.d.sync += inside.eq(inside + (port.valid & port.ready) - getattr(self, done))
        return inside

    def elaborate(self, platform):
        m = Module()
        cfg = self.cfg
        work = DomainRenamer("work")
        m.domains.work = domain = ClockDomain("work", local=True)
        m.d.comb += [domain.clk.eq(ClockSignal()),
                     domain.rst.eq(ResetSignal() | self.restart)]
        m.submodules.registers = work(registers := AddressRegisters())
        m.submodules.loops = work(loops := LoopStack())
        m.submodules.decoder = work(decoder := Decoder(cfg, self.context))
        m.submodules.fetch = work(fetch := Fetch(cfg, self.context))
        array, vector, program = self._streams(m, platform)
        pc = Signal(OFFSET_BITS)
        launched = Signal()  # by the request unit
        wiring.connect(m, fetch.load, program)
        m.d.comb += [
            fetch.pc.eq(pc), fetch.region_size.eq(self.region_size), fetch.cached.eq(launched),
            fetch.clear.eq(self.drop), fetch.abort.eq(self.abort),
            fetch.instr_valid.eq(self.instr_valid), fetch.instr.eq(self.instr),
            registers.i.eq(fetch.o),
        ]

        # --- the instruction, its stream, and what comes next ------------------------------------
        instr = Signal(INSTRUCTION)
        m.d.comb += instr.eq(registers.o)
        with m.If(registers.o.run_m & (registers.o.opcode == Opcode.GEMM.value)):
            m.d.comb += instr.m.eq(self.batch_rows)
        step = Signal()  # execute it
        go = Signal()  # its stream takes it
        to_vector = Signal()
        control = Signal()  # for this context alone
        next_pc = Signal(OFFSET_BITS)
        refusal = Signal(Error)
        op = {o: Signal(name=f"is_{o.name.lower()}") for o in Opcode}
        following = pc + INSTRUCTION_BYTES
        m.d.comb += [
            *(s.eq(instr.opcode == o.value) for o, s in op.items()),
            to_vector.eq(op[Opcode.VECTOR] | op[Opcode.CONVERT]),
            control.eq(op[Opcode.LOOP] | op[Opcode.NEXT] | op[Opcode.ADDRESS]),
            go.eq(Mux(to_vector, vector.ready & (array.unfinished <= instr.overlap),
                      array.ready & (vector.unfinished <= instr.overlap))),
            self.decoded.eq(step & (to_vector | op[Opcode.GEMM] | op[Opcode.GRAD])),
            array.start.eq(self.decoded & ~to_vector), vector.start.eq(self.decoded & to_vector),
            registers.write.eq(step & op[Opcode.ADDRESS]),
            decoder.instr.eq(instr), decoder.batch_buffer.eq(self.batch_buffer),
            *(getattr(decoder, n).eq(getattr(self, n))
              for n in ("spad_first", "spad_last", "acc_first", "acc_last")),
            loops.turns.eq(instr.m), loops.body.eq(following),
            loops.open.eq(step & op[Opcode.LOOP] & (instr.m != 0)),
            loops.next.eq(step & op[Opcode.NEXT]),
            next_pc.eq(following), refusal.eq(decoder.error),
        ]
        with m.If(op[Opcode.LOOP] & (instr.m == 0)):
            m.d.comb += next_pc.eq(pc + (instr.bm + 1) * INSTRUCTION_BYTES)
        with m.Elif(op[Opcode.NEXT] & loops.again):
            m.d.comb += next_pc.eq(loops.begin)
        with m.If((decoder.error == Error.NONE)
                  & ((op[Opcode.LOOP] & (instr.m != 0) & loops.full)
                     | (op[Opcode.NEXT] & loops.empty))):
            m.d.comb += refusal.eq(Error.BAD_FIELD)
        for s in (array, vector):
            m.d.comb += [s.instr.eq(instr), s.pc.eq(pc)]
            for name in (f"{size}_{d}" for size in ("count", "rest") for d in s.dimensions):
                m.d.comb += getattr(s, name).eq(getattr(decoder, name))

        # --- the phase that clocks count under ---------------------------------------------------
        phase = {s: Signal.like(self.phase, name=f"phase_{s.source.name.lower()}")
                 for s in (array, vector)}
        phase_before = Signal.like(self.phase)
        for s, latest in phase.items():
            with m.If(s.start):
                m.d.sync += latest.eq(instr.phase)
        with m.If(array.unfinished != 0):
            m.d.comb += self.phase.eq(phase[array])
        with m.Elif(vector.unfinished != 0):
            m.d.comb += self.phase.eq(phase[vector])
        with m.Else():
            m.d.comb += self.phase.eq(phase_before)
        m.d.sync += phase_before.eq(self.phase)

        # --- run state ---------------------------------------------------------------------------
        drained = Signal()
        lost = Signal()  # a sequencer has refused an address
        m.d.comb += [drained.eq(array.drained & vector.drained),
                     lost.eq(array.bad_address | vector.bad_address)]

        def fail(code, address, at):
            m.d.sync += [self.error.eq(1), self.error_code.eq(code), self.error_addr.eq(address),
                         self.error_pc.eq(at)]

        complete = Signal()
        begin = Signal()
        quiet = Signal()  # nothing of this context is inside a unit
        m.d.comb += [
            array.forget.eq(self.drop | (begin & ~self.cached)),
            quiet.eq(self.units_idle & (self._inside(m, self.exec, "exec_done") == 0)
                     & (self._inside(m, self.vector, "vector_done") == 0)),
        ]
        with m.FSM(name="run", domain="work"):
            with m.State("IDLE"):
                with m.If(self.start & ~self.abort):
                    m.d.comb += [begin.eq(1), registers.clear.eq(1), loops.clear.eq(1)]
                    m.d.work += launched.eq(self.cached)
                    m.d.sync += [pc.eq(self.program_addr), self.busy.eq(1), self.done.eq(0),
                                 self.error.eq(0), self.error_code.eq(Error.NONE),
                                 self.error_addr.eq(0), self.error_pc.eq(0), phase_before.eq(0)]
                    m.next = "FETCH"
            with m.State("FETCH"):
                m.d.comb += fetch.start.eq(1)
                m.next = "TAKE"
            with m.State("TAKE"):  # wait for the instruction
                with m.If(lost | self.abort):
                    m.next = "STOP"
                with m.Elif(fetch.ready):
                    m.d.comb += [fetch.take.eq(1), registers.start.eq(1)]
                    m.next = "ADD"
                with m.Elif(fetch.outside & drained):
                    fail(Error.BAD_ADDRESS, pc, pc)
                    m.next = "DRAIN"
            with m.State("ADD"):  # address registers
                with m.If(registers.done):
                    m.d.comb += decoder.start.eq(1)
                    m.next = "DISPATCH"
            with m.State("DISPATCH"):
                with m.If(lost | self.abort):
                    m.next = "STOP"
                with m.Elif(decoder.done & (refusal != Error.NONE)):
                    with m.If(drained):
                        m.d.comb += self.taken.eq(1)
                        fail(refusal, pc, pc)
                        m.next = "DRAIN"
                with m.Elif(decoder.done & op[Opcode.END]):
                    with m.If(drained):
                        m.d.comb += self.taken.eq(1)
                        m.next = "DRAIN"
                with m.Elif(decoder.done & Mux(op[Opcode.FENCE], drained, go | control)):
                    m.d.comb += [step.eq(1), self.taken.eq(1)]
                    m.d.sync += pc.eq(next_pc)
                    m.next = "FETCH"
            with m.State("STOP"):
                with m.If(~self.abort & array.bad_address):
                    fail(Error.BAD_ADDRESS, array.bad_offset, array.bad_pc)
                with m.Elif(~self.abort):
                    fail(Error.BAD_ADDRESS, vector.bad_offset, vector.bad_pc)
                m.next = "DRAIN"
            with m.State("DRAIN"):  # everything taken before ends normally
                with m.If(drained & ~fetch.pending & ~self.abort):
                    with m.If(self.error):
                        m.d.sync += self.abort.eq(1)
                    with m.Else():
                        m.d.comb += complete.eq(1)
                        m.next = "IDLE"

        # An error or a stop ends with a restart; bus error and stop do not wait for the queues.
        running = ((self.busy & ~complete) | self.attached) & ~self.abort
        with m.If(~self.busy & running & self.stop):  # it is not about the last program's error
            m.d.sync += [self.error.eq(0), self.error_code.eq(Error.NONE), self.error_addr.eq(0)]
        for bad, code in (("write_error", Error.WRITE_ERROR), ("read_error", Error.READ_ERROR)):
            with m.If(running & getattr(self, bad)):
                m.d.sync += self.abort.eq(1)
                with m.If(~self.error | ~self.busy):
                    fail(code, getattr(self, f"{bad}_addr"), pc)
        with m.If(running & self.stop):
            m.d.sync += self.abort.eq(1)
        m.d.comb += [
            self.restart.eq(quiet & self.abort), self.finished.eq(self.restart | complete),
        ]
        with m.If(self.finished):
            m.d.sync += [self.busy.eq(0), self.done.eq(complete)]
            with m.If(~self.error):
                m.d.sync += self.error_pc.eq(pc)
        with m.If(self.restart):
            m.d.sync += self.abort.eq(0)
        return m
