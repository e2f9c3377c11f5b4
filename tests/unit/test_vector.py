"""Vector unit against the golden model's arithmetic, bit for bit."""

import random
from itertools import pairwise

import pytest
from vector_bench import Bench

from hw.config import Config
from hw.isa import Function

SMALL = dict(spad_kib=16, acc_kib=256, axi_width=64)
CONFIGS = [
    Config(tile=2, vector_lanes=1, **SMALL),
    Config(tile=3, vector_lanes=4, **SMALL),
    Config(tile=4, vector_lanes=4, **SMALL),
    Config(tile=4, vector_lanes=2, **SMALL),
    Config(tile=5, vector_lanes=4, **SMALL),
    Config(tile=9, vector_lanes=2, **SMALL),
]
FUNCTIONS = [f for f in Function if f is not Function.NONE]
SCALARS = [0x3E000000, 0xBF99999A, 0x7F800001, 0x80000001, 0x7F000000]
each_config = pytest.mark.parametrize("cfg", CONFIGS,
                                      ids=lambda c: f"T{c.tile}_lanes{c.lanes}")


def sizes(rng, cfg):
    """Rows and columns: up to two tiles and a bit, the edges of tiles more often than not."""
    ends = [1, cfg.tile - 1, cfg.tile, cfg.tile + 1, 2 * cfg.tile]
    return [rng.choice([*ends, rng.randint(1, 2 * cfg.tile + 1)]) for _ in range(2)]


@each_config
def test_functions(cfg):
    """Every function, one at a time, with its OVERFLOW; ports that are not always ready."""
    rng = random.Random(f"{cfg.tile} {cfg.lanes}")
    bench = Bench(cfg, rng.getrandbits(32), ready=0.8, drain=True)
    for kind in ("plain", "special", "large"):
        overflows = {bench.instruction(function, *sizes(rng, cfg), kind, rng.choice(SCALARS[:2]))
                     for function in FUNCTIONS}
        assert kind == "special" or overflows == ({False, True} if kind == "large" else {False})
    bench.run()


@pytest.mark.parametrize("ready", [0.4, 1.0])
@each_config
def test_commands_in_a_row(cfg, ready):
    """Commands that follow each other at once wait for what they need of each other."""
    rng = random.Random(f"{cfg.tile} {cfg.lanes} {ready}")
    bench = Bench(cfg, rng.getrandbits(32), ready=ready, gap=0.2 * (ready < 1))
    while len(bench.sides[0].commands) < 40:
        bench.instruction(rng.choice(FUNCTIONS), *sizes(rng, cfg),
                          rng.choice(["plain", "special"]), rng.choice(SCALARS))
    bench.run()


@pytest.mark.parametrize("cfg", [CONFIGS[2], CONFIGS[5]], ids=["one group", "many groups"])
def test_no_write_for_long(cfg):
    """Reads stop when no more results have room."""
    bench = Bench(cfg, 3, shut=100)
    for _ in range(4):
        bench.instruction(Function.RELU, 4 * cfg.tile, cfg.tile)
    bench.run()


@pytest.mark.parametrize("registers", [
    (0, 0, 0),
    (0x80000001, 0x7F800001, 0xFFFFFFFF),  # subnormal and NaNs as the host may write them
    (0xBF800000, 0x7F000000, 0x7F800000),
])
def test_registers_of_sgd(registers):
    bench = Bench(CONFIGS[2], 1, registers=registers, drain=True)
    for kind in ("plain", "special", "large"):
        bench.instruction(Function.SGD, 7, 6, kind)
    bench.run()


@pytest.mark.parametrize(("cfg", "limits"), [
    (CONFIGS[2], {Function.BIAS_RELU: (19, 5), Function.ADD: (22, 8), Function.SGD: (52, 38)}),
    (Config(tile=16, acc_kib=64, vector_lanes=16),
     {Function.BIAS_RELU: (31, 17), Function.SGD: (110, 96)}),
], ids=["T4", "T16"])
def test_clocks(cfg, limits):
    """Clocks from a command to its end, and from the end of one to that of the next."""
    for function, (latency, period) in limits.items():
        bench = Bench(cfg, 1)
        for _ in range(4):
            bench.instruction(function, cfg.tile, cfg.tile)
        bench.run()
        ends = bench.sides[0].clocks
        assert ends[0] - bench.sides[0].starts[0] == latency, function
        assert [b - a for a, b in pairwise(ends)] == [period] * 3, function


def test_sixteen_lanes():
    """Every function on 16 lanes, one tile each."""
    cfg = Config(tile=16, acc_kib=256, vector_lanes=16)
    bench = Bench(cfg, 2, ready=0.9)
    for function in FUNCTIONS:
        bench.instruction(function, 5, 13, "special")
    bench.run()
