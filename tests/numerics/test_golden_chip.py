"""Operands that stay on chip: against the literal machine, and against the same through DRAM."""

import itertools

import numpy as np
import pytest
from chains import Chain
from literal import to_bits
from literal_machine import ArrayInstruction, Chip

from hw.config import load
from hw.isa import Error, Function, Kind, Opcode, XSource, YTarget
from sw.compiler.assembler import assemble, instruction, window
from sw.golden.decode import decode
from sw.golden.machine import Machine

TINY = load("tiny")


def literally(cfg, memory, layers, chip, seed, **batch):
    """Run GEMMs and GRADs one after the other on the literal machine; the instructions."""
    done = []
    for fields in layers:
        raw = np.frombuffer(instruction(cfg, **fields), np.uint8)
        done.append(ArrayInstruction(cfg, memory, decode(raw), seed, chip, **batch).run())
    return done


def agree(result, done, program_bytes):
    """The counters and flags of a golden run are those of the literal one."""
    assert result.error is Error.NONE
    expected = {f"{way}_{k.name}": sum(i.bytes[way == "WRITE", k] for i in done)
                for way in ("READ", "WRITE") for k in Kind}
    expected |= {"READ_PROGRAM": program_bytes, "INSTRUCTIONS": len(done) + 1,
                 "NONFINITE_TILES": sum(i.nonfinite for i in done),
                 "OPERATIONS": sum(i.operations for i in done),
                 "VECTOR_OPERATIONS": sum(i.vector_operations for i in done)}
    assert result.counters == expected
    assert result.overflow == any(i.check.overflow for i in done)


@pytest.mark.parametrize("seed", range(40))
def test_chain_is_executed_to_the_letter(seed):
    chain = Chain(seed)
    chain.to_dram()
    memory = chain.memory()
    expected = memory.copy()
    done = literally(chain.cfg, expected, chain.layers, Chip(), seed)
    agree(Machine(chain.cfg, memory, seed=seed).run(0), done, 128 * (len(done) + 1))
    assert (memory == expected).all()


