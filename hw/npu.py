# amaranth: UnusedElaboratable=no
"""The NPU: one context on the shared units, with its registers and buses."""

from amaranth.hdl import (
    Cat,
    ClockDomain,
    ClockSignal,
    DomainRenamer,
    Module,
    Mux,
    ResetSignal,
    Signal,
)
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.array.execute import ExecuteUnit
from hw.config import Config, clog2
from hw.control.axil import Registers
from hw.control.context import SOURCES, Context
from hw.isa import Kind
from hw.memory.accumulator import Accumulator
from hw.memory.load import LoadUnit
from hw.memory.scratchpad import Scratchpad
from hw.memory.store import StoreUnit
from hw.regs import COUNTER_BITS, SPACE
from hw.vector.unit import VectorUnit

#: Parts of the NPU by name, those that take longest to convert first.
UNITS = {"store": StoreUnit, "context": Context, "execute": ExecuteUnit, "load": LoadUnit,
         "vector": VectorUnit, "registers": Registers, "scratchpad": Scratchpad,
         "accumulator": Accumulator}


def axi_lite_ports() -> dict:
    """AXI4-Lite slave ports by their standard names, without the prefix."""
    address = clog2(SPACE)
    return {
        "awaddr": In(address), "awprot": In(3), "awvalid": In(1), "awready": Out(1),
        "wdata": In(32), "wstrb": In(4), "wvalid": In(1), "wready": Out(1),
        "bresp": Out(2), "bvalid": Out(1), "bready": In(1),
        "araddr": In(address), "arprot": In(3), "arvalid": In(1), "arready": Out(1),
        "rdata": Out(32), "rresp": Out(2), "rvalid": Out(1), "rready": In(1),
    }


def axi_ports(cfg: Config) -> dict:
    """AXI4 master ports by their standard names, without the prefix. All transfers have ID 0."""
    def address(c):
        return {f"{c}id": Out(1), f"{c}addr": Out(cfg.addr_width), f"{c}len": Out(8),
                f"{c}size": Out(3), f"{c}burst": Out(2), f"{c}lock": Out(1), f"{c}cache": Out(4),
                f"{c}prot": Out(3), f"{c}valid": Out(1), f"{c}ready": In(1)}
    return {
        **address("aw"),
        "wdata": Out(cfg.axi_width), "wstrb": Out(cfg.beat_bytes), "wlast": Out(1),
        "wvalid": Out(1), "wready": In(1),
        "bid": In(1), "bresp": In(2), "bvalid": In(1), "bready": Out(1),
        **address("ar"),
        "rid": In(1), "rdata": In(cfg.axi_width), "rresp": In(2), "rlast": In(1),
        "rvalid": In(1), "rready": Out(1),
    }


