"""`sw train` and `sw infer`: reports, files, resuming, interruption, and clear mistakes."""

import json
import os
import re
import runpy
import signal
import subprocess
import sys

import numpy as np
import pytest

from hw.isa import PHASES
from sw import cli
from sw.commands.epoch import Training
from sw.commands.report import accuracy, predictions
from sw.data import Part
from sw.model import FORMAT, read_model
from sw.runtime import backends, trainer
from tests.report_keys import check_keys

SMALL = ["--config", "tiny", "--hidden", "5", "--batch", "8"]
PNG = b"\x89PNG\r\n"


def call(capsys, *args):
    """(status, stdout, stderr) of a command line."""
    try:
        status = cli.main([str(arg) for arg in args])
    except SystemExit as stop:
        status = stop.code
    return status, *capsys.readouterr()


def arrays(samples=43, labels=True):
    """Two features, three classes that a small network can tell apart; or two targets."""
    rng = np.random.default_rng(7)
    y = rng.integers(0, 3, samples)
    x = np.eye(3)[y][:, :2] * 2 + rng.normal(0, 0.2, (samples, 2))
    return {"x": x, "y": y if labels else np.stack([x.sum(1), x[:, 0] ** 2], 1)}


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, **arrays())
    return path


def train(capsys, data, out, *extra):
    return call(capsys, "train", "--data", data, *SMALL, "-o", out, *extra)


def read(folder):
    return json.loads((folder / "report.json").read_text())


def test_digits_are_learnt_as_well_as_in_float32(capsys, tmp_path):
    status, out, err = call(capsys, "train", "--data", "digits", "--config", "tiny", "-o", tmp_path)
    report = read(tmp_path)
    assert status == 0
    assert report["samples"] == {"train": 1438, "test": 359}
    assert report["sizes"] == [64, 32, 10]
    assert report["test_accuracy"] >= 0.93
    assert report["test_accuracy"] >= report["float32_test_accuracy"] - 0.015
    assert (report["cycles"], report["match"], report["phases"]) == (None, None, None)
    assert [e["epoch"] for e in report["epochs"]] == [1, 2, 3, 4, 5]
    assert report["dram_bytes"]["read"]["STATE"] > 0
    assert f"{report['test_accuracy']:.2%}" in out
    assert re.fullmatch(r"(epoch \d/5: loss .*, \d+ s(, \d+ s left)?\n){5}", err)
    status, out, err = call(capsys, "infer", tmp_path / "model.npz", "--data", "digits", "--json",
                            "-")
    assert (status, err) == (0, "")
    assert json.loads(out)["accuracy"] == pytest.approx(report["test_accuracy"], abs=0.01)


def test_files_of_a_run(capsys, tmp_path, data):
    status, _, _ = train(capsys, data, tmp_path / "a" / "b", "--epochs", "3", "--seed", "4")
    folder = tmp_path / "a" / "b"
    assert status == 0
    assert sorted(p.name for p in folder.iterdir()) == ["curves.png", "model.npz", "report.json"]
    assert (folder / "curves.png").read_bytes().startswith(PNG)
    report, model = read(folder), read_model(folder / "model.npz")
    assert report["epochs"] == model.epochs
    assert report["loss"] < report["epochs"][0]["loss"]
    assert model.sizes == [2, 5, 3]
    assert (model.config, model.settings["seed"], model.settings["batch"]) == ("tiny", 4, 8)
    assert model.parameters["weights_1"].shape == (2, 5)
    assert np.abs(model.parameters["weights_1"] - model.float32["weights_1"]).max() < 0.2


@pytest.mark.parametrize("extra", [[], ["--rounding", "stochastic", "--weight-decay", "0.01"]])
def test_resuming_gives_what_an_uninterrupted_run_does(capsys, tmp_path, data, extra):
    train(capsys, data, tmp_path / "whole", "--epochs", "4", "--seed", "9", *extra)
    train(capsys, data, tmp_path / "parts", "--epochs", "2", "--seed", "9", *extra)
    half = (tmp_path / "parts" / "model.npz").read_bytes()
    status, _, _ = call(capsys, "train", "--data", data, "--epochs", "4", "-o", tmp_path / "parts",
                        "--resume", tmp_path / "parts" / "model.npz")
    assert status == 0
    files = [(tmp_path / run / "model.npz").read_bytes() for run in ("whole", "parts")]
    assert files[0] == files[1] != half
    assert read(tmp_path / "whole") == read(tmp_path / "parts")


