"""Loops and address registers: turns, nesting, refusals, errors and STOP inside, restarts."""

from itertools import product

import numpy as np
import pytest

from hw.config import load
from hw.isa import DIM_BITS, LOOP_DEPTH, Error, Function, Opcode, Order
from tb.program import Program, contents, word

TINY = load("tiny")
T, FP32, BFP = TINY.tile, TINY.fp32_bytes, TINY.bfp_bytes
BAD = Error.BAD_FIELD.value


def codes(results):
    return [Error(r.registers["ERROR_CODE"]) for r in results]


def executed(turns):
    """Instructions of nested loops with one instruction in each body before the inner loop."""
    if not turns:
        return 0
    return 1 + turns[0] * (2 + executed(turns[1:]))


def nested(p, turns, body):
    """Append loops in each other, `body()` first in each."""
    if turns:
        with p.loop(turns[0]):
            body()
            nested(p, turns[1:], body)


@pytest.mark.parametrize("body", [Opcode.ADDRESS, Opcode.FENCE, Opcode.VECTOR])
def test_turns(verify, body):
    """No, one and many turns, up to four deep; the instructions between are counted."""
    p = Program(TINY, 1)
    x, y = p.normal(3, 3), p.room(3, 3, False)
    bodies = {Opcode.ADDRESS: lambda: p.address(3, 8, 3), Opcode.FENCE: p.fence,
              Opcode.VECTOR: lambda: p.vector(Function.RELU, x, y=y)}
    shapes = [(0,), (1,), (37,), (0, 5), (5, 0), (3, 0, 4), (1, 1, 1, 1), (2, 3, 2, 3),
              (3, 1, 0, 2), (1, 2, 1, 0)]
    starts = []
    for turns in shapes:
        nested(p, turns, bodies[body])
        starts.append(p.end())
    results = verify(TINY, [p.job(at, latency=2) for at in starts])
    for turns, result in zip(shapes, results, strict=True):
        assert result.registers["INSTRUCTIONS"] == executed(turns) + 1, turns
        assert result.registers["READ_PROGRAM"] == 128 * (executed(turns) + 1), turns


def test_loops_one_after_the_other(verify):
    """Siblings at every depth, empty bodies, loops that end together, END right after a loop."""
    p = Program(TINY, 2)
    x = p.normal(2, 2)
    results = [p.room(2, 2, False) for _ in range(6)]

    def step(number):
        p.vector(Function.ADD, x, w=results[number], y=results[number])

    for result in results:
        p.convert(x, result)
    with p.loop(2):
        step(0)
        with p.loop(3):
            pass
        with p.loop(0):
            step(1)
            with p.loop(2):
                step(1)
        with p.loop(2):
            with p.loop(2):
                with p.loop(2):
                    step(2)
        step(3)
    with p.loop(1):
        with p.loop(1):
            with p.loop(1):
                with p.loop(1):
                    step(4)
    with p.loop(3):
        step(5)
    result = verify(TINY, [p.job(p.end(), latency=7)])[0]
    times = [2, 0, 16, 2, 1, 3]
    source, *sums = (contents(TINY, result.memory, m).view(np.float32)[0, 0, :2]
                     for m in (x, *results))
    for count, found in zip(times, sums, strict=True):
        want = source.copy()
        for _ in range(count):
            want += source
        assert np.array_equal(found, want)


def test_many_turns(verify):
    """More than 2**16, and LOOP takes all bits of its turns (skipped: bm = 0 is no body)."""
    p = Program(TINY, 3)
    with p.loop(40):
        with p.loop(170):
            p.address(1, 4, 1)
    many = p.end()
    with p.loop((1 << 16) + 1):
        pass
    power = p.end()
    with p.loop(0):
        for _ in range(300):
            p.fence()
    skipped = p.end()
    results = verify(TINY, [p.job(at, latency=1, timeout_cycles=10_000_000)
                            for at in (many, power, skipped)])
    assert [r.registers["INSTRUCTIONS"] for r in results] == \
        [1 + 40 * (2 + 170 * 2) + 1, 1 + (1 << 16) + 1 + 1, 2]
    assert (1 << 16).bit_length() <= DIM_BITS


