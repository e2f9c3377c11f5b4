// The host of the long runs: writes registers at given clocks, posts requests at their arrival, takes
// completions, starts training again, and logs what it sees. All of it while no Python runs.
//
// Reads "<job>.writes" (lines "clock offset value", in hex but for the clock) and "<job>.requests"
// (lines "clock input output tag", in hex but for the clock), both in ascending order of clocks, and
// writes "<job>.log". Clocks count from the first one in which `go` is high. Lines of the log:
//   D clock posted               the NPU took a doorbell: requests posted so far
//   C clock tag status latency service    a completion was taken from its ring
//   B clock address              a write of inference was acknowledged
//   E clock                      training's program has ended
//   P clock operations           all requests are completed: training's OPERATIONS at that time.
//                                POLICY becomes priority then, so that training comes to its end
//   F clock context              a program was stopped by an error
//   X clock                      the NPU refused a doorbell or ENABLE; if it is not enabled, nothing
//                                more is posted
//   T clock activity             `activity` changed (in the first `traced` clocks), in hex
//   U clock n0 .. n9             clocks since the last U, a bucket ago (at the end: fewer), with each
//                                bit of `activity`
module host #(
  parameter ADDR = 40
) (
  input wire clk,
  input wire rst,
  input wire [31:0] job,
  input wire go,
  output reg done,

  input wire [31:0] epochs,       // times that training is started at most, the first one included
  input wire [31:0] ring,         // byte addresses of the rings
  input wire [31:0] completions,
  input wire [31:0] entry,        // bytes of an entry
  input wire [3:0] ring_log2,
  input wire [31:0] traced,        // clocks to trace
  input wire [31:0] bucket,       // clocks; 0 is no U lines

  input wire irq,
  input wire [9:0] activity,

  // 16 bytes of memory, written and read
  output reg poke,
  output reg [31:0] poke_address,
  output reg [127:0] poke_data,
  output reg peek,
  output reg [31:0] peek_address,
  input wire [127:0] peek_data,

  // AXI4-Lite to the NPU
  output reg [13:0] awaddr,
  output reg awvalid,
  input wire awready,
  output reg [31:0] wdata,
  output reg wvalid,
  input wire wready,
  input wire bvalid,
  output wire bready,
  output reg [13:0] araddr,
  output reg arvalid,
  input wire arready,
  input wire [31:0] rdata,
  input wire rvalid,
  output wire rready,

  // what is watched of the NPU's AXI4
  input wire m_awid,
  input wire [ADDR-1:0] m_awaddr,
  input wire m_awvalid,
  input wire m_awready,
  input wire m_bid,
  input wire m_bvalid,
  input wire m_bready
);
  localparam [13:0] CONTROL = 14'h0008, STATUS = 14'h000C, IRQ_STATUS = 14'h0010,
    INFERENCE = 14'h1000, POLICY = 14'h2000, REQUEST_CONTROL = 14'h2020, DOORBELL = 14'h2030,
    CONSUMED = 14'h2034, COMPLETED = 14'h2038, SPACE = 14'h203C, REQUEST_IRQ_STATUS = 14'h2064,
    OPERATIONS = 14'h0158;

  localparam [4:0] CHOOSE = 0, WAIT = 1, CAUSE = 2, CLEAR = 3, COUNT = 4, TAKE = 5,
    PEEK = 6, PEEKED = 7, TAKEN = 8, TRAINING = 9, TRAINING_CLEAR = 10, AGAIN = 11,
    INFERRING = 12, INFERRING_CLEAR = 13, IDLE = 14, IDLE_TOO = 15, PROGRESS = 16, ACCEPTED = 17,
    ENABLED = 18, END = 19;

  /* verilator lint_off BLKSEQ */
  reg [4:0] state, next;
  reg started, refused, closed, busy_training, served;
  reg have_write, have_request;
  reg [63:0] now, write_at, request_at;
  reg [31:0] write_offset, write_value, request_input, request_output, request_tag;
  reg [31:0] posted, rung, consumed, completed, epoch, in_bucket, answer;
  reg [ADDR-1:0] acks [0:255];
  reg [7:0] acks_head, acks_tail;
  reg [31:0] use_count [0:9];
  reg [9:0] last_activity;
  integer writes, requests, log, n, i;

  assign bready = 1;
  assign rready = 1;

  task next_write;
    n = $fscanf(writes, "%d %h %h\n", write_at, write_offset, write_value);
    have_write = n == 3;
  endtask

  task next_request;
    n = $fscanf(requests, "%d %h %h %h\n", request_at, request_input, request_output, request_tag);
    have_request = n == 4;
  endtask

  task write(input [13:0] offset, input [31:0] value, input [4:0] then_);
    awaddr <= offset;
    wdata <= value;
    awvalid <= 1;
    wvalid <= 1;
    next = then_;
    state = WAIT;
  endtask

  task read(input [13:0] offset, input [4:0] then_);
    araddr <= offset;
    arvalid <= 1;
    next = then_;
    state = WAIT;
  endtask

  function [31:0] place(input [31:0] first, input [31:0] number);
    place = first + (number & ((32'd1 << ring_log2) - 1)) * entry;
  endfunction

  always @(posedge clk) begin
    {poke, peek} <= 0;
    if (awvalid && awready) begin
      if (awaddr == DOORBELL) $fwrite(log, "D %0d %0d\n", now, wdata);
      awvalid <= 0;
      wvalid <= 0;
    end
    if (arvalid && arready) arvalid <= 0;

    if (rst || !go) begin
      state = CHOOSE;
      {started, refused, closed, busy_training, served, have_write, have_request} = 0;
      {now, posted, rung, consumed, completed, epoch, in_bucket} = 0;
      {acks_head, acks_tail, last_activity} = 0;
      for (i = 0; i < 10; i = i + 1) use_count[i] = 0;
      {awvalid, wvalid, arvalid, done} <= 0;
    end else if (!done) begin
      if (!started) begin
        started = 1;
        writes = $fopen($sformatf("%0d.writes", job), "r");
        requests = $fopen($sformatf("%0d.requests", job), "r");
        log = $fopen($sformatf("%0d.log", job), "w");
        if (writes == 0 || requests == 0) $fatal(1, "host: no script for job %0d", job);
        next_write();
        next_request();
      end

      // ---- what is seen
      if (m_awvalid && m_awready && m_awid) begin
        acks[acks_tail] = m_awaddr;
        acks_tail = acks_tail + 1;
      end
      if (m_bvalid && m_bready && m_bid) begin
        $fwrite(log, "B %0d %0d\n", now, acks[acks_head]);
        acks_head = acks_head + 1;
      end
      if (now < 64'(traced) && (activity != last_activity || now == 0))
        $fwrite(log, "T %0d %h\n", now, activity);
      last_activity = activity;
      for (i = 0; i < 10; i = i + 1) use_count[i] = use_count[i] + 32'(activity[i]);
      in_bucket = in_bucket + 1;
      if (bucket != 0 && (in_bucket == bucket || state == END)) begin
        $fwrite(log, "U %0d", now + 1);
        for (i = 0; i < 10; i = i + 1) begin
          $fwrite(log, " %0d", use_count[i]);
          use_count[i] = 0;
        end
        $fwrite(log, "\n");
        in_bucket = 0;
      end

      // ---- what is done
      case (state)
        CHOOSE:
          if (have_write && write_at <= now) begin
            write(write_offset[13:0], write_value, CHOOSE);
            next_write();
          end else if (have_request && request_at <= now && !closed
                       && posted - consumed != 32'd1 << ring_log2) begin
            poke <= 1;
            poke_address <= place(ring, posted);
            poke_data <= {32'd0, request_tag, request_output, request_input};
            posted = posted + 1;
            next_request();
          end else if (posted != rung) begin
            rung = posted;
            write(DOORBELL, {16'd0, posted[15:0]}, CHOOSE);
          end else if (irq) read(REQUEST_IRQ_STATUS, CAUSE);
          else if (!have_write && (!have_request || closed) && posted == consumed)
            if (served) read(STATUS, IDLE);
            else read(OPERATIONS, PROGRESS);
        WAIT:
          if (bvalid || rvalid) begin
            answer = rdata;
            state = next;
          end
        CAUSE: begin
          if (answer[1]) begin
            $fwrite(log, "X %0d\n", now);
            refused = 1;
          end
          write(REQUEST_IRQ_STATUS, answer, CLEAR);
        end
        CLEAR: if (refused) read(SPACE, ACCEPTED); else read(COMPLETED, COUNT);
        ACCEPTED: begin  // all that count were accepted
          posted = consumed + (32'd1 << ring_log2) - answer;
          rung = posted;
          refused = 0;
          read(REQUEST_CONTROL, ENABLED);
        end
        ENABLED: begin
          closed = !answer[0];
          read(COMPLETED, COUNT);
        end
        COUNT: begin
          completed = consumed + {16'd0, answer[15:0] - consumed[15:0]};
          state = TAKE;
        end
        TAKE:
          if (consumed != completed) begin
            peek <= 1;
            peek_address <= place(completions, consumed);
            state = PEEK;
          end else write(CONSUMED, {16'd0, consumed[15:0]}, TRAINING);
        PEEK: state = PEEKED;
        PEEKED: state = TAKEN;
        TAKEN: begin
          $fwrite(log, "C %0d %0d %0d %0d %0d\n", now, peek_data[31:0], peek_data[63:32],
                  peek_data[95:64], peek_data[127:96]);
          consumed = consumed + 1;
          state = TAKE;
        end
        TRAINING: read(IRQ_STATUS, TRAINING_CLEAR);
        TRAINING_CLEAR: begin
          if (answer[1]) $fwrite(log, "F %0d 0\n", now);
          if (answer[0]) begin
            $fwrite(log, "E %0d\n", now);
            epoch = epoch + 1;
          end
          write(IRQ_STATUS, answer,
                answer[0] && epoch < epochs && ((have_request && !closed) || posted != consumed)
                ? AGAIN : INFERRING);
        end
        AGAIN: write(CONTROL, 1, INFERRING);
        INFERRING: read(INFERENCE | IRQ_STATUS, INFERRING_CLEAR);
        INFERRING_CLEAR: begin
          if (answer[1]) $fwrite(log, "F %0d 1\n", now);
          write(INFERENCE | IRQ_STATUS, answer, CHOOSE);
        end
        PROGRESS: begin
          $fwrite(log, "P %0d %0d\n", now, answer);
          served = 1;
          write(POLICY, 0, CHOOSE);
        end
        IDLE: begin
          busy_training = answer[0];
          read(INFERENCE | STATUS, IDLE_TOO);
        end
        IDLE_TOO: state = answer[0] || busy_training || irq ? CHOOSE : END;
        default: begin
          $fclose(writes);
          $fclose(requests);
          $fclose(log);
          done <= 1;
        end
      endcase
      now = now + 1;
    end
  end
  /* verilator lint_on BLKSEQ */
endmodule
