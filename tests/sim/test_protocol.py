"""Launches the cocotb modules of the bare NPU on the smallest configuration."""

import pytest

from tb import regression


@pytest.mark.parametrize("group", regression.COCOTB)
def test_buses(tiny, group):
    names = regression.select([group])
    cases, _ = regression.run_cocotb(tiny, group, names, 0)
    assert {case.name: case.message for case in cases if not case.passed} == {}
    assert {case.name.partition("/")[0] for case in cases} == set(names)
