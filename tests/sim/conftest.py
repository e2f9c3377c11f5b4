"""Jobs on the RTL, judged."""

import pytest

from tb import scoreboard


@pytest.fixture(scope="session")
def verify():
    """`verify(cfg, jobs)`: run jobs, assert that the scoreboard finds nothing; their results."""
    def verify(cfg, jobs):
        verdicts = scoreboard.run(cfg, jobs)
        problems = [f"job {n}: {text}" for n, v in enumerate(verdicts) for text in v.problems]
        assert not problems, "\n".join(problems)
        return [v.result for v in verdicts]

    return verify
