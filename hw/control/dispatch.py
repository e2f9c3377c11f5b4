"""The instruction that a context executes next: its checks, its stream, and what follows it."""

from amaranth.hdl import DomainRenamer, Module, Mux, Signal, Value
from amaranth.lib import wiring

from hw.config import OFFSET_BITS
from hw.control.context_streams import ContextStreams
from hw.control.decoder import Decoder
from hw.control.index import AddressRegisters, LoopStack
from hw.isa import INSTRUCTION, INSTRUCTION_BYTES, Error, Opcode


class Dispatch:
    """Gives the instruction at `pc` of `context` to the stream that it is for, in module `m`.

    Submodules are in the clock domain "work". Signals are valid while `decoder.done`.

    Attributes
    ----------
    registers : AddressRegisters; its input `i` is the instruction as fetched
    loops, decoder : LoopStack, Decoder
    instr : the instruction, with address registers and the batch's rows
    op : by Opcode, whether it is that of `instr`
    ready : its stream can take it, or it is for this context alone
    refusal : Signal(Error), why it is not executed, or NONE
    next_pc : offset of the instruction that follows it
    step : set by the context, execute it in this clock
    """

    def __init__(self, m: Module, context: wiring.Component, pc: Value,
                 streams: ContextStreams):
        work = DomainRenamer("work")
        self.registers, self.loops = AddressRegisters(), LoopStack()
        self.decoder = Decoder(context.cfg, context.context)
        m.submodules.registers = work(self.registers)
        m.submodules.loops = work(self.loops)
        m.submodules.decoder = work(self.decoder)
        self.instr = Signal(INSTRUCTION)
        self.step = Signal()
        self.op = {o: Signal(name=f"is_{o.name.lower()}") for o in Opcode}
        m.d.comb += [
            self.instr.eq(self.registers.o),
            *(s.eq(self.instr.opcode == o.value) for o, s in self.op.items()),
            self.registers.write.eq(self.step & self.op[Opcode.ADDRESS]),
        ]
        with m.If(self.registers.o.run_m & (self.registers.o.opcode == Opcode.GEMM.value)):
            m.d.comb += self.instr.m.eq(context.batch_rows)
        self._decoder(m, context)
        self._following(m, pc)
        self._stream(m, context, pc, streams)

    def _decoder(self, m, context):
        decoder = self.decoder
        m.d.comb += [decoder.instr.eq(self.instr), decoder.batch_buffer.eq(context.batch_buffer),
                     *(getattr(decoder, n).eq(getattr(context, n))
                       for n in ("spad_first", "spad_last", "acc_first", "acc_last"))]

    def _following(self, m, pc):
        """Loops."""
        instr, op, loops, step = self.instr, self.op, self.loops, self.step
        following = pc + INSTRUCTION_BYTES
        opens = op[Opcode.LOOP] & (instr.m != 0)
        self.next_pc = Signal(OFFSET_BITS)
        self.refusal = Signal(Error)
        m.d.comb += [
            loops.turns.eq(instr.m), loops.body.eq(following), loops.open.eq(step & opens),
            loops.next.eq(step & op[Opcode.NEXT]),
            self.next_pc.eq(following), self.refusal.eq(self.decoder.error),
        ]
        with m.If(op[Opcode.LOOP] & (instr.m == 0)):
            m.d.comb += self.next_pc.eq(pc + (instr.bm + 1) * INSTRUCTION_BYTES)
        with m.Elif(op[Opcode.NEXT] & loops.again):
            m.d.comb += self.next_pc.eq(loops.begin)
        with m.If((self.decoder.error == Error.NONE)
                  & ((opens & loops.full) | (op[Opcode.NEXT] & loops.empty))):
            m.d.comb += self.refusal.eq(Error.BAD_FIELD)

    def _stream(self, m, context, pc, streams):
        """Which stream takes the instruction, and when."""
        instr, op, array, vector = self.instr, self.op, streams.array, streams.vector
        to_vector = Signal()
        control = Signal()  # for this context alone
        self.ready = Signal()
        m.d.comb += [
            to_vector.eq(op[Opcode.VECTOR] | op[Opcode.CONVERT]),
            control.eq(op[Opcode.LOOP] | op[Opcode.NEXT] | op[Opcode.ADDRESS]),
            self.ready.eq(control | Mux(
                to_vector, vector.ready & (array.unfinished <= instr.overlap),
                array.ready & (vector.unfinished <= instr.overlap))),
            context.decoded.eq(self.step & (to_vector | op[Opcode.GEMM] | op[Opcode.GRAD])),
            array.start.eq(context.decoded & ~to_vector),
            vector.start.eq(context.decoded & to_vector),
        ]
        for s in (array, vector):
            m.d.comb += [s.instr.eq(instr), s.pc.eq(pc),
                         *(getattr(s, name).eq(getattr(self.decoder, name)) for name in (
                             f"{size}_{d}" for size in ("count", "rest") for d in s.dimensions))]
