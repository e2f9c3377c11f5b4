"""Configurations at the limits of the generator: slow perhaps, never wrong, never stuck."""

import pytest

from hw.isa import Function, Order
from sw.compiler.assembler import window
from tb import fuzz
from tb.program import LOSSES, ROWS, Program, quarter, slots_of_set, word
from tb.scoreboard import CLOCKS
from tests.configurations import CONFIGS

#: Windows of a single tile.
SINGLE = {"y_window": window(0), "dw_window": window(1), "e_window": window(2)}


def directed(cfg):
    """Every mode at sizes around a tile, with windows of one tile, of some and of all tiles."""
    t = cfg.tile
    above = (1 << cfg.addr_width) - (1 << 27)  # near the end of the address space
    jobs, epilogues = [], int(cfg.acc_slots > 2)
    for seed, (m, k, n) in enumerate([(1, 1, 1), (t - 1, t + 1, t), (t + 1, 2 * t + 1, t - 1),
                                      (2 * t + 1, t, 2 * t + 1)]):
        p = Program(cfg, seed)
        one = {f"{name}_window": window(quarter(cfg, number)[0])
               for number, name in enumerate(("x", "w", "dy", "dy2"))} | SINGLE
        x, w, dy = p.room(m, k, True), p.room(k, n, True), p.room(m, n, True)
        for matrix in (x, w, dy):
            p.convert(p.normal(matrix.rows, matrix.cols), matrix, stochastic=seed % 2)
        for windows, bfp in ((one, False), (one, True), ({}, True), (p.windows(2, 2), False)):
            blocks = {"bm": 1, "bn": 1, "bk": 2 if windows is one else 0}
            p.gemm(x, w, p.room(m, n, bfp), x_row=bfp, y_row=bfp, **windows, **blocks)
            for order in Order:
                p.grad(x, w, dy, p.room(m, k, bfp), p.room(k, n, bfp), order,
                       function=order.value % 2 and epilogues * Function.RELU_GRAD.value,
                       stochastic=seed % 2, **windows, **blocks)
            if epilogues:
                p.gemm(x, w, p.room(m, n, bfp), bias=p.normal(1, n),
                       function=Function.BIAS_RELU, **windows, **blocks)
        for function in list(Function)[1:]:
            reduces = function in (Function.COLUMN_SUM, *ROWS, *LOSSES)
            if slots_of_set(function) << reduces <= cfg.acc_slots:
                p.function(function, m, n, x_bfp=seed % 2, w_bfp=seed // 2, y_bfp=seed % 3 == 0,
                           scalar=word(0.3), stochastic=1)
        jobs.append(p.job(p.end(), region_base=above if seed % 2 else 1 << 20, latency=5,
                          stall=0.3 * (seed % 3)))
    return jobs


@pytest.mark.parametrize("name", CONFIGS)
def test_configuration(verify, name):
    cfg = CONFIGS[name]
    results = verify(cfg, directed(cfg) + fuzz.jobs(cfg, range(40 if name == "five" else 20)))
    assert sum(r.registers["VECTOR_BUSY"] for r in results) > 0
    assert cfg.acc_slots < 8 or sum(r.registers["VECTOR_OVERLAP"] for r in results) > 0
    for clock in CLOCKS:  # the array has met every reason to wait
        if clock != "ARRAY_STALL_ACC" or cfg.tile < 4:  # larger tiles hide the adder
            assert sum(r.registers[clock] for r in results) > 0, clock
