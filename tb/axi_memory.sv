// Behavioural AXI4 memory of the testbench: answers in order, with run-time latency, bandwidth and
// seeded stalls, and checks the master. Contents come from the file "<job>.in" of the working
// directory and go to "<job>.out", both as whole beats ("<job>.in" with each beat's bytes reversed,
// the order of $fread).
//
// All settings are inputs. They may change while rst is high.
module axi_memory #(
  parameter DATA = 128,       // bits of a beat
  parameter ADDR = 40,        // bits of an address
  parameter LOG2_BYTES = 26   // capacity
) (
  input wire clk,
  input wire rst,             // forgets all bursts, keeps the contents, clears `errors`

  input wire [31:0] job,      // number of the files
  input wire load,            // high for one clock: read the file
  input wire dump,            // high for one clock: write the file
  input wire [63:0] base,     // address of the first byte
  input wire [31:0] size,     // bytes; an access beyond is answered with DECERR
  input wire [15:0] latency,  // clocks from an accepted AR to its first R, from the last W to B; >= 1
  input wire [15:0] bytes_per_cycle, // of reads and writes together; 0 is no limit
  input wire [7:0] max_outstanding,  // bursts each way, 1..64
  input wire [39:0] stall,    // probability in 1/256 that b, w, aw, r, ar (8 bits each) pauses
  input wire [63:0] seed,     // of the stalls; not 0
  input wire [63:0] read_error,  // {end, begin}: bytes, counted from base, that answer SLVERR
  input wire [63:0] write_error, // the same for writes
  input wire [7:0] error_limit,  // answers SLVERR, beats of reads and bursts of writes, after which
                                 // there are no more; 0 is no limit

  output reg [6:0] errors,    // sticky, see `report`
  output wire busy,           // a burst is not yet fully answered

  input wire poke,            // write 16 bytes at byte `poke_address` of the contents
  input wire [31:0] poke_address,
  input wire [127:0] poke_data,
  input wire peek,            // read 16 bytes at byte `peek_address`
  input wire [31:0] peek_address,
  output reg [127:0] peek_data, // from the next clock on

  input wire [0:0] awid,
  input wire [ADDR-1:0] awaddr,
  input wire [7:0] awlen,
  input wire [2:0] awsize,
  input wire [1:0] awburst,
  input wire awvalid,
  output reg awready,
  input wire [DATA-1:0] wdata,
  input wire [DATA/8-1:0] wstrb,
  input wire wlast,
  input wire wvalid,
  output reg wready,
  output reg [0:0] bid,
  output reg [1:0] bresp,
  output reg bvalid,
  input wire bready,
  input wire [0:0] arid,
  input wire [ADDR-1:0] araddr,
  input wire [7:0] arlen,
  input wire [2:0] arsize,
  input wire [1:0] arburst,
  input wire arvalid,
  output reg arready,
  output reg [0:0] rid,
  output reg [DATA-1:0] rdata,
  output reg [1:0] rresp,
  output reg rlast,
  output reg rvalid,
  input wire rready
);
  localparam BYTES = DATA / 8;
  localparam SHIFT = $clog2(BYTES);
  localparam INDEX = LOG2_BYTES - SHIFT;
  localparam [1:0] OKAY = 0, SLVERR = 2, DECERR = 3;

  // State below is written in one block with blocking assignments; only outputs are registers.
  /* verilator lint_off BLKSEQ */
  reg [DATA-1:0] mem [0:(1 << INDEX)-1];

  // Bursts in rings of 64. Reads: [r_done, r_head) are presented in full but not yet accepted,
  // [r_head, r_tail) wait. Writes: [w_done, w_resp) have a B that is not yet accepted,
  // [w_resp, w_head) have all data, [w_head, w_tail) wait for data.
  reg [63:0] r_addr [0:63], w_addr [0:63]; // offsets from base
  reg [7:0] r_len [0:63], w_len [0:63];
  reg [63:0] r_time [0:63], w_time [0:63]; // earliest clock of the answer
  reg r_id [0:63], w_id [0:63];
  reg [1:0] r_code [0:63], w_code [0:63];
  reg [6:0] r_done, r_head, r_tail, w_done, w_resp, w_head, w_tail;
  reg [7:0] r_beat, w_beat;
  reg [7:0] failed;                        // answers SLVERR, if they are limited
  reg [1:0] resp;
  reg turn;                                // read is served when the budget is for one beat only
  reg [63:0] now, random, at;
  reg [31:0] budget;
  reg r_wants, r_go, w_wants, w_go;
  integer fd, i, n;

  reg was_ar, was_aw, was_w;               // valid and not ready in the last clock
  reg [ADDR+13:0] ar, aw, last_ar, last_aw;
  reg [DATA+BYTES:0] w, last_w;

  assign busy = r_done != r_tail || w_done != w_tail;

  task report(input integer code, input [63:0] address);
    if (!errors[code]) begin
      errors[code] <= 1;
      case (code)
        0: $display("axi_memory: burst at 0x%0h crosses a 4 KiB boundary", address);
        1: $display("axi_memory: burst at 0x%0h is not aligned to a beat", address);
        2: $display("axi_memory: burst at 0x%0h is not INCR of whole beats", address);
        3: $display("axi_memory: valid or payload changed before ready, address 0x%0h", address);
        4: $display("axi_memory: wlast misplaced in the burst at 0x%0h", address);
        5: $display("axi_memory: burst at 0x%0h is outside the memory", address);
        default: $display("axi_memory: read and write at 0x%0h overlap in time", address);
      endcase
    end
  endtask

  function [63:0] length(input [7:0] len);
    length = ({56'd0, len} + 1) << SHIFT;
  endfunction

  function overlap(input [63:0] a, input [7:0] a_len, input [63:0] b, input [7:0] b_len);
    overlap = a < b + length(b_len) && b < a + length(a_len);
  endfunction

  // Checks of an accepted address; sets `at` to the offset of its beat.
  task check(input [63:0] address, input [7:0] len, input [2:0] log2, input [1:0] burst);
    at = (address & ~64'(BYTES - 1)) - base;
    if (|(address & (BYTES - 1))) report(1, address);
    if (burst != 1 || log2 != SHIFT) report(2, address);
    if (((at + base) & 4095) + length(len) > 4096) report(0, address);
    if (code(at, len, 0) == DECERR) report(5, address);
  endtask

  function [1:0] code(input [63:0] offset, input [7:0] len, input [63:0] range);
    if (offset >= {32'd0, size} || offset + length(len) > {32'd0, size}) code = DECERR;
    else if (offset < {32'd0, range[63:32]} && offset + length(len) > {32'd0, range[31:0]}
             && (error_limit == 0 || failed != error_limit))
      code = SLVERR;
    else code = OKAY;
  endfunction

  always @(posedge clk) begin
    if (load) begin
      fd = $fopen($sformatf("%0d.in", job), "rb");
      if (fd == 0) $fatal(1, "axi_memory: no file %0d.in", job);
      n = $fread(mem, fd);
      $fclose(fd);
    end
    if (dump) begin
      fd = $fopen($sformatf("%0d.out", job), "wb");
      for (i = 0; i < size >> SHIFT; i = i + 1) $fwrite(fd, "%u", mem[i]);
      $fclose(fd);
    end

    for (i = 0; poke && i < 16; i = i + 1) begin
      at = 64'(poke_address) + 64'(i);
      mem[at[LOG2_BYTES-1:SHIFT]][8*(i % BYTES) +: 8] = poke_data[8*i +: 8];
    end
    for (i = 0; peek && i < 16; i = i + 1) begin
      at = 64'(peek_address) + 64'(i);
      peek_data[8*i +: 8] <= mem[at[LOG2_BYTES-1:SHIFT]][8*(i % BYTES) +: 8];
    end

    now = now + 1;
    random = random ^ (random << 13);
    random = random ^ (random >> 7);
    random = random ^ (random << 17);

    // ---- the master's channels
    ar = {arid, araddr, arlen, arsize, arburst};
    aw = {awid, awaddr, awlen, awsize, awburst};
    w = {wdata, wstrb, wlast};
    if (was_ar && (!arvalid || ar != last_ar)) report(3, 64'(araddr));
    if (was_aw && (!awvalid || aw != last_aw)) report(3, 64'(awaddr));
    if (was_w && (!wvalid || w != last_w)) report(3, w_addr[w_head[5:0]] + base);
    was_ar = arvalid && !arready;
    was_aw = awvalid && !awready;
    was_w = wvalid && !wready;
    last_ar = ar;
    last_aw = aw;
    last_w = w;

    if (arvalid && arready) begin
      check(64'(araddr), arlen, arsize, arburst);
      for (i = 0; i < 64; i = i + 1)
        if (7'(6'(i - 32'(w_done))) < 7'(w_tail - w_done) && overlap(at, arlen, w_addr[i], w_len[i]))
          report(6, 64'(araddr));
      r_addr[r_tail[5:0]] = at;
      r_len[r_tail[5:0]] = arlen;
      r_id[r_tail[5:0]] = arid;
      r_time[r_tail[5:0]] = now + 64'(latency);
      r_tail = r_tail + 1;
    end
    if (awvalid && awready) begin
      check(64'(awaddr), awlen, awsize, awburst);
      for (i = 0; i < 64; i = i + 1)
        if (7'(6'(i - 32'(r_done))) < 7'(r_tail - r_done) && overlap(at, awlen, r_addr[i], r_len[i]))
          report(6, 64'(awaddr));
      w_addr[w_tail[5:0]] = at;
      w_len[w_tail[5:0]] = awlen;
      w_id[w_tail[5:0]] = awid;
      resp = code(at, awlen, write_error);
      failed = failed + 8'(resp == SLVERR && error_limit != 0);
      w_code[w_tail[5:0]] = resp;
      w_tail = w_tail + 1;
    end
    if (wvalid && wready) begin
      if (wlast != (w_beat == w_len[w_head[5:0]])) report(4, w_addr[w_head[5:0]] + base);
      at = (w_addr[w_head[5:0]] >> SHIFT) + 64'(w_beat);
      if (w_code[w_head[5:0]] == OKAY)
        for (i = 0; i < BYTES; i = i + 1)
          if (wstrb[i]) mem[at[INDEX-1:0]][8*i +: 8] = wdata[8*i +: 8];
      w_beat = w_beat + 1;
      if (w_beat == 8'(w_len[w_head[5:0]] + 1)) begin
        w_time[w_head[5:0]] = now + 64'(latency);
        w_head = w_head + 1;
        w_beat = 0;
      end
    end
    if (rvalid && rready && rlast) r_done = r_done + 1;
    if (bvalid && bready) w_done = w_done + 1;

    // ---- which data beats move
    if (bytes_per_cycle == 0) budget = 2 * BYTES;
    else begin
      budget = budget + 32'(bytes_per_cycle);
      if (budget > 2 * BYTES + 32'(bytes_per_cycle)) budget = 2 * BYTES + 32'(bytes_per_cycle);
    end
    r_wants = (!rvalid || rready) && r_head != r_tail && now >= r_time[r_head[5:0]]
              && random[15:8] >= stall[15:8];
    w_wants = !(wready && !wvalid) && w_head != w_tail && random[31:24] >= stall[31:24];
    r_go = r_wants && budget >= BYTES && (budget >= 2 * BYTES || !w_wants || turn);
    w_go = w_wants && budget >= (r_go ? 2 * BYTES : BYTES);
    if (r_go != w_go) turn = w_go;
    if (r_go) budget = budget - BYTES;
    if (w_go) budget = budget - BYTES; // when wready rises: the beat is reserved

    // ---- answers
    if (!rvalid || rready) rvalid <= r_go;
    if (r_go) begin
      at = r_addr[r_head[5:0]] + (64'(r_beat) << SHIFT);
      rid <= r_id[r_head[5:0]];
      resp = code(at, 0, read_error);
      failed = failed + 8'(resp == SLVERR && error_limit != 0);
      rresp <= resp;
      rdata <= resp == OKAY ? mem[at[LOG2_BYTES-1:SHIFT]] : {DATA/32{32'hDEADBEEF}};
      rlast <= r_beat == r_len[r_head[5:0]];
      r_beat = r_beat + 1;
      if (r_beat == 8'(r_len[r_head[5:0]] + 1)) begin
        r_head = r_head + 1;
        r_beat = 0;
      end
    end
    if (!bvalid || bready) begin
      bvalid <= 0;
      if (w_resp != w_head && now >= w_time[w_resp[5:0]] && random[39:32] >= stall[39:32]) begin
        bvalid <= 1;
        bid <= w_id[w_resp[5:0]];
        bresp <= w_code[w_resp[5:0]];
        w_resp = w_resp + 1;
      end
    end
    wready <= w_go || (wready && !wvalid);
    arready <= 8'(7'(r_tail - r_done)) < max_outstanding && random[7:0] >= stall[7:0];
    awready <= 8'(7'(w_tail - w_done)) < max_outstanding && random[23:16] >= stall[23:16];

    if (rst) begin
      {r_done, r_head, r_tail, w_done, w_resp, w_head, w_tail} = 0;
      {r_beat, w_beat, failed, turn, was_ar, was_aw, was_w} = 0;
      now = 0;
      budget = 0;
      random = seed;
      {arready, awready, wready, rvalid, bvalid} <= 0;
      errors <= 0;
    end
  end
  /* verilator lint_on BLKSEQ */
endmodule
