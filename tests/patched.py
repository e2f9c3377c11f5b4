"""The Verilog of `tiny` with faults and delays in it, each of which a plusarg turns on."""

import re
from functools import cache

from hw.config import load
from hw.generate import verilog

TINY = load("tiny")

#: Faults: pattern with the signal that is wrong, the value that it has instead, by plusarg.
FAULTS = {
    # The array gives zeros.
    "+zero_sums": (r"\.sum\((sums\[\d+:\d+\])\)", "17'd0"),
    # A tag's column is not compared.
    "+no_column": (r"(?s)module \S*array_stream\.sequencer\.tags .*?"
                   r"= (r_data\[\d+:\d+\] == col);", "1'd1"),
    # Functions give zeros.
    "+zero_functions": (r"(?s)\bnpu_accumulator accumulator \(.*?\.v_w_data__0\((v_w_data__0)\)",
                        "128'd0"),
}
#: Commands are taken 0 to 7 clocks late.
LATE = "+late"
#: Gate between a context and a unit, or the arbiter before it.
GATE = """
module late #(parameter SEED = 1) (input wire clk, input wire valid, input wire ready,
                                   output wire open);
  reg [15:0] random;
  reg [2:0] wait_;
  initial random = SEED;
  initial wait_ = $test$plusargs("late") ? SEED : 0;
  assign open = wait_ == 0;
  always @(posedge clk) begin
    random <= {random[14:0], random[15] ^ random[13] ^ random[12] ^ random[10]};
    if (wait_ != 0) wait_ <= wait_ - 1;
    else if (valid && ready && $test$plusargs("late")) wait_ <= random[2:0];
  end
endmodule
"""
STREAMS = ("exec", "load", "store", "vector")


def _faulty(text: str) -> str:
    """`text` with switches for `FAULTS`."""
    for plusarg, (pattern, wrong) in FAULTS.items():
        places = [match.span(1) for match in re.finditer(pattern, text)]
        assert places, plusarg
        for start, end in reversed(places):
            text = f"{text[:start]}(faulty ? {wrong} : {text[start:end]}){text[end:]}"
        for header in {text.rindex("\nmodule ", 0, start) for start, _ in places}:
            end = text.index(");\n", header) + 3
            text = (f"{text[:end]}  reg faulty;\n  initial faulty = "
                    f"$test$plusargs(\"{plusarg[1:]}\") != 0;\n{text[end:]}")
    return text


def _delayed(text: str) -> str:
    """`text` with a gate in each command stream of both contexts."""
    gates = 0
    for context in ("training", "inference"):
        head = rf"  npu_{context}_context {context}_context \("
        instance = re.search(rf"{head}.*?\n  \);\n", text, re.S)[0]
        new = instance
        for stream in STREAMS:
            gates += 1
            ready, valid = (re.search(rf"\.{stream}__{name}\((.*?)\)[,\n]", instance)[1]
                            for name in ("ready", "valid"))
            new = new.replace(f".{stream}__ready({ready})",
                              f".{stream}__ready({ready} && open_{gates})")
            new = new.replace(f".{stream}__valid({valid})", f".{stream}__valid(raw_{gates})")
            new = f"  wire raw_{gates};\n  wire open_{gates};\n" + new
            new += (f"  assign {valid} = raw_{gates} && open_{gates};\n"
                    f"  late #(.SEED({1000 + gates})) late_{gates} (.clk(clk), .valid({valid}), "
                    f".ready({ready}), .open(open_{gates}));\n")
        text = text.replace(instance, new)
    assert gates == 8
    return text + GATE


@cache
def patched() -> str:
    """Verilog of `TINY`; with none of `FAULTS` and `LATE` it does what the generated one does."""
    return _delayed(_faulty(verilog(TINY)))
