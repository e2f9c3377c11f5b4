"""Context between units of random pace: dispatch order, overlap, ends, both kinds of refusal."""

import random
from collections import deque

import pytest
from amaranth.sim import Simulator

from hw import config
from hw.control.commands import ContextId, Destination, Source
from hw.control.context import Context
from hw.control.context_streams import SOURCES
from hw.isa import INSTRUCTION, Error, Function, Opcode
from sw.compiler.assembler import assemble, window

CFG = config.load("tiny", ["spad_kib=1", "acc_kib=4"])
ARRAY, VECTOR = Source.ARRAY, Source.VECTOR
#: Events in the order in which a unit's command causes them.
EVENTS = {"load": ("load_done",), "exec": ("exec_read", "exec_done"), "vector": ("vector_done",),
          "store": ("store_read", "store_done")}
#: Images of instruction n's result are in the n-th piece of this many bytes.
PIECE = 1 << 16
REGION = 1 << 26


def stream_of(fields):
    return ARRAY if fields["opcode"] is Opcode.GEMM else VECTOR


def layer(rng, number, gemm=None, **fields):
    """A GEMM or VECTOR of up to four tiles."""
    gemm = rng.random() < 0.5 if gemm is None else gemm
    m, n = (rng.randint(1, 2 * CFG.tile) for _ in "mn")
    common = dict(m=m, n=n, k=CFG.tile, y_addr=number * PIECE, overlap=rng.choice([0, 0, 1, 2, 15]),
                  x_pitch=2, w_pitch=2, y_pitch=2, phase=number % 32)
    if gemm:
        common |= dict(opcode=Opcode.GEMM, x_window=window(0), w_window=window(1),
                       y_window=window(0, 1, 0))
    else:
        common |= dict(opcode=Opcode.VECTOR, function=Function.RELU, y_window=window(4, 1, 0))
    return common | fields


