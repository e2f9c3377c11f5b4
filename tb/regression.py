"""The regression of one configuration: tests by name, and what they say."""

import importlib
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from hw.config import Config
from sw.runtime.backends import RunError
from tb import runner
from tb.axi_bench import environment

#: cocotb modules on the bare NPU, by group.
COCOTB = {"registers": "tb.tb_registers", "protocol": "tb.tb_protocol"}
#: Group of the tests in `tb.tb_programs`.
PROGRAMS = "programs"


@dataclass(frozen=True)
class Case:
    """One test that has run; `message` says why it failed, empty if it passed."""

    name: str
    seconds: float
    message: str = ""

    @property
    def passed(self) -> bool:
        """Whether it passed."""
        return not self.message


def tests() -> dict[str, str]:
    """Names of all tests, "group.test", with the first lines of their docstrings."""
    found = {}
    for group, module in COCOTB.items():
        for name, value in vars(importlib.import_module(module)).items():
            if hasattr(value, "generate_tests"):  # what cocotb.test makes of a function
                found[f"{group}.{name}"] = value.doc
    for test in importlib.import_module("tb.tb_programs").TESTS:
        found[f"{PROGRAMS}.{test.__name__}"] = test.__doc__
    return {name: doc.strip().splitlines()[0] for name, doc in found.items()}


def select(wanted: list[str]) -> list[str]:
    """Tests that are named, by themselves or by their group; all if none is.

    Raises
    ------
    ValueError
        Unknown name; with those that are known.
    """
    known = tests()
    for name in wanted:
        if name not in known and name not in (*COCOTB, PROGRAMS):
            raise ValueError(f"unknown test {name!r}; known are {', '.join((*COCOTB, PROGRAMS))}, "
                             f"{', '.join(known)}")
    return [name for name in known
            if not wanted or name in wanted or name.partition(".")[0] in wanted]


def _results(file: Path, group: str) -> list[Case]:
    """What cocotb wrote down."""
    cases = []
    for case in ElementTree.parse(file).iter("testcase"):
        bad = [part for tag in ("failure", "error") for part in case.iter(tag)]
        message = "\n".join(part.get("error_msg") or part.get("message") or part.text or "failed"
                            for part in bad)
        cases.append(Case(f"{group}.{case.get('name')}", float(case.get("time")), message))
    return cases


def run_cocotb(cfg: Config, group: str, names: list[str], seed: int, *, waves: bool = False,
               source: Path | None = None) -> tuple[list[Case], Path | None]:
    """Run the cocotb tests `names` ("group.test") of one group in one simulation.

    Parameters
    ----------
    seed : int
        COCOTB_RANDOM_SEED.
    waves : bool
        Keep the directory, as WAVES=1 does.
    source : Path, optional
        Verilog of the NPU instead of the generated one.

    Returns
    -------
    (list of Case, Path or None)
        The results, and the directory with the simulator's log, if a test failed or for `waves`.

    Raises
    ------
    tb.runner.SimulationError
        The simulator could not be built.
    """
    directory = runner.build(cfg, top="npu", source=source)
    (runner.BUILD / "run").mkdir(exist_ok=True)
    run = Path(tempfile.mkdtemp(prefix=f"{group}-", dir=runner.BUILD / "run"))
    chosen = "|".join(re.escape(name.partition(".")[2]) for name in names)
    variables = {**environment(cfg), "COCOTB_RANDOM_SEED": str(seed),
                 "COCOTB_TEST_FILTER": rf"^{re.escape(COCOTB[group])}\.({chosen})(/|$)"}
    failure = ""
    try:
        runner.run_cocotb(directory, COCOTB[group], run, top="npu", environment=variables)
    except runner.SimulationError as error:
        failure = str(error)
    written = list(run.glob("*.xml"))
    cases = _results(written[0], group) if written else []
    if failure and all(case.passed for case in cases):  # the simulator itself failed
        cases.append(Case(group, 0.0, failure))
    if waves or failure:
        return cases, run
    shutil.rmtree(run)
    return cases, None


def run_program(cfg: Config, name: str, seed: int) -> Case:
    """Run one test of `tb.tb_programs`."""
    test = getattr(importlib.import_module("tb.tb_programs"), name.partition(".")[2])
    began, message = time.monotonic(), ""
    try:
        test(cfg, seed)
    except (AssertionError, RunError, runner.SimulationError) as error:
        message = str(error) or "failed"
    return Case(name, time.monotonic() - began, message)


def run(cfg: Config, names: list[str], seed: int, *, waves: bool = False,
        progress: Callable[[str], None] = lambda what: None,
        ) -> Iterator[tuple[list[Case], Path | None]]:
    """Run the tests `names`, group by group; arguments, results and errors as of `run_cocotb`.

    `progress` is called with what comes next.
    """
    for group in (*COCOTB, PROGRAMS):
        chosen = [name for name in names if name.startswith(f"{group}.")]
        if not chosen:
            continue
        progress(f"{group}: {len(chosen)} to run; the first build takes its time")
        if group in COCOTB:
            yield run_cocotb(cfg, group, chosen, seed, waves=waves)
            continue
        runner.build(cfg)
        for name in chosen:
            yield [run_program(cfg, name, seed)], None
