"""Ports of the NPU."""

from amaranth.lib.wiring import In, Out

from hw.config import Config, clog2
from hw.regs import SPACE, UNITS


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
    """AXI4 master ports by their standard names, without the prefix. The ID is the context."""
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


def top_ports(cfg: Config) -> dict:
    """All ports of the NPU but clock and reset, by name."""
    return {
        "irq": Out(1), "activity": Out(2 * len(UNITS)),
        **{f"s_axil_{n}": p for n, p in axi_lite_ports().items()},
        **{f"m_axi_{n}": p for n, p in axi_ports(cfg).items()},
    }
