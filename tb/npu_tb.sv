// Top of the long runs: the NPU on a behavioural memory. Registers, memory settings, clock and reset
// are driven from Python; nothing else is, so that no Python runs while the NPU works.
module npu_tb #(
  parameter DATA = 128,
  parameter ADDR = 40,
  parameter LOG2_BYTES = 26
) (
  input wire clk,
  input wire rst,
  output wire irq,

  input wire [31:0] job,
  input wire load,
  input wire dump,
  input wire [63:0] base,
  input wire [31:0] size,
  input wire [15:0] latency,
  input wire [15:0] bytes_per_cycle,
  input wire [7:0] max_outstanding,
  input wire [39:0] stall,
  input wire [63:0] seed,
  input wire [63:0] read_error,
  input wire [63:0] write_error,
  output wire [6:0] errors,
  output wire busy,

  input wire [11:0] s_axil_awaddr,
  input wire [2:0] s_axil_awprot,
  input wire s_axil_awvalid,
  output wire s_axil_awready,
  input wire [31:0] s_axil_wdata,
  input wire [3:0] s_axil_wstrb,
  input wire s_axil_wvalid,
  output wire s_axil_wready,
  output wire [1:0] s_axil_bresp,
  output wire s_axil_bvalid,
  input wire s_axil_bready,
  input wire [11:0] s_axil_araddr,
  input wire [2:0] s_axil_arprot,
  input wire s_axil_arvalid,
  output wire s_axil_arready,
  output wire [31:0] s_axil_rdata,
  output wire [1:0] s_axil_rresp,
  output wire s_axil_rvalid,
  input wire s_axil_rready
);
  wire [0:0] awid;
  wire [ADDR-1:0] awaddr;
  wire [7:0] awlen;
  wire [2:0] awsize;
  wire [1:0] awburst;
  wire awlock;
  wire [3:0] awcache;
  wire [2:0] awprot;
  wire awvalid;
  wire awready;
  wire [DATA-1:0] wdata;
  wire [DATA/8-1:0] wstrb;
  wire wlast;
  wire wvalid;
  wire wready;
  wire [0:0] bid;
  wire [1:0] bresp;
  wire bvalid;
  wire bready;
  wire [0:0] arid;
  wire [ADDR-1:0] araddr;
  wire [7:0] arlen;
  wire [2:0] arsize;
  wire [1:0] arburst;
  wire arlock;
  wire [3:0] arcache;
  wire [2:0] arprot;
  wire arvalid;
  wire arready;
  wire [0:0] rid;
  wire [DATA-1:0] rdata;
  wire [1:0] rresp;
  wire rlast;
  wire rvalid;
  wire rready;

  npu npu (
    .clk(clk), .rst(rst), .irq(irq),
    .s_axil_awaddr(s_axil_awaddr), .s_axil_awprot(s_axil_awprot),
    .s_axil_awvalid(s_axil_awvalid), .s_axil_awready(s_axil_awready),
    .s_axil_wdata(s_axil_wdata), .s_axil_wstrb(s_axil_wstrb), .s_axil_wvalid(s_axil_wvalid),
    .s_axil_wready(s_axil_wready), .s_axil_bresp(s_axil_bresp), .s_axil_bvalid(s_axil_bvalid),
    .s_axil_bready(s_axil_bready), .s_axil_araddr(s_axil_araddr), .s_axil_arprot(s_axil_arprot),
    .s_axil_arvalid(s_axil_arvalid), .s_axil_arready(s_axil_arready),
    .s_axil_rdata(s_axil_rdata), .s_axil_rresp(s_axil_rresp), .s_axil_rvalid(s_axil_rvalid),
    .s_axil_rready(s_axil_rready), .m_axi_awid(awid), .m_axi_awaddr(awaddr), .m_axi_awlen(awlen),
    .m_axi_awsize(awsize), .m_axi_awburst(awburst), .m_axi_awlock(awlock),
    .m_axi_awcache(awcache), .m_axi_awprot(awprot), .m_axi_awvalid(awvalid),
    .m_axi_awready(awready), .m_axi_wdata(wdata), .m_axi_wstrb(wstrb), .m_axi_wlast(wlast),
    .m_axi_wvalid(wvalid), .m_axi_wready(wready), .m_axi_bid(bid), .m_axi_bresp(bresp),
    .m_axi_bvalid(bvalid), .m_axi_bready(bready), .m_axi_arid(arid), .m_axi_araddr(araddr),
    .m_axi_arlen(arlen), .m_axi_arsize(arsize), .m_axi_arburst(arburst), .m_axi_arlock(arlock),
    .m_axi_arcache(arcache), .m_axi_arprot(arprot), .m_axi_arvalid(arvalid),
    .m_axi_arready(arready), .m_axi_rid(rid), .m_axi_rdata(rdata), .m_axi_rresp(rresp),
    .m_axi_rlast(rlast), .m_axi_rvalid(rvalid), .m_axi_rready(rready)
  );

  axi_memory #(.DATA(DATA), .ADDR(ADDR), .LOG2_BYTES(LOG2_BYTES)) memory (
    .clk(clk), .rst(rst),
    .job(job), .load(load), .dump(dump), .base(base), .size(size), .latency(latency),
    .bytes_per_cycle(bytes_per_cycle), .max_outstanding(max_outstanding), .stall(stall),
    .seed(seed), .read_error(read_error), .write_error(write_error), .errors(errors),
    .busy(busy), .awid(awid), .awaddr(awaddr), .awlen(awlen), .awsize(awsize), .awburst(awburst),
    .awvalid(awvalid), .awready(awready), .wdata(wdata), .wstrb(wstrb), .wlast(wlast),
    .wvalid(wvalid), .wready(wready), .bid(bid), .bresp(bresp), .bvalid(bvalid), .bready(bready),
    .arid(arid), .araddr(araddr), .arlen(arlen), .arsize(arsize), .arburst(arburst),
    .arvalid(arvalid), .arready(arready), .rid(rid), .rdata(rdata), .rresp(rresp), .rlast(rlast),
    .rvalid(rvalid), .rready(rready)
  );
endmodule
