"""Every function at odd shapes, in every format, with few and many sets, on slow memories."""

from itertools import product

import numpy as np
import pytest

from hw.config import load
from hw.isa import Function, Kind, Opcode
from sw.compiler.assembler import window
from sw.golden import images
from tb.program import (
    BIASES,
    BINARY,
    LOSSES,
    ROWS,
    UNARY,
    Program,
    contents,
    part,
    slots_of_set,
    word,
)
from tests.configurations import CONFIGS as LIMITS

FUNCTIONS = [f for f in Function if f is not Function.NONE]
REDUCE = (Function.COLUMN_SUM, *ROWS, *LOSSES)
CONFIGS = {
    "tiny": load("tiny"), "edge": load("edge"),
    **{name: LIMITS[name] for name in ("five", "nibbles")},
}
MEMORIES = ({"latency": 1}, {"latency": 60}, {"stall": 0.5, "latency": 9, "seed": 3},
            {"bytes_per_cycle": 3, "latency": 4, "outstanding": 1})


def shapes(cfg):
    t = cfg.tile
    return [(1, 1), (t, t), (t - 1, t + 1), (t + 2, 1), (1, 2 * t + 1), (2 * t + 1, 3 * t - 1)]


def least_slots(function):
    """Fewest staging slots that the decoder takes."""
    return slots_of_set(function) * (2 if function in REDUCE else 1)


def forms():
    """Every format of X, W, and Y: (x_bfp, w_bfp, fields, y_bfp)."""
    for number, (x_bfp, w_bfp, y_bfp) in enumerate(product((False, True), repeat=3)):
        yield x_bfp, w_bfp, y_bfp, {"x_row": number % 3 == 0, "y_row": number % 2,
                                    "stochastic": number // 2 % 2, "salt": 77 * number,
                                    "y_row0": 2**20 - 3, "y_col0": 5}


def program(cfg, function, make="normal"):
    """A program of one function: each shape in two or more formats, sets 1, 2 and many."""
    p = Program(cfg, FUNCTIONS.index(function))
    formats = list(forms())
    scalar = word(p.rng.standard_normal())
    for number, (rows, cols) in enumerate(shapes(cfg)):
        least = least_slots(function)
        for turn, slots in enumerate((least, 2 * least, 32)):
            x_bfp, w_bfp, y_bfp, fields = formats[(number * 3 + turn) % len(formats)]
            p.function(function, rows, cols, make=getattr(p, make), x_bfp=x_bfp, w_bfp=w_bfp,
                       y_bfp=y_bfp, scalar=scalar, y_window=p.staging(slots), **fields)
    return p, p.end()


@pytest.mark.parametrize("make", ["normal", "wild"])
@pytest.mark.parametrize("name", CONFIGS)
def test_every_function(verify, name, make):
    """Alone, on FP32 and BFP operands and results; NaN, Inf, subnormals and huge numbers too."""
    cfg = CONFIGS[name]
    programs = [program(cfg, f, make) for f in FUNCTIONS]
    results = verify(cfg, [p.job(at, **MEMORIES[n % len(MEMORIES)])
                           for n, (p, at) in enumerate(programs)])
    for function, result in zip(FUNCTIONS, results, strict=True):
        assert result.registers["VECTOR_OPERATIONS"] >= 3 * len(shapes(cfg)), function
        assert 0 < result.registers["VECTOR_BUSY"] < result.registers["CYCLES_TOTAL"], function
        assert result.registers["OPERATIONS"] == result.registers["ARRAY_BUSY"] == 0


def test_the_memory_changes_no_result(verify):
    """Each function with every memory; and, within a program, with every number of sets."""
    cfg = CONFIGS["tiny"]
    p = Program(cfg, 1)
    same = []
    for function in FUNCTIONS:
        first = p.function(function, 11, 13, scalar=word(0.3), w_independent=1)
        same.append([])
        for slots in (4, 8, 16, 32, 64):
            results = {"y": p.room(first["y"].rows, first["y"].cols, False)}
            operands = {**first, **results}
            if function is Function.SGD:  # in place, hence on copies
                for name in ("w", "dy"):
                    operands[name] = p.room(11, 13, False)
                    p.convert(first[name], operands[name])
            if function in LOSSES:
                operands["dw"] = p.room(11, 1, False)
            p.vector(function, **operands, scalar=word(0.3), x_independent=1,
                     y_window=window(0, 0, slots.bit_length() - 1))
            same[-1].append([operands[n] for n in ("w", "dy", "y", "dw")
                             if n in operands and (n in ("y", "dw") or function is Function.SGD)])
    at = p.end()
    results = verify(cfg, [p.job(at, **memory) for memory in MEMORIES])
    for result in results:
        assert np.array_equal(result.memory, results[0].memory)
    memory = results[0].memory
    for function, cases in zip(FUNCTIONS, same, strict=True):
        for other in cases[1:]:
            for a, b in zip(cases[0], other, strict=True):
                assert np.array_equal(contents(cfg, memory, a), contents(cfg, memory, b)), function