def test_refusals(verify):
    """A fifth loop, NEXT without LOOP; with all before them done, and a working machine after."""
    p = Program(TINY, 4)
    x, y = p.normal(5, 5), p.room(5, 5, False)
    starts, wanted = [], []

    def program(code, build):
        p.vector(Function.RELU, x, y=y)
        build()
        p.vector(Function.RELU, x, y=y)
        starts.append(p.end())
        wanted.append(code)

    program(Error.NONE, lambda: nested(p, (1,) * LOOP_DEPTH, p.fence))
    program(Error.BAD_FIELD, lambda: nested(p, (1,) * (LOOP_DEPTH + 1), p.fence))
    program(Error.NONE, lambda: nested(p, (2, 1, 1, 2, 0), p.fence))  # skipped, not opened
    program(Error.BAD_FIELD, lambda: nested(p, (2, 1, 1, 2, 3), p.fence))
    program(Error.BAD_FIELD, lambda: p.add(Opcode.NEXT))
    program(Error.NONE, lambda: nested(p, (3,), p.fence))
    program(Error.BAD_FIELD, lambda: (nested(p, (3,), p.fence), p.add(Opcode.NEXT)))
    program(Error.BAD_FIELD, lambda: (nested(p, (0,), p.fence), p.add(Opcode.NEXT)))
    program(Error.NONE, lambda: p.add(Opcode.LOOP, m=0, bm=0))
    program(Error.NONE, lambda: p.add(Opcode.LOOP, m=0, bm=1))  # jumps over a VECTOR
    for code, build in ((Error.BAD_FIELD, lambda: p.add(Opcode.NEXT)),
                        (Error.NONE, lambda: nested(p, (1,) * LOOP_DEPTH, p.fence))):
        program(Error.NONE, lambda: p.add(Opcode.LOOP, m=3, bm=1))  # is not closed before END
        program(code, build)
    program(Error.BAD_ADDRESS, lambda: p.add(Opcode.LOOP, m=0, bm=0xFFFF))  # beyond the region
    for name in ("unused0", "unused1", "unused9"):
        for opcode in (Opcode.LOOP, Opcode.NEXT, Opcode.ADDRESS):
            program(Error.BAD_FIELD, lambda o=opcode, n=name: p.add(o, m=0, **{n: 1}))
    for opcode in (Opcode.LOOP, Opcode.ADDRESS):  # what they do not use may be anything
        program(Error.NONE, lambda o=opcode: p.add(
            o, m=0, n=3, order=15, function=31, x_kind=15, y_addr=3, x_addr=5,
            y_window={"base": 0xFFFF, "h_log2": 15, "w_log2": 15}))
    jobs = [p.job(at, fresh=n == 0) for n, at in enumerate(starts)]
    assert codes(verify(TINY, jobs)) == wanted


