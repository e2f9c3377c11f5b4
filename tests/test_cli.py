"""The command line: results, reports, and one clear line for every mistake."""

import json
import zipfile

import numpy as np
import pytest

from sw import cli
from sw.commands import op
from sw.runtime import backends
from tests.report_keys import check_keys

BASE = ["--shape", "9", "6", "7", "--config", "tiny"]


def call(capsys, *args):
    """(status, stdout, stderr) of a command line."""
    try:
        status = cli.main(list(args))
    except SystemExit as stop:
        status = stop.code
    return status, *capsys.readouterr()


def matrices(shape, grad=False):
    rng = np.random.default_rng(5)
    m, k, n = shape
    result = {"X": rng.standard_normal((m, k)), "W": rng.standard_normal((k, n))}
    return result | ({"dY": rng.standard_normal((m, n))} if grad else {})


@pytest.mark.parametrize("extra", [[], ["--exponents", "row"], ["--result", "bfp"],
                                   ["--rounding", "stochastic"], ["--blocks", "1", "2", "1"]])
def test_gemm_is_close_to_the_product(capsys, tmp_path, extra):
    data = matrices((9, 6, 7))
    np.savez(tmp_path / "in.npz", **data)
    status, out, err = call(capsys, "op", "gemm", *BASE, *extra, "--data", str(tmp_path / "in.npz"),
                            "--out", str(tmp_path / "out.npz"))
    assert (status, err) == (0, "")
    assert out.startswith("operation             gemm 9 x 6 x 7 on tiny\n")
    y = np.load(tmp_path / "out.npz")["Y"]
    assert (y.shape, y.dtype) == ((9, 7), np.float32)
    exact = data["X"] @ data["W"]
    assert np.abs(y - exact).max() < 0.05 * np.abs(exact).max()


@pytest.mark.parametrize("order", ["sequential", "interleaved", "dx-major", "dw-major", "auto",
                                   "paper"])
def test_grad_is_close_to_the_products_and_the_same_in_all_orders(capsys, tmp_path, order):
    data = matrices((13, 10, 11), grad=True)
    np.savez(tmp_path / "in.npz", **data)
    results = []
    for chosen in (order, "sequential"):
        status, _, err = call(capsys, "op", "grad", "--shape", "13", "10", "11", "--config", "tiny",
                              "--set", "spad_kib=1", "--order", chosen,
                              "--data", str(tmp_path / "in.npz"),
                              "--out", str(tmp_path / "out.npz"))
        assert (status, err) == (0, "")
        results.append(dict(np.load(tmp_path / "out.npz")))
    for name, exact in (("dX", data["dY"] @ data["W"].T), ("dW", data["X"].T @ data["dY"])):
        assert (results[0][name] == results[1][name]).all()
        assert results[0][name].shape == exact.shape
        assert np.abs(results[0][name] - exact).max() < 0.05 * np.abs(exact).max()


def test_json_on_stdout_is_all_there_is(capsys):
    status, out, err = call(capsys, "op", "grad", *BASE, "--json", "-", "--order", "dw-major")
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert report["cycles"] is None
    assert report["utilisation"] is None
    assert report["order"] == "dw-major"
    # of the last tile row only the valid rows: one of dY and dX, two of dW
    assert report["dram_bytes"]["read"]["DY"] == 4 * 24 + 2 * 16
    assert report["dram_bytes"]["write"] == {"DX": 4 * 64 + 2 * 16, "DW": 2 * 64 + 2 * 32}


def test_json_file_and_seeds(capsys, tmp_path):
    outputs = []
    for seed in ("1", "1", "2"):
        status, _, _ = call(capsys, "op", "gemm", *BASE, "--seed", seed, "--json",
                            str(tmp_path / "r.json"), "--out", str(tmp_path / "o.npz"))
        assert status == 0
        outputs.append(np.load(tmp_path / "o.npz")["Y"])
    assert (outputs[0] == outputs[1]).all()
    assert (outputs[0] != outputs[2]).any()
    assert json.loads((tmp_path / "r.json").read_text())["shape"] == [9, 6, 7]


class Rtl:
    """Stands in for the simulator: golden results, with one thing spoilt."""

    def __init__(self, spoil):
        self.spoil = spoil

    def __call__(self, backend, cfg, memory, programs, **settings):
        settings.pop("timing", None)
        memory, outcomes = backends.run("golden", cfg, memory, programs, **settings)
        if backend == "rtl":
            for outcome in outcomes:
                outcome.counters.update(CYCLES_OP=100, CYCLES_TOTAL=150, ARRAY_STALL_LOAD=7)
            self.spoil(memory, outcomes)
        return memory, outcomes


def spoil_result(memory, outcomes):
    memory[-5000] ^= 1


