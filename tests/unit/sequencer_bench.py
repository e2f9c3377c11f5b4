"""Runs a sequencer with units that take commands in order and finish them at random."""

import random
from collections import deque

import pytest
from amaranth.sim import Simulator

from hw import config
from hw.isa import INSTRUCTION, Opcode
from sw.compiler.assembler import instruction

CFG = config.load("tiny", ["tile=2", "spad_kib=1", "acc_kib=1"])
#: Events in the order in which a command of the queue causes them.
EVENTS = {"load": ("load_done",), "exec": ("exec_read", "exec_done"), "vector": ("vector_done",),
          "store": ("store_read", "store_done")}
#: Stands between programs for a pulse of `forget`.
FORGET = object()
QUEUE_OF = {event: queue for queue, events in EVENTS.items() for event in events}


def fields_of(signature):
    """Flat dictionary of a queue's payload."""
    flat = {f: signature[f] for f in signature.shape().members if f != "cmd"}
    return {**flat, **{f: signature["cmd"][f] for f in signature["cmd"].shape().members}}


def start(ctx, dut, f):
    """Present an instruction for one clock; afterwards the ports hold something else."""
    raw = int.from_bytes(instruction(CFG, Opcode(f["opcode"]), **{
        key: value for key, value in f.items() if key not in ("opcode", "buffer")}), "little")
    ctx.set(dut.instr, INSTRUCTION.from_bits(raw))
    if "buffer" in f:
        ctx.set(dut.batch_buffer, f["buffer"])
    for d in "mnk":
        if hasattr(dut, f"count_{d}"):
            ctx.set(getattr(dut, f"count_{d}"), -(-f[d] // CFG.tile))
            ctx.set(getattr(dut, f"rest_{d}"), (f[d] - 1) % CFG.tile + 1)
    ctx.set(dut.start, 1)


def finish_start(ctx, dut):
    if hasattr(dut, "batch_buffer") and ctx.get(dut.start):
        ctx.set(dut.batch_buffer, 1 - ctx.get(dut.batch_buffer))
    ctx.set(dut.start, 0)
    ctx.set(dut.instr, INSTRUCTION.from_bits((1 << INSTRUCTION.size) - 1))
    for d in "mnk":
        if hasattr(dut, f"count_{d}"):
            ctx.set(getattr(dut, f"count_{d}"), 0)
            ctx.set(getattr(dut, f"rest_{d}"), 0)


class Bench:
    """Drives `dut` until all programs are queued and done, or an address is refused.

    `logs` holds, for every instruction and queue, its commands as dictionaries, each with `done`,
    the numbers reached in the clock in which it was queued. Every command waits in its queue, of
    `depth` entries, until the numbers that it names are reached, so that a command that waits for
    something that cannot happen fails the test. FORGET among the programs forgets kept tiles.
    `ready_done` holds, for every instruction, the numbers reached and the commands issued when
    `ready` showed that the one before it is over.
    """

    def __init__(self, dut, programs, seed, depth=3, pace=0.3, region=0xFFFFFFF0):
        self.dut, self.waiting, self.region = dut, list(programs), region
        self.rng, self.depth, self.pace = random.Random(seed), depth, pace
        self.queues = {q: deque() for q in EVENTS if hasattr(dut, q)}
        self.issued = dict.fromkeys(self.queues, 0)
        self.taken = dict.fromkeys(self.queues, 0)
        self.done = {e: 0 for q in self.queues for e in EVENTS[q]}
        self.logs, self.refused, self.clocks = [], None, 0
        self.ready_done = []

    def run(self):
        sim = Simulator(self.dut)
        sim.add_clock(1e-9)
        sim.add_testbench(self._bench)
        sim.run()
        return self

    def _collect(self, ctx):
        for name, queue in self.queues.items():
            port = getattr(self.dut, name)
            if ctx.get(port.valid) and ctx.get(port.ready):
                command = {**fields_of(ctx.get(port.p)), "done": dict(self.done)}
                self.issued[name] += 1
                queue.append(command)
                self.logs[-1][name].append(command)

    def _units(self):
        for name, queue in self.queues.items():
            head = queue[0] if queue else {}
            if queue and all(head[e] <= n for e, n in self.done.items() if e in head) \
                    and self.rng.random() < self.pace:
                queue.popleft()
                self.taken[name] += 1
            before = self.taken[name]
            for event in EVENTS[name]:
                if self.done[event] < before and self.rng.random() < self.pace:
                    self.done[event] += 1
                before = self.done[event]

    async def _bench(self, ctx):
        dut, quiet = self.dut, 0
        ctx.set(dut.region_size, self.region)
        finish_start(ctx, dut)
        while quiet < 2000:
            if ctx.get(dut.ready) and not ctx.get(dut.start):
                if not self.waiting:
                    if all(n == self.issued[QUEUE_OF[e]] for e, n in self.done.items()):
                        return
                elif self.waiting[0] is FORGET:
                    self.waiting.pop(0)
                    ctx.set(dut.forget, 1)
                    await ctx.tick()
                    ctx.set(dut.forget, 0)
                    continue
                else:
                    start(ctx, dut, self.waiting.pop(0))
                    self.logs.append({q: [] for q in self.queues})
                    self.ready_done.append((dict(self.done), dict(self.issued)))
            else:
                finish_start(ctx, dut)
            for name, queue in self.queues.items():
                ctx.set(getattr(dut, name).ready, len(queue) < self.depth)
            before = (dict(self.issued), dict(self.done))
            self._collect(ctx)
            self._units()
            await ctx.tick()
            self.clocks += 1
            for name in self.queues:
                assert ctx.get(getattr(dut, f"{name}_issued")) == self.issued[name]
            for event, number in self.done.items():
                ctx.set(getattr(dut, event), number)
            quiet = 0 if before != (self.issued, self.done) else quiet + 1
            if ctx.get(dut.bad_address):
                for _ in range(20):  # it stays so
                    assert ctx.get(dut.bad_address)
                    assert not ctx.get(dut.ready)
                    assert not any(ctx.get(getattr(dut, q).valid) for q in self.queues)
                    self.refused = ctx.get(dut.bad_offset)
                    await ctx.tick()
                return
        pytest.fail(f"nothing happens: issued {self.issued}, done {self.done}")


def compare(got, expected):
    """Commands of one queue against the reference's, with all that they wait for.

    A number that was reached when the command was queued need not be named, nor need one that
    aliases to a later number.
    """
    for position, (command, want) in enumerate(zip(got, expected, strict=False)):
        where = f"command {position}: {command}, not {want}"
        for name, value in want.items():
            if name not in QUEUE_OF:
                assert getattr(command[name], "value", command[name]) == value, (name, where)
        for event, reached in command["done"].items():
            if event not in command:
                continue
            needed, named = want.get(event, 0), command[event]
            if named > reached and named != needed:
                assert needed <= reached, (event, where)
                assert (named - needed) % 256 == 0, (event, where)
            if named <= reached:
                assert needed <= reached, (event, where)
    assert len(got) == len(expected)
