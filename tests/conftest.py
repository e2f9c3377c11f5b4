"""Settings and fixtures of all tests."""

import pytest
from hypothesis import settings

from hw.config import load
from tb import runner

# Reproducible, and no deadlines: the simulators' speed depends on the machine's load.
settings.register_profile("solstice", deadline=None, derandomize=True, database=None)
settings.load_profile("solstice")


@pytest.fixture(scope="session")
def simulate():
    """`tb.runner.simulate(cfg, jobs)`: run jobs on the RTL under Verilator."""
    return runner.simulate


@pytest.fixture(scope="session")
def tiny():
    """The smallest named configuration."""
    return load("tiny")
