"""Functions of a lane against the golden model and against float64."""

import random

import numpy as np
from amaranth.sim import Simulator
from exact_fp32 import INF, NAN, SIGN

from hw.numerics.functions import Log2, Table, TableFunction, entries
from sw.golden import functions
from sw.golden.arithmetic import relu

GOLDEN = {
    Table.IDENTITY: lambda x: x,
    Table.RELU: relu,
    Table.EXP2: lambda x: functions.exp2(x)[0],
    Table.RECIP: functions.recip,
    Table.RSQRT: functions.rsqrt,
}


def floats(words):
    return np.array(words, np.uint32).view(np.float32)


def samples(seed, count):
    """Canonical words: corners of every function, ends of the tables' intervals, random ones."""
    rng = random.Random(seed)
    words = [0, INF, SIGN | INF, NAN, 0x00800000, 0x80800000, 0x7F7FFFFF, 0xFF7FFFFF]
    for exponent in (1, 2, 96, 100, 103, 104, 126, 127, 128, 132, 133, 134, 252, 253, 254):
        for fraction in (0, 1, 0x7FFFFF, 0x1FFFF, 0x20000, 0x20001, 0x7C0000, 0x7BFFFF, 0x7A0000):
            words += [exponent << 23 | fraction, SIGN | exponent << 23 | fraction]
    words += [0xC2FC0000 + n for n in range(-2, 3)] + [0x42FFFFFF, 0x43000000, 0x43000001]
    for _ in range(count):
        exponent = rng.choice([rng.randrange(1, 255), rng.randrange(100, 135)])
        words.append(rng.getrandbits(1) << 31 | exponent << 23 | rng.getrandbits(23))
    return words


def pipeline(dut, cases, drive, *outputs):
    """Values of `outputs` for every case, one case entering per clock."""
    results = []

    async def bench(ctx):
        for i in range(len(cases) + dut.LATENCY):
            if i >= dut.LATENCY:
                results.append(tuple(ctx.get(output) for output in outputs))
            if i < len(cases):
                drive(ctx, cases[i])
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    return results


def test_table_function():
    """Every function, mixed from clock to clock."""
    words = samples(1, 1500)
    cases = [(word, function) for word in words for function in Table]
    random.Random(2).shuffle(cases)
    want = {}
    for function, golden in GOLDEN.items():
        results = np.asarray(golden(floats(words)), np.float32).view(np.uint32)
        for word, y in zip(words, results.tolist(), strict=True):
            large = function is Table.EXP2 and y == INF and word != INF
            want[word, function] = y, int(large)
    dut = TableFunction()

    def drive(ctx, case):
        ctx.set(dut.x, case[0])
        ctx.set(dut.function, case[1])

    results = pipeline(dut, cases, drive, dut.y, dut.overflow)
    for case, got in zip(cases, results, strict=True):
        assert got == want[case], f"{case[1].name} {case[0]:#x}: {got[0]:#x}, not {want[case]}"


def test_log2():
    words = samples(3, 3000)
    want = functions.log2(floats(words)).view(np.uint32).tolist()
    dut = Log2()
    got = pipeline(dut, words, lambda ctx, word: ctx.set(dut.x, word), dut.y)
    for word, (y,), expected in zip(words, got, want, strict=True):
        assert y == expected, f"log2 {word:#x}: {y:#x}, not {expected:#x}"


def test_tables():
    """Against float64, which is exact to less than a hundredth here."""
    u = 1 + np.arange(65) / 64
    formulas = {"EXP2": 2.0**23 * 2.0 ** (u - 1), "RECIP": 2.0**24 / u,
                "RSQRT0": 2.0**24 / np.sqrt(u), "RSQRT1": 2.0**24 / np.sqrt(2 * u),
                "LOG2": 2.0**24 * np.log2(u)}
    for name, values in formulas.items():
        distance = np.abs(values - entries(name))
        assert distance.max() < 0.5, name
