"""Seeded random programs, disturbances included; tests/sim/test_configurations.py has more."""

import pytest

from hw.config import load
from tb import fuzz

AT_ONCE = 25


@pytest.mark.parametrize("first", range(0, 150, AT_ONCE))
def test_random_programs(verify, first):
    cfg = load("tiny")
    results = verify(cfg, fuzz.jobs(cfg, range(first, first + AT_ONCE)))
    assert len({r.registers["ERROR_CODE"] for r in results}) > 2
    assert {r.registers["EXCEPTIONS"] for r in results} >= {0, 1}