@pytest.mark.parametrize("order", ["paper", "sequential", "interleaved", "dx-major", "dw-major"])
def test_the_order_changes_traffic_but_no_weight(capsys, tmp_path, data, order):
    train(capsys, data, tmp_path / "auto", "--epochs", "2")
    status, _, _ = train(capsys, data, tmp_path / order, "--epochs", "2", "--order", order)
    assert status == 0
    models = [read_model(tmp_path / name / "model.npz") for name in ("auto", order)]
    for name, value in models[0].parameters.items():
        assert value.tobytes() == models[1].parameters[name].tobytes()


def test_targets_that_are_no_labels(capsys, tmp_path):
    np.savez(tmp_path / "data.npz", **arrays(labels=False))
    status, out, err = train(capsys, tmp_path / "data.npz", tmp_path, "--loss", "mse", "--lr",
                             "0.05", "--epochs", "8")
    report = read(tmp_path)
    assert status == 0
    assert report["test_accuracy"] is report["float32_test_accuracy"] is None
    assert report["test_loss"] < 0.5 * report["epochs"][0]["test_loss"]
    assert report["test_loss"] == pytest.approx(report["float32_test_loss"], rel=0.5)
    assert "test loss" in out
    assert "test loss" in err
    status, out, _ = call(capsys, "infer", tmp_path / "model.npz", "--data", tmp_path / "data.npz",
                          "-o", tmp_path / "out.npz")
    assert status == 0
    assert list(np.load(tmp_path / "out.npz")) == ["outputs"]
    assert "accuracy" not in out


@pytest.mark.parametrize("labels", [False, True])
def test_resuming_with_labels_after_targets_and_the_reverse(capsys, tmp_path, labels):
    whole = arrays()
    for name, y in (("labels", whole["y"]), ("targets", np.eye(3)[whole["y"]])):
        np.savez(tmp_path / f"{name}.npz", x=whole["x"], y=y)
    names = ("targets", "labels") if labels else ("labels", "targets")
    train(capsys, tmp_path / f"{names[0]}.npz", tmp_path, "--loss", "mse", "--epochs", "1")
    status, out, _ = train(capsys, tmp_path / f"{names[1]}.npz", tmp_path, "--epochs", "2",
                           "--resume", tmp_path / "model.npz")
    assert status == 0
    assert [e["test_accuracy"] is None for e in read(tmp_path)["epochs"]] == [labels, not labels]
    assert "test loss" in out


def test_a_file_with_a_test_of_its_own(capsys, tmp_path):
    whole = arrays(60)
    np.savez(tmp_path / "data.npz", x_train=whole["x"][:41], y_train=whole["y"][:41],
             x_test=whole["x"][41:], y_test=whole["y"][41:])
    status, _, _ = train(capsys, tmp_path / "data.npz", tmp_path, "--hidden", "--epochs", "2")
    assert status == 0
    assert read(tmp_path)["samples"] == {"train": 41, "test": 19}
    assert read(tmp_path)["sizes"] == [2, 3]
    status, out, _ = call(capsys, "infer", tmp_path / "model.npz", "--data", tmp_path / "data.npz",
                          "--json", "-", "-o", tmp_path / "out.npz")
    result = np.load(tmp_path / "out.npz")
    assert status == 0
    assert json.loads(out)["accuracy"] == (result["predictions"] == whole["y"][41:]).mean()
    assert (result["outputs"].argmax(1) == result["predictions"]).all()


def test_inference_of_a_sample_does_not_depend_on_the_others(capsys, tmp_path, data):
    train(capsys, data, tmp_path, "--epochs", "1")
    outputs = []
    for scale in (1, 1000):
        x = arrays()["x"]
        x[1:] *= scale
        np.savez(tmp_path / "x.npz", x=x)
        status, _, _ = call(capsys, "infer", tmp_path / "model.npz", "--data", tmp_path / "x.npz",
                            "-o", tmp_path / "out.npz")
        assert status == 0
        outputs.append(np.load(tmp_path / "out.npz")["outputs"])
    assert (outputs[0][0] == outputs[1][0]).all()
    assert (outputs[0] != outputs[1]).any()


