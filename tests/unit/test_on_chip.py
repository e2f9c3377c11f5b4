"""The array stream's commands for operands on chip and kept tiles, against the reference."""

import random

import pytest
from sequencer_bench import CFG, FORGET, Bench
from test_sequencer import BIASED, GEMM_FUNCTIONS, check, fields

from hw.control.sequencer import Sequencer
from hw.isa import Function, Kind, Opcode, XSource, YTarget
from sw.compiler.assembler import window

CHIP = {"y_target": YTarget.CHIP.value, "y_bfp": 1}
ACC = {"y_target": YTarget.ACC.value, "y_bfp": 0}
FROM_CHIP, REQUEST = ({"x_source": s.value} for s in (XSource.CHIP, XSource.REQUEST))


def product(shape, seed, **extra):
    """GEMM with windows that hold all of X, Y and W: 0, 32 (dw_window), 64, accumulator 16.

    The bias, if kept, has slots 48 .. 49, room for four tiles.
    """
    return fields(Opcode.GEMM, shape, seed, **{
        "y_accumulate": 0, "x_window": window(0, 2, 2), "dw_window": window(32, 2, 2),
        "w_window": window(64, 2, 2), "y_window": window(16, 2, 2), "e_window": window(48, 1, 0),
        **extra})


@pytest.mark.parametrize("buffer", [0, 1])
@pytest.mark.parametrize("function", GEMM_FUNCTIONS, ids=lambda f: f.name.lower())
def test_a_chain_of_layers(function, buffer):
    """Requests to the chip, from there to the chip, from there to the accumulator; twice."""
    f = {"function": function.value, "buffer": buffer}
    back = {"x_window": window(32, 2, 2), "dw_window": window(96, 2, 2), **FROM_CHIP}
    layers = [product((2, 3, 2), 1, **REQUEST, **CHIP, **f, w_keep=1),
              product((2, 2, 3), 2, **CHIP, **f, w_keep=2,
                      **back | {"w_window": window(128, 2, 2), "e_window": window(50, 0, 1)}),
              product((2, 3, 2), 3, **ACC, **f, w_keep=3, **FROM_CHIP | {
                  "x_window": window(96, 2, 2), "w_window": window(160, 2, 2),
                  "e_window": window(52, 0, 1)})]
    bench = check([*layers, *layers], 1 + buffer)
    loads = [sum(c["kind"].value == 2 for c in log["load"]) for log in bench.logs]
    assert loads == [6, 6, 6, 0, 0, 0]  # W is kept
    biases = [[(c["slot"], c["row"]) for c in log["load"] if c["kind"] == Kind.BIAS]
              for log in bench.logs]
    if function in BIASED:  # and so is the bias
        assert biases[:3] == [[(48, 0), (48, 1), (49, 0)], [(50, 0), (50, 1)],
                              [(52, 0), (52, 1), (53, 0)]]
        assert biases[3:] == [[], [], []]
    assert not any(c["dest"].value == 0 and c["kind"].value != 2
                   for log in bench.logs for c in log["load"])


@pytest.mark.parametrize("depth", [1, 8])
def test_kept_tiles_and_others(depth):
    """Kept tiles are found in later instructions, by their number only, until FORGET."""
    w = {"w_window": window(64, 1, 1), "bm": 0, "bn": 0, "bk": 0}
    first, other = product((1, 2, 2), 1, w_keep=4, **w), product((1, 2, 2), 2, w_keep=5, **w)
    plain = product((1, 2, 2), 3, **w)
    # X in the slots of W
    across = product((2, 1, 2), 4, w_keep=6, x_window=window(64, 1, 1), w_window=window(128, 1, 1))
    large = product((1, 3, 3), 5, w_keep=7, **w)  # does not fit: some tiles stay
    gradient = fields(Opcode.GRAD, (1, 2, 2), 6, w_window=window(64, 1, 1))
    programs = [first, first, other, first, first, plain, plain, first, across, across, first,
                FORGET, first, first, FORGET, plain, FORGET, large, large, gradient, first]
    bench = check(programs, 5, depth=depth)
    loads = [sum(c["kind"].value == 2 for c in log["load"]) for log in bench.logs]
    assert loads[:13] == [4, 0, 4, 4, 0, 4, 4, 4, 2, 0, 4, 4, 0]
    assert loads[13] == 4
    assert 0 < loads[15] < loads[14] == 9
    assert loads[17] == 4


