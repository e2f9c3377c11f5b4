"""Programs on the golden machine: CONVERT, order independence, errors, sizes of images."""

import numpy as np
import pytest

from hw.config import Config, load
from hw.isa import Error, Function, Kind, Opcode, Order
from sw.compiler.assembler import assemble, instruction, window
from sw.golden import images
from sw.golden.machine import Machine

TINY = load("tiny")
SIZE = 1 << 16
Y, X = 0x8000, 0x2000


def run(cfg, memory, instructions, seed=0):
    program = assemble(cfg, instructions)
    memory[:len(program)] = np.frombuffer(program, np.uint8)
    return Machine(cfg, memory, seed=seed).run(0)


def convert(**fields):
    return {"opcode": Opcode.CONVERT, "x_addr": X, "y_addr": Y, "x_kind": Kind.X, "y_kind": Kind.Y,
            **fields}


def put(cfg, memory, addr, matrix):
    """Store a float32 matrix as FP32 images; the pitch."""
    tm, tn = (images.tiles(cfg, s) for s in matrix.shape)
    padded = np.full((tm * cfg.tile, tn * cfg.tile), np.nan, np.float32)
    padded[:matrix.shape[0], :matrix.shape[1]] = matrix
    images.grid(memory, addr, tn, (tm, tn), cfg.fp32_bytes)[...] = images.pack_fp32(cfg, padded)
    return tn


def get(cfg, memory, addr, rows, cols):
    tm, tn = images.tiles(cfg, rows), images.tiles(cfg, cols)
    grid = images.grid(memory, addr, tn, (tm, tn), cfg.fp32_bytes)
    return images.unpack_fp32(cfg, grid, rows, cols)[:rows, :cols]


@pytest.mark.parametrize("cfg", [
    TINY, Config(tile=3, mant_width=4, axi_width=32, spad_kib=4, acc_kib=4),
    Config(tile=5, mant_width=6, axi_width=64, spad_kib=4, acc_kib=4),
    Config(tile=45, mant_width=8, axi_width=256, spad_kib=64, acc_kib=64),
    Config(tile=7, mant_width=16, axi_width=1024, spad_kib=4, acc_kib=4)])
