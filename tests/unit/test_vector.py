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


@pytest.mark.parametrize("ready", [0.6, 1.0])
@each_config
def test_two_contexts(cfg, ready):
    """Random commands of both contexts, with changing policy: each gets what it would get alone."""
    rng = random.Random(f"{cfg.tile} {cfg.lanes} {ready} both")
    bench = Bench(cfg, rng.getrandbits(32), ready=ready, gap=0.1, shut=20 * (ready < 1), fair=0.3,
                  hold=0.2)
    for context in 0, 1:
        while len(bench.sides[context].commands) < 16:
            bench.instruction(rng.choice(FUNCTIONS), *sizes(rng, cfg),
                              rng.choice(["plain", "special", "large"]), rng.choice(SCALARS),
                              context)
    bench.run()


@pytest.mark.parametrize("fair", [0, 1])
@pytest.mark.parametrize("cfg", [CONFIGS[2], CONFIGS[3]], ids=["1 group", "2 groups"])
def test_operands_and_statistics_of_both(cfg, fair):
    """Second operands and statistics of one context are safe from the other's."""
    bench = Bench(cfg, 4, ready=0.7, fair=fair)
    for function in (Function.SOFTMAX, Function.ADD, Function.BIAS, Function.COLUMN_SUM):
        for context in 0, 1:
            bench.instruction(function, cfg.tile, cfg.tile + 1, context=context)
    bench.run()


def pair(cfg, seed, training, inference, **policy):
    """Bench after runs of the same commands of inference, beside training's, and alone."""
    benches = []
    for functions in training, ():
        bench = Bench(cfg, seed, **policy)
        for function in inference:
            bench.instruction(function, cfg.tile, cfg.tile, context=1)
        for function in functions:
            bench.instruction(function, cfg.tile, cfg.tile)
        bench.run()
        benches.append(bench)
    return benches


@pytest.mark.parametrize("cfg", [CONFIGS[2], CONFIGS[3], CONFIGS[5]],
                         ids=["1 group", "2 groups", "5 groups"])
def test_bound(cfg):
    """Inference waits only for the row in the lanes; `held` tells for how long."""
    both, alone = pair(cfg, 1, [Function.RELU, Function.SGD, Function.ADD] * 3,
                       [Function.SGD, Function.SOFTMAX, Function.BIAS, Function.SCALE])
    held = [clock[-1] for clock in both.seen]
    assert max(held) == both.bound == cfg.chunks - 1
    late = both.sides[1].clocks[-1] - alone.sides[1].clocks[-1]
    assert late <= sum(h > 0 for h in held)
    assert (late == 0) == (both.bound == 0)
    # asks of inference while the lanes work for training
    assert sum(asks and use for use, _, _, asks, _ in both.seen) == sum(h > 0 for h in held)
    # training gets what inference leaves
    assert any(use for use, *_ in both.seen[:both.sides[1].clocks[-1]])


def test_lanes_in_use():
    cfg = CONFIGS[3]
    both, _ = pair(cfg, 1, [Function.ADD] * 3, [Function.RELU] * 2)
    assert sum(use for use, *_ in both.seen) == 3 * cfg.tile * cfg.chunks
    assert sum(use for _, use, *_ in both.seen) == 2 * cfg.tile * cfg.chunks


def test_turns():
    """In turns, as long as both have rows: neither gets two more than the other."""
    cfg = CONFIGS[3]
    both, _ = pair(cfg, 1, [Function.RELU] * 6, [Function.RELU] * 6, fair=1.0)
    use = [clock[:2] for clock in both.seen]
    spans = [[n for n, pair in enumerate(use) if pair[context]] for context in (0, 1)]
    first, last = max(s[0] for s in spans), min(s[-1] for s in spans)
    shares = [sum(pair[context] for pair in use[first:last]) for context in (0, 1)]
    assert min(shares) >= 5 * cfg.tile * cfg.chunks
    assert abs(shares[0] - shares[1]) <= 2 * cfg.chunks


def test_hold():
    """Held, training's commands stay outside, and ask; those inside run to their end."""
    cfg = CONFIGS[2]
    bench = Bench(cfg, 1, hold=0.99)
    for _ in range(4):
        bench.instruction(Function.RELU, cfg.tile, cfg.tile)
    bench.run()
    last = bench.sides[0].starts[-1]
    assert last > 50
    assert sum(asks for _, _, asks, _, _ in bench.seen[:last]) > last - 10
