"""Context beside a request unit: launches, program cache, batches, stops and errors at any time."""

import random

import pytest
from test_context import CFG, EVENTS, PIECE, REGION, Bench, layer

from hw.control.commands import ContextId, Destination, Source
from hw.control.functions import BROADCAST
from hw.isa import Error, Function, Kind, Opcode, XSource, YTarget
from sw.compiler.assembler import window

TRAINING, INFERENCE = ContextId
END = {"opcode": Opcode.END}
SPAD, ACC = CFG.spad_slots, CFG.acc_slots
T = CFG.tile


class Host(Bench):
    """Runs `script(ctx, host)`, which starts programs; units drop what they hold at `restart`.

    After an abort the units that transfer end at some time; array and vector unit go on, and it is
    an error if a restart comes while they have something of the context.
    """

    def __init__(self, program, seed, script, context=INFERENCE):
        self.script = script
        super().__init__(program, seed, context)

    def stored(self, command):
        pass

    async def clock(self, ctx, **pulses):
        """One clock; `finished`, `restart` and `busy` as they were in it."""
        dut = self.dut
        self.finish(ctx)
        for name, value in pulses.items():
            ctx.set(getattr(dut, name), value)
        self.take(ctx)
        transfers = self.inside["load"] or self.inside["store"]
        idle = self.rng.random() < 0.1 if ctx.get(dut.abort) else not transfers
        ctx.set(dut.units_idle, idle)
        seen = {n: ctx.get(getattr(dut, n)) for n in ("finished", "restart", "busy")}
        if seen["restart"]:
            assert not self.inside["exec"], "the array has operations of the context"
            assert not self.inside["vector"], "the vector unit has commands of the context"
            assert idle
            self.inside["load"].clear()
            self.inside["store"].clear()
        self.taken += ctx.get(dut.taken)
        if ctx.get(dut.abort):
            assert not any(ctx.get(getattr(dut, n).valid) for n in EVENTS)
        await ctx.tick()
        for name in pulses:
            ctx.set(getattr(dut, name), 0)
        return seen

    async def finished(self, ctx):
        for _ in range(20000):
            seen = await self.clock(ctx)
            if seen["finished"]:
                return seen
        pytest.fail("stuck")

    async def launch(self, ctx, cached=0):
        """Run the program to its end; the commands taken meanwhile, by unit."""
        for commands in self.taken_by.values():
            commands.clear()
        await self.clock(ctx, start=1, cached=cached)
        await self.finished(ctx)
        return self.taken_by

    def status(self, ctx):
        dut = self.dut
        return tuple(ctx.get(getattr(dut, n)) for n in ("busy", "done", "error", "error_code"))

    async def run(self, ctx):
        dut = self.dut
        ctx.set(dut.region_size, REGION)
        ctx.set(dut.spad_last, SPAD - 1)
        ctx.set(dut.acc_last, ACC - 1)
        await self.script(ctx, self)


OK, STOPPED = (0, 1, 0, Error.NONE), (0, 0, 0, Error.NONE)


def count(commands, kind):
    return sum(c.kind == kind for c in commands["load"])


def fetches(commands):
    return sum(c.dest == Destination.PROGRAM for c in commands["load"])


def gemm(number=0, **fields):
    return layer(random.Random(number), number, gemm=True, overlap=0, **{
        "m": 2 * T, "n": T, "w_keep": 1, **fields})