def through_dram(chain):
    """The same layers with every activation in memory."""
    layers = [dict(layer) for layer in chain.layers]
    for before, after in itertools.pairwise(layers):
        tn = -(-before["n"] // chain.cfg.tile)
        addr = chain.bfp(chain.tm * tn)
        before |= {"y_target": YTarget.DRAM, "y_addr": addr, "y_pitch": tn}
        after |= {"x_source": XSource.DRAM, "x_addr": addr, "x_pitch": tn}
    return layers


@pytest.mark.parametrize("seed", range(100, 160))
def test_chain_through_dram_gives_the_same(seed):
    chain = Chain(seed)
    chain.to_dram()
    end = sum(map(len, chain.chunks))
    dram = through_dram(chain)
    on_chip, off_chip = chain.memory(), chain.memory(dram)
    chip, off = (Machine(chain.cfg, memory, seed=seed).run(0) for memory in (on_chip, off_chip))
    assert chip.error is off.error is Error.NONE
    assert (on_chip[1024:end] == off_chip[1024:end]).all()
    assert (chip.overflow, chip.nonfinite) == (off.overflow, off.nonfinite)
    same = {name for name in chip.counters if name not in ("READ_X", "WRITE_Y")}
    assert {n: chip.counters[n] for n in same} == {n: off.counters[n] for n in same}
    assert chip.counters["WRITE_Y"] < off.counters["WRITE_Y"]


@pytest.mark.parametrize("seed", range(20))
def test_rows_that_are_not_written_stay(seed):
    """Two results in one window: the second one has fewer rows."""
    chain = Chain(seed)
    chain.to_dram()
    first, *others = chain.layers
    other_w = chain.bfp(chain.tiles[0] * chain.tiles[1])
    fewer = first | {"m": int(chain.rng.integers(1, chain.m + 1)), "w_addr": other_w}
    layers = [first, fewer, *others]
    memory = chain.memory(layers)
    expected = memory.copy()
    done = literally(chain.cfg, expected, layers, Chip(), seed)
    agree(Machine(chain.cfg, memory, seed=seed).run(0), done, 128 * (len(done) + 1))
    assert (memory == expected).all()


def test_chains_reach_every_corner():
    """Guards the generator."""
    seen = set()
    for seed in range(40):
        chain = Chain(seed)
        chain.to_dram()
        result = Machine(chain.cfg, chain.memory(), seed=seed).run(0)
        seen |= {name for name, count in result.counters.items() if count}
        seen |= {(name, value) for layer in chain.layers for name, value in layer.items()
                 if name in ("y_row", "stochastic", "function", "y_target")}
        seen |= {"overflow"} if result.overflow else set()
    assert {"overflow", "NONFINITE_TILES", "READ_PARTIAL", "READ_BIAS", ("y_row", 0), ("y_row", 1),
            ("stochastic", 1), ("function", Function.RELU)} <= seen


@pytest.mark.parametrize("seed", range(30))
def test_y_that_stays_in_the_accumulator(seed):
    chain = Chain(seed)
    last = chain.layers[-1] | {"y_target": YTarget.ACC,
                               "y_window": chain.acc(chain.tm, chain.tiles[-1])}
    layers = [*chain.layers[:-1], last]
    memory, chip = chain.memory(layers), Chip()
    expected, machine = memory.copy(), Machine(chain.cfg, memory, seed=seed)
    done = literally(chain.cfg, expected, layers, chip, seed)
    agree(machine.run(0), done, 128 * (len(done) + 1))
    assert (memory == expected).all()
    w, n = last["y_window"], chain.tiles[-1]
    for row in range(chain.m):
        found = machine.chip.scatter(w, row, last["n"]).view(np.uint32)
        slots = [w["base"] + ((row // chain.cfg.tile) << w["w_log2"]) + j for j in range(n)]
        assert [[to_bits(v) for v in chip.acc[s, row % chain.cfg.tile]] for s in slots] \
            == found.tolist()


# --- checks -----------------------------------------------------------------------------------

def gemm(**fields):
    return {"opcode": Opcode.GEMM, "m": 5, "n": 9, "k": 8, "x_addr": 0x2000, "w_addr": 0x2000,
            "y_addr": 0x4000, "x_pitch": 2, "w_pitch": 3, "y_pitch": 3, "y_part_addr": 0x6000,
            "y_part_pitch": 3, "x_window": window(0, 1, 1), "w_window": window(64, 1, 2),
            "dw_window": window(128, 1, 2), "y_window": window(8, 1, 2),
            "e_window": window(0, 1, 1), **fields}


CHIP, ACC = {"y_target": YTarget.CHIP, "y_bfp": 1}, {"y_target": YTarget.ACC}
BAD = Error.BAD_FIELD


def refused(fields, error, **how):
    memory = np.zeros(1 << 16, np.uint8)
    code = assemble(TINY, [{"opcode": Opcode.FENCE}, fields])
    memory[:len(code)] = np.frombuffer(code, np.uint8)
    run = {name: how.pop(name) for name in ("keep", "rows") if name in how}
    result = Machine(TINY, memory, **how).run(0, **run)
    assert (result.error, result.error_addr) == (error, 128 if error is not Error.NONE else 0)


@pytest.mark.parametrize(("fields", "error"), [
    ({"x_source": 1}, Error.NONE), ({"x_source": 2}, BAD), ({"x_source": 3}, BAD),
    ({"x_source": 1, "x_window": window(0, 0, 1)}, BAD),
    ({"x_source": 1, "x_window": window(0, 1, 0)}, BAD),
    ({"x_window": window(0, 0, 0)}, Error.NONE),
    ({"x_source": 1, "x_addr": 0xFFFFFFF8, "x_pitch": 65535}, Error.NONE),  # not looked at
    (CHIP, Error.NONE), ({**CHIP, "y_bfp": 0}, BAD), ({**CHIP, "y_target": 3}, BAD),
    ({**CHIP, "dw_window": window(128, 0, 2)}, BAD),
    ({**CHIP, "dw_window": window(128, 1, 1)}, BAD),
    ({**CHIP, "dw_window": window(TINY.spad_slots - 4, 1, 2)}, BAD),
    ({**CHIP, "dw_window": window(TINY.acc_slots, 1, 2)}, Error.NONE),
    ({"dw_window": window(TINY.spad_slots, 0, 0)}, Error.NONE),
    ({**CHIP, "y_window": window()}, Error.NONE),
    ({**CHIP, "y_addr": 0xFFFFFFF8}, Error.NONE),
    (ACC, Error.NONE), ({**ACC, "y_bfp": 1}, BAD), ({**ACC, "y_window": window(8, 0, 2)}, BAD),
    ({**ACC, "y_window": window(8, 1, 1)}, BAD), ({**ACC, "y_addr": 0xFFFFFFF8}, Error.NONE),
    ({**ACC, "y_accumulate": 1}, BAD), ({"y_accumulate": 1}, Error.NONE),
    *(({"w_keep": keep, "n": n, "function": Function.BIAS_RELU, "e_window": window(0, *size)},
       BAD if keep and n > 16 << sum(size) else Error.NONE)
      for keep in (0, 15) for size in ((0, 0), (0, 1), (1, 1)) for n in (16, 17, 32, 33, 64, 65)),
    ({"w_keep": 1, "n": 65, "function": Function.RELU, "e_window": window()}, Error.NONE),
    ({"w_keep": 15}, Error.NONE), ({"run_m": 1}, BAD), ({"unused1": 1}, BAD),
])
def test_decoder_refuses(fields, error):
    refused(gemm(**fields), error)


@pytest.mark.parametrize("fields", [
    {"opcode": Opcode.GRAD, "dw_off": 1}, {"opcode": Opcode.CONVERT},
    {"opcode": Opcode.VECTOR, "function": Function.RELU}, {"opcode": Opcode.FENCE},
    {"opcode": Opcode.END}, {"opcode": Opcode.LOOP, "m": 0}, {"opcode": Opcode.ADDRESS}])
def test_only_a_gemm_has_operands_on_chip(fields):
    refused(gemm(**fields), Error.NONE, keep=True, rows=5)
    for name in ("x_source", "y_target", "run_m", "w_keep"):
        refused(gemm(**fields, **{name: 1}), BAD, keep=True, rows=5)


def test_what_only_inference_may_do():
    request = gemm(x_source=XSource.REQUEST)
    refused(request, Error.NONE, inference=True)
    refused(request, Error.NONE, keep=True)
    refused(gemm(run_m=1, m=0), Error.NONE, keep=True, rows=5)
    refused(gemm(run_m=1, m=0), BAD, inference=True)
    # The batch's rows count, not M: three tile rows do not fit any more.
    refused(gemm(x_source=1, run_m=1, m=1), BAD, keep=True, rows=9)
    refused(gemm(x_source=1, run_m=1, m=99), Error.NONE, keep=True, rows=8)


@pytest.mark.parametrize(("fields", "spad", "acc", "fits"), [
    ({}, (0, 71), (8, 15), True), ({}, (0, 70), (8, 15), False), ({}, (1, 255), (8, 15), False),
    ({}, (0, 255), (9, 15), False), ({}, (0, 255), (8, 14), False),
    (CHIP, (0, 135), (8, 15), True), (CHIP, (0, 134), (8, 15), False),
    ({"function": Function.BIAS}, (0, 71), (8, 15), False),
    ({"function": Function.BIAS}, (0, 71), (0, 15), True),
    ({"function": Function.RELU}, (0, 71), (8, 15), True),
    ({"opcode": Opcode.CONVERT}, (9, 9), (8, 15), True),
    ({"opcode": Opcode.CONVERT}, (9, 9), (8, 14), False),
    ({"opcode": Opcode.FENCE}, (9, 9), (9, 9), True),
    ({"opcode": Opcode.GRAD, "dw_off": 1, "dy_window": window(72)}, (0, 72), (8, 15), True),
    ({"opcode": Opcode.GRAD, "dw_off": 1, "dy_window": window(72)}, (0, 71), (8, 15), False),
    ({"opcode": Opcode.GRAD, "y_off": 1, "dw_window": window(2)}, (0, 71), (2, 3), True),
    ({"opcode": Opcode.GRAD, "dw_window": window(2)}, (0, 71), (8, 15), False),
    ({"opcode": Opcode.GRAD, "order": 1, "dw_off": 1, "dy2_window": window(72)}, (0, 71), (8, 15),
     False),
])
def test_windows_of_the_context(fields, spad, acc, fits):
    refused(gemm(**fields), Error.NONE if fits else Error.BAD_WINDOW, spad_region=spad,
            acc_region=acc)


def test_precedence():
    outside = {"x_window": window(250)}
    refused(gemm(**outside), Error.BAD_WINDOW, spad_region=(0, 127))
    refused(gemm(**outside, unused0=1), BAD, spad_region=(0, 127))
    refused(gemm(x_window=window(TINY.spad_slots)), BAD, spad_region=(0, 127))
    refused(gemm(**outside, x_addr=1 << 16), Error.BAD_WINDOW, spad_region=(0, 127))