def tiles(fields):
    return -(-fields["m"] // CFG.tile) * -(-fields["n"] // CFG.tile)


def executed(program):
    """Numbers of the instructions in the order of execution, END included."""
    at, loops, order = 0, [], []
    while True:
        fields = program[at]
        order.append(at)
        at += 1
        if fields["opcode"] is Opcode.END:
            return order
        if fields["opcode"] is Opcode.LOOP:
            if fields["m"]:
                loops.append([at, fields["m"]])
            else:
                at += fields["bm"]
        elif fields["opcode"] is Opcode.NEXT:
            loops[-1][1] -= 1
            if loops[-1][1]:
                at = loops[-1][0]
            else:
                loops.pop()


class Bench:
    """Units around a context that runs `program`, a list of fields; layers write to their piece.

    `order` holds the numbers of the dispatched instructions, `open` [number, tiles left] of those
    that are not finished, `margins` for each dispatch its overlap and how many of the other
    stream's instructions were unfinished.
    """

    def __init__(self, program, seed, context=None):
        context = context or ContextId(seed % 2)
        self.program, self.rng = program, random.Random(seed)
        self.pace = {name: self.rng.choice([0.1, 0.5, 1]) for name in EVENTS}
        self.dut, self.code = Context(CFG, context), assemble(CFG, program)
        self.inside = {name: deque() for name in EVENTS}
        self.taken_by = {name: [] for name in EVENTS}
        self.order, self.open, self.margins = [], [], []
        self.number, self.taken = None, 0
        sim = Simulator(self.dut)
        sim.add_clock(1e-6)
        sim.add_testbench(self.run)
        sim.run()

    def finish(self, ctx):
        """Units finish commands in order; the answer to a fetch is an instruction."""
        pulses = dict.fromkeys([*SOURCES, "instr_valid"], 0)
        for name, inside in self.inside.items():
            for stage, event in enumerate(EVENTS[name]):
                entry = next((e for e in inside if e[1] == stage), None)
                if entry is None or self.rng.random() >= self.pace[name]:
                    continue
                entry[1] += 1
                command = entry[0]
                if name == "load" and command.dest == Destination.PROGRAM:
                    pulses["instr_valid"] = 1
                    raw = int.from_bytes(self.code[command.addr:command.addr + 128], "little")
                    ctx.set(self.dut.instr, INSTRUCTION.from_bits(raw))
                    self.number = command.addr // 128
                    continue
                pulses[event] = 1
                if SOURCES[event]:
                    ctx.set(getattr(self.dut, SOURCES[event]), command.source)
                if event == "store_done":
                    self.stored(command)
            while inside and inside[0][1] == len(EVENTS[name]):
                inside.popleft()
        for name, value in pulses.items():
            ctx.set(getattr(self.dut, name), value)

    def stored(self, command):
        entry = next(e for e in self.open if e[0] == command.addr // PIECE)
        entry[1] -= 1

    def take(self, ctx):
        for name, inside in self.inside.items():
            port = getattr(self.dut, name)
            ready = len(inside) < 4 and self.rng.random() < self.pace[name]
            ctx.set(port.ready, ready)
            if ready and ctx.get(port.valid):
                inside.append([ctx.get(port.payload), 0])
                self.taken_by[name].append(inside[-1][0])

    def look(self, ctx):
        self.taken += ctx.get(self.dut.taken)
        if ctx.get(self.dut.decoded):
            fields = self.program[self.number]
            others = [n for n, _ in self.open
                      if stream_of(self.program[n]) is not stream_of(fields)]
            assert len(others) <= fields["overlap"], "an earlier instruction is unfinished"
            self.margins.append((fields["overlap"], len(others)))
            self.order.append(self.number)
            self.open.append([self.number, tiles(fields)])

    async def run(self, ctx):
        dut = self.dut
        ctx.set(dut.region_size, REGION)
        ctx.set(dut.units_idle, 1)
        for name, slots in ("spad", CFG.spad_slots), ("acc", CFG.acc_slots):
            ctx.set(getattr(dut, f"{name}_last"), slots - 1)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        for _ in range(40000):
            self.open = [e for e in self.open if e[1]]  # what could be known before this clock
            self.finish(ctx)
            self.take(ctx)
            self.look(ctx)
            ended = ctx.get(dut.finished)
            await ctx.tick()
            if ended:
                break
        assert not ctx.get(dut.busy), "stuck"
        self.open = [e for e in self.open if e[1]]
        self.error = ctx.get(dut.error_code)
        self.error_pc = ctx.get(dut.error_pc)


@pytest.mark.parametrize("seed", range(6))
def test_overlap_and_loops(seed):
    rng = random.Random(seed)
    program, starts = [], []
    while len(program) < 24 or starts:
        pick = rng.random()
        if pick < 0.1 and len(starts) < 4 and len(program) < 20:
            starts.append(len(program))
            program.append(dict(opcode=Opcode.LOOP, m=rng.choice([0, 1, 2, 2])))
        elif starts and (pick < 0.3 or len(program) > 24):
            start = starts.pop()
            program[start]["bm"] = len(program) - start
            program.append(dict(opcode=Opcode.NEXT))
        elif pick < 0.35:
            program.append(dict(opcode=Opcode.FENCE))
        else:
            program.append(layer(rng, len(program)))
    program.append(dict(opcode=Opcode.END))
    bench = Bench(program, seed)
    numbers = executed(program)
    layers = [n for n in numbers if "y_addr" in program[n]]
    assert bench.error == Error.NONE
    assert bench.order == layers
    assert bench.taken == len(numbers)
    assert not bench.open, "END before everything is finished"
    assert bench.error_pc == 128 * (len(program) - 1)


def test_overlap_is_used():
    """Behind four instructions of the other stream one starts as early as it may."""
    rng, margins = random.Random(7), []
    for gemm in False, True:
        program = [layer(rng, n, gemm=gemm ^ (n % 5 < 4), overlap=n // 5 if n % 5 == 4 else 15)
                   for n in range(20)] + [dict(opcode=Opcode.END)]
        margins += Bench(program, gemm).margins
    assert {(o, o) for o in range(4)} <= set(margins)


@pytest.mark.parametrize("bad", [
    {"y_addr": REGION}, {"x_addr": REGION - CFG.bfp_bytes, "m": 2 * CFG.tile}, {"m": 0},
    {"opcode": Opcode.NEXT}])
@pytest.mark.parametrize("position", [0, 5, 6])
def test_refusals(bad, position):
    """All before it is finished, nothing after it starts, and ERROR_PC tells which it was."""
    rng = random.Random(position)
    program = [layer(rng, n, overlap=0) for n in range(10)]
    program[position] |= bad
    bench = Bench([*program, dict(opcode=Opcode.END)], position)
    address = bench.error == Error.BAD_ADDRESS
    assert address == (next(iter(bad)) in ("y_addr", "x_addr"))
    assert bench.error_pc == 128 * position
    assert bench.order == list(range(position + address))
    assert [n for n, _ in bench.open] == [position] * address


def test_too_many_loops():
    open_one = dict(opcode=Opcode.LOOP, m=2, bm=1)
    for count, skipped in (4, 1), (5, 0):
        program = [open_one] * count + [open_one | {"m": 0}] * skipped
        program += [dict(opcode=Opcode.NEXT)] * (count + skipped) + [dict(opcode=Opcode.END)]
        bench = Bench(program, 1)
        assert bench.error == (Error.BAD_FIELD if count == 5 else Error.NONE)
        assert bench.error_pc == 128 * (4 if count == 5 else len(program) - 1)
