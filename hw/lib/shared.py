"""Modules of their own: leaves that are instantiated many times, units that convert in parallel."""

from concurrent.futures import FIRST_COMPLETED, wait

from amaranth.back import rtlil
from amaranth.hdl import ClockSignal, Instance, ResetSignal
from amaranth.lib import wiring


def _ports(component: wiring.Component) -> dict:
    """Ports of a component by their names in Verilog, as arguments of `Instance`."""
    args = {}
    for path, member, value in component.signature.flatten(component):
        value = value.as_value() if hasattr(value, "as_value") else value
        args[("i_" if member.flow == wiring.In else "o_") + "__".join(map(str, path))] = value
    return args


def _convert(component: wiring.Component, name: str, platform: "SharedModules") -> str:
    """RTLIL of `component` as module `name`, and of its submodules that are not shared."""
    text = rtlil.convert(component, name=name, platform=platform, emit_src=False)
    return text.replace("attribute \\top 1\n", "")


def _convert_unit(name: str, kind: type, *arguments) -> tuple[dict, dict]:
    """RTLIL by module of a unit and its leaves, and the units inside it; in a worker process."""
    shared = SharedModules()
    text = _convert(kind(*arguments), name, shared)
    return shared.leaves | {name: text}, shared.units


class SharedModules:
    """Modules that others instantiate; passed down as the elaboration platform.

    Amaranth emits one Verilog module per instance. A leaf whose `elaborate` returns
    ``platform.instance(self, name, contents)`` is converted once under `name` and instantiated
    every other time; `name` must encode every parameter of the leaf. A unit, given to `unit`, is
    converted on its own and once, in a worker of the executor `pool`; it may contain units. With
    ``platform=None`` (Amaranth's simulator) leaves and units elaborate the real thing instead.

    Attributes
    ----------
    leaves : RTLIL text by module
    units : what to convert, by module: class and arguments
    """

    def __init__(self, pool=None):
        self.leaves: dict[str, str] = {}
        self.units: dict[str, tuple] = {}
        self._pool, self._pending = pool, set()

    def instance(self, component: wiring.Component, name: str, contents) -> Instance:
        """Instance of shared module `name`; `contents(ports)` elaborates it the first time."""
        if name not in self.leaves:
            self.leaves[name] = _convert(_Shell(component.signature, contents), name, self)
        args = _ports(component)
        inputs = {line.split()[-1] for line in self.leaves[name].splitlines()
                  if line.lstrip().startswith("wire ") and " input " in line}
        for port, signal in (("clk", ClockSignal()), ("rst", ResetSignal())):
            if f"\\{port}" in inputs:
                args[f"i_{port}"] = signal
        return Instance(name, **args)

    def unit(self, component: wiring.Component, name: str, *arguments) -> Instance:
        """Instance of module `name`, converted from ``type(component)(component.cfg, ...)``."""
        self._want(name, type(component), component.cfg, *arguments)
        return Instance(name, **_ports(component), i_clk=ClockSignal(), i_rst=ResetSignal())

    def _want(self, name, *work):
        if name not in self.units:
            self.units[name] = work
            if self._pool:  # else this is the conversion of a unit, whose caller does it
                self._pending.add(self._pool.submit(_convert_unit, name, *work))

    def texts(self) -> dict[str, str]:
        """RTLIL text of all modules by name, in a fixed order."""
        texts = dict(self.leaves)
        while self._pending:
            done, self._pending = wait(self._pending, return_when=FIRST_COMPLETED)
            for future in done:
                found, units = future.result()
                texts |= found
                for name, work in units.items():
                    self._want(name, *work)
        return dict(sorted(texts.items()))


class _Shell(wiring.Component):
    """A leaf's ports around its contents, for conversion on its own."""

    def __init__(self, signature, contents):
        super().__init__(signature)
        self._contents = contents

    def elaborate(self, platform):
        return self._contents(self)
