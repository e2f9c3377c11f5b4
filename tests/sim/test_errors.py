"""Every error: its code, address and interrupt; results before it; a working machine after it."""

from functools import cache

import numpy as np
import pytest

from hw.config import load
from hw.isa import FIELDS, INSTRUCTION, Error, Function, Kind, Opcode, Order
from sw.compiler.assembler import assemble, instruction, window
from tb.program import LOSSES, ROWS, UNARY, Program, slots_of_set

TINY = load("tiny")
T, BEAT = TINY.tile, TINY.beat_bytes
SPAD, ACC = TINY.spad_slots, TINY.acc_slots


def kinds():
    """(name, opcode, fields) of one instruction for each check of the decoder."""
    gemm, grad, convert = Opcode.GEMM, Opcode.GRAD, Opcode.CONVERT
    for name in FIELDS:
        if name.startswith("unused"):
            for opcode, bit in ((gemm, 0), (Opcode.FENCE, INSTRUCTION[name].width - 1)):
                yield f"{name} {opcode.name}", opcode, {name: 1 << bit}
        elif name.endswith("_window"):
            yield f"{name} unused", convert, {name: {"unused": 0x80}}
        elif name.endswith("_addr"):
            yield name, grad, {name: BEAT // 2}
    for name in "mnk":
        yield f"{name} = 0", gemm, {name: 0}
    yield "convert m = 0", convert, {"m": 0}
    for opcode in (gemm, grad, convert):
        yield f"order {opcode.name}", opcode, {"order": 4}
        yield f"accumulate {opcode.name}", opcode, {"y_bfp": 1, "y_accumulate": 1}
        yield f"dw accumulate {opcode.name}", opcode, {"dw_bfp": 1, "dw_accumulate": 1}
        yield f"acc window {opcode.name}", opcode, {"y_window": window(ACC - 1, 0, 1)}
    yield "x_row", grad, {"x_row": 1}
    yield "y_row", grad, {"y_row": 1}
    yield "no output", grad, {"y_off": 1, "dw_off": 1}
    yield "dw window", grad, {"dw_window": window(ACC)}
    for name in ("x_window", "w_window", "dy_window", "dy2_window"):
        for what, value in (("base", window(SPAD)), ("end", window(SPAD - 3, 1, 1)),
                            ("wide", window(0, 8, 9)), ("wider", window(0, 15, 15))):
            yield f"{name} {what}", grad, {name: value, "order": Order.INTERLEAVED}


#: Functions that an instruction takes.
TAKEN = {Opcode.GEMM: (Function.NONE, Function.BIAS, Function.RELU, Function.BIAS_RELU),
         Opcode.GRAD: (Function.NONE, Function.RELU_GRAD), Opcode.CONVERT: (Function.NONE,),
         Opcode.VECTOR: tuple(Function)[1:]}


def function_kinds():
    """The same for the checks of functions, and of kinds."""
    for opcode, functions in TAKEN.items():
        for code in {*range(32)} - {f.value for f in functions}:
            yield f"{opcode.name} function {code}", opcode, {"function": code}
        for name in ("x_kind", "w_kind", "dy_kind", "y_kind"):
            for kind in (len(Kind), 15):
                yield f"{opcode.name} {name} = {kind}", opcode, {name: kind}
    yield "no dX", Opcode.GRAD, {"function": Function.RELU_GRAD, "y_off": 1}
    for opcode, function in ((Opcode.GEMM, Function.BIAS), (Opcode.GEMM, Function.BIAS_RELU),
                             (Opcode.GRAD, Function.RELU_GRAD)):
        for value in (window(ACC), window(ACC - 1, 0, 1), window(ACC - 3, 1, 1), window(0, 1, 2),
                      window(0, 0, 3), window(0, 15, 15)):
            yield f"{function.name} e_window {value}", opcode, {"function": function,
                                                               "e_window": value}
    vector = Opcode.VECTOR
    for name in ("y_accumulate", "dw_accumulate", "dw_bfp"):
        yield f"vector {name}", vector, {name: 1}
    for dim in "mn":
        yield f"vector {dim} = 0", vector, {dim: 0}
    yield "vector order", vector, {"order": 4}
    yield "vector y_window", vector, {"y_window": window(ACC - 3, 1, 1)}
    for function in TAKEN[vector]:
        least = slots_of_set(function) * (
            2 if function in (Function.COLUMN_SUM, *ROWS, *LOSSES) else 1)
        for log2 in range(least.bit_length() - 1):
            for high in range(log2 + 1):
                yield f"{function.name} with {1 << log2} slots", vector, {
                    "function": function, "y_window": window(0, high, log2 - high)}
    yield "SGD on BFP", vector, {"function": Function.SGD, "w_fp32": 0}
    for function in LOSSES:
        yield f"{function.name} off", vector, {"function": function, "y_off": 1, "dw_off": 1}


@cache
def operands(p):
    """Matrices that the instructions of `work` share: of M x K, K x N, M x N by format."""
    m, k, n = T + 2, T + 1, 2 * T
    bfp = {name: p.bfp(*size) for name, size in (("x", (m, k)), ("w", (k, n)), ("dy", (m, n)))}
    fp32 = {name: p.normal(m, k) for name in ("x", "w", "dy")}
    results, partials = ({name: p.room(*size, False) for name, size in (
        ("mk", (m, k)), ("kn", (k, n)), ("mn", (m, n)), ("loss", (m, 1)))} for _ in range(2))
    return bfp, fp32, results, partials


def work(p, opcode=Opcode.GRAD, **fields):
    """An instruction of any kind, on matrices that it shares with all others."""
    bfp, fp32, results, partials = operands(p)
    if opcode is Opcode.GEMM:
        p.gemm(bfp["x"], bfp["w"], results["mn"], partials["mn"], **fields)
    elif opcode is Opcode.GRAD:
        p.grad(*bfp.values(), results["mk"], results["kn"],
               fields.pop("order", Order.SEQUENTIAL), (partials["mk"], partials["kn"]), **fields)
    elif opcode is Opcode.CONVERT:
        p.convert(fp32["x"], results["mk"], **fields)
    elif opcode is Opcode.VECTOR:
        p.vector(fields.pop("function", Function.ADD), **fp32, y=results["mk"],
                 dw=results["loss"], **fields)
    else:
        p.add(opcode, **fields)


def run(verify, p, bad, **settings):
    """Run the programs `bad` in turn, after each one a good program; registers of the bad ones."""
    work(p)
    good = p.end()
    jobs = [p.job(good, **settings)]
    for at in bad:
        jobs += [p.job(at, fresh=False), p.job(good, fresh=False)]
    results = verify(TINY, jobs)
    assert all(r.registers["STATUS"] == 2 for r in results[::2])
    return [r.registers for r in results[1::2]]


@pytest.mark.parametrize("found", [kinds, function_kinds])
def test_bad_fields(verify, found):
    """Refused with all that came before it done, and nothing that comes after."""
    p = Program(TINY, 1)
    cases = list(found())
    bad = []
    for _, opcode, fields in cases:
        work(p, Opcode.GEMM)
        work(p, opcode, **fields)
        work(p, Opcode.CONVERT)
        bad.append(p.end())
    for (name, _, _), registers in zip(cases, run(verify, p, bad), strict=True):
        assert registers["ERROR_CODE"] == Error.BAD_FIELD.value, name
        assert registers["WRITE_Y"] > 0, name


def test_bad_opcodes_and_configurations(verify):
    p = Program(TINY, 2)
    bad = []
    for change in ({"opcode": 0}, {"opcode": 10}, {"opcode": 255}, {"config_hash": 0},
                   {"config_hash": TINY.hash ^ 1}, {"config_hash": TINY.hash ^ 1 << 31},
                   {"opcode": 0, "config_hash": 0}, {"m": 0, "config_hash": 0}):
        work(p)
        work(p, Opcode.GEMM)
        p.instructions[-1] |= change
        bad.append(p.end())
    codes = [Error(r["ERROR_CODE"]) for r in run(verify, p, bad)]
    assert codes == [Error.BAD_OPCODE] * 3 + [Error.WRONG_CONFIG] * 3 \
        + [Error.BAD_OPCODE, Error.WRONG_CONFIG]


def test_the_least_that_is_taken(verify):
    """Every function with its smallest window, every epilogue with its smallest and largest."""
    p = Program(TINY, 8)
    for function in TAKEN[Opcode.VECTOR]:
        least = slots_of_set(function) * (
            1 if function in (*UNARY, Function.SGD) or slots_of_set(function) == 1 else 2)
        for base in (0, ACC - least):
            work(p, Opcode.VECTOR, function=function, k=0,
                 y_window=window(base, 0, least.bit_length() - 1))
    for opcode in (Opcode.GEMM, Opcode.GRAD):
        for function in TAKEN[opcode]:
            for high, wide in ((0, 0), (0, 2), (1, 1), (2, 0)):
                work(p, opcode, function=function,
                     e_window=window(ACC - (1 << high + wide), high, wide))
        work(p, opcode, e_window=window(0xFFFF, 15, 15))  # not used
    result = verify(TINY, [p.job(p.end())])[0]
    assert result.registers["ERROR_CODE"] == Error.NONE.value


def test_a_mistake_anywhere_in_a_program(verify):
    p = Program(TINY, 3)
    bad = []
    for position in range(7):
        for number in range(7):
            work(p, (Opcode.GEMM, Opcode.CONVERT, Opcode.GRAD, Opcode.VECTOR)[number % 4],
                 **({"n": 0} if number == position else {}))
        bad.append(p.end())
    run(verify, p, bad, latency=40, stall=0.5)


def test_bad_addresses(verify):
    """Images beyond the region, and images that end with it, which is allowed."""
    p = Program(TINY, 4)
    far = {"below 4 GiB": 2**32 - BEAT, "beyond the region": 1 << 24}
    bad = []
    for address in far.values():
        for name, opcode in (("x", Opcode.GEMM), ("w", Opcode.GRAD), ("dy", Opcode.GRAD),
                             ("y", Opcode.GEMM), ("dw", Opcode.GRAD), ("x", Opcode.CONVERT),
                             ("y", Opcode.CONVERT), ("x", Opcode.VECTOR),
                             ("w", Opcode.VECTOR), ("y", Opcode.VECTOR), ("y_part", Opcode.GEMM),
                             ("dw_part", Opcode.GRAD)):
            work(p, Opcode.CONVERT)
            spilling = {"bk": 1, "bm": 1, "bn": 1, "y_window": window(0), "dw_window": window(1)}
            work(p, opcode, **({} if opcode is Opcode.VECTOR else spilling), order=Order.DX_MAJOR,
                 **{f"{name}_addr": address})
            work(p, Opcode.CONVERT)
            bad.append(p.end())
    work(p, Opcode.GRAD, y_accumulate=1, y_pitch=0xFFFF)
    bad.append(p.end())
    for fields in ({"function": Function.SGD, "dy_addr": 1 << 24},
                   {"function": Function.MSE, "dw_addr": 2**32 - BEAT},
                   {"function": Function.SOFTMAX, "dw_pitch": 0xFFFF}):
        work(p, Opcode.VECTOR, **fields)
        bad.append(p.end())
    work(p, Opcode.GEMM, function=Function.BIAS, dy_addr=1 << 24)
    bad.append(p.end())
    bad += [1 << 24, 2**32 - 128]  # programs
    codes = [Error(r["ERROR_CODE"]) for r in run(verify, p, bad)]
    assert codes == [Error.BAD_ADDRESS] * len(bad)


@pytest.mark.parametrize("write", [False, True])
def test_the_last_image_of_the_region(verify, write):
    """It may be read and written; a region that is one byte shorter refuses it."""
    p = Program(TINY, 5)
    hole = p.room(T, 8 * T, False)
    matrices = p.normal(T, T), p.room(T, T, False)
    x, y = matrices if write else matrices[::-1]
    p.convert(x, y)
    code = assemble(TINY, p.instructions)
    jobs = [p.job(hole.addr) for _ in range(2)]
    for job in jobs:
        job.memory[hole.addr:hole.addr + len(code)] = np.frombuffer(code, np.uint8)
    jobs[1].registers["REGION_SIZE"] -= 1
    fits, short = verify(TINY, jobs)
    assert fits.registers["ERROR_CODE"] == Error.NONE.value
    assert short.registers["ERROR_CODE"] == Error.BAD_ADDRESS.value
    assert short.registers["ERROR_ADDR"] == (y if write else x).addr


def test_a_program_that_runs_off_the_region(verify):
    """Without END, the fetch beyond the region stops it, after its instructions are done."""
    p = Program(TINY, 6)
    work(p)
    good = p.end()
    work(p, Opcode.GEMM)
    fields = p.instructions.pop()
    at = p.code(instruction(TINY, **fields))
    results = verify(TINY, [p.job(at), p.job(good, fresh=False)])
    registers = results[0].registers
    assert Error(registers["ERROR_CODE"]) is Error.BAD_ADDRESS
    assert registers["ERROR_ADDR"] == at + 128
    assert registers["WRITE_Y"] == 2 * TINY.fp32_bytes + 2 * BEAT * TINY.image_beats(False, 2)


def test_errors_of_the_memory(verify):
    """Reads and writes of every kind of image answered with SLVERR, early and late in a program."""
    t, jobs, expected = T, [], []
    for seed, (order, settings) in enumerate((
            (Order.DX_MAJOR, {"latency": 3}), (Order.DW_MAJOR, {"latency": 60}),
            (Order.DX_MAJOR, {"stall": 0.7}))):
        m, k, n = 2 * t + 1, t + 2, 3 * t - 1
        p = Program(TINY, seed)
        x, w, dy = p.bfp(m, k), p.bfp(k, n), p.bfp(m, n)
        dx, dw = p.normal(m, k), p.room(k, n, True)
        parts = p.room(m, k, False), p.room(k, n, False)
        p.convert(p.normal(9, 9), p.room(9, 9, True))
        p.grad(x, w, dy, dx, dw, order, parts, bm=1, bn=1, bk=1, y_accumulate=1,
               y_window=window(0), dw_window=window(1))
        p.convert(p.normal(9, 9), p.room(9, 9, True))
        at = p.end()
        work(p)
        good = p.end()
        spilled = parts[order is Order.DX_MAJOR]
        bfp, fp32 = TINY.bfp_bytes, TINY.fp32_bytes
        reads = [(at + 128 * i, 8) for i in (0, 1, 2, 3)]
        reads += [(place.addr, 8) for place in (x, w, dy, dx)]
        reads += [(place.addr + bfp * 2 + bfp - BEAT, BEAT) for place in (x, w, dy)]
        reads += [(spilled.addr, fp32), (0, 1 << 14)]
        writes = [(dx.addr, BEAT), (dx.addr + 2 * fp32 - BEAT, BEAT), (dw.addr + bfp, bfp),
                  (spilled.addr, 8), (0, 1 << 14)]
        for name, ranges in (("read_errors", reads), ("write_errors", writes)):
            for begin, size in ranges:
                limits = {name: (begin, begin + size)}
                jobs += [p.job(at, region_base=1 << 33, **settings, **limits)]
                expected.append(Error.READ_ERROR if name == "read_errors" else Error.WRITE_ERROR)
                if size < 1 << 14:
                    jobs.append(p.job(good, region_base=1 << 33, fresh=False))
                    expected.append(Error.NONE)
    codes = [Error(r.registers["ERROR_CODE"]) for r in verify(TINY, jobs)]
    assert codes == expected
