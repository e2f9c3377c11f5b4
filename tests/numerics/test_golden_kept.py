"""Tiles of W that stay in the scratchpad: bytes against the literal machine, and by hand."""

import numpy as np
import pytest
from cases import random_case
from literal_machine import Chip
from test_golden_chip import agree, literally

from hw.config import load
from hw.isa import Error, Function, Opcode
from sw.compiler.assembler import assemble, window
from sw.golden.machine import Machine
from sw.golden.program import steps
from sw.golden.traffic import trace

TINY = load("tiny")
W = 0x2000


def random_programs(seed):
    """Programs of GEMMs and GRADs on one memory, whose windows share slots now and then.

    A w_keep number stands for one matrix: that of the random case number `w_keep`.
    """
    rng = np.random.default_rng(seed)
    cases = []
    while len(cases) < 4:
        case = random_case(seed % 5 + 5 * int(rng.integers(10**6)))
        if len(cases) == 3 or case[2]["opcode"] is Opcode.GEMM:
            cases.append(case)
    cfg, memory = cases[0][0], np.zeros(2048, np.uint8)
    variants = []
    for number, (_, part, f) in enumerate(cases):
        moved = {name: value + len(memory) - 1024 for name, value in f.items()
                 if name.endswith("_addr")}
        keep = number if f["opcode"] is Opcode.GEMM else 0
        place = {"e_window": window(0, 1, 1)} if keep else {}  # holds every bias
        variants.append(f | moved | place | {"w_keep": keep})
        memory = np.concatenate([memory, part[1024:]])
    programs = []
    for _ in range(4):
        program = []
        for _ in range(int(rng.integers(1, 5))):
            f = dict(variants[rng.integers(4)])
            for name, place in zip(("x", "w", "dy", "dy2"), rng.permutation(4), strict=True):
                h, w = [(0, 0), (0, 1), (1, 0), (1, 1)][rng.integers(4)]
                f[f"{name}_window"] = window(4 * int(place), h, w)
            program.append(f)
        programs.append((program, bool(rng.random() < 0.6)))
    return cfg, memory, programs


@pytest.mark.parametrize("seed", range(30))
def test_random_programs_find_what_is_kept(seed):
    cfg, memory, programs = random_programs(seed)
    machine, expected, chip = Machine(cfg, memory, seed=seed), memory.copy(), Chip()
    for number, (program, keep) in enumerate(programs):
        code = assemble(cfg, program)
        for region in (memory, expected):
            region[:len(code)] = np.frombuffer(code, np.uint8)
        if not keep:
            chip.forget()
        result = machine.run(0, keep=keep)
        cached = result.counters["READ_PROGRAM"] if keep else 128 * (len(program) + 1)
        agree(result, literally(cfg, expected, program, chip, seed), cached)
        assert (memory == expected).all(), number


def test_random_programs_reach_every_corner():
    """Guards the generator: some tiles are found again, some have been replaced; so biases."""
    found, biases = set(), set()
    for seed in range(30):
        cfg, memory, programs = random_programs(seed)
        machine = Machine(cfg, memory)
        for program, keep in programs:
            code = assemble(cfg, program)
            memory[:len(code)] = np.frombuffer(code, np.uint8)
            alone = [step.walk.bytes for f in program for step in
                     steps(cfg, np.concatenate([np.frombuffer(assemble(cfg, [f]), np.uint8),
                                                np.zeros(1 << 20, np.uint8)]), 0) if step.walk]
            counters = machine.run(0, keep=keep).counters
            for seen, name in (found, "READ_W"), (biases, "READ_BIAS"):
                fresh = sum(walk[name] for walk in alone)
                if fresh:
                    seen.add((keep, counters[name] < fresh))
    assert found == biases == {(keep, less) for keep in (False, True) for less in (False, True)}


# --- by hand ----------------------------------------------------------------------------------

TILE = TINY.bfp_bytes


def gemm(keep=1, **fields):
    """W is 2 x 2 tiles, all whole, in slots 64 .. 67."""
    return {"opcode": Opcode.GEMM, "m": 4, "n": 8, "k": 8, "x_addr": 0x1000, "w_addr": W,
            "y_addr": 0x3000, "x_pitch": 2, "w_pitch": 2, "y_pitch": 2, "w_keep": keep,
            "x_window": window(0, 0, 1), "w_window": window(64, 1, 1),
            "y_window": window(0, 0, 1), **fields}


def counters(machine, *instructions, keep=True):
    """Counters of a program of `instructions`."""
    code = assemble(TINY, instructions)
    machine.memory[:len(code)] = np.frombuffer(code, np.uint8)
    result = machine.run(0, keep=keep)
    assert result.error is Error.NONE
    return result.counters


def read_w(machine, *instructions, keep=True):
    """Tiles of W that a program of `instructions` loads."""
    return counters(machine, *instructions, keep=keep)["READ_W"] / TILE


