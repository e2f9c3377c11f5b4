"""Elaborate a leaf once, instantiate it many times."""

from amaranth.back import rtlil
from amaranth.hdl import ClockSignal, Instance, ResetSignal
from amaranth.lib import wiring


class SharedModules:
    """Modules that several parents instantiate; passed down as the elaboration platform.

    Amaranth emits one Verilog module per instance. A leaf whose `elaborate` returns
    ``platform.instance(self, name, inner)`` is converted once under `name` and instantiated every
    other time. `name` must encode every parameter of the leaf. With ``platform=None`` (Amaranth's
    simulator) a leaf elaborates the real thing instead.
    """

    def __init__(self):
        self._texts: dict[str, str] = {}

    def instance(self, component: wiring.Component, name: str, elaborate) -> Instance:
        """Instance of shared module `name`; `elaborate()` gives its contents the first time."""
        ports, args = {}, {}
        for path, member, value in component.signature.flatten(component):
            value = value.as_value() if hasattr(value, "as_value") else value
            port = "__".join(map(str, path))
            ports[port] = value
            args[("i_" if member.flow == wiring.In else "o_") + port] = value
        if name not in self._texts:
            shell = _Shell(component.signature, elaborate)
            text = rtlil.convert(shell, name=name, platform=self, emit_src=False)
            self._texts[name] = text.replace("attribute \\top 1\n", "")
        text = self._texts[name]
        for signal, clock in (("\\clk", ClockSignal()), ("\\rst", ResetSignal())):
            if any(line.split()[-1] == signal and " input " in line
                   for line in text.splitlines() if line.lstrip().startswith("wire ")):
                args[f"i_{signal[1:]}"] = clock
        return Instance(name, **args)

    def rtlil(self) -> str:
        """RTLIL text of all shared modules."""
        return "\n".join(self._texts.values())


class _Shell(wiring.Component):
    """A leaf's ports around its contents, for conversion on its own."""

    def __init__(self, signature, elaborate):
        super().__init__(signature)
        self._elaborate = elaborate

    def elaborate(self, platform):
        return self._elaborate(self)