def test_another_configuration_than_the_models(capsys, tmp_path, data):
    train(capsys, data, tmp_path, "--epochs", "1", "--set", "mant_width=6")
    for extra, expected in (([], ("tiny", ["mant_width=6"])),
                            (["--set", "spad_kib=8"], ("tiny", ["mant_width=6", "spad_kib=8"])),
                            (["--config", "edge"], ("edge", []))):
        status, out, _ = call(capsys, "infer", tmp_path / "model.npz", "--data", data, "--json",
                              "-", *extra)
        assert status == 0
        assert (json.loads(out)["config"], json.loads(out)["overrides"]) == expected


class Rtl:
    """Stands in for the simulator: golden's results and made-up times; spoils run `spoilt`."""

    def __init__(self, spoilt=None):
        self.runs, self.spoilt = 0, spoilt

    def __call__(self, backend, cfg, memory, programs, **settings):
        memory, outcomes = backends.run("golden", cfg, memory, programs, **settings)
        if backend == "rtl":
            self.runs += 1
            if self.runs == self.spoilt:
                memory[-1] ^= 1
            outcomes[0].counters.update(CYCLES_TOTAL=1000, VECTOR_BUSY=200, VECTOR_OVERLAP=50)
            outcomes[0].phases.extend([(20, 10)] * PHASES)
        return memory, outcomes


def test_report_of_the_rtl(capsys, monkeypatch, tmp_path, data):
    monkeypatch.setattr(trainer, "run", Rtl())
    status, out, _ = train(capsys, data, tmp_path, "--epochs", "2", "--backend", "rtl")
    report = read(tmp_path)
    assert status == 0
    assert (report["match"], report["cycles"]) == (True, 2000)
    check_keys("train", report)
    assert report["vector"] == {"busy": 400, "overlap": 100, "overlapped": 0.25}
    phases = {(p["layer"], p["phase"]): p for p in report["phases"]}
    assert phases["layer 2", "gradient"] == {"layer": "layer 2", "phase": "gradient", "cycles": 40,
                                             "busy": 20, "utilisation": 0.5}
    assert (None, "loss") in phases
    assert "golden model: equal" in out
    assert (tmp_path / "cycles.png").read_bytes().startswith(PNG)
    status, out, _ = call(capsys, "infer", tmp_path / "model.npz", "--data", data, "--backend",
                          "rtl", "--json", "-")
    assert status == 0
    assert (json.loads(out)["match"], json.loads(out)["cycles"]) == (True, 1000)
    check_keys("infer", json.loads(out))


def test_training_on_the_rtl(capsys, tmp_path, data):
    status, _, _ = train(capsys, data, tmp_path, "--epochs", "1", "--backend", "rtl")
    report = read(tmp_path)
    assert (status, report["match"]) == (0, True)
    assert sum(p["cycles"] for p in report["phases"]) <= report["cycles"]
    assert 0 < report["vector"]["overlapped"] < 1
    status, out, _ = call(capsys, "infer", tmp_path / "model.npz", "--data", data, "--backend",
                          "rtl", "--json", "-")
    assert (status, json.loads(out)["match"]) == (0, True)


@pytest.mark.parametrize(("spoilt", "where"), [(3, ""), (4, "in the test: ")])
def test_a_difference_ends_training(capsys, monkeypatch, tmp_path, data, spoilt, where):
    monkeypatch.setattr(trainer, "run", Rtl(spoilt))
    status, out, err = train(capsys, data, tmp_path, "--epochs", "4", "--backend", "rtl")
    assert status == 1
    last = err.splitlines()[-1]
    assert last.startswith("sw train: the simulation differs from the golden model: " + where)
    assert "golden model: DIFFERS" in out
    assert read(tmp_path)["match"] is False
    assert [e["match"] for e in read(tmp_path)["epochs"]] == [True, False]
    assert len(read_model(tmp_path / "model.npz").epochs) == 1


