"""NaN, Inf, overflow, subnormals and -0: results, flags and NONFINITE_TILES."""

from itertools import product

import numpy as np
import pytest

from hw.config import load
from hw.isa import Function, Kind, Order
from sw.golden import images
from tb.program import Program, contents, word

TINY = load("tiny")
NONFINITE, OVERFLOW = 1, 2
SPECIAL = {
    "nan": np.uint32(0x7F812345), "negative nan": np.uint32(0xFFFFFFFF),
    "inf": np.uint32(0x7F800000), "negative inf": np.uint32(0xFF800000),
    "subnormal": np.uint32(0x807FFFFF), "negative zero": np.uint32(0x80000000),
    "least normal": np.uint32(0x00800000), "largest": np.uint32(0x7F7FFFFF),
}


@pytest.fixture(scope="module")
def planted():
    """Matrices with one special value each, converted to every form and back, and multiplied."""
    p = Program(TINY, 1)
    w, jobs, copies = p.bfp(10, 6, exponents=(120, 124)), [], {}
    for name, code in SPECIAL.items():
        values = p.rng.standard_normal((9, 10), np.float32)
        values[5, 6] = code.view(np.float32)
        source = p.fp32(values)
        copies[name] = p.room(9, 10, False)
        p.convert(source, copies[name])
        for row, stochastic in product((0, 1), repeat=2):
            x = p.room(9, 10, True)
            p.convert(source, x, y_row=row, stochastic=stochastic)
            p.convert(x, p.room(9, 10, False), x_row=row)
            p.convert(x, p.room(9, 10, True), x_row=row, y_row=1 - row)
            for bfp in (False, True):
                p.gemm(x, w, p.room(9, 6, bfp), x_row=row, y_row=row, bk=1)
        p.gemm(x, w, y := p.fp32(values[:, :6].copy()), x_row=1, y_accumulate=1)
        p.gemm(x, w, y, y_accumulate=1)
        jobs.append((name, p.end()))
    return p, jobs, copies


def test_special_values(verify, planted):
    p, starts, copies = planted
    results = verify(TINY, [p.job(at, fresh=n == 0) for n, (_, at) in enumerate(starts)])
    flags = {name: r.registers["EXCEPTIONS"] for (name, _), r in zip(starts, results, strict=True)}
    assert {name for name, f in flags.items() if f} == {
        "nan", "negative nan", "inf", "negative inf"}
    assert set(flags.values()) == {0, NONFINITE}
    for name, matrix in copies.items():
        value = images.unpack_fp32(TINY, contents(TINY, results[-1].memory, matrix), 9, 10)[5, 6]
        assert np.isnan(value) == ("nan" in name)
        assert np.isinf(value) == ("inf" in name)
        assert (value == 0) == (name in ("subnormal", "negative zero"))


def test_overflow_and_underflow(verify):
    """Exponents at both ends: sums that overflow, that cancel, and products that vanish."""
    p = Program(TINY, 2)
    starts = []
    for x_exp, other_exp in ((254, 128), (190, 192), (189, 190), (1, 127), (60, 68), (64, 64),
                             (1, 1), (254, 1), (255, 100)):
        x, w, dy = (p.bfp(rows, cols, exponents=(low, low)) for (rows, cols), low in (
            ((9, 14), x_exp), ((14, 7), other_exp), ((9, 7), other_exp)))
        p.gemm(x, w, p.wild(9, 7), y_accumulate=1, bk=1)
        for order in Order:
            p.grad(x, w, dy, p.room(9, 14, True), p.wild(14, 7), order, dw_accumulate=1, bm=1)
        starts.append(p.end())
    results = verify(TINY, [p.job(at, fresh=n == 0) for n, at in enumerate(starts)])
    assert results[0].registers["EXCEPTIONS"] == NONFINITE | OVERFLOW
    assert results[0].registers["NONFINITE_TILES"] > results[4].registers["NONFINITE_TILES"] > 0


