"""Decoder: verdicts of the golden model on random instructions, and sizes in tiles."""

import random

import pytest
from amaranth.sim import Simulator

from hw.config import Config, load
from hw.control.decoder import Decoder
from hw.isa import FIELDS, INSTRUCTION, WINDOW, Error, Function, Kind, Opcode, Order
from sw.golden.decode import check

LEGAL = {
    Opcode.GEMM: [Function.NONE, Function.BIAS, Function.RELU, Function.BIAS_RELU],
    Opcode.GRAD: [Function.NONE, Function.RELU_GRAD], Opcode.CONVERT: [Function.NONE],
    Opcode.VECTOR: [f for f in Function if f is not Function.NONE],
}
CONFIGS = {
    "tiny": load("tiny"),
    "odd": Config(tile=5, mant_width=8, axi_width=64, spad_kib=1, spad_banks=2, acc_kib=1),
}


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
        elif name in "mnk":
            fields[name] = 0 if rng.random() < 0.02 else rng.getrandbits(rng.randint(1, width))
        else:
            fields[name] = rng.getrandbits(width)
    opcode = rng.choice([*Opcode, *[Opcode.VECTOR] * 5, Opcode.GEMM])
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
    return fields


@pytest.mark.parametrize("name", CONFIGS)
def test_random_instructions(name):
    cfg, rng = CONFIGS[name], random.Random(name)
    dut, verdicts = Decoder(cfg), {}

    async def bench(ctx):
        for _ in range(1000):
            fields = random_fields(cfg, rng)
            ctx.set(dut.instr, INSTRUCTION.const(fields))
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            while not ctx.get(dut.done):
                await ctx.tick()
            expected = check(cfg, fields)
            assert ctx.get(dut.error) == expected, fields
            kind = fields["opcode"], fields["function"], expected
            verdicts[kind] = verdicts.get(kind, 0) + 1
            for d in "mnk":
                if fields[d]:
                    assert ctx.get(getattr(dut, f"count_{d}")) == -(-fields[d] // cfg.tile)
                    assert ctx.get(getattr(dut, f"rest_{d}")) == (fields[d] - 1) % cfg.tile + 1

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    accepted = {(op, f) for op, f, error in verdicts if error is Error.NONE}
    assert accepted >= {(op.value, f.value) for op, functions in LEGAL.items() for f in functions}
    assert {error for _, _, error in verdicts} == {Error.NONE, Error.BAD_OPCODE,
                                                   Error.WRONG_CONFIG, Error.BAD_FIELD}