def moved(cfg, bfp, rows, cols):
    """Bytes of a matrix's tile images, of the last ones only the valid rows."""
    heights = [min(cfg.tile, rows - first) for first in range(0, rows, cfg.tile)]
    beats = sum(cfg.image_beats(bfp, height) for height in heights)
    return -(-cols // cfg.tile) * beats * cfg.beat_bytes


def test_results_that_are_off(verify):
    """SOFTMAX and MSE without gradient or without losses, SGD without the copy."""
    cfg = CONFIGS["tiny"]
    p = Program(cfg, 2)
    for function in LOSSES:
        x, w = p.normal(9, 10), p.normal(9, 10)
        p.vector(function, x, w=w, y=p.room(9, 10, True), scalar=word(1 / 9))
        p.vector(function, x, w=w, dw=p.room(9, 1, False), scalar=word(1 / 9))
    p.vector(Function.SGD, p.bfp(9, 10), w=p.normal(9, 10), dy=p.normal(9, 10),
             w_kind=Kind.STATE, dy_kind=Kind.STATE)
    result = verify(cfg, [p.job(p.end())])[0].registers
    assert result["WRITE_Y"] == 2 * moved(cfg, True, 9, 10)
    assert result["WRITE_LOSS"] == 2 * moved(cfg, False, 9, 1)
    assert result["WRITE_STATE"] == result["READ_STATE"] == 2 * moved(cfg, False, 9, 10)


RATES = [
    {}, {"LEARNING_RATE": 0, "MOMENTUM": 0, "WEIGHT_DECAY": 0},
    {"LEARNING_RATE": word(-1e-3)}, {"MOMENTUM": word(1.0), "WEIGHT_DECAY": 0},
    {"LEARNING_RATE": word(np.nan)}, {"MOMENTUM": word(np.inf)}, {"WEIGHT_DECAY": word(-np.inf)},
    {"LEARNING_RATE": 1, "MOMENTUM": 0x807FFFFF, "WEIGHT_DECAY": 0x80000000},
    {"LEARNING_RATE": word(3e38), "WEIGHT_DECAY": word(1e-38)},
]


def test_rates(verify):
    """Registers of SGD: ordinary, zero, negative, NaN, Inf, subnormal, huge; three updates each."""
    cfg = CONFIGS["tiny"]
    p = Program(cfg, 3)
    x, w, dy = p.bfp(7, 9, exponents=(125, 126)), p.normal(7, 9), p.wild(7, 9)
    for number in range(3):
        p.vector(Function.SGD, x, w=w, dy=dy, y=p.room(7, 9, True), stochastic=1, salt=number)
    at = p.end()
    jobs = [p.job(at, rates=rates) for rates in RATES]
    jobs.append(p.job(at, fresh=False))
    jobs[-1].registers = {name: value for name, value in jobs[-1].registers.items()
                          if name not in RATES[-1]}  # they stay as they are
    results = verify(cfg, jobs)
    flags = [r.registers["EXCEPTIONS"] for r in results]
    assert {1, 3} <= set(flags)


def test_parts_of_matrices(verify):
    """Functions on tiles inside larger matrices touch nothing else and give the same."""
    cfg, t = CONFIGS["tiny"], 4
    p = Program(cfg, 4)
    x, w = p.normal(5 * t, 6 * t, pitch=9), p.bfp(5 * t, 6 * t, pitch=8)
    pairs = []
    for function in (*BINARY, *BIASES, *UNARY):
        whole, parts = p.room(5 * t, 6 * t, True, pitch=7), p.room(5 * t, 6 * t, True, pitch=6)
        fields = {"scalar": word(-2.5), "stochastic": 1, "salt": 5}
        p.vector(function, x, w=w, y=whole, **fields)
        for i, j, rows, cols in ((0, 0, 2, 6), (2, 0, 3, 4), (2, 4, 3, 2)):
            p.vector(function, part(cfg, x, i, j, rows * t, cols * t),
                     w=part(cfg, w, 0 if function in BIASES else i, j, rows * t, cols * t),
                     y=part(cfg, parts, i, j, rows * t, cols * t),
                     y_row0=i * t, y_col0=j * t, **fields)
        pairs.append((whole, parts))
    memory = verify(cfg, [p.job(p.end())])[0].memory
    for whole, parts in pairs:
        assert np.array_equal(contents(cfg, memory, whole), contents(cfg, memory, parts))


def test_convert_is_one_slot_of_the_vector_stream(verify):
    """CONVERT between functions, whatever its window; each reads what the one before wrote."""
    cfg = CONFIGS["tiny"]
    p = Program(cfg, 5)
    x = p.normal(10, 9)
    copies = []
    for slots in (1, 2, 4, 8, 64):
        quantised, tripled = p.room(10, 9, True), p.room(10, 9, False)
        p.convert(x, quantised, y_window=p.staging(slots))
        p.vector(Function.SCALE, quantised, y=tripled, scalar=word(3), y_window=p.staging(slots))
        copies.append(p.room(10, 9, True))
        p.convert(tripled, copies[-1], y_row=1, y_window=p.staging(slots))
        p.vector(Function.ADD, tripled, w=copies[-1], y=p.room(10, 9, False))
    memory = verify(cfg, [p.job(p.end(), latency=40)])[0].memory
    for other in copies[1:]:
        assert np.array_equal(contents(cfg, memory, copies[0]), contents(cfg, memory, other))


def test_softmax_is_a_softmax(verify):
    """Against float64: the gradient of cross-entropy, and the losses."""
    cfg, (rows, cols) = CONFIGS["edge"], (21, 35)
    p = Program(cfg, 6)
    x = p.rng.standard_normal((rows, cols), np.float32) * 4
    targets = np.eye(cols, dtype=np.float32)[p.rng.integers(0, cols, rows)]
    y, losses = p.room(rows, cols, False), p.room(rows, 1, False)
    p.vector(Function.SOFTMAX, p.fp32(x), w=p.fp32(targets), y=y, dw=losses,
             scalar=word(1 / rows), w_kind=Kind.TARGET)
    result = verify(cfg, [p.job(p.end())])[0]
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    softmax = powers / powers.sum(1, keepdims=True)

    def found(matrix):
        grid = contents(cfg, result.memory, matrix)
        return images.unpack_fp32(cfg, grid, matrix.rows, matrix.cols)[:matrix.rows, :matrix.cols]

    assert np.abs(found(y) * rows - (softmax - targets)).max() < 1e-3
    assert np.abs(found(losses)[:, 0] + np.log((softmax * targets).sum(1))).max() < 1e-3
    assert result.registers["READ_TARGET"] == moved(cfg, False, rows, cols)


def test_a_program_of_every_function(verify):
    """Each on the result of the one before, without a fence; windows that overlap in memory."""
    cfg = CONFIGS["tiny"]
    p = Program(cfg, 7)
    x = p.normal(9, 11)
    for number, function in enumerate((*UNARY, *BINARY, *BIASES, *LOSSES) * 2):
        y = p.room(9, 11, number % 3 == 0)
        p.vector(function, x, w=p.normal(9, 11), y=y, scalar=word(0.5), phase=number,
                 y_window=window(number % 5, number % 2, 2 + number % 3))
        x = y
        if number % 4 == 0:
            p.add(Opcode.FENCE)
    result = verify(cfg, [p.job(p.end(), latency=25)])[0]
    assert all(result.registers[f"PHASE_CYCLES_{n}"] > 0 for n in range(2 * 13))


def test_sets_change_hands(verify):
    """Independent functions, one after the other, in the slots of each other's sets and states."""
    cfg = CONFIGS["tiny"]
    p = Program(cfg, 8)
    free = {f"{name}_independent": 1 for name in ("x", "w", "dy")}
    for number in range(3 * len(FUNCTIONS)):
        function = FUNCTIONS[(5 * number) % len(FUNCTIONS)]
        least = least_slots(function)
        p.function(function, 7, 9, w_bfp=number % 2, scalar=word(0.2),
                   y_window=window(number % 3, 0, (least << number % 2).bit_length() - 1), **free)
        if number % 4 == 0:
            p.convert(p.normal(6, 9), p.room(6, 9, True), y_window=window(number % 4, 1, 1), **free)
    at = p.end()
    slow = [{"latency": 2, "stall": {channel: 0.9}} for channel in ("r", "w", "b")]
    verify(cfg, [p.job(at, **memory) for memory in (*slow, *MEMORIES)])