def test_a_difference_in_inference(capsys, monkeypatch, tmp_path, data):
    train(capsys, data, tmp_path, "--epochs", "1")
    monkeypatch.setattr(trainer, "run", Rtl(1))
    status, out, err = call(capsys, "infer", tmp_path / "model.npz", "--data", data, "--backend",
                            "rtl")
    assert status == 1
    assert "DIFFERS" in out
    assert err.startswith("sw infer: the simulation differs from the golden model: ")


def test_an_interruption_leaves_the_last_epoch(capsys, monkeypatch, tmp_path, data):
    whole = Training.run_epoch

    def run_epoch(self):
        if len(self.model.epochs) == 2:
            raise KeyboardInterrupt
        return whole(self)

    train(capsys, data, tmp_path / "whole")
    monkeypatch.setattr(Training, "run_epoch", run_epoch)
    status, out, err = train(capsys, data, tmp_path / "run")
    model = tmp_path / "run" / "model.npz"
    assert (status, out) == (130, "")
    assert err.splitlines()[-1] == (f"sw train: interrupted; go on after epoch 2 with --resume "
                                    f"{model}")
    assert len(read(tmp_path / "run")["epochs"]) == 2
    monkeypatch.setattr(Training, "run_epoch", whole)
    call(capsys, "train", "--data", data, "--resume", model, "-o", tmp_path / "run")
    assert model.read_bytes() == (tmp_path / "whole" / "model.npz").read_bytes()


def test_files_are_replaced_at_once_or_not_at_all(capsys, monkeypatch, tmp_path, data):
    def fsync(file):
        raise KeyboardInterrupt

    train(capsys, data, tmp_path, "--epochs", "1")
    before = (tmp_path / "model.npz").read_bytes()
    monkeypatch.setattr(os, "fsync", fsync)
    assert train(capsys, data, tmp_path, "--epochs", "1")[0] == 130
    assert (tmp_path / "model.npz").read_bytes() == before
    assert not list(tmp_path.glob(".*"))


def test_results_go_to_devices_too(capsys, tmp_path, data):
    train(capsys, data, tmp_path, "--epochs", "1")
    for name in ("--out", "--json"):
        status, _, err = call(capsys, "infer", tmp_path / "model.npz", "--data", data, name,
                              os.devnull)
        assert (status, err) == (0, "")
    assert not os.path.isfile(os.devnull)


def test_results_replace_a_link_to_itself(capsys, tmp_path, data):
    train(capsys, data, tmp_path, "--epochs", "1")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    status, _, err = call(capsys, "infer", tmp_path / "model.npz", "--data", data, "--json",
                          tmp_path / "circle")
    assert (status, err) == (0, "")
    assert json.loads((tmp_path / "circle").read_text())["samples"] == 43


def test_ctrl_c(tmp_path, data):
    # What runs in a shell's background inherits that SIGINT is ignored.
    with subprocess.Popen([sys.executable, "-m", "sw", "train", "--data", str(data), *SMALL,
                           "--epochs", "100000", "-o", str(tmp_path)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
                          ) as process:
        assert process.stderr.readline().startswith("epoch 1/100000: ")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1].startswith("sw train: interrupted; go on after epoch ")
    assert "Traceback" not in err
    assert read_model(tmp_path / "model.npz").epochs


def test_no_training_without_figures(capsys, monkeypatch, tmp_path, data):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, out, err = train(capsys, data, tmp_path / "out")
    assert (status, out) == (2, "")
    assert err == "sw train: figures need the package matplotlib\n"
    assert not (tmp_path / "out").exists()


def test_ctrl_c_while_packages_are_loaded(capsys, monkeypatch):
    def main():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "main", main)
    with pytest.raises((SystemExit, KeyboardInterrupt)) as stop:
        runpy.run_module("sw", run_name="__main__")
    assert getattr(stop.value, "code", None) == 130
    assert capsys.readouterr().err == "sw: interrupted\n"


def test_progress_on_a_terminal_is_one_line(capsys, monkeypatch, tmp_path, data):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    _, _, err = train(capsys, data, tmp_path, "--epochs", "2")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert "\repoch 1/2 ..." in err.replace("\x1b[K", "")