def test_launched_programs_come_from_the_cache():
    program = [gemm(0), dict(opcode=Opcode.LOOP, m=3, bm=3), gemm(1, w_keep=0),
               layer(random.Random(1), 2, gemm=False, overlap=0), dict(opcode=Opcode.NEXT), END]

    async def script(ctx, host):
        executed, numbers = 12, []
        for cached, drop in ((0, 0), (1, 0), (1, 0), (0, 0), (1, 0), (1, 1), (1, 0)):
            if drop:
                await host.clock(ctx, drop=1)
            before = host.taken
            commands = await host.launch(ctx, cached)
            assert host.status(ctx) == OK
            assert host.taken - before == executed
            # GEMM 0, then three times GEMM 1 and VECTOR; all their tiles in order
            assert [c.addr // PIECE for c in commands["store"] if c.kind == Kind.Y] \
                == [0, 0] + 3 * [1, 1]
            numbers.append(fetches(commands))
        assert numbers == [executed, len(program), 0, executed, 0, len(program), 0]

    Host(program, 1, script)


def test_the_cache_keeps_sixteen_instructions():
    program = [dict(opcode=Opcode.ADDRESS)] * 19 + [END]

    async def script(ctx, host):
        numbers = []
        for _ in range(2):
            commands = await host.launch(ctx, 1)
            numbers.append([c.addr // 128 for c in commands["load"]])
        assert numbers == [list(range(20)), [0, 1, 2, 3, 16, 17, 18, 19]]

    Host(program, 2, script)


def test_training_has_no_cache():
    async def script(ctx, host):
        for _ in range(2):
            assert fetches(await host.launch(ctx, 1)) == 2

    Host([gemm(), END], 3, script, TRAINING)


def test_kept_tiles_live_from_launch_to_launch():
    async def script(ctx, host):
        loads = []
        for cached, drop in ((1, 0), (1, 0), (0, 0), (1, 0), (1, 1), (1, 0)):
            if drop:
                await host.clock(ctx, drop=1)
            loads.append(count(await host.launch(ctx, cached), Kind.W))
        assert loads == [1, 0, 1, 0, 1, 0]

    Host([gemm(), END], 4, script)


@pytest.mark.parametrize("context", ContextId, ids=lambda c: c.name.lower())
def test_rows_of_the_batch_are_m(context):
    big = {"x_window": window(0, 2, 0), "x_source": XSource.CHIP.value, "w_window": window(8),
           "y_window": window(0, 2, 0), "y_target": YTarget.ACC.value}
    loop = dict(opcode=Opcode.LOOP, m=2, bm=1)
    program = [loop, dict(opcode=Opcode.NEXT), gemm(m=1, run_m=1, function=Function.RELU, **big),
               END]
    assert Function.RELU not in BROADCAST

    async def script(ctx, host):
        for rows in (1, T, T + 1, 4 * T, 0, 4 * T + 1):
            ctx.set(host.dut.batch_rows, rows)
            commands = await host.launch(ctx, 1)
            if rows in (0, 4 * T + 1):  # no batch, or more than the window holds
                assert host.status(ctx) == (0, 0, 1, Error.BAD_FIELD)
                assert ctx.get(host.dut.error_pc) == 256
            else:
                assert host.status(ctx) == OK
                assert sum(c.rows for c in commands["exec"]) == rows
                assert len(commands["exec"]) == -(-rows // T) == len(commands["vector"])
                assert not commands["store"]
            assert all(c.dest == Destination.PROGRAM or c.kind == Kind.W for c in commands["load"])

    Host(program, 5, script, context)


def test_the_batch_s_buffer_chooses_the_slots():
    program = [gemm(x_source=XSource.REQUEST.value, x_window=window(2, 1, 1), k=2 * T), END]

    async def script(ctx, host):
        for buffer, slots in (1, [6, 7, 8, 9]), (0, [2, 3, 4, 5]):
            ctx.set(host.dut.batch_buffer, buffer)
            commands = await host.launch(ctx, 1)
            assert host.status(ctx) == OK
            assert sorted(c.a_slot for c in commands["exec"]) == slots
            assert count(commands, Kind.X) == 0
        ctx.set(host.dut.spad_last, 8)
        await host.launch(ctx, 1)
        assert host.status(ctx) == OK
        ctx.set(host.dut.batch_buffer, 1)
        await host.launch(ctx, 1)
        assert host.status(ctx) == (0, 0, 1, Error.BAD_WINDOW)

    Host(program, 6, script)


@pytest.mark.parametrize(("how", "context"), [
    ("stop", TRAINING), ("stop", INFERENCE), ("read_error", INFERENCE), ("write_error", TRAINING)])
def test_a_restart_waits_for_the_shared_units(how, context):
    """At any time; the program that follows is done as if nothing had been."""
    program = [layer(random.Random(n), n, gemm=n % 2 == 0, overlap=15) for n in range(6)] + [END]
    held = []

    async def script(ctx, host):
        host.pace |= {"exec": 0.2, "vector": 0.2}
        for turn in range(6):
            await host.clock(ctx, start=1, cached=turn % 2)
            for _ in range(host.rng.randrange(20, 200)):
                await host.clock(ctx)
            while turn % 2 and not (host.inside["exec"] or host.inside["vector"]) \
                    and ctx.get(host.dut.busy):
                await host.clock(ctx)
            was_busy = ctx.get(host.dut.busy)
            ctx.set(host.dut.read_error_addr, 0x1230)
            ctx.set(host.dut.write_error_addr, 0x4560)
            await host.clock(ctx, **{how: 1})
            if not was_busy:
                assert host.status(ctx) == OK
                continue
            held.append(len(host.inside["exec"]) + len(host.inside["vector"]))
            assert (await host.finished(ctx))["restart"]
            code = {"stop": Error.NONE, "read_error": Error.READ_ERROR,
                    "write_error": Error.WRITE_ERROR}[how]
            assert host.status(ctx) == (0, 0, how != "stop", code)
            assert ctx.get(host.dut.error_addr) == {"stop": 0, "read_error": 0x1230,
                                                    "write_error": 0x4560}[how]
            commands = await host.launch(ctx, turn % 2)
            assert host.status(ctx) == OK
            results = [c.addr // PIECE for c in commands["store"] if c.source == Source.ARRAY]
            assert results == sorted(n for n in (0, 2, 4) for _ in range(tiles_of(program[n])))
            assert len(commands["exec"]) == sum(tiles_of(program[n]) for n in (0, 2, 4))

    Host(program, 7 + context.value, script, context)
    assert sum(h > 0 for h in held) > 1


def tiles_of(fields):
    return -(-fields["m"] // T) * -(-fields["n"] // T)


def test_errors_of_transfers_of_the_request_unit():
    """While `attached` they, and STOP, count also if no program runs."""
    async def script(ctx, host):
        dut = host.dut
        for attached in 0, 1:
            for event, code in (("stop", Error.NONE), ("read_error", Error.READ_ERROR),
                                ("stop", Error.NONE), ("write_error", Error.WRITE_ERROR),
                                ("read_error", Error.READ_ERROR)):
                if event == "write_error" or not attached:
                    await host.launch(ctx, 1)
                    assert host.status(ctx) == OK
                ctx.set(dut.attached, attached)
                before = host.status(ctx)
                ctx.set(dut.read_error_addr, 0x1230)
                ctx.set(dut.write_error_addr, 0x4560)
                await host.clock(ctx, **{event: 1})
                if attached:
                    assert ctx.get(dut.abort)
                    if host.rng.random() < 0.5:
                        await host.clock(ctx, start=1)  # is ignored
                    assert (await host.finished(ctx))["restart"]
                    assert host.status(ctx) == (0, 0, code != Error.NONE, code)
                    assert ctx.get(dut.error_addr) == {
                        "stop": 0, "read_error": 0x1230, "write_error": 0x4560}[event]
                else:
                    assert not ctx.get(dut.abort)
                    assert host.status(ctx) == before
                for _ in range(30):
                    seen = await host.clock(ctx)
                    assert not seen["finished"]
                    assert not seen["busy"]

    Host([gemm(), END], 9, script)


def test_an_error_in_the_clock_in_which_a_program_ends():
    """None is lost while `attached`; a STOP just then comes too late if not."""
    async def script(ctx, host):
        dut = host.dut
        for attached, event in ((1, "read_error"), (1, "stop"), (0, "stop")):
            ctx.set(dut.attached, attached)
            await host.clock(ctx, start=1, cached=1)
            while not ctx.get(dut.finished):
                await host.clock(ctx)
            # the clock after the last tick: `finished` is high before anything else changes
            assert (await host.clock(ctx, **{event: 1}))["finished"]
            ctx.set(dut.attached, 0)
            assert not ctx.get(dut.busy)
            assert ctx.get(dut.abort) == attached
            if attached:
                assert (await host.finished(ctx))["restart"]
                error = event == "read_error"
                assert host.status(ctx) == (0, 0, error, Error.READ_ERROR if error else Error.NONE)
            else:
                assert host.status(ctx) == OK

    Host([gemm(), END], 10, script)


def test_a_refused_program_stops_the_request_unit_s_transfers():
    """Its transfers may follow each other without end; `abort` ends them."""
    async def script(ctx, host):
        dut = host.dut
        ctx.set(dut.attached, 1)
        await host.clock(ctx, start=1, cached=1)
        for _ in range(5000):
            host.finish(ctx)
            host.take(ctx)
            ctx.set(dut.units_idle, ctx.get(dut.abort))
            if ctx.get(dut.finished):
                break
            await ctx.tick()
        await ctx.tick()
        assert host.status(ctx) == (0, 0, 1, Error.BAD_FIELD)

    Host([gemm(m=0), END], 11, script)


def test_a_fetch_that_failed_is_not_kept():
    async def script(ctx, host):
        dut = host.dut
        await host.clock(ctx, start=1, cached=1)
        while not host.inside["load"]:
            await host.clock(ctx)
        await host.clock(ctx, read_error=1)
        await host.finished(ctx)
        assert host.status(ctx)[2:] == (1, Error.READ_ERROR)
        assert fetches(await host.launch(ctx, 1)) == 3
        assert host.status(ctx) == OK
        assert not ctx.get(dut.abort)

    Host([gemm(0), gemm(1), END], 12, script)