def stack(p, count, rows, cols, bfp, fill):
    """`count` matrices in one, each of whole rows of tiles: it, and bytes from one to the next."""
    height = -(-rows // T) * T
    total = fill((count - 1) * height + rows, cols) if fill else \
        p.room((count - 1) * height + rows, cols, bfp)
    return total, height // T * total.pitch * (BFP if total.bfp else FP32)


def test_a_loop_over_a_stack_of_matrices(verify):
    """Registers on every operand and the salt, set, added, decremented: as if it were unrolled."""
    p, count = Program(TINY, 5), 5
    m, k, n = 6, 7, 9
    w, bias = p.bfp(k, n), p.normal(1, n)
    xs, x_step = stack(p, count, m, k, True, p.bfp)
    dys, dy_step = stack(p, count, m, n, True, p.bfp)
    sizes = {"y": (m, n), "dx": (m, k), "dw": (k, n), "relu": (m, n)}
    outputs = {name: [stack(p, count, *size, name in ("y", "dx"), None)[0] for _ in range(2)]
               for name, size in sizes.items()}
    steps = {name: -(-rows // T) * outputs[name][0].pitch * (BFP if name in ("y", "dx") else FP32)
             for name, (rows, _) in sizes.items()}

    def at(matrix, rows, cols, offset=0):
        return type(matrix)(rows, cols, matrix.bfp, matrix.addr + offset, matrix.pitch)

    def body(which, turn, regs):
        x, dy = at(xs, m, k, turn * x_step), at(dys, m, n, turn * dy_step)
        y, dx, dw, relu = (at(outputs[o][which], *size, turn * steps[o])
                           for o, size in sizes.items())
        salt = 100 + 17 * turn
        r = (lambda **which: which) if regs else (lambda **which: {})
        p.gemm(x, w, y, bias=bias, stochastic=1, salt=salt,
               **r(x_reg=1, y_reg=3, salt_reg=14))
        p.grad(x, w, dy, dx, dw, Order.INTERLEAVED, stochastic=1, salt=salt + 1,
               **r(x_reg=1, dy_reg=2, y_reg=4, dw_reg=5, salt_reg=14))
        p.vector(Function.MUL, y, w=dy, y=relu,
                 **r(x_reg=3, w_reg=2, y_reg=15))

    registers = {1: x_step, 2: dy_step, 3: steps["y"], 4: steps["dx"], 5: steps["dw"],
                 15: steps["relu"], 14: 17}
    for turn in range(count):
        body(0, turn, False)
    unrolled = p.end()
    with p.loop(count):
        body(1, 0, True)
        for register, step in registers.items():
            p.address(register, step, register)
    up = p.end()
    for register, step in registers.items():  # from the last one down
        p.address(register, (count - 1) * step)
    with p.loop(count):
        body(1, 0, True)
        for register, step in registers.items():
            p.address(register, -step, register)
    down = p.end()
    results = verify(TINY, [p.job(at) for at in (unrolled, up, down)])
    for result in results[1:]:
        for (name, pair), turn in product(outputs.items(), range(count)):
            a, b = (contents(TINY, r.memory, at(matrix, *sizes[name], turn * steps[name]))
                    for r, matrix in zip((results[0], result), pair, strict=True))
            assert np.array_equal(a, b)


def test_address_registers(verify):
    """All sixteen, chains, sums that wrap; register 0 stays 0; fields are added modulo 2**32."""
    p = Program(TINY, 6)
    x = [p.normal(3, 3) for _ in range(3)]
    outs = [p.room(3, 3, False) for _ in range(40)]
    used = iter(outs)

    def copy(source, register, content):
        y = next(used)
        target = type(y)(3, 3, False, (y.addr - content) % 2**32, y.pitch)
        p.vector(Function.RELU, source, y=target, y_reg=register)

    p.address(0, 8)
    copy(x[0], 0, 0)
    values = {0: 0}
    for register in range(1, 16):
        source = int(p.rng.integers(0, register))
        step = int(p.rng.integers(0, 2**32))
        p.address(register, step, source)
        values[register] = (values[source] + step) % 2**32
    for register, content in values.items():
        copy(x[1], register, content)
    for register in (15, 7, 7, 1):
        p.address(register, 2**32 - 1, register)
        values[register] = (values[register] - 1) % 2**32
        copy(x[2], register, values[register])
    p.address(4, 0, 9)
    copy(x[0], 4, values[9])
    at = p.end()
    copy(x[1], 9, 0)  # START has set it to 0
    again = p.end()
    verify(TINY, [p.job(at), p.job(again, fresh=False)])


def test_errors_inside_a_loop(verify):
    """An address that leaves the region, or a beat, at the turn where it does; then a good run."""
    p = Program(TINY, 7)
    x, y = p.normal(T, T), p.room(T, T, False)
    good_y = p.room(T, T, False)
    starts = []
    for step, turns in product((1 << 30, 4, 2**32 - (1 << 20)), ((4,), (2, 3), (1, 2, 1, 3))):
        def body(step=step):
            p.vector(Function.RELU, x, y=good_y)
            p.vector(Function.SCALE, x, y=y, y_reg=2, scalar=word(2))
            p.address(2, step, 2)

        nested(p, turns, body)
        starts.append(p.end())
    nested(p, (2, 2, 2, 2), lambda: p.vector(Function.RELU, x, y=good_y))
    good = p.end()
    jobs = [p.job(good, latency=12, stall=0.3)]
    for at in starts:
        jobs += [p.job(at, fresh=False), p.job(good, fresh=False)]
    found = codes(verify(TINY, jobs))
    assert all(code is Error.NONE for code in found[::2])
    assert set(found[1::2]) == {Error.BAD_FIELD, Error.BAD_ADDRESS}


@pytest.mark.parametrize("how", ["stop_after", "reset_after"])
def test_stop_inside_a_loop(verify, how):
    """At any clock; the next START begins with no loop open and all registers 0."""
    p = Program(TINY, 8)
    x, w, y = p.bfp(5, 5), p.bfp(5, 5), p.room(5, 5, False)
    with p.loop(3):
        with p.loop(2):
            p.address(1, FP32 * 4, 1)
            p.gemm(x, w, y)
            with p.loop(2):
                p.vector(Function.RELU, y, y=p.room(5, 5, True), overlap=0)
                p.fence()
    at = p.end()
    p.add(Opcode.NEXT)
    stray = p.end()
    p.vector(Function.RELU, y, y=p.room(5, 5, True), y_reg=1)
    nested(p, (1, 1, 1, 1), p.fence)
    good = p.end()
    settings = {"latency": 9, "stall": 0.2}
    jobs = []
    for clock in (*range(1, 120, 7), *range(120, 2400, 61)):
        jobs += [p.job(at, fresh=not jobs, **settings, **{how: clock}),
                 p.job((stray, good, at)[clock % 3], fresh=False)]
    results = verify(TINY, jobs)
    if how == "stop_after":
        ended = [r.registers["STATUS"] for r in results[::2]]
        assert ended.count(0) > 30
    assert {r.registers["ERROR_CODE"] for r in results[1::2]} == {0, BAD}
