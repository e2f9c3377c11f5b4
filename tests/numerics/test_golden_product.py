"""Products at the edges of the fast path: every shortcut must give what the slow path gives."""

import numpy as np
import pytest

from hw.config import Config, load
from sw.golden.product import Operand, multiply

CFG = load("tiny")
ONE = 127 + CFG.mant_width - 2  # exponent byte under which a mantissa is its value


def operand(q, byte):
    """A tile with mantissa `q` at (0, 0) and exponent `byte`."""
    values = np.zeros((4, 4), np.float32)
    values[0, 0] = q
    return Operand(CFG, values, np.full((4, 1), byte, np.uint8))


def once(a, b, start):
    acc = np.zeros((4, 4), np.float32)
    acc[0, 0] = start
    return multiply(CFG, operand(*a), operand(*b), acc), acc[0, 0]


@pytest.mark.parametrize(("a", "b", "start", "expected", "overflow"), [
    ((3, ONE), (5, ONE), 1.0, 16.0, False),
    ((-1, ONE - 63), (1, ONE - 63), 1.5 * 2.0**-126, 0.0, False),    # cancels to a subnormal
    ((-1, ONE - 63), (1, ONE - 63), 1.5 * 2.0**-125, 2.0**-125, False),
    ((1, ONE - 64), (1, ONE - 63), 0.0, 0.0, False),                 # the product is flushed
    ((1, ONE - 64), (2, ONE - 63), 0.0, 2.0**-126, False),
    ((1, ONE - 132), (64, ONE + 100), 0.0, 2.0**-26, False),
    ((64, 254), (1, ONE), 2.0**127, np.inf, True),                   # the sum overflows
    ((-64, 254), (1, ONE), -(2.0**127), -np.inf, True),
    ((-64, 254), (1, ONE), 2.0**127, 0.0, False),
    ((64, 254), (2, ONE), 0.0, np.inf, True),                        # the product does
    ((64, 254), (2, ONE), -np.inf, np.nan, True),
    ((1, ONE), (1, ONE), np.inf, np.inf, False),
    ((0, 255), (1, 40), 0.0, np.nan, False),
    ((1, 40), (0, 255), 0.0, np.nan, False),
    ((0, 255), (0, 0), 0.0, np.nan, False),
])
def test_edges(a, b, start, expected, overflow):
    over, value = once(a, b, start)
    assert np.array_equal(value, np.float32(expected), equal_nan=True)
    assert not np.signbit(value) or value < 0
    assert over is overflow


@pytest.mark.parametrize(("tile", "mant_width"), [(64, 10), (65, 10), (4, 12), (5, 12), (32, 16)])
def test_sums_around_24_bits_are_rounded_once(tile, mant_width):
    """Beyond T Q Q = 2**24 a tile product takes more than 24 bits: against Python's integers."""
    cfg = Config(tile=tile, mant_width=mant_width, spad_kib=256, acc_kib=128)
    rng = np.random.default_rng(tile)
    qa, qb = (rng.integers(cfg.q_max - 9, cfg.q_max + 1, (tile, tile)) for _ in range(2))
    byte = np.full((tile, 1), 127 + mant_width - 2, np.uint8)
    acc = np.zeros((tile, tile), np.float32)
    assert not multiply(cfg, *(Operand(cfg, q.astype(np.float32), byte) for q in (qa, qb)), acc)
    exact = qa.astype(object) @ qb.astype(object)
    assert (acc == exact.astype(np.float64).astype(np.float32)).all()
