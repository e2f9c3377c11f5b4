"""The functions of docs/numerics.md on whole matrices, and a bench that runs them on the unit."""

import random
from dataclasses import dataclass, field

import numpy as np
from amaranth.sim import Simulator

from hw.control.commands import Source
from hw.isa import Function
from hw.vector.unit import VectorUnit
from sw.golden import arithmetic, functions
from sw.golden.functions import LN2, LOG2E

F = Function
REDUCE_ROWS = (F.ROW_MEAN, F.ROW_MAX, F.SOFTMAX, F.MSE)
TWO_OPERANDS = (F.ADD, F.SUB, F.MUL, F.RELU_GRAD, F.BIAS, F.BIAS_RELU, F.SOFTMAX, F.MSE, F.SGD)


class Reference:
    """Arithmetic of the golden model that remembers an overflow."""

    def __init__(self, tile, scalar, learning_rate, momentum, weight_decay):
        self.tile, self.overflow = tile, False
        self.scalar, self.rate, self.momentum, self.decay = (
            arithmetic.canonical(np.array([[v]], np.uint32).view(np.float32))
            for v in (scalar, learning_rate, momentum, weight_decay))

    def __getattr__(self, name):
        """Operation `name` without its overflow."""
        operation = getattr(arithmetic, name, None) or getattr(functions, name)

        def run(*args):
            result = operation(*args)
            if isinstance(result, tuple):
                self.overflow |= result[1]
                result = result[0]
            return result

        return run

    def results(self, function, x, w, c):
        """Results by the slot of the command that they are left in."""
        elementwise = {
            F.ADD: lambda: self.add(x, w), F.SUB: lambda: self.add(x, -w),
            F.MUL: lambda: self.mul(x, w), F.SCALE: lambda: self.mul(x, self.scalar),
            F.RELU: lambda: self.relu(x), F.RELU_GRAD: lambda: self.relu_grad(x, w),
            F.BIAS: lambda: self.add(x, w[:1]),
            F.BIAS_RELU: lambda: self.relu(self.add(x, w[:1])),
            F.EXP: lambda: self.exp(x), F.RECIP: lambda: self.recip(x),
            F.RSQRT: lambda: self.rsqrt(x),
        }
        if function in elementwise:
            return {"a": elementwise[function]()}
        if function is F.SGD:
            g = self.add(self.mul(c, self.decay), x)
            v = self.add(self.mul(w, self.momentum), g)
            return {"b": v, "c": self.add(self.mul(v, -self.rate), c)}
        if function is F.COLUMN_SUM:
            return {"t0": self.column_sum(x, self.tile)}
        if function is F.ROW_MEAN:
            return {"t0": self.mul(self.row_sum(x, self.tile), self.scalar)}
        if function is F.ROW_MAX:
            return {"t0": self.row_max(x, self.tile)}
        if function is F.MSE:
            d = self.add(x, -w)
            return {"a": self.mul(d, self.scalar),
                    "t1": self.row_sum(self.mul(d, d), self.tile)}
        p = self.mul(self.row_max(x, self.tile), LOG2E)
        e = self.exp2(self.add(self.mul(x, LOG2E), -p))
        z = self.row_sum(e, self.tile)
        h = self.add(self.log2(z), p)
        y = self.mul(self.add(self.mul(e, self.recip(z)), -w), self.scalar)
        u = self.mul(self.add(self.mul(x, -LOG2E), h), w)
        return {"a": y, "t1": self.mul(self.row_sum(u, self.tile), LN2)}


def values(rng, kind, shape):
    """Canonical FP32: `plain`, `special` with NaN, Inf and zero, `large` ones that overflow."""
    x = rng.normal(0, 2, shape).astype(np.float32)
    if kind == "special":
        specials = np.array([np.nan, np.inf, -np.inf, 0, 1e-38, -90, 300], np.float32)
        x = np.where(rng.random(shape) < 0.08, rng.choice(specials, shape), x)
    elif kind == "large":
        x = np.where(rng.random(shape) < 0.2, np.float32(3e38), x) * np.sign(x)
    return arithmetic.canonical(x)