def test_overflow_on_the_way(verify):
    """A partial sum that overflows is Inf and flagged, and Inf - Inf is NaN."""
    p = Program(TINY, 3)
    values = np.full((4, 8), 2.0**63, np.float32)
    x, w, y = p.room(4, 8, True), p.room(8, 4, True), p.room(4, 4, False)
    p.convert(p.fp32(np.hstack([values[:, :4], -values[:, 4:]])), x)
    p.convert(p.fp32(values.T), w)
    p.gemm(x, w, y, bk=1)
    result = verify(TINY, [p.job(p.end())])[0]
    assert result.registers["EXCEPTIONS"] == NONFINITE | OVERFLOW
    assert np.isnan(images.unpack_fp32(TINY, contents(TINY, result.memory, y), 4, 4)).all()


def training_step(p, values, labels):
    """Forward and backward of two layers and both updates; the second layer's weights."""
    rows, cols, hidden, classes = *values.shape, 7, 5
    x, targets = p.room(rows, cols, True), p.fp32(labels)
    p.convert(p.fp32(values), x)
    w1, w2 = (p.bfp(*shape, exponents=(124, 126)) for shape in ((cols, hidden), (hidden, classes)))
    h, scores = p.room(rows, hidden, True), p.room(rows, classes, False)
    dy, losses, dh = p.room(rows, classes, True), p.room(rows, 1, False), p.room(rows, hidden, True)
    dw1, dw2 = p.room(cols, hidden, False), p.room(hidden, classes, False)
    db = p.room(1, classes, False)
    p.gemm(x, w1, h, bias=p.normal(1, hidden), function=Function.BIAS_RELU)
    p.gemm(h, w2, scores, bias=p.normal(1, classes))
    p.vector(Function.SOFTMAX, scores, w=targets, y=dy, dw=losses, scalar=word(1 / rows))
    p.vector(Function.COLUMN_SUM, dy, y=db)
    p.grad(h, w2, dy, dh, dw2, Order.DX_MAJOR, function=Function.RELU_GRAD, overlap=1)
    masters = []
    for dw, w in (dw2, w2), (dw1, w1):
        masters.append(p.normal(w.rows, w.cols))
        p.vector(Function.SGD, dw, w=p.normal(w.rows, w.cols), dy=masters[-1], y=w,
                 w_kind=Kind.STATE, dy_kind=Kind.STATE)
        if dw is dw2:
            p.grad(x, w1, dh, p.room(rows, cols, True), dw1, Order.DW_MAJOR, y_off=1, overlap=1)
    return losses, masters[0]


def test_a_nan_in_one_sample(verify):
    """It is seen in the losses, the flags and the counter, and stops nothing."""
    values = np.random.default_rng(4).standard_normal((9, 11), np.float32)
    labels = np.eye(5, dtype=np.float32)[[0, 1, 2, 3, 4, 3, 2, 1, 0]]
    for bad in (None, np.nan, np.inf):
        p = Program(TINY, 4)
        if bad is not None:
            values[5, 3] = bad
        losses, weights = training_step(p, values, labels)
        result = verify(TINY, [p.job(p.end())])[0]
        found, updated = (images.unpack_fp32(TINY, contents(TINY, result.memory, m), m.rows, m.cols)
                          for m in (losses, weights))
        assert result.registers["STATUS"] == 2
        assert result.registers["INSTRUCTIONS"] == 10
        wrong = [] if bad is None else [4, 5, 6, 7]  # the rows that share a tile with it
        assert np.flatnonzero(~np.isfinite(found[:9, 0])).tolist() == wrong
        assert np.isfinite(updated).all() == (bad is None)
        assert (result.registers["NONFINITE_TILES"] > 5) == (bad is not None)
        assert bool(result.registers["EXCEPTIONS"] & NONFINITE) == (bad is not None)
