import random
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from amaranth.sim import Simulator

from hw.numerics.quantise import QuantiseLane, StochasticBits

WIDTHS = [4, 6, 8, 12, 16]


def fields(x):
    return x >> 31, x >> 23 & 255, x & 0x7FFFFF


def quantise(m, x, exp, stochastic, r):
    """Mantissa by the definition, in exact fractions."""
    sign, field, fraction = fields(x)
    if exp in (0, 255) or field == 0:
        return 0
    exact = Fraction(2**23 + fraction) / Fraction(2) ** (25 - m + exp - field)
    if stochastic:
        low = exact * 2**16 // 1 % 2**16
        magnitude = exact // 1 + (low + r >= 2**16)
    else:
        magnitude = round(exact)  # ties to even
    magnitude = min(int(magnitude), 2 ** (m - 1) - 1)
    return -magnitude if sign else magnitude


def signed(m, q):
    """Value of {sign, magnitude}; zero must have no sign."""
    assert q != 1 << (m - 1), "zero with a sign"
    magnitude = q & ((1 << (m - 1)) - 1)
    return -magnitude if q >> (m - 1) else magnitude


def run(m, cases):
    """Mantissas that the hardware gives for `cases` (x, exp, stochastic, r)."""
    dut = QuantiseLane(m)
    results = []

    async def bench(ctx):
        padding = [(0, 0, 0, 0)]
        inputs = cases + padding * dut.LATENCY
        for clock, (x, exp, stochastic, _) in enumerate(inputs):
            r = inputs[clock - dut.R_DELAY][3] if clock >= dut.R_DELAY else 0
            for port, value in ((dut.x, x), (dut.exp, exp), (dut.stochastic, stochastic),
                                (dut.r, r)):
                ctx.set(port, value)
            if clock >= dut.LATENCY:
                results.append(signed(m, ctx.get(dut.q)))
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    return results


def check(m, cases):
    results = run(m, cases)
    assert len(results) == len(cases)
    for case, result in zip(cases, results, strict=True):
        assert result == quantise(m, *case), tuple(map(hex, case))


def fp32(sign, field, fraction):
    return sign << 31 | field << 23 | fraction


@pytest.mark.parametrize("m", WIDTHS)
def test_nearest_even_on_halves_and_their_neighbours(m):
    cases = []
    for distance in range(m + 3):
        shift = 25 - m + distance
        for q in {0, 1, 2, 3, 2 ** (m - 2) - 1, 2 ** (m - 2), 2 ** (m - 1) - 2, 2 ** (m - 1) - 1}:
            half = (2 * q + 1) << shift >> 1
            for s in half - 1, half, half + 1, q << shift:
                if 2**23 <= s < 2**24:
                    cases += [(fp32(sign, 130 - distance, s - 2**23), 130, 0, 0xFFFF)
                              for sign in (0, 1)]
    halves = [c for c in cases if not (2**23 + fields(c[0])[2]) % (1 << (24 - m + 130
                                                                        - fields(c[0])[1]))]
    assert len(halves) >= 2 * (m - 2)
    check(m, cases)


@pytest.mark.parametrize("m", WIDTHS)
def test_around_powers_of_two(m):
    cases = [(fp32(sign, field, fraction), exp, stochastic, r)
             for sign in (0, 1) for exp in (1, 2, 40, 127, 254)
             for field in range(max(0, exp - m - 18), exp + 1)
             for fraction in (0, 1, 0x7FFFFE, 0x7FFFFF)
             for stochastic, r in ((0, 0), (1, 0), (1, 0xFFFF))]
    check(m, cases)


@pytest.mark.parametrize("m", WIDTHS)
def test_special_values(m):
    specials = [0, 1, 0x7FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001, 0x7FFFFFFF]
    cases = [(x | sign << 31, exp, stochastic, 0xFFFF) for x in specials for sign in (0, 1)
             for exp in (0, 1, 127, 254, 255) for stochastic in (0, 1)
             if exp in (0, 255) or fields(x)[1] <= exp]
    cases += [(fp32(0, field, 5), 255, 0, 0) for field in (1, 100, 250, 254)]
    check(m, cases)


@pytest.mark.parametrize("m", WIDTHS)
def test_random_values(m):
    rng = random.Random(m)
    cases = []
    for _ in range(3000):
        exp = rng.randrange(1, 255)
        field = max(0, exp - min(rng.randrange(256), rng.randrange(m + 20)))
        cases.append((fp32(rng.randrange(2), field, rng.getrandbits(23)), exp, rng.randrange(2),
                      rng.getrandbits(16)))
    check(m, cases)


