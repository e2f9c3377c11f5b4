"""The regression's command line: what it prints, and one clear line for every mistake."""

import pytest

from tb import __main__ as cli
from tb import regression
from tb.runner import SimulationError


def call(capsys, *args):
    """(status, stdout, stderr) of a command line."""
    try:
        status = cli.main(list(args))
    except SystemExit as stop:
        status = stop.code
    return status, *capsys.readouterr()


def test_list(capsys):
    status, out, err = call(capsys, "--list")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    names = [line.split()[0] for line in lines]
    assert names == list(regression.tests())
    assert len(set(names)) == len(names)
    assert {name.partition(".")[0] for name in names} == {"registers", "protocol", "programs"}
    assert all(len(line.split()) > 2 for line in lines)


@pytest.mark.parametrize(("args", "message"), [
    (["--test", "nothing"], "unknown test 'nothing'; known are registers, protocol, programs, "
                            "registers.reset_values, "),
    (["--test", "programs.gradient_orders", "protocol."], "unknown test 'protocol.'; known are"),
    (["--config", "no"], "unknown configuration 'no'; known are edge, "),
    (["--set", "axi_width=64", "tile"], "--set takes KEY=VALUE"),
    (["--set", "axi_width=64", "--set", "tile=1"], "tile must be 2..256, not 1"),
    (["--seed", "-1"], "--seed must be 0..4294967295, not -1"),
])
def test_mistakes_are_one_line(capsys, args, message):
    status, out, err = call(capsys, *args)
    assert (status, out) == (2, "")
    assert err.startswith(f"tb: {message}")
    assert err.count("\n") == 1


def test_one_test(capsys):
    status, out, _ = call(capsys, "--config", "tiny", "--seed", "7", "--test",
                          "registers.reset_values", "programs.gradient_orders")
    assert status == 0
    first, second, summary = out.splitlines()
    for line, name in (first, "registers.reset_values"), (second, "programs.gradient_orders"):
        assert line.split()[:2] == ["PASS", name]
        assert line.endswith(" s  seed 7")
    assert summary.startswith("2 of 2 passed on tiny in ")


def test_selection_by_group_and_name():
    names = list(regression.tests())
    assert regression.select([]) == names
    chosen = regression.select(["registers", "programs.random_programs"])
    assert chosen == [n for n in names if n.startswith("registers.")] + ["programs.random_programs"]


@pytest.mark.parametrize(("error", "said"), [
    (AssertionError("job 0: a\njob 0: b"), ["job 0: a", "job 0: b"]),
    (AssertionError(), ["failed"]),
    (SimulationError("no end"), ["no end"])])
def test_a_failure_is_told(capsys, monkeypatch, error, said):
    def test(cfg, seed):
        """Fail."""
        raise error

    test.__name__ = "random_programs"
    monkeypatch.setattr("tb.tb_programs.random_programs", test)
    monkeypatch.setattr("tb.runner.build", lambda cfg: None)
    status, out, err = call(capsys, "--config", "tiny", "--set", "spad_kib=1", "acc_kib=1",
                            "--test", "programs.random_programs")
    assert (status, err) == (1, "tb: programs: 1 to run; the first build takes its time\n")
    verdict, *lines, summary = out.splitlines()
    assert verdict.startswith("FAIL  programs.random_programs ")
    assert [line.strip() for line in lines] == said
    assert summary.startswith("0 of 1 passed on tiny spad_kib=1 acc_kib=1 in ")


@pytest.mark.parametrize("group", ["registers", "programs"])
def test_a_build_that_fails_is_told(capsys, monkeypatch, group):
    def build(cfg, top="npu_tb", source=None):
        raise SimulationError("npu could not be built")

    monkeypatch.setattr("tb.runner.build", build)
    status, out, err = call(capsys, "--config", "tiny", "--test", group)
    assert (status, out) == (1, "")
    assert err.endswith("time\ntb: npu could not be built\n")


def test_a_simulator_that_dies_is_told(capsys, monkeypatch, tmp_path):
    def run_cocotb(*args, **settings):
        raise SimulationError("sim.log ends:\nabort")

    monkeypatch.setenv("WAVES", "0")
    monkeypatch.setattr("tb.runner.BUILD", tmp_path)
    monkeypatch.setattr("tb.runner.build", lambda cfg, **settings: tmp_path)
    monkeypatch.setattr("tb.runner.run_cocotb", run_cocotb)
    status, out, _ = call(capsys, "--config", "tiny", "--test", "registers", "--waves")
    assert status == 1
    verdict, first, second, log, waves, summary = out.splitlines()
    assert verdict.startswith("FAIL  registers ")
    assert [first.strip(), second.strip()] == ["sim.log ends:", "abort"]
    directory, = (tmp_path / "run").iterdir()
    assert log.strip() == f"log: {directory / 'sim.log'}"
    assert waves.strip() == f"waves: {directory / 'dump.vcd'}"
    assert summary.startswith("0 of 1 passed on tiny in ")
