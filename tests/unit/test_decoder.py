"""Decoder: verdicts of the golden model on random instructions, rules one by one, sizes."""

import random

import pytest
from amaranth.sim import Simulator

from hw.config import Config, load
from hw.control.commands import ContextId
from hw.control.decoder import Decoder
from hw.isa import (
    FIELDS,
    INSTRUCTION,
    WINDOW,
    Error,
    Function,
    Kind,
    Opcode,
    Order,
    XSource,
    YTarget,
)
from sw.golden.decode import Context, check

LEGAL = {
    Opcode.GEMM: [Function.NONE, Function.BIAS, Function.RELU, Function.BIAS_RELU],
    Opcode.GRAD: [Function.NONE, Function.RELU_GRAD], Opcode.CONVERT: [Function.NONE],
    Opcode.VECTOR: [f for f in Function if f is not Function.NONE],
}
CONFIGS = {
    "tiny": load("tiny"),
    "odd": Config(tile=5, mant_width=8, axi_width=64, spad_kib=1, spad_banks=2, acc_kib=1),
}


ON_CHIP = ("x_source", "y_target", "run_m", "w_keep")
TRAINING, INFERENCE = ContextId


def random_window(rng, slots):
    h, w = rng.choice([(0, 0), (1, 1), (0, 1), (2, 0), (0, 3), (rng.randrange(16), 0)])
    size = 1 << h + w
    last = max(0, slots - size)
    base = rng.choice([*[0] * 8, rng.randrange(slots), last, last + 1])
    return {"base": base, "h_log2": h, "w_log2": w, "unused": int(rng.random() < 0.003)}


def random_fields(cfg, rng):
    """Fields of an instruction, most of them legal."""
    fields = {}
    for name, (shape, _) in FIELDS.items():
        width = INSTRUCTION[name].width
        if shape is WINDOW:
            memory = cfg.spad_slots if name in ("x_window", "w_window", "dy_window",
                                                "dy2_window") else cfg.acc_slots
            fields[name] = random_window(rng, memory)
        elif name.startswith("unused"):
            fields[name] = int(rng.random() < 0.003) << rng.randrange(width)
        elif name.endswith("_addr"):
            fields[name] = rng.getrandbits(28) * cfg.beat_bytes + (rng.random() < 0.005)
        elif name in ("y_accumulate", "dw_accumulate", "dw_bfp", "x_row", "y_row", "y_off",
                      "dw_off"):
            fields[name] = int(rng.random() < 0.08)
        elif name in ON_CHIP:
            fields[name] = rng.getrandbits(width) if rng.random() < 0.003 else 0
        elif name in "mnk":
            fields[name] = 0 if rng.random() < 0.02 else rng.getrandbits(rng.randint(1, width))
        else:
            fields[name] = rng.getrandbits(width)
    opcode = rng.choice([*Opcode, *[Opcode.VECTOR] * 5, *[Opcode.GEMM] * 3])
    fields["opcode"] = opcode.value
    fields["config_hash"] = cfg.hash
    fields["order"] = rng.choice(list(Order)).value
    functions = LEGAL.get(opcode, list(Function)) if rng.random() < 0.8 else list(Function)
    fields["function"] = rng.choice(functions).value
    for name in ("x_kind", "w_kind", "dy_kind", "y_kind"):
        fields[name] = rng.choice(list(Kind)).value
    if rng.random() < 0.15:
        name = rng.choice(["opcode", "config_hash", "order", "x_kind", "w_kind", "dy_kind",
                           "y_kind", "function"])
        fields[name] = rng.getrandbits(INSTRUCTION[name].width)
    if fields["opcode"] == Opcode.GEMM.value and rng.random() < 0.6:
        on_chip(cfg, rng, fields)
    return fields


