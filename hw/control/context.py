"""A context: runs one program on the shared units."""

from amaranth.hdl import (
    Cat,
    ClockDomain,
    ClockSignal,
    DomainRenamer,
    Module,
    ResetSignal,
    Signal,
)
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import OFFSET_BITS, Config
from hw.control.commands import Destination, exec_command, load_command, store_command
from hw.control.decoder import Decoder
from hw.control.numbers import NUMBER_BITS, reached
from hw.control.sequencer import Sequencer, queued_exec, queued_load, queued_store
from hw.isa import INSTRUCTION, INSTRUCTION_BYTES, Error, Kind, Opcode
from hw.lib.fifo import Fifo

#: Events by which the units report finished commands.
EVENTS = ("load_done", "exec_read", "exec_done", "store_read", "store_done")


class Context(wiring.Component):
    """Fetches, decodes and sequences a program, and hands its commands to the units in order.

    A command is offered to its unit only when all it waits for has happened. An error or `stop`
    ends with `restart`, high for one clock when all bus transfers have ended. It resets all of this
    context but what the host reads (clock domain "work"); the parent must reset the units with it.

    Members
    -------
    start, stop : In(1), pulses
    program_addr, region_size : In(32)
    load, exec, store : Out(stream) of commands to the units
    instr_valid, instr : In, the load unit's instruction
    load_done .. store_done : In(1), the units' events
    read_error, write_error : In(1) with read_error_addr, write_error_addr : In(32)
    units_idle : In(1), no bus transfer is under way
    abort : Out(1), the units must finish their bus transfers and begin none
    restart : Out(1)
    busy, done, error : Out(1), as in STATUS
    finished : Out(1), pulse when `busy` falls
    error_code : Out(8), error_addr, error_pc : Out(32)
    taken : Out(1), pulse: an instruction was taken
    decoded : Out(1), pulse: a GEMM, GRAD or CONVERT starts
    wait_load, wait_store : Out(1), the next operation waits for an operand, an accumulator slot
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "start": In(1), "stop": In(1),
            "program_addr": In(OFFSET_BITS), "region_size": In(OFFSET_BITS),
            "load": Out(stream.Signature(load_command(cfg))),
            "exec": Out(stream.Signature(exec_command(cfg))),
            "store": Out(stream.Signature(store_command(cfg))),
            "instr_valid": In(1), "instr": In(INSTRUCTION),
            **{e: In(1) for e in EVENTS},
            "read_error": In(1), "read_error_addr": In(OFFSET_BITS),
            "write_error": In(1), "write_error_addr": In(OFFSET_BITS),
            "units_idle": In(1), "abort": Out(1), "restart": Out(1),
            "busy": Out(1), "done": Out(1), "error": Out(1), "finished": Out(1),
            "error_code": Out(Error), "error_addr": Out(OFFSET_BITS), "error_pc": Out(OFFSET_BITS),
            "taken": Out(1), "decoded": Out(1), "wait_load": Out(1), "wait_store": Out(1),
        })

    def _queues(self, m, sequencer, number):
        """The three queues, and the conditions under which their heads go to the units."""
        depth = self.cfg.queue_depth
        work = DomainRenamer("work")
        m.submodules.load_queue = work(loads := Fifo(queued_load(self.cfg), depth))
        m.submodules.exec_queue = work(execs := Fifo(queued_exec(self.cfg), depth))
        m.submodules.store_queue = work(stores := Fifo(queued_store(self.cfg), depth))
        wiring.connect(m, sequencer.load, loads.i)
        wiring.connect(m, sequencer.exec, execs.i)
        wiring.connect(m, sequencer.store, stores.i)

        def waiting(queue, names):
            return Cat(queue.o.valid & ~reached(number[n], queue.o.p[n]) for n in names).any()

        load_wait = Signal()
        store_wait = Signal()
        m.d.comb += [
            load_wait.eq(waiting(loads, ("exec_read", "store_read", "store_done"))),
            self.wait_load.eq(waiting(execs, ("load_done",))),
            self.wait_store.eq(waiting(execs, ("store_read",)) & ~self.wait_load),
            store_wait.eq(waiting(stores, ("exec_done", "load_done"))),
        ]
        blocked = {"load": load_wait, "exec": self.wait_load | self.wait_store,
                   "store": store_wait}
        for name, queue in (("load", loads), ("exec", execs), ("store", stores)):
            port = getattr(self, name)
            go = ~blocked[name] & ~self.abort
            m.d.comb += [port.valid.eq(queue.o.valid & go), port.p.eq(queue.o.p.cmd),
                         queue.o.ready.eq(port.ready & go)]
        return loads

    def elaborate(self, platform):
        m = Module()
        cfg = self.cfg
        work = DomainRenamer("work")
        m.domains.work = domain = ClockDomain("work", local=True)
        m.d.comb += [domain.clk.eq(ClockSignal()),
                     domain.rst.eq(ResetSignal() | self.restart)]
        m.submodules.sequencer = work(sequencer := Sequencer(cfg))
        m.submodules.decoder = work(decoder := Decoder(cfg))

        number = {e: Signal(NUMBER_BITS, name=f"{e}_number") for e in EVENTS}
        for e, n in number.items():
            with m.If(getattr(self, e)):
                m.d.work += n.eq(n + 1)
            m.d.comb += getattr(sequencer, e).eq(n)
        loads = self._queues(m, sequencer, number)

        # --- fetch: its command goes before queued loads that are not on offer yet ---------------
        fetch = Signal()
        fetch_pc = Signal(OFFSET_BITS)
        ask = Signal()  # a command to give
        pending = Signal()  # an answer to come
        next_ok = Signal()  # the next instruction is here
        next_bad = Signal()  # it is out of the region
        held = Signal()  # a queued load is on offer and stays so until it is taken
        grant = Signal()
        end = fetch_pc + INSTRUCTION_BYTES
        command = Signal(load_command(cfg))
        m.d.comb += [
            command.dest.eq(Destination.PROGRAM), command.kind.eq(Kind.PROGRAM),
            command.addr.eq(fetch_pc), grant.eq(ask & ~held & ~self.abort),
        ]
        m.d.work += held.eq(self.load.valid & ~self.load.ready & ~grant)
        with m.If(grant):
            m.d.comb += [self.load.valid.eq(1), self.load.p.eq(command), loads.o.ready.eq(0)]
            with m.If(self.load.ready):
                m.d.work += ask.eq(0)
        with m.If(fetch):
            m.d.work += pending.eq(1)
            with m.If(end > self.region_size):
                m.d.work += next_bad.eq(1)
            with m.Else():
                m.d.work += ask.eq(1)
        with m.If(self.instr_valid):
            m.d.work += [next_ok.eq(1), pending.eq(0)]

        # --- run state ---------------------------------------------------------------------------
        pc = Signal(OFFSET_BITS)
        active = Signal(INSTRUCTION)
        m.d.comb += [fetch_pc.eq(pc), decoder.instr.eq(active), sequencer.instr.eq(active),
                     sequencer.region_size.eq(self.region_size)]
        for d in "mnk":
            for size in (f"count_{d}", f"rest_{d}"):
                m.d.comb += getattr(sequencer, size).eq(getattr(decoder, size))
        drained = Cat(number[done] == getattr(sequencer, f"{queue}_issued") for queue, done in
                      (("load", "load_done"), ("exec", "exec_done"), ("store", "store_done"))).all()

        def fail(code, address):
            m.d.sync += [self.error.eq(1), self.error_code.eq(code), self.error_addr.eq(address)]

        complete = Signal()
        with m.FSM(name="run", domain="work"):
            with m.State("IDLE"):
                with m.If(self.start):
                    m.d.sync += [pc.eq(self.program_addr), self.busy.eq(1), self.done.eq(0),
                                 self.error.eq(0), self.error_code.eq(Error.NONE),
                                 self.error_addr.eq(0), self.error_pc.eq(0)]
                    m.next = "BEGIN"
            with m.State("BEGIN"):  # fetch the first instruction
                m.d.comb += fetch.eq(1)
                m.next = "TAKE"
            with m.State("TAKE"):  # wait for the next instruction
                with m.If(next_ok):
                    m.d.comb += self.taken.eq(1)
                    m.d.work += [active.eq(self.instr), next_ok.eq(0)]
                    m.next = "DECODE"
                with m.Elif(next_bad):
                    fail(Error.BAD_ADDRESS, pc)
                    m.next = "DRAIN"
            with m.State("DECODE"):
                m.d.comb += decoder.start.eq(1)
                m.next = "DISPATCH"
            with m.State("DISPATCH"):
                with m.If(decoder.done):
                    with m.If(decoder.error != Error.NONE):
                        fail(decoder.error, pc)
                        m.next = "DRAIN"
                    with m.Elif(active.opcode == Opcode.END.value):
                        m.next = "DRAIN"
                    with m.Elif(active.opcode == Opcode.FENCE.value):
                        m.next = "FENCE"
                    with m.Elif(sequencer.ready):
                        m.d.comb += [sequencer.start.eq(1), self.decoded.eq(1)]
                        m.next = "FETCH"
            with m.State("FENCE"):  # wait for everything before it
                with m.If(drained):
                    m.d.sync += pc.eq(pc + INSTRUCTION_BYTES)
                    m.next = "BEGIN"
            with m.State("FETCH"):  # the following instruction, while this one runs
                m.d.comb += [fetch.eq(1), fetch_pc.eq(pc + INSTRUCTION_BYTES)]
                m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += fetch_pc.eq(pc + INSTRUCTION_BYTES)
                with m.If(sequencer.bad_address):
                    fail(Error.BAD_ADDRESS, sequencer.bad_offset)
                    m.next = "DRAIN"
                with m.Elif(sequencer.ready & ~ask):
                    m.d.sync += pc.eq(pc + INSTRUCTION_BYTES)
                    m.next = "TAKE"
            with m.State("DRAIN"):  # everything taken before ends normally
                m.d.comb += fetch_pc.eq(pc + INSTRUCTION_BYTES)
                with m.If(drained & (~pending | next_bad) & (self.units_idle | ~self.error)):
                    m.d.comb += complete.eq(1)
                    m.next = "IDLE"

        # An error or a stop ends with a restart; bus error and stop do not wait for the queues.
        running = self.busy & ~self.abort
        for bad, code in (("write_error", Error.WRITE_ERROR), ("read_error", Error.READ_ERROR)):
            with m.If(running & getattr(self, bad)):
                m.d.sync += self.abort.eq(1)
                with m.If(~self.error):
                    fail(code, getattr(self, f"{bad}_addr"))
        with m.If(running & self.stop):
            m.d.sync += self.abort.eq(1)
        m.d.comb += [
            self.restart.eq(self.units_idle & (self.abort | (complete & self.error))),
            self.finished.eq(self.restart | (complete & ~self.abort & ~self.error)),
        ]
        with m.If(self.finished):
            m.d.sync += [self.busy.eq(0), self.abort.eq(0), self.error_pc.eq(pc),
                         self.done.eq(~self.restart)]
        return m
