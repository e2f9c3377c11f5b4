"""`python -m sw serve`: arguments, report, traces and figures."""

import json
import time

import numpy as np
import pytest

from hw.config import load
from hw.isa import WINDOW
from scripts import colocation
from sw.cli import main
from sw.commands import serve
from sw.compiler.serving import ServingPlan
from sw.perfetto import intervals
from sw.runtime.colocation import percentiles
from sw.runtime.server import Scheduling, Server, together
from tb import runner
from tests.report_keys import check_keys

TIMES = ("latency", "latency_training_off", "service", "service_training_off")


@pytest.fixture(autouse=True)
def _short_training(monkeypatch):
    monkeypatch.setattr(serve, "EPOCHS", 1)
    monkeypatch.setattr(serve, "STEPS", 1)


def test_golden(tmp_path, capsys):
    assert main(["serve", "--config", "tiny", "--backend", "golden", "--requests", "30",
                 "-o", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["accuracy"] > 0.5
    assert "accuracy" in capsys.readouterr().out


@pytest.mark.parametrize("train", ["digits", "none"])
def test_rtl(tmp_path, capsys, train):
    arrivals = tmp_path / "arrivals"
    arrivals.write_text("\n".join(str(400 * n) for n in range(30)))
    assert main(["serve", "--config", "tiny", "--requests", "25", "--batch-max", "4", "--arrivals",
                 str(arrivals), "--batch-timeout", "700", "--train", train, "--read-credits", "24",
                 "-o", str(tmp_path / "out")]) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["match"] is True
    assert report["read_credits"] == 24
    check_keys("serve", report)
    for name in TIMES:
        assert 0 < report[name]["p50"] <= report[name]["p99"] <= report[name]["p999"] \
            <= report[name]["max"]
    assert sum(int(size) * count for size, count in report["batches"].items()) == 25
    if train == "digits":
        assert report["harvest"] > 0
        assert report["training_steps"] > 0
        assert all(seen <= bound for seen, bound in report["holds"].values())
    else:
        assert report["harvest"] is None
        assert report["latency"] == report["latency_training_off"]
    for name in ("latency.png", "occupation.png", "timeline.png"):
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")
    trace = json.loads((tmp_path / "out" / "trace.json").read_text())["traceEvents"]
    assert {e["pid"] for e in trace if e["ph"] == "X"} == ({0, 1} if train == "digits" else {1})
    assert sum(e["ph"] == "b" for e in trace) == 25
    assert "equal to solo runs" in capsys.readouterr().out


def test_a_wrong_output_is_told(tmp_path, capsys, monkeypatch):
    """One bit of one of golden's outputs is flipped."""
    right = Server._golden

    def wrong(self, *args):
        served = right(self, *args)
        served.outputs.view(np.uint32)[3, 1] ^= 1
        return served

    monkeypatch.setattr(Server, "_golden", wrong)
    assert main(["serve", "--config", "tiny", "--requests", "8", "--batch-max", "4", "--train",
                 "none", "-o", str(tmp_path)]) == 1
    assert "differs from the golden model" in capsys.readouterr().err
    assert json.loads((tmp_path / "report.json").read_text())["match"] is False


@pytest.mark.parametrize("backend", ["golden", "rtl"])
def test_a_refused_enable_is_told(tmp_path, capsys, monkeypatch, backend):
    """The inputs' window is one tile wide."""
    right = ServingPlan.__init__

    def narrow(self, *args, **settings):
        right(self, *args, **settings)
        window = self.service.input_window | {"w_log2": 0}
        self.service = self.service._replace(input_window=window)
        self.registers["INPUT_WINDOW"] = WINDOW.const(window).as_bits()

    monkeypatch.setattr(ServingPlan, "__init__", narrow)
    assert main(["serve", "--config", "tiny", "--backend", backend, "--requests", "8",
                 "--batch-max", "4", "-o", str(tmp_path)]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("sw serve: ENABLE is refused: ")


@pytest.mark.parametrize(("flags", "message"), [
    (["--load", "0"], "--load must be 0.01..8, not 0"),
    (["--requests", "0"], "--requests must be 1..100000, not 0"),
    (["--batch-max", "129"], "--batch-max must be 1..128, not 129"),
    (["--batch-timeout", "-1"], "--batch-timeout must be 0..1000000, not -1"),
    (["--arrivals", "none.txt"], "none.txt: No such file or directory"),
    (["--spike-threshold", "200"], "--spike-threshold must be 0..128, not 200"),
    (["--read-credits", "65536"], "--read-credits must be 0..65535, not 65536"),
    (["--model", "none.npz"], "none.npz: No such file or directory"),
    (["--set", "acc_kib=1"], "acc_kib must be at least"),
])
def test_mistakes(tmp_path, capsys, flags, message):
    assert main(["serve", "--config", "tiny", *flags, "-o", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("text", ["", "1\n2\nx", "5\n4\n6", "-1\n2\n3", "1\n2",
                                  "1\n2\n1000000001", "1\n2\n99999999999999999999"])
def test_arrivals_that_cannot_be(tmp_path, text):
    file = tmp_path / "clocks"
    file.write_text(text)
    args = type("Args", (), {"arrivals": str(file), "requests": 3})
    with pytest.raises(serve.UsageError, match="must hold at least 3 clocks in ascending order"):
        serve._listed(args)


def test_submitted_requests_are_checked():
    network, parameters, _ = serve.model(load("tiny"), 4, 0)
    server = Server(load("tiny"), network, batch_max=4)
    server.load(parameters)
    assert server.submit(np.zeros((2, 64), np.float32), np.array([5, 7])) == range(2)
    with pytest.raises(ValueError, match="x must have shape"):
        server.submit(np.zeros((2, 63), np.float32))
    with pytest.raises(ValueError, match="x must have shape"):
        server.submit(np.zeros((0, 64), np.float32))
    with pytest.raises(ValueError, match="must not go back"):
        server.submit(np.zeros((1, 64), np.float32), 6)
    for clocks in -1, 7.5, 1_000_000_001:
        with pytest.raises(ValueError, match="clocks must be integers from 0 to 1000000000"):
            server.submit(np.zeros((1, 64), np.float32), clocks)
    with pytest.raises(ValueError, match="clocks must be one number or 1"):
        server.submit(np.zeros((1, 64), np.float32), [7, 8])
    assert server.submit(np.ones((1, 64), np.float32), 7) == range(2, 3)
    assert server.wait().outputs.shape == (3, 10)
    with pytest.raises(ValueError, match="nothing has been submitted"):
        server.wait()
    with pytest.raises(ValueError, match="backend must be one of golden, rtl, not 'RTL'"):
        Server(load("tiny"), network, batch_max=4, backend="RTL")


@pytest.mark.parametrize(("setting", "message"), [
    ({"policy": "prio"}, "policy must be one of priority, fair, exclusive, not 'prio'"),
    ({"batch_timeout": 10.5}, "batch_timeout must be an integer from 0 to 1000000000, not 10.5"),
    ({"max_burst_beats": 0}, "max_burst_beats must be an integer from 1 to 256, not 0"),
    ({"read_credits": 65536}, "read_credits must be an integer from 0 to 65535, not 65536")])
def test_scheduling_that_there_is_not(setting, message):
    with pytest.raises(ValueError, match=message):
        Scheduling(**setting)


def test_a_failure_ends_the_other_simulations(tmp_path):
    def fail():
        while not runner._running:
            time.sleep(0.01)
        raise ValueError("first")

    begin = time.monotonic()
    with pytest.raises(ValueError, match="first"):
        together(fail, lambda: runner._Runner()._execute_cmds([["sleep", "60"]], tmp_path))
    assert time.monotonic() - begin < 30
    assert not runner._running


@pytest.mark.parametrize(("flags", "message"), [
    (["--loads", "0.5", "nan"], "--loads must be 0.01..8, not nan"),
    (["--batch-max", "0"], "--batch-max must be 1..128, not 0"),
    (["--clocks", "0"], "--clocks must be 1..1000000000, not 0"),
    (["--config", "none"], "unknown configuration 'none'")])
def test_mistakes_of_a_sweep(capsys, monkeypatch, flags, message):
    monkeypatch.setattr("sys.argv", ["scripts.colocation", *flags])
    assert colocation.main() == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_percentiles_are_values_that_occur():
    assert percentiles(np.arange(1, 1001)) == {"p50": 501, "p99": 991, "p999": 1000, "max": 1000}


def test_intervals():
    trace = np.array([[0, 0], [3, 2], [5, 3], [9, 1], [12, 2]])
    assert intervals(trace, 1, 20) == [(3, 9), (12, 20)]
    assert intervals(trace, 0, 20) == [(5, 12)]
