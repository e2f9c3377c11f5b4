"""Loops, address registers and fetch of the golden machine; epilogues against separate steps."""

import numpy as np
import pytest
from cases import random_case

from hw.config import load
from hw.isa import Error, Function, Kind, Opcode, Order
from sw.compiler.assembler import assemble, window
from sw.golden.machine import Machine
from sw.golden.program import steps

TINY = load("tiny")
SIZE = 1 << 16
FENCE, NEXT = {"opcode": Opcode.FENCE}, {"opcode": Opcode.NEXT}


def loop(turns, body):
    """Instructions of a loop."""
    return [{"opcode": Opcode.LOOP, "m": turns, "bm": len(body) + 1}, *body, NEXT]


def address(target, source, value):
    return {"opcode": Opcode.ADDRESS, "x_reg": target, "w_reg": source, "x_addr": value}


def region(instructions, size=SIZE):
    memory = np.zeros(size, np.uint8)
    program = assemble(TINY, instructions)
    memory[:len(program)] = np.frombuffer(program, np.uint8)
    return memory


def executed(instructions):
    """Numbers of the instructions in the order of execution, and the last one's error."""
    found = list(steps(TINY, region(instructions), 0))
    assert all(step.error is Error.NONE for step in found[:-1])
    return [step.pc // 128 for step in found], found[-1].error


# --- loops ------------------------------------------------------------------------------------

@pytest.mark.parametrize(("instructions", "order"), [
    (loop(1, [FENCE]), [0, 1, 2, 3]),
    (loop(3, [FENCE]), [0, 1, 2, 1, 2, 1, 2, 3]),
    (loop(2, []), [0, 1, 1, 2]),
    ([*loop(0, [FENCE, FENCE]), FENCE], [0, 4, 5]),
    (loop(0, []), [0, 2]),
    (loop(2, loop(2, [FENCE])), [0, 1, 2, 3, 2, 3, 4, 1, 2, 3, 2, 3, 4, 5]),
    (loop(2, loop(0, [FENCE])), [0, 1, 4, 1, 4, 5]),
    (loop(0, loop(2, [FENCE])), [0, 5]),
    ([*loop(1, [FENCE]), *loop(2, [])], [0, 1, 2, 3, 4, 4, 5]),
    (loop(1, loop(1, loop(1, loop(1, [])))), list(range(9))),
    (loop(2, [{"opcode": Opcode.END}]), [0, 1]),
])
def test_order_of_execution(instructions, order):
    assert executed(instructions) == (order, Error.NONE)
    result = Machine(TINY, region(instructions)).run(0)
    assert result.error is Error.NONE
    assert result.counters["INSTRUCTIONS"] == len(order)
    assert result.counters["READ_PROGRAM"] == 128 * len(order)


def test_many_turns():
    result = Machine(TINY, region(loop(100, loop(30, [FENCE])))).run(0)
    assert result.counters["INSTRUCTIONS"] == 1 + 100 * (1 + 30 * 2 + 1) + 1


@pytest.mark.parametrize(("instructions", "at"), [
    (loop(1, loop(1, loop(1, loop(1, loop(1, []))))), 4),
    ([NEXT], 0),
    ([*loop(2, [FENCE]), NEXT], 3),
    ([*loop(0, [FENCE]), NEXT], 3),
    ([{"opcode": Opcode.LOOP, "m": 1, "unused2": 1}], 0),
    ([{"opcode": Opcode.NEXT, "unused4": 1}], 0),
])
def test_loops_that_are_refused(instructions, at):
    order, error = executed(instructions)
    assert (order[-1], error) == (at, Error.BAD_FIELD)
    result = Machine(TINY, region(instructions)).run(0)
    assert (result.error, result.error_addr) == (Error.BAD_FIELD, 128 * at)


def test_a_fifth_loop_without_turns_is_skipped():
    inner = loop(1, loop(1, loop(1, loop(1, loop(0, [FENCE])))))
    assert executed(inner) == ([0, 1, 2, 3, 4, 7, 8, 9, 10, 11], Error.NONE)


def test_a_skip_may_leave_the_region():
    memory = region([{"opcode": Opcode.LOOP, "m": 0, "bm": 65535}])
    result = Machine(TINY, memory).run(0)
    assert (result.error, result.error_addr) == (Error.BAD_ADDRESS, 128 * 65536)


# --- address registers ------------------------------------------------------------------------

def scale(**fields):
    return {"opcode": Opcode.VECTOR, "function": Function.SCALE, "m": 4, "n": 4, "x_fp32": 1,
            "scalar": 0x40000000, "x_kind": Kind.X, "y_kind": Kind.Y, "y_addr": 0x8000, **fields}


def test_address_registers_move_every_operand():
    """Ten turns: X ascends, Y descends, modulo 2**32."""
    image = TINY.fp32_bytes
    memory = region([address(1, 0, 0x2000), address(2, 0, 0x3000),
                     *loop(10, [scale(x_reg=1, y_reg=2, y_addr=0x1000), address(1, 1, image),
                                address(2, 2, 2**32 - image)])])
    rng = np.random.default_rng(0)
    x = rng.standard_normal((10, 16)).astype(np.float32)
    memory[0x2000:0x2000 + 10 * image] = x.view(np.uint8).reshape(-1)
    result = Machine(TINY, memory).run(0)
    assert result.error is Error.NONE
    assert result.counters["VECTOR_OPERATIONS"] == 10
    low = 0x4000 - 9 * image
    y = memory[low:low + 10 * image].view(np.float32).reshape(10, 16)
    assert (y[::-1] == 2 * x).all()


def test_register_zero_is_zero_and_start_clears():
    program = [address(0, 0, 64), address(3, 0, 64), address(4, 3, 64), address(5, 0, 0), FENCE,
               scale(x_addr=0x1000, x_reg=4, y_addr=0x2000, y_reg=0, w_reg=5, w_addr=0x3000,
                     dy_reg=3, dy_addr=0x3000, dw_reg=4, dw_addr=0x4000, salt=7, salt_reg=4)]
    memory = region(program)
    for _ in range(2):
        (step,) = (s for s in steps(TINY, memory, 0) if s.walk)
        names = ("x_addr", "y_addr", "w_addr", "dy_addr", "dw_addr", "salt")
        assert [step.fields[name] for name in names] == \
            [0x1080, 0x2000, 0x3000, 0x3040, 0x4080, 7 + 128]
        assert step.fields["y_part_addr"] == 0


def test_salt_wraps():
    memory = region([address(1, 0, 2**32 - 1), scale(salt=3, salt_reg=1)])
    assert list(steps(TINY, memory, 0))[1].fields["salt"] == 2


def test_sums_are_checked_not_parts():
    """Two odd parts may make a beat; an even field with an odd register is refused."""
    good = [address(1, 0, 2), scale(x_addr=0x1FFE, x_reg=1)]
    bad = [address(1, 0, 2), scale(x_addr=0x2000, x_reg=1)]
    assert Machine(TINY, region(good)).run(0).error is Error.NONE
    result = Machine(TINY, region(bad)).run(0)
    assert (result.error, result.error_addr) == (Error.BAD_FIELD, 128)


def test_a_later_turn_leaves_the_region():
    memory = region(loop(5, [scale(x_addr=SIZE - 128, x_reg=1), address(1, 1, 64)]))
    result = Machine(TINY, memory).run(0)
    assert (result.error, result.error_addr) == (Error.BAD_ADDRESS, SIZE)
    found = [s for s in steps(TINY, memory, 0) if s.walk]
    assert [s.error for s in found[:3]] == [Error.NONE, Error.NONE, Error.BAD_ADDRESS]


@pytest.mark.parametrize(("fields", "error"), [
    ({}, Error.NONE),
    ({"config_hash": 1, "unused0": 1}, Error.WRONG_CONFIG),
    ({"opcode": 10, "config_hash": 1}, Error.BAD_OPCODE),
    ({"unused0": 1, "x_addr": SIZE}, Error.BAD_FIELD),
    ({"x_addr": SIZE}, Error.BAD_ADDRESS),
])
def test_precedence(fields, error):
    assert Machine(TINY, region([scale(**fields)])).run(0).error is error


def test_first_access_outside_is_the_first_in_program_order():
    """SGD: operands X, W, dY of a tile, then W, dY, Y; SOFTMAX's losses come last."""
    sgd = {"opcode": Opcode.VECTOR, "function": Function.SGD, "m": 8, "n": 4, "x_fp32": 1,
           "w_fp32": 1, "y_window": window(0, 1, 1), "x_pitch": 1, "w_pitch": 1, "dy_pitch": 1,
           "y_pitch": 1}
    ends = {"x_addr": SIZE - 64, "w_addr": SIZE - 128, "dy_addr": SIZE, "y_addr": SIZE + 64}
    for fields, addr in ((ends, SIZE), ({**ends, "dy_addr": 0}, SIZE + 64),
                         ({**ends, "dy_addr": 0, "y_addr": 0}, SIZE)):
        result = Machine(TINY, region([{**sgd, **fields}])).run(0)
        assert (result.error, result.error_addr) == (Error.BAD_ADDRESS, addr)
    softmax = {**sgd, "function": Function.SOFTMAX, "dw_addr": SIZE, "dw_pitch": 1}
    result = Machine(TINY, region([{**softmax, "y_addr": SIZE - 64}])).run(0)
    assert (result.error, result.error_addr) == (Error.BAD_ADDRESS, SIZE)
    assert Machine(TINY, region([{**softmax, "dw_off": 1}])).run(0).error is Error.NONE


# --- epilogues --------------------------------------------------------------------------------

@pytest.mark.parametrize("seed", range(40))
def test_epilogue_equals_separate_steps(seed):
    """The result of GEMM or GRAD with a function, and of FP32 followed by VECTOR."""
    cfg, memory, f = random_case(seed)
    grad = f["opcode"] is Opcode.GRAD
    rng = np.random.default_rng(seed)
    function = Function.RELU_GRAD if grad else rng.choice(
        [Function.BIAS, Function.RELU, Function.BIAS_RELU])
    f |= {"y_off": 0, "function": function}
    cols = f["k"] if grad else f["n"]
    middle = (len(memory) + 1023) // 1024 * 1024
    room = -(-f["m"] // cfg.tile) * f["y_pitch"] * cfg.fp32_bytes
    fused = np.concatenate([memory, np.zeros(middle - len(memory) + room + 1024, np.uint8)])
    if f["y_accumulate"]:
        fused[middle:middle + room] = fused[f["y_addr"]:f["y_addr"] + room]
    apart = fused.copy()
    vector = {"opcode": Opcode.VECTOR, "function": function, "m": f["m"], "n": cols, "x_fp32": 1,
              "x_addr": middle, "x_pitch": f["y_pitch"], "y_window": window(0, 1, 1),
              "w_addr": f["x_addr"] if grad else f["dy_addr"],
              "w_pitch": f["x_pitch"] if grad else f["dy_pitch"], "w_fp32": not grad,
              **{name: f.get(name, 0) for name in (
                  "y_addr", "y_pitch", "y_bfp", "y_row", "stochastic", "salt", "y_row0",
                  "y_col0")}}
    plain = {**f, "function": Function.NONE, "y_addr": middle, "y_bfp": 0, "y_row": 0}
    flags = []
    for memory, program in ((fused, [f]), (apart, [plain, vector])):
        code = assemble(cfg, program)
        memory[:len(code)] = np.frombuffer(code, np.uint8)
        result = Machine(cfg, memory, seed=seed).run(0)
        assert result.error is Error.NONE
        flags.append(result.overflow)
    assert (fused[1024:middle] == apart[1024:middle]).all()
    assert flags[0] == flags[1]


def test_bias_is_loaded_when_the_column_changes():
    gemm = {"opcode": Opcode.GEMM, "function": Function.BIAS, "m": 12, "n": 8, "k": 4,
            "x_pitch": 1, "w_pitch": 2, "y_pitch": 2, "y_addr": 0x4000, "dy_addr": 0x3000,
            "x_addr": 0x1000, "w_addr": 0x2000, "x_window": window(0, 2, 0),
            "w_window": window(8, 0, 1), "y_window": window(0, 2, 1)}
    for fields, loads in (({}, 2), ({"bm": 1}, 6), ({"bm": 1, "bn": 1}, 6)):
        result = Machine(TINY, region([{**gemm, **fields}])).run(0)
        assert result.error is Error.NONE
        assert result.counters["READ_BIAS"] == loads * 16  # one row
        assert result.counters["VECTOR_OPERATIONS"] == 6


def test_gradients_of_every_order_have_the_same_epilogue():
    found = set()
    for order in Order:
        cfg, memory, f = random_case(next(
            s for s in range(200) if random_case(s)[2]["opcode"] is Opcode.GRAD))
        f |= {"order": order, "y_off": 0, "dw_off": 0, "function": Function.RELU_GRAD,
              "y_accumulate": 0}
        code = assemble(cfg, [f])
        memory[:len(code)] = np.frombuffer(code, np.uint8)
        assert Machine(cfg, memory).run(0).error is Error.NONE
        rows, cols = -(-f["m"] // cfg.tile), -(-f["k"] // cfg.tile)
        size = (cfg.bfp_bytes if f["y_bfp"] else cfg.fp32_bytes) * rows * cols
        found.add(memory[f["y_addr"]:f["y_addr"] + size].tobytes())
    assert len(found) == 1