def on_chip(cfg, rng, fields):
    """Give a GEMM operands on chip, most of them in windows that are large enough."""
    fields |= {d: rng.randrange(1, rng.choice([2, 2, 3]) * cfg.tile) for d in "mnk"}
    fields |= {"x_source": rng.choice([0, 1, 1, 2, 2, 3]), "y_target": rng.choice([0, 1, 1, 2, 3]),
               "run_m": rng.random() < 0.3, "w_keep": rng.randrange(16)}
    if rng.random() < 0.8:
        fields |= {"y_bfp": int(fields["y_target"] == 1), "y_accumulate": 0}
        fields |= dict.fromkeys(("w_window", "e_window"), dict.fromkeys(dict(WINDOW), 0))
    if fields["y_target"] == 0 and rng.random() < 0.3:  # a bias that just fits, or does not
        fields |= {"n": rng.randrange(1, 5 * cfg.tile ** 2)}
        fields["e_window"] |= {"h_log2": rng.randrange(2), "w_log2": rng.randrange(2)}
    for name in ("x_window", "y_window", "dw_window"):
        fields[name] |= {"base": rng.choice([0, 1, 4]), "h_log2": rng.choice([0, 1, 1, 1, 2]),
                         "w_log2": rng.choice([0, 1, 1, 1, 2])}


def random_region(rng, slots):
    """First and last slot; often all."""
    first, last = sorted(rng.randrange(slots) for _ in range(2))
    return rng.choice([*[(0, slots - 1)] * 6, (first, last), (0, last), (first, slots)])


async def decode(ctx, dut, fields, buffer=0, **regions):
    """Error of an instruction."""
    ctx.set(dut.instr, INSTRUCTION.const(fields))
    ctx.set(dut.batch_buffer, buffer)
    for name, (first, last) in regions.items():
        ctx.set(getattr(dut, f"{name}_first"), first)
        ctx.set(getattr(dut, f"{name}_last"), last)
    ctx.set(dut.start, 1)
    await ctx.tick()
    ctx.set(dut.start, 0)
    while not ctx.get(dut.done):
        await ctx.tick()
    return ctx.get(dut.error)


def simulate(dut, bench):
    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()