@pytest.mark.parametrize("blocks", [(0, 0), (1, 0), (0, 1), (1, 1), (2, 1), (1, 2), (2, 2)])
def test_a_bias_is_loaded_once(blocks):
    """In every order of results; by its number only, until FORGET; a ring loads it as ever."""
    f = {"function": Function.BIAS.value, "bm": blocks[0], "bn": blocks[1]}
    kept, other, ring = (product((3, 2 if keep == 2 else 3, 2), keep, **f, w_keep=keep)
                         for keep in (1, 2, 0))
    relu = product((2, 3, 1), 3, w_keep=3, function=Function.RELU.value)
    now = relu | {"function": Function.BIAS_RELU.value}  # its W is there, its bias is not
    programs = [kept, kept, ring, kept, other, relu, now, other, kept, FORGET, other, kept, now,
                FORGET, kept | {"w_keep": 15}, kept]
    bench = check(programs, 5, depth=8)
    loads = [sum(c["kind"] == Kind.BIAS for c in log["load"]) for log in bench.logs]
    assert loads.pop(2) >= 3
    assert loads == [3, 0, 0, 2, 0, 3, 0, 0, 2, 3, 3, 3, 3]


@pytest.mark.parametrize(("depth", "pace"), [(1, 0.2), (16, 0.3), (2, 0.9)])
def test_programs_at_random(depth, pace):
    rng, programs = random.Random(depth), []
    for seed in range(14):
        if rng.random() < 0.15:
            programs.append(FORGET)
            continue
        if rng.random() < 0.15:
            programs.append(fields(Opcode.GRAD, [rng.randrange(1, 3) for _ in range(3)], seed))
            continue
        small = {} if rng.random() < 0.5 else {"y_window": window(16, 0, 1)}
        target = rng.choice([CHIP | small, ACC, small, small | {"y_accumulate": 1, "y_bfp": 0}])
        x_window = window(rng.choice([0, 32, 96]), 2, 2)
        programs.append(product(
            [rng.randrange(1, 4) for _ in range(3)], seed, **{
                **target, **rng.choice([FROM_CHIP, REQUEST, {}]), "x_window": x_window,
                "dw_window": window((x_window["base"] + 32) % 64, 2, 2),
                "buffer": rng.randrange(2), "function": rng.choice(GEMM_FUNCTIONS).value,
                "w_window": window(rng.choice([128, 160]), rng.randrange(3), rng.randrange(3)),
                "w_keep": rng.choice([0, 1, 1, 2, 15])}))
    check(programs, 4, depth=depth, pace=pace)


def test_a_load_waits_for_operations_that_found_x_on_chip():
    """X from DRAM in the slots from which operations before read X without a lookup."""
    chain = product((2, 2, 2), 1, **FROM_CHIP, w_keep=1)
    bench = check([chain, product((2, 2, 2), 2, x_independent=1)], 6, depth=40, pace=0.05)
    loads = [c for c in bench.logs[1]["load"] if c["kind"].value == 1]
    operations = len(bench.logs[0]["exec"])
    assert any(c["done"]["exec_read"] < c["exec_read"] <= operations for c in loads)


@pytest.mark.parametrize("function", [Function.NONE, Function.RELU], ids=lambda f: f.name.lower())
def test_a_result_in_the_accumulator_is_there_before_the_next_instruction(function):
    for target, over in (ACC, True), ({}, False):
        f = product((2, 2, 1), 1, **target, function=function.value)
        bench = check([f, f], 7, depth=40, pace=0.05)
        done, issued = bench.ready_done[1]
        assert (done["exec_done"] == issued["exec"]) == over
        assert (done["vector_done"] == issued["vector"]) == (over or function is Function.NONE)


def test_results_on_chip_have_no_address():
    """They are not compared with the region; operands and the others are."""
    for extra, y_addr, refused in ((CHIP, 0xFFFFFFF0, None), (ACC, 0xFFFFFFF0, None),
                                   ({}, 0x7FFF0000, 0x7FFF0000),
                                   (FROM_CHIP | CHIP | {"x_addr": 0x7FFF0000}, 0, None),
                                   (REQUEST | ACC | {"x_addr": 0x7FFF0000}, 0, None),
                                   ({"x_addr": 0x7FFF0000}, 0, 0x7FFF0000)):
        f = product((2, 1, 2), 1, **extra, y_addr=y_addr)
        bench = Bench(Sequencer(CFG), [f], 8, region=0x100000).run()
        assert bench.refused == refused, extra