def test_diverged_training_is_reported_as_json(capsys, tmp_path, data):
    status, out, _ = train(capsys, data, tmp_path, "--hidden", "--loss", "mse", "--lr", "1000",
                           "--epochs", "3")
    assert status == 0
    assert "NaN" not in (tmp_path / "report.json").read_text()
    assert read(tmp_path)["loss"] is None
    assert "tiles with NaN or Inf" in out


def test_infinite_outputs_are_reported_without_warnings(capsys, tmp_path, data):
    train(capsys, data, tmp_path, "--hidden", "--epochs", "1")
    with np.load(tmp_path / "model.npz") as file:
        model = {name: value * np.float32(1e38) if name == "weights_1" else value
                 for name, value in file.items()}
    np.savez(tmp_path / "huge.npz", **model)
    np.savez(tmp_path / "x.npz", x=np.full((2, 2), 1e4, np.float16), y=[0, 1])
    status, out, err = call(capsys, "infer", tmp_path / "huge.npz", "--data", tmp_path / "x.npz")
    assert (status, err) == (0, "")
    assert re.search(r"loss +nan\n", out)
    assert "tiles with NaN or Inf" in out


@pytest.mark.parametrize(("args", "message"), [
    (["--batch", "0"], "--batch must be 1..1048575, not 0"),
    (["--epochs", "0"], "--epochs must be 1..1000000, not 0"),
    (["--lr", "nan"], "--lr must be 0..1000, not nan"),
    (["--momentum", "1.5"], "--momentum must be 0..1, not 1.5"),
    (["--weight-decay", "-1"], "--weight-decay must be 0..1, not -1.0"),
    (["--seed", "-1"], "--seed must be 0..4294967295, not -1"),
    (["--hidden", "5", "0"], "--hidden must be 1..1048575, not 0"),
    (["--config", "no"], "unknown configuration 'no'"),
    (["--set", "tile=1"], "tile must be 2..256, not 1"),
    (["--data", "/no/where.npz"], "/no/where.npz: No such file or directory"),
    (["--resume", "/no/where.npz"], "/no/where.npz: No such file or directory"),
    (["--resume", ""], "an empty name: No such file or directory"),
])
def test_mistakes_are_one_line(capsys, tmp_path, data, args, message):
    status, out, err = train(capsys, data, tmp_path / "out", *args)
    assert (status, out) == (2, "")
    assert err.startswith(f"sw train: {message}")
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("change", "extra", "message"), [
    ({"y": None}, [], "must hold x and y, or x_train, y_train, x_test, y_test, not x"),
    ({"z": np.ones(1)}, [], "must hold x and y, or x_train"),
    ({"x": np.ones(43)}, [], "must be samples by features, not 43"),
    ({"x": np.full((43, 2), np.nan)}, [], "holds NaN, infinity, or a number beyond float32"),
    ({"x": np.full((43, 2), np.inf, np.float16)}, [], "holds NaN, infinity, or a number beyond"),
    ({"x": np.full((43, 2), 1e39)}, [], "holds NaN, infinity, or a number beyond float32"),
    ({"x": np.ones((43, 2)) * 1j}, [], "must hold real numbers, not complex128"),
    ({"y": np.arange(42)}, [], "one label or one row of targets for each of the 43 samples of x"),
    ({"y": np.arange(43) - 1}, [], "must be 0..1048574, not -1"),
    ({"y": np.arange(43) / 2}, [], "--loss cross-entropy needs labels"),
    ({"x": np.ones((4, 2)), "y": np.arange(4)}, [], "x must have at least 5 samples"),
])
def test_bad_data_are_one_line(capsys, tmp_path, change, extra, message):
    path = tmp_path / "data.npz"
    np.savez(path, **{k: v for k, v in (arrays() | change).items() if v is not None})
    status, out, err = train(capsys, path, tmp_path / "out", *extra)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_parts_that_do_not_agree(capsys, tmp_path):
    whole = arrays()
    parts = {"x_train": whole["x"], "y_train": whole["y"], "x_test": whole["x"],
             "y_test": whole["y"]}
    for change, message in (({"x_test": np.ones((43, 3))}, "x_test must have 2 features"),
                            ({"y_test": np.ones(43)}, "y_train and y_test must both be labels")):
        np.savez(tmp_path / "data.npz", **(parts | change))
        status, _, err = train(capsys, tmp_path / "data.npz", tmp_path / "out")
        assert status == 2
        assert message in err


