// Top of the long runs: the NPU on a behavioural memory. Registers, memory settings, clock and reset
// are driven from Python; nothing else is, so that no Python runs while the NPU works. While `go` is
// high the registers belong to the host, which is Verilog too.
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
  input wire [7:0] error_limit,
  output wire [6:0] errors,
  output wire busy,

  input wire go,
  input wire [31:0] epochs,
  input wire [31:0] ring,
  input wire [31:0] completions,
  input wire [31:0] entry,
  input wire [3:0] ring_log2,
  input wire [31:0] traced,
  input wire [31:0] bucket,
  output wire done,

  input wire [13:0] s_axil_awaddr,
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
  input wire [13:0] s_axil_araddr,
  input wire [2:0] s_axil_arprot,
  input wire s_axil_arvalid,
  output wire s_axil_arready,
  output wire [31:0] s_axil_rdata,
  output wire [1:0] s_axil_rresp,
  output wire s_axil_rvalid,
  input wire s_axil_rready
);
  // Every input is registered: Verilator would evaluate logic that depends on a port on both edges
  // of the clock. The host sees a handshake in the clock in which the NPU does.
  reg rst_q;
  reg [31:0] job_q;
  reg load_q;
  reg dump_q;
  reg [63:0] base_q;
  reg [31:0] size_q;
  reg [15:0] latency_q;
  reg [15:0] bytes_per_cycle_q;
  reg [7:0] max_outstanding_q;
  reg [39:0] stall_q;
  reg [63:0] seed_q;
  reg [63:0] read_error_q;
  reg [63:0] write_error_q;
  reg [7:0] error_limit_q;
  reg go_q;
  reg [31:0] epochs_q;
  reg [31:0] ring_q;
  reg [31:0] completions_q;
  reg [31:0] entry_q;
  reg [3:0] ring_log2_q;
  reg [31:0] traced_q;
  reg [31:0] bucket_q;
  reg [13:0] s_axil_awaddr_q;
  reg [2:0] s_axil_awprot_q;
  reg s_axil_awvalid_q;
  reg [31:0] s_axil_wdata_q;
  reg [3:0] s_axil_wstrb_q;
  reg s_axil_wvalid_q;
  reg s_axil_bready_q;
  reg [13:0] s_axil_araddr_q;
  reg [2:0] s_axil_arprot_q;
  reg s_axil_arvalid_q;
  reg s_axil_rready_q;
  wire npu_awready;
  wire npu_wready;
  wire npu_arready;
  wire npu_bvalid;
  wire npu_rvalid;

  always @(posedge clk) begin
    rst_q <= rst;
    job_q <= job;
    load_q <= load;
    dump_q <= dump;
    base_q <= base;
    size_q <= size;
    latency_q <= latency;
    bytes_per_cycle_q <= bytes_per_cycle;
    max_outstanding_q <= max_outstanding;
    stall_q <= stall;
    seed_q <= seed;
    read_error_q <= read_error;
    write_error_q <= write_error;
    error_limit_q <= error_limit;
    go_q <= go;
    epochs_q <= epochs;
    ring_q <= ring;
    completions_q <= completions;
    entry_q <= entry;
    ring_log2_q <= ring_log2;
    traced_q <= traced;
    bucket_q <= bucket;
    s_axil_awaddr_q <= s_axil_awaddr;
    s_axil_awprot_q <= s_axil_awprot;
    s_axil_awvalid_q <= s_axil_awvalid && !s_axil_awready;
    s_axil_wdata_q <= s_axil_wdata;
    s_axil_wstrb_q <= s_axil_wstrb;
    s_axil_wvalid_q <= s_axil_wvalid && !s_axil_wready;
    s_axil_bready_q <= s_axil_bready && !s_axil_bvalid;
    s_axil_araddr_q <= s_axil_araddr;
    s_axil_arprot_q <= s_axil_arprot;
    s_axil_arvalid_q <= s_axil_arvalid && !s_axil_arready;
    s_axil_rready_q <= s_axil_rready && !s_axil_rvalid;
  end

  assign s_axil_awready = npu_awready && s_axil_awvalid_q;
  assign s_axil_wready = npu_wready && s_axil_wvalid_q;
  assign s_axil_arready = npu_arready && s_axil_arvalid_q;
  assign s_axil_bvalid = npu_bvalid && s_axil_bready_q;
  assign s_axil_rvalid = npu_rvalid && s_axil_rready_q;

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

  wire [9:0] activity;
  wire poke;
  wire [31:0] poke_address;
  wire [127:0] poke_data;
  wire peek;
  wire [31:0] peek_address;
  wire [127:0] peek_data;
  wire [13:0] host_awaddr;
  wire host_awvalid;
  wire [31:0] host_wdata;
  wire host_wvalid;
  wire host_bready;
  wire [13:0] host_araddr;
  wire host_arvalid;
  wire host_rready;

  host #(.ADDR(ADDR)) host (
    .clk(clk), .rst(rst_q), .job(job_q), .go(go_q), .done(done), .epochs(epochs_q), .ring(ring_q),
    .completions(completions_q), .entry(entry_q), .ring_log2(ring_log2_q), .traced(traced_q),
    .bucket(bucket_q), .irq(irq), .activity(activity), .poke(poke), .poke_address(poke_address),
    .poke_data(poke_data), .peek(peek), .peek_address(peek_address), .peek_data(peek_data),
    .awaddr(host_awaddr), .awvalid(host_awvalid), .awready(npu_awready), .wdata(host_wdata),
    .wvalid(host_wvalid), .wready(npu_wready), .bvalid(npu_bvalid), .bready(host_bready),
    .araddr(host_araddr), .arvalid(host_arvalid), .arready(npu_arready), .rdata(s_axil_rdata),
    .rvalid(npu_rvalid), .rready(host_rready), .m_awid(awid), .m_awaddr(awaddr),
    .m_awvalid(awvalid), .m_awready(awready), .m_bid(bid), .m_bvalid(bvalid), .m_bready(bready)
  );

  npu npu (
    .clk(clk), .rst(rst_q), .irq(irq),
    .activity(activity),
    .s_axil_awaddr(go_q ? host_awaddr : s_axil_awaddr_q), .s_axil_awprot(s_axil_awprot_q),
    .s_axil_awvalid(go_q ? host_awvalid : s_axil_awvalid_q), .s_axil_awready(npu_awready),
    .s_axil_wdata(go_q ? host_wdata : s_axil_wdata_q),
    .s_axil_wstrb(go_q ? 4'hF : s_axil_wstrb_q),
    .s_axil_wvalid(go_q ? host_wvalid : s_axil_wvalid_q),
    .s_axil_wready(npu_wready), .s_axil_bresp(s_axil_bresp), .s_axil_bvalid(npu_bvalid),
    .s_axil_bready(go_q ? host_bready : s_axil_bready_q),
    .s_axil_araddr(go_q ? host_araddr : s_axil_araddr_q), .s_axil_arprot(s_axil_arprot_q),
    .s_axil_arvalid(go_q ? host_arvalid : s_axil_arvalid_q), .s_axil_arready(npu_arready),
    .s_axil_rdata(s_axil_rdata), .s_axil_rresp(s_axil_rresp), .s_axil_rvalid(npu_rvalid),
    .s_axil_rready(go_q ? host_rready : s_axil_rready_q), .m_axi_awid(awid), .m_axi_awaddr(awaddr), .m_axi_awlen(awlen),
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
    .clk(clk), .rst(rst_q),
    .job(job_q), .load(load_q), .dump(dump_q), .base(base_q), .size(size_q), .latency(latency_q),
    .bytes_per_cycle(bytes_per_cycle_q), .max_outstanding(max_outstanding_q), .stall(stall_q),
    .seed(seed_q), .read_error(read_error_q), .write_error(write_error_q),
    .error_limit(error_limit_q), .errors(errors), .busy(busy), .poke(poke), .poke_address(poke_address), .poke_data(poke_data), .peek(peek),
    .peek_address(peek_address), .peek_data(peek_data), .awid(awid), .awaddr(awaddr), .awlen(awlen), .awsize(awsize), .awburst(awburst),
    .awvalid(awvalid), .awready(awready), .wdata(wdata), .wstrb(wstrb), .wlast(wlast),
    .wvalid(wvalid), .wready(wready), .bid(bid), .bresp(bresp), .bvalid(bvalid), .bready(bready),
    .arid(arid), .araddr(araddr), .arlen(arlen), .arsize(arsize), .arburst(arburst),
    .arvalid(arvalid), .arready(arready), .rid(rid), .rdata(rdata), .rresp(rresp), .rlast(rlast),
    .rvalid(rvalid), .rready(rready)
  );
endmodule
