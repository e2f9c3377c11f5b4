"""Jobs on the RTL, judged."""

import pytest

from tb import scoreboard
from tests.patched import patched


@pytest.fixture(scope="session")
def verify():
    """`verify(cfg, jobs)`: run jobs, assert that the scoreboard finds nothing; their results."""
    def verify(cfg, jobs):
        verdicts = scoreboard.run(cfg, jobs)
        problems = [f"job {n}: {text}" for n, v in enumerate(verdicts) for text in v.problems]
        assert not problems, "\n".join(problems)
        return [v.result for v in verdicts]

    return verify


@pytest.fixture(scope="session")
def patched_verilog(tmp_path_factory):
    """File with the Verilog of `tests.patched`."""
    path = tmp_path_factory.mktemp("patched") / "npu.v"
    path.write_text(patched())
    return path
