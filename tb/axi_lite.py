"""AXI4-Lite master for cocotb that costs nothing while it is idle."""

from cocotb.triggers import FallingEdge, RisingEdge

#: Clocks after which a register access is given up.
PATIENCE = 1000


class AxiLite:
    """Single register accesses on the ports `<prefix>_*` of `dut`, clocked by `dut.clk`."""

    def __init__(self, dut, prefix: str = "s_axil"):
        self._dut, self._prefix = dut, prefix
        for name in ("awprot", "arprot", "awvalid", "wvalid", "arvalid", "bready", "rready"):
            self._port(name).value = 0
        self._port("wstrb").value = 0xF

    def _port(self, name: str):
        return getattr(self._dut, f"{self._prefix}_{name}")

    async def _transfer(self, *handshakes: tuple[str, str]):
        """Raise the first signal of each pair until the second is high in a clock."""
        waiting = list(handshakes)
        for ours, _ in waiting:
            self._port(ours).value = 1
        clocks = 0
        while waiting:
            assert clocks < PATIENCE, f"no {waiting[0][1]} within {PATIENCE} clocks"
            await RisingEdge(self._dut.clk)
            clocks += 1
            for pair in [p for p in waiting if int(self._port(p[1]).value)]:
                self._port(pair[0]).value = 0
                waiting.remove(pair)

    def _check(self, response: str, offset: int):
        code = int(self._port(response).value)
        assert code == 0, f"register 0x{offset:03x} answered with response {code}"

    async def write(self, offset: int, value: int):
        """Write one 32-bit register; returns after its response."""
        await FallingEdge(self._dut.clk)  # whatever the caller waited for
        self._port("awaddr").value = offset
        self._port("wdata").value = value
        await self._transfer(("awvalid", "awready"), ("wvalid", "wready"))
        await self._transfer(("bready", "bvalid"))
        self._check("bresp", offset)

    async def read(self, offset: int) -> int:
        """Read one 32-bit register."""
        await FallingEdge(self._dut.clk)
        self._port("araddr").value = offset
        await self._transfer(("arvalid", "arready"))
        await self._transfer(("rready", "rvalid"))
        self._check("rresp", offset)
        return int(self._port("rdata").value)

    async def read_all(self, offsets: list[int]) -> list[int]:
        """Read 32-bit registers, each asked for while the one before is answered."""
        values, asked, clocks = [], 0, 0
        edge = RisingEdge(self._dut.clk)
        addr, arready, rvalid, rdata = (self._port(n) for n in (
            "araddr", "arready", "rvalid", "rdata"))
        await FallingEdge(self._dut.clk)
        addr.value = offsets[0]
        self._port("arvalid").value = self._port("rready").value = 1
        while len(values) < len(offsets):
            assert clocks < PATIENCE, f"no rvalid within {PATIENCE} clocks"
            await edge
            clocks += 1
            if asked < len(offsets) and int(arready.value):
                asked += 1
                if asked < len(offsets):
                    addr.value = offsets[asked]
                else:
                    self._port("arvalid").value = 0
            if int(rvalid.value):
                self._check("rresp", offsets[len(values)])
                values.append(int(rdata.value))
                clocks = 0
        self._port("rready").value = 0
        return values
