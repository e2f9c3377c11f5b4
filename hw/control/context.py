"""A context: runs one program on the shared units."""

from amaranth.hdl import ClockDomain, ClockSignal, DomainRenamer, Module, Mux, ResetSignal, Signal
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
from hw.control.context_streams import SOURCES, ContextStreams
from hw.control.dispatch import Dispatch
from hw.control.fetch import Fetch
from hw.control.numbers import LOW_BITS
from hw.isa import INSTRUCTION, Error, Opcode


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

    def _inside(self, m, port, done):
        """Commands of `port` that a shared unit has taken and not done. No restart resets them."""
        inside = Signal(LOW_BITS, name=f"inside_{done}")
        m.d.sync += inside.eq(inside + (port.valid & port.ready) - getattr(self, done))
        return inside

    def _fail(self, m, code, address, at):
        m.d.sync += [self.error.eq(1), self.error_code.eq(code), self.error_addr.eq(address),
                     self.error_pc.eq(at)]

    def elaborate(self, platform):
        m = Module()
        work = DomainRenamer("work")
        m.domains.work = domain = ClockDomain("work", local=True)
        m.d.comb += [domain.clk.eq(ClockSignal()),
                     domain.rst.eq(ResetSignal() | self.restart)]
        m.submodules.fetch = work(fetch := Fetch(self.cfg, self.context))
        streams = ContextStreams(m, self, platform)
        pc = Signal(OFFSET_BITS)
        dispatch = Dispatch(m, self, pc, streams)
        wiring.connect(m, fetch.load, streams.program)
        m.d.comb += [
            fetch.pc.eq(pc), fetch.region_size.eq(self.region_size),
            fetch.clear.eq(self.drop), fetch.abort.eq(self.abort),
            fetch.instr_valid.eq(self.instr_valid), fetch.instr.eq(self.instr),
            dispatch.registers.i.eq(fetch.o),
        ]
        begin, complete = self._run(m, fetch, dispatch, streams, pc)
        m.d.comb += streams.array.forget.eq(self.drop | (begin & ~self.cached))
        self._phase(m, streams, begin)
        self._end(m, pc, complete)
        return m

    def _run(self, m, fetch, dispatch, streams, pc):
        """Run a program; its begin, and its end without a restart."""
        decoder = dispatch.decoder
        begin = Signal()
        complete = Signal()
        launched = Signal()  # by the request unit
        m.d.comb += fetch.cached.eq(launched)
        with m.FSM(name="run", domain="work"):
            with m.State("IDLE"):
                with m.If(self.start & ~self.abort):
                    m.d.comb += [begin.eq(1), dispatch.registers.clear.eq(1),
                                 dispatch.loops.clear.eq(1)]
                    m.d.work += launched.eq(self.cached)
                    m.d.sync += [pc.eq(self.program_addr), self.busy.eq(1), self.done.eq(0),
                                 self.error.eq(0), self.error_code.eq(Error.NONE),
                                 self.error_addr.eq(0), self.error_pc.eq(0)]
                    m.next = "FETCH"
            with m.State("FETCH"):
                m.d.comb += fetch.start.eq(1)
                m.next = "TAKE"
            with m.State("TAKE"):  # wait for the instruction
                with m.If(streams.lost | self.abort):
                    m.next = "STOP"
                with m.Elif(fetch.ready):
                    m.d.comb += [fetch.take.eq(1), dispatch.registers.start.eq(1)]
                    m.next = "ADD"
                with m.Elif(fetch.outside & streams.drained):
                    self._fail(m, Error.BAD_ADDRESS, pc, pc)
                    m.next = "DRAIN"
            with m.State("ADD"):  # address registers
                with m.If(dispatch.registers.done):
                    m.d.comb += decoder.start.eq(1)
                    m.next = "DISPATCH"
            with m.State("DISPATCH"):
                with m.If(streams.lost | self.abort):
                    m.next = "STOP"
                with m.Elif(decoder.done & (dispatch.refusal != Error.NONE)):
                    with m.If(streams.drained):
                        m.d.comb += self.taken.eq(1)
                        self._fail(m, dispatch.refusal, pc, pc)
                        m.next = "DRAIN"
                with m.Elif(decoder.done & dispatch.op[Opcode.END]):
                    with m.If(streams.drained):
                        m.d.comb += self.taken.eq(1)
                        m.next = "DRAIN"
                with m.Elif(decoder.done & Mux(dispatch.op[Opcode.FENCE], streams.drained,
                                               dispatch.ready)):
                    m.d.comb += [dispatch.step.eq(1), self.taken.eq(1)]
                    m.d.sync += pc.eq(dispatch.next_pc)
                    m.next = "FETCH"
            with m.State("STOP"):
                with m.If(~self.abort):
                    self._fail(m, Error.BAD_ADDRESS, streams.bad_offset, streams.bad_pc)
                m.next = "DRAIN"
            with m.State("DRAIN"):  # everything taken before ends normally
                with m.If(streams.drained & ~fetch.pending & ~self.abort):
                    with m.If(self.error):
                        m.d.sync += self.abort.eq(1)
                    with m.Else():
                        m.d.comb += complete.eq(1)
                        m.next = "IDLE"
        return begin, complete

    def _phase(self, m, streams, begin):
        """The phase that clocks count under."""
        both = streams.array, streams.vector
        phases = {s: Signal.like(self.phase, name=f"phase_{s.source.name.lower()}") for s in both}
        phase_before = Signal.like(self.phase)
        for s, phase in phases.items():
            with m.If(s.start):
                m.d.sync += phase.eq(s.instr.phase)
        m.d.comb += self.phase.eq(phase_before)
        for s in reversed(both):
            with m.If(s.unfinished != 0):
                m.d.comb += self.phase.eq(phases[s])
        m.d.sync += phase_before.eq(self.phase)
        with m.If(begin):
            m.d.sync += phase_before.eq(0)

    def _end(self, m, pc, complete):
        """End a program: an error or a stop with a restart, others without."""
        quiet = Signal()  # nothing of this context is inside a unit
        m.d.comb += quiet.eq(self.units_idle & (self._inside(m, self.exec, "exec_done") == 0)
                             & (self._inside(m, self.vector, "vector_done") == 0))
        # Bus errors and stop do not wait for the queues.
        running = ((self.busy & ~complete) | self.attached) & ~self.abort
        with m.If(~self.busy & running & self.stop):  # it is not about the last program's error
            m.d.sync += [self.error.eq(0), self.error_code.eq(Error.NONE), self.error_addr.eq(0)]
        for bad, code in (("write_error", Error.WRITE_ERROR), ("read_error", Error.READ_ERROR)):
            with m.If(running & getattr(self, bad)):
                m.d.sync += self.abort.eq(1)
                with m.If(~self.error | ~self.busy):
                    self._fail(m, code, getattr(self, f"{bad}_addr"), pc)
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