@dataclass
class Side:
    """One context: its commands, what they must leave, and when they ran."""

    registers: tuple  #: Learning rate, momentum, weight decay.
    commands: list = field(default_factory=list)
    checks: list = field(default_factory=list)
    overflows: dict = field(default_factory=dict)  #: By number of an instruction's last command.
    clocks: list = field(default_factory=list)  #: Clock of every `vector_done`.
    starts: list = field(default_factory=list)  #: Clock in which every command was taken.
    offered: bool = False
    overflow: bool = False
    shut: int = 0

    @property
    def taken(self):
        return len(self.starts)

    @property
    def done(self):
        return len(self.clocks)


@dataclass
class Bench:
    """A vector unit, a memory of tiles and the commands to run, of both contexts."""

    cfg: object
    seed: int
    registers: tuple = (0x3C23D70A, 0x3F666666, 0x38D1B717)
    ready: float = 1.0  #: Chance that a port is ready.
    shut: int = 0  #: Clocks for which a write port is shut now and then.
    gap: float = 0.0  #: Chance of a clock without a command.
    drain: bool = False  #: An instruction begins when the one before has ended; checks OVERFLOW.
    fair: float = 0.0  #: Chance of a clock in turns.
    hold: float = 0.0  #: Chance of a clock in which training is held.
    seen: list = field(default_factory=list)  #: (use, use, asks, asks, held) of every clock.
    bound: int = 0  #: HOLD_BOUND of the unit.

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)
        self.random = random.Random(self.seed)
        shape = self.cfg.acc_slots, self.cfg.tile, self.cfg.tile
        # stale memory: anything
        self.memory = arithmetic.canonical(
            self.rng.integers(0, 2**32, shape, np.uint32).view(np.float32))
        self.sides = Side(self.registers), Side(self.registers[::-1])
        self.free = 0

    def slot(self):
        self.free += 1
        return self.free - 1

    def place(self, matrix, i, j, row=0):
        """Tile (i, j) of a matrix in a slot of its own, from `row` on, stale data around it."""
        size, slot = self.cfg.tile, self.slot()
        part = matrix[i * size:(i + 1) * size, j * size:(j + 1) * size]
        self.memory[slot, row:row + part.shape[0], :part.shape[1]] = part
        return slot

    def instruction(self, function, rows, cols, kind="plain", scalar=0x3E000000, context=0):
        """Commands of a function on a matrix with random elements, and what they must leave."""
        size, side = self.cfg.tile, self.sides[context]
        x, w, c = (values(self.rng, kind, (rows, cols)) for _ in range(3))
        reference = Reference(size, scalar, *side.registers)
        results = reference.results(function, x, w, c)
        tiles_m, tiles_n = -(-rows // size), -(-cols // size)
        state = {"t0": self.slot(), "t1": self.slot()}
        source = self.random.choice(list(Source))

        def command(m, n, turn, first, last):
            valid = min(size, rows - m * size), min(size, cols - n * size)
            slots = {"a": self.place(x, m, n), "b": 0, "c": 0, "b_row": 0} | state
            if function in TWO_OPERANDS:
                slots["b"] = self.place(w, m, n)
                if function in (F.BIAS, F.BIAS_RELU):
                    slots["b_row"] = self.random.randrange(size)
                    slots["b"] = self.place(w[:1], 0, n, slots["b_row"])
            if function is F.SGD:
                slots["c"] = self.place(c, m, n)
            if function is F.COLUMN_SUM:  # such tiles are loaded, with zeros
                self.memory[slots["a"], valid[0]:] = 0
            side.commands.append({
                "source": source, "function": function, "turn": turn, "first": first,
                "last": last, "rows": valid[0], "cols": valid[1], "scalar": scalar, **slots})
            checks = []
            for name, result in results.items():
                if (name in state and not last) or (function is F.SOFTMAX and turn < 2):
                    continue
                i = 0 if function is F.COLUMN_SUM else m
                j = 0 if name in state and function is not F.COLUMN_SUM else n
                part = result[i * size:(i + 1) * size, j * size:(j + 1) * size]
                checks.append((f"{function.name} {name} of tile ({m}, {n})", slots[name], part))
            side.checks.append(checks)

        if function is F.COLUMN_SUM:
            for n in range(tiles_n):
                for m in range(tiles_m):
                    command(m, n, 0, m == 0, m == tiles_m - 1)
        else:
            reduces = function in REDUCE_ROWS
            for m in range(tiles_m):
                for turn in range(3 if function is F.SOFTMAX else 1):
                    for n in range(tiles_n):
                        command(m, n, turn, reduces and n == 0, reduces and n == tiles_n - 1)
        side.overflows[len(side.commands) - 1] = reference.overflow
        return reference.overflow

    def run(self):
        """Run the commands; every result must be there when its command is reported."""
        assert self.free <= self.cfg.acc_slots
        dut = VectorUnit(self.cfg)
        self.bound = dut.HOLD_BOUND

        async def bench(ctx):
            await self._bench(ctx, dut)

        sim = Simulator(dut)
        sim.add_clock(1e-6)
        sim.add_testbench(bench)
        sim.run()

    async def _bench(self, ctx, dut):
        chance, size = self.random.random, self.cfg.tile
        for n, side in enumerate(self.sides):
            for name, value in zip(("learning_rate", "momentum", "weight_decay"), side.registers,
                                   strict=True):
                ctx.set(getattr(dut, name)[n], value)
        read_data = [line.as_value() for line in dut.v_r_data]
        write_data = [line.as_value() for line in dut.v_w_data]
        total = sum(len(side.commands) for side in self.sides)
        while any(side.done < len(side.commands) for side in self.sides):
            held = chance() < self.hold
            ctx.set(dut.fair, chance() < self.fair)
            ctx.set(dut.hold, held)
            for n, side in enumerate(self.sides):
                if not side.offered and side.taken < len(side.commands) and chance() >= self.gap \
                        and not (self.drain and side.taken - 1 in side.overflows
                                 and side.done < side.taken):
                    side.offered = True
                    ctx.set(dut.cmd[n].payload, side.commands[side.taken])
                ctx.set(dut.cmd[n].valid, side.offered)
                ctx.set(dut.v_r_ready[n], chance() < self.ready)
                side.shut = side.shut - 1 if side.shut else self.shut * (chance() < 0.05)
                ctx.set(dut.v_w_ready[n], not side.shut and chance() < self.ready)
            clock, words, accepted = len(self.seen), [None, None], [False, False]
            self.seen.append((*map(ctx.get, dut.use), *map(ctx.get, dut.asks), ctx.get(dut.held)))
            for n, side in enumerate(self.sides):
                accepted[n] = side.offered and ctx.get(dut.cmd[n].ready)
                assert not (accepted[n] and held and n == 0)
                if ctx.get(dut.v_r_valid[n]) and ctx.get(dut.v_r_ready[n]):
                    row = self.memory[ctx.get(dut.v_r_slot[n]), ctx.get(dut.v_r_row[n])]
                    words[n] = int.from_bytes(row.tobytes(), "little")
            for n, side in enumerate(self.sides):
                if ctx.get(dut.v_w_valid[n]) and ctx.get(dut.v_w_ready[n]):
                    row = ctx.get(write_data[n]).to_bytes(4 * size, "little")
                    self.memory[ctx.get(dut.v_w_slot[n]), ctx.get(dut.v_w_row[n])] = \
                        np.frombuffer(row, np.float32)
                side.overflow |= bool(ctx.get(dut.overflow[n]))
                assert ctx.get(dut.busy[n]) or side.taken == side.done
                if ctx.get(dut.vector_done[n]):
                    self._done(side, ctx.get(dut.vector_source[n]), clock)
            await ctx.tick()
            for n, side in enumerate(self.sides):
                stale = self.random.getrandbits(32 * size)
                ctx.set(read_data[n], stale if words[n] is None else words[n])
                if accepted[n]:
                    side.starts.append(clock)
                    side.offered = False
            assert clock < 3000 * (total + 1), "hangs"
        for _ in range(3):
            await ctx.tick()
            assert not any(map(ctx.get, (*dut.busy, *dut.v_w_valid, *dut.overflow)))

    def _done(self, side, source, clock):
        number = side.done
        side.clocks.append(clock)
        assert source == side.commands[number]["source"]
        for text, slot, want in side.checks[number]:
            got = self.memory[slot, :want.shape[0], :want.shape[1]]
            same = got.view(np.uint32) == np.ascontiguousarray(want).view(np.uint32)
            assert same.all(), (f"{text}, command {number} {side.commands[number]}: "
                                f"{got[~same][:4]}, not {want[~same][:4]}")
        if self.drain and number in side.overflows:
            assert side.overflow == side.overflows[number], side.commands[number]
            side.overflow = False