@pytest.mark.parametrize("rows", [False, True])
def test_convert_there_and_back(cfg, rows):
    """FP32 -> BFP -> FP32 is within half a step, in image sizes that fit a beat badly."""
    rng = np.random.default_rng(0)
    memory = rng.integers(0, 256, 1 << 18, np.uint8)
    matrix = rng.standard_normal((2 * cfg.tile + 1, cfg.tile - 1)).astype(np.float32)
    m, n = matrix.shape
    pitch = put(cfg, memory, X, matrix)
    there = convert(m=m, n=n, x_pitch=pitch, y_pitch=pitch, x_fp32=1, y_bfp=1, y_row=rows)
    back = convert(m=m, n=n, x_pitch=pitch, y_pitch=pitch, x_row=rows, x_addr=1 << 15,
                   y_addr=1 << 17)
    there["y_addr"] = 1 << 15
    result = run(cfg, memory, [there, {"opcode": Opcode.FENCE}, back])
    assert (result.error, result.nonfinite, result.counters["OPERATIONS"]) == (Error.NONE, False, 0)
    out = get(cfg, memory, 1 << 17, m, n)
    tiles = np.zeros((3 * cfg.tile, cfg.tile))
    tiles[:m, :n] = np.abs(matrix)
    tiles = tiles.reshape(3, cfg.tile, cfg.tile)
    top = tiles.max((2,) if rows else (1, 2), keepdims=True)
    step = 2.0 ** (np.floor(np.log2(top, where=top > 0, out=np.full_like(top, -99)))
                   - (cfg.mant_width - 2))
    # An element next to the clamp is off by up to a whole step.
    limit = np.broadcast_to(step, tiles.shape).reshape(3 * cfg.tile, cfg.tile)[:m, :n]
    assert (np.abs(out - matrix) <= limit).all()
    assert (np.abs(out - matrix) <= limit / 2 + 1e-30).mean() > 0.8
    row = -(-32 * cfg.tile // cfg.axi_width), -(-cfg.container * cfg.tile // cfg.axi_width)
    moved = 2 * (cfg.fp32_bytes + cfg.bfp_bytes) + (sum(row) + cfg.exp_beats) * cfg.beat_bytes
    assert result.counters["READ_X"] == result.counters["WRITE_Y"] == moved
    image = images.grid(memory, 1 << 15, 1, (3, 1), cfg.bfp_bytes)[2, 0]
    exponents = image[:cfg.tile]
    assert (exponents[1:] == (0 if rows else exponents[0])).all()
    assert not image[cfg.tile:cfg.exp_beats * cfg.beat_bytes].any()


def test_nonfinite_tiles_count_valid_elements_only():
    memory = np.full(SIZE, 255, np.uint8)  # NaN everywhere
    matrix = np.zeros((6, 9), np.float32)
    matrix[5, 8], matrix[0, 1], matrix[1, 0] = np.inf, np.nan, -np.inf
    pitch = put(TINY, memory, X, matrix)
    result = run(TINY, memory, [convert(m=6, n=9, x_fp32=1, x_pitch=pitch, y_pitch=pitch)])
    assert result.nonfinite
    assert not result.overflow
    assert result.counters["NONFINITE_TILES"] == 2
    assert np.array_equal(get(TINY, memory, Y, 6, 9), matrix, equal_nan=True)


def test_every_order_and_blocking_gives_the_same_gradients():
    rng = np.random.default_rng(3)
    base = rng.integers(0, 256, SIZE, np.uint8)
    for addr, pitch, count in ((X, 4, 12), (0x3000, 5, 20), (0x4000, 5, 15)):
        shape = (count // pitch, pitch)
        images.grid(base, addr, pitch, shape, TINY.bfp_bytes)[..., :4] = \
            rng.integers(120, 135, (*shape, 1))
    results = []
    for order in Order:
        for blocks in ((0, 0, 0), (1, 2, 3), (2, 1, 1)):
            memory = base.copy()
            result = run(TINY, memory, [{
                "opcode": Opcode.GRAD, "order": order, "m": 11, "k": 16, "n": 18, "x_addr": X,
                "w_addr": 0x3000, "dy_addr": 0x4000, "y_addr": Y, "dw_addr": 0x9000,
                "y_part_addr": 0xA000, "dw_part_addr": 0xC000, "x_pitch": 4, "w_pitch": 5,
                "dy_pitch": 5, "y_pitch": 4, "dw_pitch": 5, "y_part_pitch": 4, "dw_part_pitch": 5,
                "y_bfp": 1, "stochastic": 1, "salt": 5, "x_window": window(0, 1, 1),
                "w_window": window(4, 1, 1), "dy_window": window(8, 0, 1),
                "dy2_window": window(10, 1, 0), "y_window": window(0, 1, 0),
                "dw_window": window(4, 1, 1), **dict(zip(("bm", "bn", "bk"), blocks, strict=True)),
            }], seed=8)
            assert result.error is Error.NONE
            results.append(memory[Y:0xA000].tobytes())
    assert len(set(results)) == 1


def gemm(**fields):
    return {"opcode": Opcode.GEMM, "m": 8, "n": 8, "k": 8, "x_addr": X, "w_addr": X, "y_addr": Y,
            "x_pitch": 2, "w_pitch": 2, "y_pitch": 2, "y_part_addr": 0xA000, "y_part_pitch": 2,
            "w_window": window(1), **fields}


BIG_BASE = TINY.spad_slots


def vector(function, **fields):
    return {"opcode": Opcode.VECTOR, "function": function, "w_fp32": 1,
            "y_window": window(0, 1, 1), **fields}


@pytest.mark.parametrize(("fields", "error"), [
    ({}, Error.NONE),
    ({"opcode": 0}, Error.BAD_OPCODE),
    ({"opcode": 10, "config_hash": 0}, Error.BAD_OPCODE),
    ({"config_hash": 1, "unused0": 1}, Error.WRONG_CONFIG),
    ({"unused0": 1}, Error.BAD_FIELD),
    ({"unused4": 1}, Error.BAD_FIELD),
    ({"opcode": Opcode.FENCE, "unused5": 1}, Error.BAD_FIELD),
    ({"opcode": Opcode.FENCE, "e_window": {"unused": 1}}, Error.BAD_FIELD),
    ({"opcode": Opcode.FENCE, "function": 31, "x_kind": 15, "order": 4}, Error.NONE),
    ({"opcode": Opcode.ADDRESS, "x_addr": 1}, Error.NONE),
    ({"opcode": Opcode.FENCE, "m": 0, "y_addr": 1}, Error.NONE),
    ({"dw_window": {"unused": 1}}, Error.BAD_FIELD),
    ({"order": 4}, Error.BAD_FIELD),
    ({"m": 0}, Error.BAD_FIELD),
    ({"n": 0}, Error.BAD_FIELD),
    ({"k": 0}, Error.BAD_FIELD),
    ({"k": 0, "opcode": Opcode.CONVERT}, Error.NONE),
    ({"dw_part_addr": 4}, Error.BAD_FIELD),
    ({"y_accumulate": 1, "y_bfp": 1}, Error.BAD_FIELD),
    ({"dw_accumulate": 1, "dw_bfp": 1}, Error.BAD_FIELD),
    ({"opcode": Opcode.GRAD, "x_row": 1}, Error.BAD_FIELD),
    ({"opcode": Opcode.GRAD, "y_row": 1}, Error.BAD_FIELD),
    ({"opcode": Opcode.GRAD, "y_off": 1, "dw_off": 1}, Error.BAD_FIELD),
    ({"x_window": window(BIG_BASE)}, Error.BAD_FIELD),
    ({"w_window": window(BIG_BASE - 2, 1, 1)}, Error.BAD_FIELD),
    ({"w_window": window(BIG_BASE - 4, 1, 1)}, Error.NONE),
    ({"x_window": window(0, 9, 8)}, Error.BAD_FIELD),
    ({"dy_window": window(BIG_BASE)}, Error.NONE),
    ({"y_window": window(TINY.acc_slots)}, Error.BAD_FIELD),
    ({"dw_window": window(TINY.acc_slots)}, Error.NONE),
    ({"opcode": Opcode.CONVERT, "x_window": window(BIG_BASE)}, Error.NONE),
    ({"opcode": Opcode.GRAD, "dw_window": window(TINY.acc_slots)}, Error.BAD_FIELD),
    ({"opcode": Opcode.GRAD, "dw_window": window(TINY.acc_slots), "dw_off": 1}, Error.NONE),
    ({"opcode": Opcode.GRAD, "dy2_window": window(BIG_BASE)}, Error.NONE),
    ({"opcode": Opcode.GRAD, "order": 1, "dy2_window": window(BIG_BASE)}, Error.BAD_FIELD),
    *(({f"{name}_kind": 13}, Error.BAD_FIELD) for name in ("x", "w", "dy", "y")),
    *(({"function": f}, Error.NONE if f in (
        Function.NONE, Function.BIAS, Function.RELU, Function.BIAS_RELU) else Error.BAD_FIELD)
      for f in Function),
    *(({"opcode": Opcode.GRAD, "function": f}, Error.NONE if f in (
        Function.NONE, Function.RELU_GRAD) else Error.BAD_FIELD) for f in Function),
    *(({"opcode": Opcode.CONVERT, "function": f}, Error.BAD_FIELD) for f in (1, 5, 17, 18)),
    ({"opcode": Opcode.GRAD, "function": Function.RELU_GRAD, "y_off": 1}, Error.BAD_FIELD),
    ({"opcode": Opcode.GRAD, "function": Function.RELU_GRAD, "dw_off": 1}, Error.NONE),
    ({"e_window": window(TINY.acc_slots)}, Error.NONE),
    ({"function": Function.RELU, "e_window": window(TINY.acc_slots)}, Error.NONE),
    ({"function": Function.BIAS, "e_window": window(TINY.acc_slots)}, Error.BAD_FIELD),
    ({"function": Function.BIAS, "e_window": window(TINY.acc_slots - 4, 1, 1)}, Error.NONE),
    ({"function": Function.BIAS, "e_window": window(0, 2, 1)}, Error.BAD_FIELD),
    ({"function": Function.BIAS, "dy_addr": 4}, Error.BAD_FIELD),
    (vector(Function.NONE), Error.BAD_FIELD),
    (vector(18), Error.BAD_FIELD),
    (vector(Function.ADD, k=0), Error.NONE),
    (vector(Function.ADD, m=0), Error.BAD_FIELD),
    (vector(Function.ADD, y_off=1, dw_off=1), Error.NONE),
    (vector(Function.ADD, x_row=1, y_row=1, y_bfp=1), Error.NONE),
    (vector(Function.ADD, x_window=window(BIG_BASE), dw_window=window(999)), Error.NONE),
    *((vector(Function.SCALE, **{name: 1}), Error.BAD_FIELD)
      for name in ("y_accumulate", "dw_accumulate", "dw_bfp", "dw_addr")),
    *((vector(f, y_window=window(0, 0, bits)), Error.NONE if bits >= least else Error.BAD_FIELD)
      for f, least in ((Function.SCALE, 0), (Function.ADD, 1), (Function.BIAS_RELU, 1),
                       (Function.RELU_GRAD, 1), (Function.SGD, 2), (Function.COLUMN_SUM, 2),
                       (Function.ROW_MEAN, 2), (Function.ROW_MAX, 2), (Function.SOFTMAX, 2),
                       (Function.MSE, 2))
      for bits in (0, 1, 2)),
    (vector(Function.ADD, y_window=window(TINY.acc_slots - 1, 0, 1)), Error.BAD_FIELD),
    (vector(Function.SGD, w_fp32=0), Error.BAD_FIELD),
    (vector(Function.SGD, y_off=1, dw_off=1), Error.NONE),
    *((vector(f, y_off=1, dw_off=both), Error.BAD_FIELD if both else Error.NONE)
      for f in (Function.SOFTMAX, Function.MSE) for both in (0, 1)),
])
def test_decoder_refuses(fields, error):
    program = assemble(TINY, [{"opcode": Opcode.FENCE}, gemm(**fields)])
    memory = np.zeros(SIZE, np.uint8)
    memory[:len(program)] = np.frombuffer(program, np.uint8)
    result = Machine(TINY, memory).run(0)
    assert (result.error, result.error_addr) == (error, 128 if error is not Error.NONE else 0)


def test_windows_stay_inside_a_bank_of_odd_size():
    cfg = Config(tile=5, axi_width=64, spad_kib=4, acc_kib=4)  # 40 slots a bank, 6 index bits
    assert cfg.bank_slots == 40
    for base, fits in ((36, True), (37, False), (64 + 36, True), (3 * 64 + 36, True),
                       (4 * 64, False)):
        memory = np.zeros(SIZE, np.uint8)
        result = run(cfg, memory, [gemm(x_window=window(base, 1, 1))])
        assert (result.error is Error.NONE) == fits


@pytest.mark.parametrize(("fields", "addr"), [
    ({"x_addr": SIZE - 3 * 24}, SIZE),              # the fourth image of X
    ({"y_addr": SIZE - 64 * 3}, SIZE),              # the last result
    ({"y_pitch": 65535}, (Y + 65535 * 64) % 2**32),
    ({"x_addr": 0xFFFFFFF8}, 0xFFFFFFF8),
])
def test_accesses_outside_the_region(fields, addr):
    memory = np.zeros(SIZE, np.uint8)
    result = run(TINY, memory, [gemm(**fields)])
    assert (result.error, result.error_addr) == (Error.BAD_ADDRESS, addr)


def test_an_address_beyond_32_bits_is_reported_by_its_low_word():
    cfg = Config(tile=256, acc_kib=512, acc_banks=2)
    memory = np.zeros(1 << 19, np.uint8)
    result = run(cfg, memory, [gemm(m=257, y_addr=0, y_pitch=65535)])
    assert (result.error, result.error_addr) == (Error.BAD_ADDRESS, 65535 * 2**18 % 2**32)


def test_program_runs_out_of_the_region():
    memory = np.zeros(SIZE, np.uint8)
    memory[-128:] = np.frombuffer(instruction(TINY, Opcode.FENCE), np.uint8)
    result = Machine(TINY, memory).run(SIZE - 128)
    assert (result.error, result.error_addr) == (Error.BAD_ADDRESS, SIZE)