@pytest.mark.parametrize(("args", "message"), [
    (["--epochs", "1"], "--epochs must be more than the 1 that"),
    (["--hidden", "6"], "--hidden must be left out or be the model's, 5"),
    (["--loss", "mse"], "--loss must be left out or be the model's, cross-entropy"),
    (["--data", "digits"], "digits must have 2 features a sample, as the model has inputs, not 64"),
])
def test_mistakes_in_resuming_are_one_line(capsys, tmp_path, data, args, message):
    train(capsys, data, tmp_path, "--epochs", "1")
    status, out, err = call(capsys, "train", "--data", data, "--resume", tmp_path / "model.npz",
                            "-o", tmp_path / "out", *args)
    assert (status, out) == (2, "")
    assert err.startswith(f"sw train: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(("arrays", "message"), [
    ({"x": np.ones((2, 2)), "y": np.ones((2, 4))}, "y in"),
    ({"x": np.ones((2, 2)), "y": np.array([1, 3])}, "labels in"),
    ({"x": np.ones((2, 3))}, "must have 2 features a sample"),
    ({"z": np.ones((2, 3))}, "must hold x or x_test, not z"),
])
def test_mistakes_in_inference_are_one_line(capsys, tmp_path, data, arrays, message):
    train(capsys, data, tmp_path, "--epochs", "1")
    np.savez(tmp_path / "x.npz", **arrays)
    status, out, err = call(capsys, "infer", tmp_path / "model.npz", "--data", tmp_path / "x.npz")
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_other_files_are_no_models(capsys, tmp_path, data):
    train(capsys, data, tmp_path, "--epochs", "1")
    with np.load(tmp_path / "model.npz") as file:
        good = dict(file)
    header = json.loads(str(good["header"]))
    bad = {
        "is no model": arrays(),
        f"is a model of format 99; this is format {FORMAT}":
            good | {"header": np.array(json.dumps(header | {"format": 99}))},
        "is a damaged model: weights_1 must be float32 of shape (2, 5), is missing":
            {k: v for k, v in good.items() if k != "weights_1"},
        "is a damaged model: bias_2 must be float32 of shape (1, 3), is float32 of shape (3,)":
            good | {"bias_2": np.ones(3, np.float32)},
        "is a damaged model: ": good | {"header": np.array('{"format": 1}')},
    }
    settings = header["settings"]
    for message, change in (
            ("overrides must be a list of str, not [3]", {"overrides": [3]}),
            ("config must be str, not None", {"config": None}),
            ("settings must be batch, loss, lr", {"settings": {"loss": "mse"}}),
            ("batch must be 1..1048575, not 1.5", {"settings": settings | {"batch": 1.5}}),
            ("seed must be 0..4294967295, not -1", {"settings": settings | {"seed": -1}}),
            ("lr must be 0..1000, not 'x'", {"settings": settings | {"lr": "x"}}),
            ("epochs must be a list of dict, not 3", {"epochs": 3}),
            ("the record of epoch 1 is incomplete", {"epochs": [{}]})):
        bad[f"is a damaged model: {message}"] = good | {"header": np.array(json.dumps(
            header | change))}
    (tmp_path / "text.npz").write_text("hello")
    for message, content in [("is no npz file of number arrays", None), *bad.items()]:
        path = tmp_path / "text.npz"
        if content is not None:
            path = tmp_path / "bad.npz"
            np.savez(path, **content)
        for args in (["infer", path, "--data", data],
                     ["train", "--data", data, "--resume", path, "-o", tmp_path / "out"]):
            status, out, err = call(capsys, *args)
            assert (status, out) == (2, "")
            assert f"{path} {message}" in err
            assert err.count("\n") == 1


def test_nan_is_no_prediction():
    logits = np.array([[np.nan, 1], [0, 2], [np.inf, 1]], np.float32)
    assert predictions(logits).tolist() == [-1, 1, 0]
    assert accuracy(logits, Part(np.zeros((3, 1), np.float32), np.array([0, 1, 0]))) == 2 / 3
