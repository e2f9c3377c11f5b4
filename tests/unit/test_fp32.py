import random
from fractions import Fraction

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator
from exact_fp32 import INF, NAN, SIGN, add, exact, round24

from hw.numerics.fp32 import Fp32Add, Fp32Mul, SumToFp32, canonical

ONE, LEAST, LARGEST = 0x3F800000, 0x00800000, 0x7F7FFFFF


def pipeline(dut, inputs, cases):
    """(y, overflow) of every case, one case entering per clock."""
    results = []

    async def bench(ctx):
        for i in range(len(cases) + dut.LATENCY):
            if i >= dut.LATENCY:
                results.append((ctx.get(dut.y), ctx.get(dut.overflow)))
            if i < len(cases):
                for port, value in zip(inputs, cases[i], strict=True):
                    ctx.set(port, value)
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    return results


def check(dut, inputs, cases, expected):
    results = pipeline(dut, inputs, cases)
    for case, got, want in zip(cases, results, expected, strict=True):
        assert got == want, f"{[hex(c) for c in case]}: {got[0]:#x} {got[1]}, not {want[0]:#x}"


def test_reference_corners():
    assert round24(Fraction(2**24 - 1) * Fraction(2) ** -150) == (0, 0)
    assert round24(Fraction(2**25 - 1) * Fraction(2) ** -151) == (LEAST, 0)
    assert round24(Fraction(2**25 - 1) * Fraction(2) ** 103) == (INF, 1)
    assert round24(Fraction(2**24 + 1)) == (0x4B800000, 0)
    assert round24(Fraction(2**24 + 3)) == (0x4B800002, 0)


WORDS = [0, SIGN, 1, SIGN | 0x7FFFFF, LEAST, SIGN | LEAST, LEAST + 1, SIGN | LEAST + 1,
         0x01000001, SIGN | 0x01000000, ONE, ONE + 1, ONE - 1, SIGN | ONE, SIGN | ONE - 1,
         0x33800000, 0x33800001, 0x33000000, 0x33000001, 0xB3000000, 0xB3000001, 0x32FFFFFF,
         0xB2FFFFFF, 0x34000000, 0x3FFFFFFF, 0xB3800000, LARGEST, SIGN | LARGEST, 0x73000000,
         0x72FFFFFF, 0xF3000000, 0x7F000000, INF, SIGN | INF, NAN, 0x7F800001, 0xFFFFFFFF]


def test_add_corners():
    cases = [(a, b) for a in WORDS for b in WORDS]
    dut = Fp32Add()
    check(dut, (dut.a, dut.b), cases, [add(*c) for c in cases])


@pytest.mark.parametrize("spread", [1, 3, 30, 254])
def test_add_random(spread):
    rng = random.Random(spread)
    cases = []
    for _ in range(2500):
        centre = rng.choice([2, 25, 127, 253, rng.randrange(256)])
        words = []
        for _ in range(2):
            exponent = min(max(centre + rng.randint(-spread, spread), 0), 255)
            # sparse fractions make ties, runs of ones make carries
            fraction = rng.choice([rng.getrandbits(23), 1 << rng.randrange(23),
                                   (1 << 23) - (1 << rng.randrange(23))])
            words.append(rng.getrandbits(1) << 31 | exponent << 23 | fraction)
        cases.append(tuple(words))
    dut = Fp32Add()
    check(dut, (dut.a, dut.b), cases, [add(*c) for c in cases])


def maximum(a, b):
    if NAN in (a, b):
        return NAN
    return max(a, b, key=lambda w: -(w & ~SIGN) if w & SIGN else w)


def test_maximum():
    """Operands are canonical; without `maximum` the same component adds."""
    words = [w for w in WORDS if w & ~SIGN >= LEAST and w & ~SIGN <= INF] + [0, NAN]
    cases = [(a, b, n) for a in words for b in words for n in (0, 1)]
    dut = Fp32Add(with_maximum=True)
    check(dut, (dut.a, dut.b, dut.maximum), cases,
          [(maximum(a, b), 0) if n else add(a, b) for a, b, n in cases])


