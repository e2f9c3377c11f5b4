"""The golden machine against a literal, tile-by-tile reading of the specification."""

import numpy as np
import pytest
from cases import random_case, random_vector
from literal import exact
from literal_machine import ArrayInstruction
from literal_vector import VectorInstruction

from hw.isa import Error, Function, Kind
from sw.compiler.assembler import assemble
from sw.golden.decode import decode
from sw.golden.machine import Machine
from sw.golden.traffic import trace

RATES = ("learning_rate", "momentum", "weight_decay")


def check(cfg, memory, f, literal, seed, registers):
    """Run an instruction on both; `literal` makes its reading from memory and fields."""
    raw = assemble(cfg, [f])
    memory[:len(raw)] = np.frombuffer(raw, np.uint8)
    fields = decode(memory[:128])
    expected = memory.copy()
    literal = literal(expected, fields).run()
    result = Machine(cfg, memory, seed=seed, **registers).run(0)
    assert result.error is Error.NONE
    different = np.flatnonzero(memory != expected)
    assert not len(different), f"first at {different[0]:#x}: {fields}"
    assert result.overflow == literal.check.overflow
    assert result.counters["NONFINITE_TILES"] == literal.nonfinite
    assert result.counters["OPERATIONS"] == literal.operations
    assert result.counters["VECTOR_OPERATIONS"] == literal.vector_operations
    assert result.counters["INSTRUCTIONS"] == 2
    literal.bytes[False, Kind.PROGRAM] += 256
    for (write, kind), count in literal.bytes.items():
        assert result.counters[f"{'WRITE' if write else 'READ'}_{kind.name}"] == count, kind
    events = sorted((int(when), a.write, a.kind, int(addr), int(count))
                    for a in trace(cfg, fields).accesses
                    for when, addr, count in zip(a.when, a.addr, a.moved, strict=True))
    assert [e[1:] for e in events] == literal.log
    return result


@pytest.mark.parametrize("seed", range(120))
def test_random_instruction_is_executed_to_the_letter(seed):
    cfg, memory, f = random_case(seed)
    check(cfg, memory, f, lambda *a: ArrayInstruction(cfg, *a, seed), seed, {})


@pytest.mark.parametrize("seed", range(252))
def test_random_function_is_executed_to_the_letter(seed):
    cfg, memory, f, rates = random_vector(seed)
    numbers = [exact(word) for word in rates]
    check(cfg, memory, f, lambda *a: VectorInstruction(cfg, *a, seed, numbers), seed,
          dict(zip(RATES, rates, strict=True)))


def test_random_cases_reach_every_corner():
    """Guards the generators: spills, overflows, NaN, epilogues and all functions are in them."""
    seen, functions = set(), {}
    for seed in range(120):
        cfg, memory, f = random_case(seed)
        raw = assemble(cfg, [f])
        memory[:len(raw)] = np.frombuffer(raw, np.uint8)
        result = Machine(cfg, memory, seed=seed).run(0)
        seen |= {"overflow"} if result.overflow else set()
        seen |= {"nonfinite" if result.nonfinite else "finite", f.get("function")}
        seen |= {name for name, count in result.counters.items() if count}
    assert {"overflow", "nonfinite", "finite", "READ_PARTIAL", "WRITE_PARTIAL", "READ_DX",
            "READ_DW", "READ_Y", "READ_BIAS", Function.RELU, Function.RELU_GRAD} <= seen
    for seed in range(252):
        cfg, memory, f, rates = random_vector(seed)
        raw = assemble(cfg, [f])
        memory[:len(raw)] = np.frombuffer(raw, np.uint8)
        result = Machine(cfg, memory, **dict(zip(RATES, rates, strict=True))).run(0)
        found = functions.setdefault(f["function"], set())
        found |= {("overflow", result.overflow), ("finite", not result.nonfinite)}
    either = {(name, value) for name in ("overflow", "finite") for value in (False, True)}
    never = {Function.NONE, Function.RELU, Function.RELU_GRAD, Function.RECIP, Function.RSQRT,
             Function.ROW_MAX}
    for function, found in functions.items():
        assert found == either - ({("overflow", True)} if function in never else set()), function