def spoil_counter(memory, outcomes):
    outcomes[1].counters["READ_X"] += 24


def spoil_bus(memory, outcomes):
    outcomes[0].problems.append("wlast misplaced")


@pytest.mark.parametrize(("spoil", "message"), [
    (spoil_result, "(Y, tile ("),
    (spoil_counter, "computing: READ_X is"),
    (spoil_bus, "quantising: wlast misplaced"),
    (None, None)])
def test_rtl_is_compared_with_golden(capsys, monkeypatch, spoil, message):
    monkeypatch.setattr(op, "run", Rtl(spoil or (lambda memory, outcomes: None)))
    status, out, err = call(capsys, "op", "gemm", *BASE, "--backend", "rtl", "--json", "-")
    report = json.loads(out)
    assert report["match"] is (message is None)
    check_keys("op", report)
    assert report["cycles"] == 100
    assert report["utilisation"] == 9 * 6 * 7 / (16 * 100)
    assert report["stalls"] == {"ARRAY_STALL_LOAD": 7}
    assert status == (0 if message is None else 1)
    if message:
        assert message in err
        assert err.count("\n") == 1


@pytest.mark.parametrize(("args", "message"), [
    (["gemm", "--shape", "0", "1", "1", "--config", "tiny"], "M must be 1..1048575, not 0"),
    (["gemm", "--shape", "1", "1", "1048576", "--config", "tiny"], "N must be 1..1048575"),
    (["gemm", "--shape", "1", "1", "1", "--config", "no"], "unknown configuration 'no'"),
    (["gemm", *BASE, "--set", "tile"], "--set takes KEY=VALUE"),
    (["gemm", *BASE, "--set", "tile=1"], "tile must be 2..256, not 1"),
    (["gemm", *BASE, "--order", "auto"], "--order is for grad"),
    (["grad", *BASE, "--exponents", "row"], "--exponents row is for gemm"),
    (["grad", *BASE, "--blocks", "1", "-1", "1"], "blocks must be 0..65535 tiles"),
    (["grad", *BASE, "--stall", "1"], "--stall must be 0..0.9, not 1.0"),
    (["grad", *BASE, "--latency", "0"], "--latency must be 1..65535, not 0"),
    (["grad", *BASE, "--seed", "-1"], "--seed must be 0..4294967295, not -1"),
    (["grad", *BASE, "--out", "/no/where.npz"], "no directory for /no/where.npz"),
    (["grad", *BASE, "--data", "/no/where.npz"], "/no/where.npz: No such file or directory"),
    (["grad", "--shape", "1048575", "1", "1048575", "--config", "tiny"],
     "a matrix must have at most 262140 columns"),
])
def test_mistakes_are_one_line(capsys, args, message):
    status, out, err = call(capsys, "op", *args)
    assert (status, out) == (2, "")
    assert err.startswith(f"sw op: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(("arrays", "message"), [
    ({"X": np.ones((9, 6))}, "must hold X, W; W is missing"),
    ({"X": np.ones((9, 6)), "W": np.ones((7, 6))}, "W must be 6 x 7, not 7 x 6"),
    ({"X": np.ones(54), "W": np.ones((6, 7))}, "X must be 9 x 6, not 54"),
    ({"X": np.float32(1), "W": np.ones((6, 7))}, "X must be 9 x 6, not a scalar"),
    ({"X": np.ones((9, 6)) * 1j, "W": np.ones((6, 7))}, "X must hold real numbers, not complex128"),
    ({"X": np.ones((9, 6)), "W": np.ones((6, 7)), "V": 1}, "holds V, which is no operand"),
    ({"X": np.array([None])}, "is no npz file of number arrays"),
])
def test_bad_data_is_one_line(capsys, tmp_path, arrays, message):
    path = tmp_path / "in.npz"
    np.savez(path, **arrays)
    status, out, err = call(capsys, "op", "gemm", *BASE, "--data", str(path))
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_other_files_are_no_data(capsys, tmp_path):
    np.save(tmp_path / "in.npy", np.ones((2, 2)))
    (tmp_path / "text").write_text("hello")
    with zipfile.ZipFile(tmp_path / "members.npz", "w") as archive:
        archive.writestr("X", b"hello")
        archive.writestr("W.npy", b"hello")
    for name in ("in.npy", "text", "members.npz"):
        status, _, err = call(capsys, "op", "gemm", *BASE, "--data", str(tmp_path / name))
        assert status == 2
        assert "is no npz file of number arrays" in err


def test_unknown_words_are_answered_with_the_known_ones(capsys):
    status, _, err = call(capsys, "op", "gemm", *BASE, "--backend", "fpga")
    assert status == 2
    assert "golden" in err
    assert "rtl" in err