def mul(a, b):
    sign = (a ^ b) & SIGN
    sizes = [0 if w & ~SIGN < LEAST else w & ~SIGN for w in (a, b)]
    if max(sizes) > INF or sorted(sizes) == [0, INF]:
        return NAN, 0
    if INF in sizes:
        return sign | INF, 0
    return round24(exact(a) * exact(b))


def test_mul_corners():
    cases = [(a, b) for a in WORDS for b in WORDS]
    # products at the ends of the range
    cases += [(a, b ^ sign) for a in (0x00800000, 0x00FFFFFF, 0x20000001, 0x5F7FFFFF, 0x5F800001)
              for b in (0x3F7FFFFF, 0x3F800001, 0x3F000000, 0x3EFFFFFF, 0x3F000001, 0x20000000,
                        0x1FFFFFFF, 0x5F7FFFFF, 0x5F800000, 0x5F7FFFFE) for sign in (0, SIGN)]
    dut = Fp32Mul()
    check(dut, (dut.a, dut.b), cases, [mul(*c) for c in cases])


def test_mul_random():
    rng = random.Random(5)

    def word(exponent):
        fraction = rng.choice([rng.getrandbits(23), 1 << rng.randrange(23),
                               (1 << 23) - (1 << rng.randrange(23)), rng.getrandbits(12) << 11])
        return rng.getrandbits(1) << 31 | exponent << 23 | fraction

    cases = []
    for _ in range(8000):
        a = rng.randrange(1, 255)
        # half of the products near the ends of the range
        b = rng.choice([rng.randrange(1, 255), rng.choice([126, 127, 128, 380, 381, 382]) - a])
        cases.append((word(a), word(min(max(b, 0), 255))))
    dut = Fp32Mul()
    check(dut, (dut.a, dut.b), cases, [mul(*c) for c in cases])


def convert(total, scale, nan):
    return (NAN, 0) if nan else round24(Fraction(total) * Fraction(2) ** scale)


@pytest.mark.parametrize("width", [8, 20, 25, 26, 27, 39])
def test_sum(width):
    rng = random.Random(width)
    largest = 2 ** (width - 1) - 1
    sums = [0, 1, -1, 2, -3, largest, -largest, largest - 1, largest // 2 + 1, -(largest // 2)]
    sums += [s for n in range(22, width) for s in (2**n - 1, 1 - 2**n, 2**n + 1) if s <= largest]
    scales = [0, -1, 1, 250, -282, -1024, 1023]
    scales += [base - n for base in (128, -126, 127, -127, -125) for n in (0, 1, width - 2,
                                                                           width - 1, 23, 24, 25)]
    cases = [(s, scale, 0) for s in sums for scale in scales]
    cases += [(s, scale, 1) for s in (0, largest, -1) for scale in (0, 250)]
    for _ in range(3000):
        bits = rng.randrange(1, width)
        total = rng.choice([1, -1]) * rng.getrandbits(bits)
        if rng.random() < 0.3 and bits > 24:  # ties
            total = (total >> bits - 24 | 1) << bits - 24 | 1 << bits - 25
        total = min(max(total, -largest), largest)
        centre = rng.choice([0, 128 - bits, -126 - bits, -150, 104])
        cases.append((total, centre + rng.randint(-3, 3), 0))
    dut = SumToFp32(width)
    check(dut, (dut.sum, dut.scale, dut.nan), cases, [convert(*c) for c in cases])


def test_canonical():
    cases = {0: 0, SIGN: 0, 1: 0, SIGN | 0x7FFFFF: 0, LEAST: LEAST, SIGN | LEAST: SIGN | LEAST,
             INF: INF, SIGN | INF: SIGN | INF, 0x7F800001: NAN, 0xFFFFFFFF: NAN, NAN: NAN,
             SIGN | ONE: SIGN | ONE, LARGEST: LARGEST}
    m = Module()
    word, y = Signal(32), Signal(32)
    m.d.comb += y.eq(canonical(word))

    async def bench(ctx):
        for case, want in cases.items():
            ctx.set(word, case)
            assert ctx.get(y) == want, hex(case)

    sim = Simulator(m)
    sim.add_testbench(bench)
    sim.run()