@pytest.mark.parametrize("m", WIDTHS)
def test_stochastic_carries_exactly_at_the_fraction(m):
    rng = random.Random(m)
    cases = []
    for _ in range(500):
        distance = rng.randrange(m + 18)
        fraction = rng.getrandbits(23)
        shift = 25 - m + distance
        low = ((2**23 + fraction) << 16 >> shift) & 0xFFFF
        for r in 0xFFFF - low, 2**16 - low:  # the last R that drops it, the first that carries
            cases.append((fp32(rng.randrange(2), 200 - distance, fraction), 200, 1,
                          min(r, 0xFFFF)))
    check(m, cases)


def test_agrees_with_numpy_on_whole_tiles():
    rng = np.random.default_rng(8)
    m, cases, expected = 8, [], []
    for _ in range(8):
        tile = (rng.standard_normal((16, 16)) * 2.0 ** rng.integers(-60, 60)).astype(np.float32)
        bits = tile.view(np.uint32)
        exp = int((bits >> 23 & 255).max())
        grid = np.rint(tile.astype(np.float64) * 2.0 ** (m - 2 - (exp - 127)))
        expected += np.clip(grid, -127, 127).astype(int).flatten().tolist()
        cases += [(int(x), exp, 0, 0) for x in bits.flatten()]
    assert run(m, cases) == expected


def test_agrees_with_bfloat16_where_the_grids_are_one():
    # With its own exponent a mantissa of m = 9 has the 8 significant bits of a bfloat16.
    rng = np.random.default_rng(9)
    bits = (rng.integers(0, 2**31, 2000) & 0x807FFFFF | 127 << 23).astype(np.uint32)
    rounded = bits.view(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)
    keep = np.abs(rounded) < 2
    expected = (rounded[keep] * 2**7).astype(int).tolist()
    assert run(9, [(int(x), 127, 0, 0) for x in bits[keep]]) == expected


@pytest.mark.parametrize("stochastic", [0, 1])
@pytest.mark.parametrize("m", WIDTHS)
def test_quantising_a_quantised_value_changes_nothing(m, stochastic):
    rng = random.Random(m)
    mantissas = [rng.randrange(1 - 2 ** (m - 1), 2 ** (m - 1)) for _ in range(500)]
    exponent = 150
    values = np.ldexp(np.array(mantissas, np.float32), exponent - 127 - (m - 2)).view(np.uint32)
    assert run(m, [(int(x), exponent, stochastic, 0xFFFF) for x in values]) == mantissas


def stochastic_bits(row, col, seed, salt):
    """R as docs/numerics.md defines it."""
    def ror(v, n):
        return (v >> n | v << (16 - n)) & 0xFFFF

    x, y = row & 0xFFFF, col & 0xFFFF
    keys = [seed & 0xFFFF ^ row >> 16, salt & 0xFFFF ^ col >> 16, seed >> 16, salt >> 16,
            seed & 0xFFFF ^ 0x9E37, salt & 0xFFFF ^ 0x79B9]
    for key in keys:
        x = ((ror(x, 7) + y) & 0xFFFF) ^ key
        y = ror(y, 14) ^ x
    return x


def hashes(lanes, rows):
    """R of the `rows` (row, col, seed, salt), one list per row."""
    dut = StochasticBits(lanes)
    results = []

    async def bench(ctx):
        for clock, row in enumerate(rows + rows[:1] * dut.LATENCY):
            for port, value in zip((dut.row, dut.col, dut.seed, dut.salt), row, strict=True):
                ctx.set(port, value)
            if clock >= dut.LATENCY:
                results.append([ctx.get(dut.r[c]) for c in range(lanes)])
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    return results


def test_bits_follow_the_definition():
    rng = random.Random(3)
    seeds = 0, 0xFFFFFFFF, rng.getrandbits(32)
    rows = [(rng.getrandbits(20), rng.getrandbits(20), rng.choice(seeds), rng.getrandbits(32))
            for _ in range(600)]
    rows += [(*position, seed, salt) for seed in seeds for *position, salt in (
        (2**20 - 1, 2**20 - 2, 2**32 - 1), (0, 0, 0), (0xFFFF, 0xFFFF, 0x10000))]
    expected = [[stochastic_bits(row, (col + c) % 2**20, seed, salt) for c in range(3)]
                for row, col, seed, salt in rows]
    assert hashes(3, rows) == expected


def test_bits_look_uniform():
    bits = np.array(hashes(16, [(row, 0, 12345, 1) for row in range(256)]))
    counts = np.histogram(bits, bins=16, range=(0, 2**16))[0]
    assert np.abs(counts - bits.size / 16).max() < 5 * np.sqrt(bits.size / 16)