def read_bias(machine, *instructions, keep=True):
    """Tiles of biases, one row each."""
    return counters(machine, *instructions, keep=keep)["READ_BIAS"] / (4 * TINY.tile)


@pytest.fixture
def machine():
    machine = Machine(TINY, np.zeros(1 << 15, np.uint8))
    assert read_w(machine, gemm()) == 4
    return machine


def test_kept_tiles_are_found_again(machine):
    assert read_w(machine, gemm()) == 0
    assert read_w(machine, gemm(), gemm(), gemm()) == 0
    assert read_w(machine, gemm(function=Function.RELU, m=7, y_pitch=2)) == 0


def test_start_and_enable_forget(machine):
    assert read_w(machine, gemm(), gemm(), keep=False) == 4
    assert read_w(machine, gemm()) == 0
    machine.enable()
    assert read_w(machine, gemm()) == 4


def test_other_numbers_and_none_do_not_find_them(machine):
    assert read_w(machine, gemm(2)) == 4
    assert read_w(machine, gemm(2)) == 0
    assert read_w(machine, gemm(0)) == 4
    assert read_w(machine, gemm(0)) == 4
    assert read_w(machine, gemm(2)) == 4


@pytest.mark.parametrize(("other", "lost"), [
    ({"w_window": window(68, 1, 1)}, 0),
    ({"w_window": window(66, 1, 1)}, 2),
    ({"w_window": window(67, 0, 0)}, 1),
    ({"w_window": window(68, 1, 1), "x_window": window(65, 0, 1)}, 2),
    ({"w_window": window(68, 1, 1), "x_window": window(65, 0, 0)}, 1),
    ({"w_window": window(68, 1, 1), "x_window": window(65, 0, 1), "x_source": 1}, 0),
    ({"w_window": window(68, 1, 1), "y_target": 1, "y_bfp": 1, "dw_window": window(65, 0, 1)}, 0),
    ({"opcode": Opcode.GRAD, "y_off": 1, "dw_window": window(8, 1, 1),
      "dy_window": window(65, 0, 0)}, 1),
    ({"opcode": Opcode.GRAD, "dw_off": 1, "w_window": window(67, 0, 0),
      "dy_window": window(128, 0, 1), "y_window": window(0)}, 1),
    ({"opcode": Opcode.CONVERT, "x_window": window(65)}, 0),
])
def test_loads_into_their_slots_replace_them(machine, other, lost):
    fields = gemm(0, dy_addr=0x2800, dy_pitch=2, dw_addr=0x4000, dw_pitch=2) | other
    read_w(machine, fields)
    assert read_w(machine, gemm()) == lost
    assert read_w(machine, gemm()) == 0


def test_a_window_that_is_too_small_keeps_what_came_last(machine):
    """One slot of a column: walks 00 01 10 11 (k outermost) leave 10 and 11."""
    small = gemm(w_window=window(80, 0, 1))
    assert read_w(machine, small) == 4
    assert read_w(machine, small) == 4
    turned = gemm(w_window=window(80, 0, 1), k=4)  # the upper half of W only
    assert read_w(machine, turned) == 2
    assert read_w(machine, small) == 2


@pytest.mark.parametrize("blocks", [{}, {"bm": 1}, {"bn": 1}, {"bm": 1, "bn": 1}, {"bn": 2}])
def test_a_bias_is_loaded_once(machine, blocks):
    """By the first instruction that has one, whatever the order, and not by others."""
    plain = {"function": Function.BIAS, "m": 8, "n": 20, "dy_addr": 0x2800, "y_part_addr": 0x6000,
             **blocks}
    f = plain | {"e_window": window(8, 1, 0)}
    assert read_bias(machine, gemm(**f), gemm(**f)) == 5
    assert read_bias(machine, gemm(**f), gemm(**f | {"function": Function.BIAS_RELU})) == 0
    assert read_bias(machine, gemm(2, **f)) == 5
    assert read_bias(machine, gemm(0, **plain)) >= 5
    assert read_bias(machine, gemm(3), gemm(3, **f | {"function": Function.RELU})) == 0
    assert read_bias(machine, gemm(3, **f), gemm(2, **f), gemm(**f)) == 5
    assert read_bias(machine, gemm(**f), keep=False) == 5
    machine.enable()
    assert read_bias(machine, gemm(**f)) == 5


def test_traces_are_cached_without_what_is_kept(machine):
    """The same bytes of an instruction mean other loads from run to run."""
    for expected in (0, 0):
        assert read_w(machine, gemm()) == expected
    assert read_w(Machine(TINY, np.zeros(1 << 15, np.uint8)), gemm()) == 4
    fields = next(s.fields for s in steps(TINY, machine.memory, 0) if s.walk)
    assert trace(TINY, fields).bytes["READ_W"] == 4 * TILE