class Npu(wiring.Component):
    """Top level.

    Members
    -------
    irq : Out(1), high while an enabled interrupt cause is set
    s_axil_* : AXI4-Lite slave, registers (docs/registers.md)
    m_axi_* : AXI4 master, DRAM: INCR bursts that cross no 4 KiB boundary, full-width beats
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "irq": Out(1),
            **{f"s_axil_{n}": p for n, p in axi_lite_ports().items()},
            **{f"m_axi_{n}": p for n, p in axi_ports(cfg).items()},
        })

    def elaborate(self, platform):
        m = Module()
        cfg = self.cfg
        m.domains.work = domain = ClockDomain("work", local=True)
        units = {name: kind(cfg) for name, kind in UNITS.items()}
        for name, unit in units.items():
            contents = unit if platform is None else platform.unit(unit, f"npu_{name}")
            restarts = name not in ("context", "registers")  # by itself, or not at all
            m.submodules[name] = DomainRenamer("work")(contents) if restarts else contents
        store, context, execute, load, vector, regs, spad, acc = units.values()
        m.d.comb += [domain.clk.eq(ClockSignal()),
                     domain.rst.eq(ResetSignal() | context.restart)]

        # --- registers ---------------------------------------------------------------------------
        for name in axi_lite_ports():
            if name not in ("awprot", "arprot"):
                here, there = getattr(self, f"s_axil_{name}"), getattr(regs, name)
                if axi_lite_ports()[name].flow == In:
                    m.d.comb += there.eq(here)
                else:
                    m.d.comb += here.eq(there)
        irq_done = Signal()
        irq_error = Signal()
        nonfinite = Signal()
        overflow = Signal()
        ended_badly = context.finished & context.error
        for flag, event, clear in (
                (irq_done, context.finished & ~context.error, regs.write_IRQ_STATUS[0]),
                (irq_error, ended_badly, regs.write_IRQ_STATUS[1]),
                (nonfinite, store.nonfinite, regs.write_EXCEPTIONS[0]),
                (overflow, execute.overflow | vector.overflow, regs.write_EXCEPTIONS[1])):
            with m.If(event):
                m.d.sync += flag.eq(1)
            with m.Elif(clear):
                m.d.sync += flag.eq(0)
        base = Cat(regs.value_REGION_BASE_LO, regs.value_REGION_BASE_HI)[:cfg.addr_width]
        m.d.comb += [
            self.irq.eq((irq_done & regs.value_IRQ_ENABLE[0])
                        | (irq_error & regs.value_IRQ_ENABLE[1])),
            regs.status_STATUS.eq(Cat(context.busy, context.done, context.error)),
            regs.status_IRQ_STATUS.eq(Cat(irq_done, irq_error)),
            regs.status_EXCEPTIONS.eq(Cat(nonfinite, overflow)),
            regs.status_ERROR_CODE.eq(context.error_code),
            regs.status_ERROR_ADDR.eq(context.error_addr),
            regs.status_ERROR_PC.eq(context.error_pc),
            context.start.eq(regs.write_CONTROL[0] & ~context.busy),
            context.stop.eq(regs.write_CONTROL[1]),
            context.program_addr.eq(regs.value_PROGRAM_ADDR),
            context.region_size.eq(regs.value_REGION_SIZE),
            load.base.eq(base), store.base.eq(base), store.seed.eq(regs.value_SEED),
            vector.learning_rate.eq(regs.value_LEARNING_RATE),
            vector.momentum.eq(regs.value_MOMENTUM),
            vector.weight_decay.eq(regs.value_WEIGHT_DECAY),
        ]

        # --- context and units -------------------------------------------------------------------
        wiring.connect(m, context.load, load.cmd)
        wiring.connect(m, context.exec, execute.cmd)
        wiring.connect(m, context.vector, vector.cmd)
        wiring.connect(m, context.store, store.cmd)
        events = {"load_done": load, "exec_read": execute, "exec_done": execute,
                  "vector_done": vector, "store_read": store, "store_done": store}
        for event, unit in events.items():
            m.d.comb += [getattr(context, name).eq(getattr(unit, name))
                         for name in (event, SOURCES[event]) if name]
        m.d.comb += [
            context.instr_valid.eq(load.instr_valid), context.instr.eq(load.instr),
            context.read_error.eq(load.error), context.read_error_addr.eq(load.error_addr),
            context.write_error.eq(store.error), context.write_error_addr.eq(store.error_addr),
            context.units_idle.eq(load.idle & store.idle),
            load.abort.eq(context.abort), store.abort.eq(context.abort),
        ]
        for unit, memory, ports in (
                (load, spad, ("w_en", "w_slot", "w_row", "w_data", "w_exp")),
                (execute, spad, [f"{p}_{n}" for p in "ab" for n in ("en", "slot", "index", "col")]),
                (load, acc, ("l_w_valid", "l_w_slot", "l_w_row", "l_w_data")),
                (execute, acc, ("x_r_en", "x_r_slot", "x_r_row", "x_w_en", "x_w_slot", "x_w_row",
                                "x_w_data")),
                (vector, acc, ("v_r_valid", "v_r_slot", "v_r_row", "v_w_valid", "v_w_slot",
                               "v_w_row", "v_w_data")),
                (store, acc, ("s_r_valid", "s_r_slot", "s_r_row"))):
            m.d.comb += [getattr(memory, n).eq(getattr(unit, n)) for n in ports]
        for memory, unit, ports in (
                (spad, execute, [f"{p}_{n}" for p in "ab" for n in ("data", "exp")]),
                (acc, execute, ("x_r_data",)), (acc, load, ("l_w_ready",)),
                (acc, vector, ("v_r_ready", "v_r_data", "v_w_ready")),
                (acc, store, ("s_r_ready", "s_r_data"))):
            m.d.comb += [getattr(unit, n).eq(getattr(memory, n)) for n in ports]

        # --- AXI4 master -------------------------------------------------------------------------
        for c, unit in (("aw", store), ("ar", load)):
            m.d.comb += [
                getattr(self, f"m_axi_{c}addr").eq(getattr(unit, f"{c}_addr")),
                getattr(self, f"m_axi_{c}len").eq(getattr(unit, f"{c}_len")),
                getattr(self, f"m_axi_{c}valid").eq(getattr(unit, f"{c}_valid")),
                getattr(unit, f"{c}_ready").eq(getattr(self, f"m_axi_{c}ready")),
                getattr(self, f"m_axi_{c}size").eq(clog2(cfg.beat_bytes)),
                getattr(self, f"m_axi_{c}burst").eq(1),  # INCR
                getattr(self, f"m_axi_{c}cache").eq(3),  # normal, non-cacheable, bufferable
            ]
        m.d.comb += [
            self.m_axi_wdata.eq(store.w_data), self.m_axi_wlast.eq(store.w_last),
            self.m_axi_wvalid.eq(store.w_valid), self.m_axi_wstrb.eq(~0),
            store.w_ready.eq(self.m_axi_wready),
            store.b_valid.eq(self.m_axi_bvalid), store.b_resp.eq(self.m_axi_bresp),
            self.m_axi_bready.eq(store.b_ready),
            load.r_valid.eq(self.m_axi_rvalid), load.r_data.eq(self.m_axi_rdata),
            load.r_resp.eq(self.m_axi_rresp), load.r_last.eq(self.m_axi_rlast),
            self.m_axi_rready.eq(load.r_ready),
        ]

        # --- counters ----------------------------------------------------------------------------
        since_decode = Signal(COUNTER_BITS)
        with m.If(context.decoded):
            m.d.sync += since_decode.eq(2)
        with m.Else():
            m.d.sync += since_decode.eq(since_decode + 1)
        stalled = {
            "STALL_BANK": execute.stall_bank, "STALL_WEIGHTS": execute.stall_weights,
            "STALL_ACC": execute.stall_acc,
        }
        occupied = execute.busy | Cat(stalled.values()).any()
        stalled |= {"STALL_LOAD": context.wait_load & ~occupied,
                    "STALL_STORE": context.wait_store & ~occupied}
        running = context.busy
        m.d.comb += [
            regs.count_CYCLES_TOTAL.eq(running), regs.count_INSTRUCTIONS.eq(context.taken),
            regs.count_NONFINITE_TILES.eq(store.nonfinite),
            regs.count_OPERATIONS.eq(execute.exec_done),
            regs.count_ARRAY_BUSY.eq(running & execute.busy),
            regs.count_ARRAY_IDLE.eq(running & ~execute.busy & ~Cat(stalled.values()).any()),
            regs.set_CYCLES_OP.eq(self.m_axi_wvalid & self.m_axi_wready),
            regs.cycles_op.eq(since_decode), regs.phase.eq(context.phase),
            regs.count_VECTOR_BUSY.eq(running & vector.busy),
            regs.count_VECTOR_OVERLAP.eq(running & vector.busy & execute.busy),
            regs.count_VECTOR_OPERATIONS.eq(vector.vector_done),
            *(getattr(regs, f"count_ARRAY_{n}").eq(running & s) for n, s in stalled.items()),
        ]
        for kind in Kind:
            for name, unit in (("READ", load), ("WRITE", store)):
                m.d.comb += getattr(regs, f"count_{name}_{kind.name}").eq(
                    Mux(unit.count_en & (unit.count_kind == kind), unit.count_bytes, 0))
        return m
