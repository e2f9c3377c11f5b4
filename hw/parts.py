# amaranth: UnusedElaboratable=no
"""The parts of the NPU, each in its clock domain."""

from amaranth.hdl import ClockDomain, ClockSignal, DomainRenamer, Module, ResetSignal

from hw.array.arbiter import ArrayArbiter
from hw.array.execute import ExecuteUnit
from hw.config import Config
from hw.control.axil import AxiLiteSlave
from hw.control.commands import ContextId, load_command, store_command
from hw.control.context import Context
from hw.control.occupancy import Occupancy
from hw.control.policy import Policy
from hw.control.registers import ContextRegisters
from hw.control.shared import SharedRegisters
from hw.lib.arbiter import Arbiter
from hw.memory.accumulator import Accumulator
from hw.memory.bus import Bus
from hw.memory.load import LoadUnit
from hw.memory.quantiser import Quantiser
from hw.memory.scratchpad import Scratchpad
from hw.memory.store import StoreUnit
from hw.requests.unit import RequestUnit
from hw.vector.unit import VectorUnit


class Parts:
    """All parts, as submodules of `m`. Of a list there is one per context, by ContextId.

    Load and store units, and the arbiters in front of inference's, are in the clock domain of their
    context, which `Context.restart` resets. Nothing but the system's reset resets the others.
    """

    def __init__(self, m: Module, cfg: Config, platform):
        self._m, self._platform = m, platform
        both = list(ContextId)
        domains = [c.name.lower() for c in both]
        # Those that take longest to convert come first.
        self.store = [self._unit("store", StoreUnit(cfg), d, domain=d) for d in domains]
        self.context = [self._unit("context", Context(cfg, c), d, own=True, arguments=(c,))
                        for c, d in zip(both, domains, strict=True)]
        self.execute = self._unit("execute", ExecuteUnit(cfg))
        self.vector = self._unit("vector", VectorUnit(cfg))
        self.load = [self._unit("load", LoadUnit(cfg), d, domain=d) for d in domains]
        self.requests = self._unit("requests", RequestUnit(cfg))
        self.registers = [self._unit("registers", ContextRegisters(cfg), d) for d in domains]
        self.shared = self._unit("shared_registers", SharedRegisters(cfg))
        self.quantiser = self._unit("quantiser", Quantiser(cfg))
        self.scratchpad = self._unit("scratchpad", Scratchpad(cfg))
        self.accumulator = self._unit("accumulator", Accumulator(cfg))
        self.bus = self._unit("bus", Bus(cfg))
        bounds = self.execute.HOLD_BOUND, self.vector.HOLD_BOUND
        self.occupancy = self._unit("occupancy", Occupancy(cfg, *bounds), arguments=bounds)

        # Small ones, converted with the top.
        m.submodules.slave = self.slave = AxiLiteSlave()
        m.submodules.policy = self.policy = Policy()
        m.submodules.array_arbiter = self.array_arbiter = ArrayArbiter(cfg)
        inference = DomainRenamer(domains[ContextId.INFERENCE.value])
        self.loads, self.stores = Arbiter(load_command(cfg)), Arbiter(store_command(cfg))
        m.submodules.load_arbiter = inference(self.loads)
        m.submodules.store_arbiter = inference(self.stores)

        for name, context in zip(domains, self.context, strict=True):
            m.domains += (domain := ClockDomain(name, local=True))
            m.d.comb += [domain.clk.eq(ClockSignal()),
                         domain.rst.eq(ResetSignal() | context.restart)]

    def _unit(self, kind, part, context="", *, own=False, domain=None, arguments=()):
        """Add a part, an instance of module npu_`kind`, or of one of its own; returns it."""
        name = f"{context}_{kind}" if context else kind
        contents = part if self._platform is None else self._platform.unit(
            part, f"npu_{name if own else kind}", *arguments)
        self._m.submodules[name] = DomainRenamer(domain)(contents) if domain else contents
        return part