@pytest.mark.parametrize("context", ContextId, ids=lambda c: c.name.lower())
@pytest.mark.parametrize("name", CONFIGS)
def test_random_instructions(name, context):
    cfg, rng = CONFIGS[name], random.Random(name)
    dut, verdicts, on_chip_verdicts = Decoder(cfg, context), {}, set()
    slots = 1 << cfg.spad_slot_bits

    async def bench(ctx):
        for _ in range(1200):
            fields = random_fields(cfg, rng)
            rows = rng.choice([0, rng.randint(1, 2 * cfg.tile)]) if context is INFERENCE else 0
            spad, acc = random_region(rng, slots), random_region(rng, cfg.acc_slots)
            given = fields | ({"m": rows} if fields["run_m"] else {})
            error = await decode(ctx, dut, given, spad=spad, acc=acc)
            expected = check(cfg, fields, Context(context is INFERENCE, rows, spad, acc))
            assert error == expected, fields
            kind = fields["opcode"], fields["function"], expected
            verdicts[kind] = verdicts.get(kind, 0) + 1
            on_chip_verdicts.add((fields["x_source"], fields["y_target"], expected))
            for d in "mnk":
                if given[d]:
                    assert ctx.get(getattr(dut, f"count_{d}")) == -(-given[d] // cfg.tile)
                    assert ctx.get(getattr(dut, f"rest_{d}")) == (given[d] - 1) % cfg.tile + 1

    simulate(dut, bench)
    accepted = {(op, f) for op, f, error in verdicts if error is Error.NONE}
    assert accepted >= {(op.value, f.value) for op, functions in LEGAL.items() for f in functions}
    assert {error for _, _, error in verdicts} == {Error.NONE, Error.BAD_OPCODE, Error.WRONG_CONFIG,
                                                   Error.BAD_FIELD, Error.BAD_WINDOW}
    legal = [(x, y) for x, y, error in on_chip_verdicts if error is Error.NONE]
    assert {x for x, _ in legal} == set(range(3 if context is INFERENCE else 2))
    assert {y for _, y in legal} == set(range(3))


#: T = 4; 2 x 3 tiles of X, 3 x 3 of W, 2 x 3 of Y.
PRODUCT = {"opcode": Opcode.GEMM.value, "m": 7, "n": 9, "k": 12,
           "x_window": {"base": 8, "h_log2": 1, "w_log2": 2},
           "w_window": {"base": 16, "h_log2": 0, "w_log2": 1},
           "y_window": {"base": 4, "h_log2": 1, "w_log2": 2},
           "dw_window": {"base": 24, "h_log2": 1, "w_log2": 2}}
CHIP = {"y_target": YTarget.CHIP.value, "y_bfp": 1}
ACC = {"y_target": YTarget.ACC.value}
FROM_CHIP, REQUEST = ({"x_source": s.value} for s in (XSource.CHIP, XSource.REQUEST))
GRAD = {"opcode": Opcode.GRAD.value, "order": Order.INTERLEAVED.value,
        "dy_window": {"base": 18}, "dy2_window": {"base": 19}, "dw_window": {"base": 13}}
VECTOR = {"opcode": Opcode.VECTOR.value, "function": Function.ADD.value}
BIAS = {"function": Function.BIAS.value}
NONE, FIELD, WINDOW_ = Error.NONE, Error.BAD_FIELD, Error.BAD_WINDOW


def window(name, **parts):
    return {name: PRODUCT[name] | parts}


#: Fields, slots of the context in scratchpad and accumulator, buffer; error in the inference
#: context, and in the training context where it is another one.
WHOLE = (0, 63), (0, 15)
RULES = [
    (FROM_CHIP | CHIP, *WHOLE, 0, NONE), (FROM_CHIP | ACC, *WHOLE, 0, NONE),
    (REQUEST | CHIP | {"w_keep": 15}, *WHOLE, 0, NONE, FIELD),
    ({"x_source": 3}, *WHOLE, 0, FIELD), ({"y_target": 3}, *WHOLE, 0, FIELD),
    ({"m": 0, "run_m": 1}, *WHOLE, 0, FIELD),
    # X must fit in its window on chip; in DRAM it need not.
    (window("x_window", h_log2=0), *WHOLE, 0, NONE),
    (FROM_CHIP | window("x_window", h_log2=0), *WHOLE, 0, FIELD),
    (FROM_CHIP | window("x_window", h_log2=2, w_log2=1), *WHOLE, 0, FIELD),
    (FROM_CHIP | {"k": 17}, *WHOLE, 0, FIELD), (FROM_CHIP | {"k": 16}, *WHOLE, 0, NONE),
    (REQUEST | {"m": 9}, *WHOLE, 0, FIELD), (REQUEST | {"m": 8}, *WHOLE, 0, NONE, FIELD),
    # So must Y, in `dw_window` or in `y_window`.
    (CHIP | {"y_bfp": 0}, *WHOLE, 0, FIELD), (ACC | {"y_bfp": 1}, *WHOLE, 0, FIELD),
    (CHIP | window("y_window", h_log2=0, w_log2=0), *WHOLE, 0, NONE),
    (CHIP | window("dw_window", h_log2=0), *WHOLE, 0, FIELD),
    (CHIP | window("dw_window", h_log2=2, w_log2=1), *WHOLE, 0, FIELD),
    (ACC | window("dw_window", h_log2=0), *WHOLE, 0, NONE),
    (ACC | window("y_window", h_log2=0), *WHOLE, 0, FIELD),
    (ACC | {"n": 17}, *WHOLE, 0, FIELD), (ACC | {"n": 16}, *WHOLE, 0, NONE),
    (ACC | {"y_accumulate": 1}, *WHOLE, 0, FIELD), ({"y_accumulate": 1}, *WHOLE, 0, NONE),
    # Nothing on chip but in GEMM.
    *((operation | {name: 1}, *WHOLE, 0, FIELD) for name in ON_CHIP for operation in (
        GRAD, VECTOR, {"opcode": Opcode.CONVERT.value}, {"opcode": Opcode.LOOP.value},
        {"opcode": Opcode.END.value})),
    # Windows beyond the context's slots. Y's on-chip window counts only if it is used.
    (CHIP, (8, 31), (4, 11), 0, NONE), (CHIP, (9, 31), (0, 15), 0, WINDOW_),
    (CHIP, (0, 30), (0, 15), 0, WINDOW_), ({}, (0, 17), (0, 15), 0, NONE),
    ({}, (0, 16), (0, 15), 0, WINDOW_), ({}, (0, 31), (5, 15), 0, WINDOW_),
    ({}, (0, 31), (0, 10), 0, WINDOW_), (ACC, (0, 31), (0, 10), 0, WINDOW_),
    (GRAD, (8, 19), (4, 13), 0, NONE), (GRAD, (8, 18), (4, 13), 0, WINDOW_),
    (GRAD, (8, 19), (4, 12), 0, WINDOW_), (GRAD | {"dw_off": 1}, (8, 19), (4, 12), 0, NONE),
    (GRAD | {"order": 0}, (8, 18), (4, 13), 0, NONE),
    (BIAS | {"e_window": {"base": 3}}, (0, 31), (3, 15), 0, NONE),
    (BIAS | {"e_window": {"base": 3}}, (0, 31), (4, 15), 0, WINDOW_),
    ({"function": Function.RELU.value, "e_window": {"base": 3}}, (0, 31), (4, 15), 0, NONE),
    (VECTOR, (31, 31), (4, 11), 0, NONE), (VECTOR, (0, 31), (4, 10), 0, WINDOW_),
    ({"opcode": Opcode.END.value}, (31, 31), (15, 15), 0, NONE),
    # A bias that is kept needs a row for each of its tiles, here 4 to a slot.
    *((BIAS | {"w_keep": keep, "n": n, "e_window": {"h_log2": high, "w_log2": wide}}, *WHOLE, 0,
       FIELD if keep and n > 16 << high + wide else NONE)
      for keep in (0, 1, 15) for high, wide in ((0, 0), (1, 0), (0, 1), (1, 1))
      for n in (16, 17, 32, 33, 64, 65)),
    (BIAS | {"w_keep": 1, "n": 65, "e_window": {"h_log2": 1, "w_log2": 2}}, *WHOLE, 0, FIELD),
    ({"function": Function.RELU.value, "w_keep": 1, "n": 65}, *WHOLE, 0, NONE),
    ({"w_keep": 1, "n": 65}, *WHOLE, 0, NONE),
    # A window that does not exist is BAD_FIELD, wherever the context may be.
    (CHIP | window("dw_window", base=57), (0, 70), (0, 15), 0, FIELD),
    (window("y_window", base=9), (0, 31), (4, 40), 0, FIELD),
    (CHIP | {"order": 9}, (9, 31), (0, 15), 0, FIELD),
    # The second buffer of inputs lies behind the first.
    (REQUEST, (8, 23), (0, 15), 0, NONE, FIELD), (REQUEST, (8, 17), (0, 15), 0, NONE, FIELD),
    (REQUEST, (8, 23), (0, 15), 1, NONE, FIELD), (REQUEST, (8, 22), (0, 15), 1, WINDOW_, FIELD),
    (REQUEST, (16, 23), (0, 15), 1, NONE, FIELD), (REQUEST, (16, 23), (0, 15), 0, WINDOW_, FIELD),
    (REQUEST | window("x_window", base=49), *WHOLE, 0, NONE, FIELD),
    (REQUEST | window("x_window", base=49), *WHOLE, 1, FIELD),
    (FROM_CHIP | window("x_window", base=49), *WHOLE, 1, NONE),
]


@pytest.mark.parametrize("context", ContextId, ids=lambda c: c.name.lower())
def test_operands_on_chip_and_windows(context):
    cfg = Config(tile=4, mant_width=8, spad_kib=1, spad_banks=2, acc_kib=1, axi_width=64)
    assert (cfg.spad_slots, cfg.acc_slots) == (64, 16)
    dut = Decoder(cfg, context)

    async def bench(ctx):
        for extra, spad, acc, buffer, *errors in RULES:
            fields = {**PRODUCT, "config_hash": cfg.hash, **extra}
            error = await decode(ctx, dut, fields, buffer, spad=spad, acc=acc)
            assert error == errors[-1 if context is TRAINING else 0], (extra, spad, acc, buffer)

    simulate(dut, bench)
