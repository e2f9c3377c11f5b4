"""Modules of their own: leaves that are instantiated many times, units that convert in parallel."""

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


def _convert_unit(name: str, kind: type, *arguments) -> dict[str, str]:
    """RTLIL by module of a unit and of the leaves it shares; runs in a worker process."""
    shared = SharedModules()
    text = _convert(kind(*arguments), name, shared)
    return shared.texts() | {name: text}


class SharedModules:
    """Modules that others instantiate; passed down as the elaboration platform.

    Amaranth emits one Verilog module per instance. A leaf whose `elaborate` returns
    ``platform.instance(self, name, contents)`` is converted once under `name` and instantiated
    every other time; `name` must encode every parameter of the leaf. A unit, given to `unit`, is
    converted on its own and once, in a process of `pool` if there is one. With ``platform=None``
    (Amaranth's simulator) leaves and units elaborate the real thing instead.
    """

    def __init__(self, pool=None):
        self._texts: dict[str, str] = {}
        self._pool, self._pending, self._units = pool, [], set()

    def instance(self, component: wiring.Component, name: str, contents) -> Instance:
        """Instance of shared module `name`; `contents(ports)` elaborates it the first time."""
        if name not in self._texts:
            self._texts[name] = _convert(_Shell(component.signature, contents), name, self)
        args = _ports(component)
        inputs = {line.split()[-1] for line in self._texts[name].splitlines()
                  if line.lstrip().startswith("wire ") and " input " in line}
        for port, signal in (("clk", ClockSignal()), ("rst", ResetSignal())):
            if f"\\{port}" in inputs:
                args[f"i_{port}"] = signal
        return Instance(name, **args)

    def unit(self, component: wiring.Component, name: str, *arguments) -> Instance:
        """Instance of module `name`, converted from ``type(component)(component.cfg, ...)``."""
        if name not in self._units:
            self._units.add(name)
            work = name, type(component), component.cfg, *arguments
            if self._pool:
                self._pending.append(self._pool.submit(_convert_unit, *work))
            else:
                self._texts |= _convert_unit(*work)
        return Instance(name, **_ports(component), i_clk=ClockSignal(), i_rst=ResetSignal())

    def texts(self) -> dict[str, str]:
        """RTLIL text of all modules by name, in a fixed order."""
        for future in self._pending:
            self._texts |= future.result()
        self._pending = []
        return dict(sorted(self._texts.items()))


class _Shell(wiring.Component):
    """A leaf's ports around its contents, for conversion on its own."""

    def __init__(self, signature, contents):
        super().__init__(signature)
        self._contents = contents

    def elaborate(self, platform):
        return self._contents(self)
