"""The one RAM of the design: a wrapper that a chip team replaces with its macros."""

from amaranth.hdl import ClockSignal, Instance, Module
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from hw.config import clog2

#: Name of the Verilog module that every RAM of the design instantiates.
RAM_MODULE = "solstice_ram"

RAM_VERILOG = f"""\
// One-read-one-write RAM, synchronous read, one clock of latency. Replace this body with a macro
// of your process; contents after power-up are not relied on, nor is a read of the row that is
// written in the same clock.
module {RAM_MODULE} #(
  parameter WIDTH = 8,
  parameter DEPTH = 2,
  parameter ADDR = 1
) (
  input wire clk,
  input wire w_en,
  input wire [ADDR-1:0] w_addr,
  input wire [WIDTH-1:0] w_data,
  input wire r_en,
  input wire [ADDR-1:0] r_addr,
  output reg [WIDTH-1:0] r_data
);
  reg [WIDTH-1:0] mem [0:DEPTH-1];
  always @(posedge clk) begin
    if (w_en) mem[w_addr] <= w_data;
    if (r_en) r_data <= mem[r_addr];
  end
endmodule
"""


class Ram(wiring.Component):
    """One-read-one-write RAM of `depth` rows of `width` bits.

    Read latency 1 clock; `r_data` holds while `r_en` is low. Reading the row that is written in
    the same clock gives an undefined value. Contents start undefined.

    Elaborated without a platform (Amaranth's simulator) it is an `amaranth.lib.memory.Memory`;
    with one (Verilog) it is an instance of `RAM_MODULE`.
    """

    def __init__(self, width: int, depth: int):
        self.width, self.depth = width, depth
        addr = max(1, clog2(depth))
        super().__init__({
            "w_en": In(1), "w_addr": In(addr), "w_data": In(width),
            "r_en": In(1), "r_addr": In(addr), "r_data": Out(width),
        })

    def elaborate(self, platform):
        m = Module()
        if platform is None:
            m.submodules.mem = mem = memory.Memory(shape=self.width, depth=self.depth, init=[])
            write, read = mem.write_port(), mem.read_port()
            m.d.comb += [
                write.en.eq(self.w_en), write.addr.eq(self.w_addr), write.data.eq(self.w_data),
                read.en.eq(self.r_en), read.addr.eq(self.r_addr), self.r_data.eq(read.data),
            ]
        else:
            m.submodules.ram = Instance(
                RAM_MODULE,
                p_WIDTH=self.width, p_DEPTH=self.depth, p_ADDR=len(self.w_addr),
                i_clk=ClockSignal(),
                i_w_en=self.w_en, i_w_addr=self.w_addr, i_w_data=self.w_data,
                i_r_en=self.r_en, i_r_addr=self.r_addr, o_r_data=self.r_data)
        return m
