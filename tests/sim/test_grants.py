"""Commands that the units take 0 to 7 clocks late: the same memory, nothing lost, nothing stuck."""

import re

import numpy as np
import pytest

from hw.config import load
from hw.generate import verilog
from tb.colocation import HalfProgram, Pair
from tb.fuzz import Fuzz
from tb.runner import simulate

TINY = load("tiny")
#: Gate between a context and a unit, or the arbiter before it; appended to the Verilog.
GATE = """
module late #(parameter SEED = 1) (input wire clk, input wire valid, input wire ready,
                                   output wire open);
  reg [15:0] random;
  reg [2:0] wait_;
  initial random = SEED;
  initial wait_ = SEED;
  assign open = wait_ == 0;
  always @(posedge clk) begin
    random <= {random[14:0], random[15] ^ random[13] ^ random[12] ^ random[10]};
    if (wait_ != 0) wait_ <= wait_ - 1;
    else if (valid && ready) wait_ <= random[2:0];
  end
endmodule
"""
STREAMS = ("exec", "load", "store", "vector")


def delayed(text: str) -> str:
    """The NPU's Verilog with a gate in each command stream of both contexts."""
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


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("late") / "npu.v"
    path.write_text(delayed(verilog(TINY)))
    return path


@pytest.mark.parametrize("policy", [0, 1], ids=["priority", "fair"])
def test_random_programs(source, policy):
    pairs = []
    for seed in range(12):
        rng = np.random.default_rng(50 * policy + seed)
        programs = []
        for second in (False, True):
            program = HalfProgram(TINY, 90_000 + 2 * (50 * policy + seed) + second, second)
            programs.append((program, Fuzz(TINY, seed, program).programs[0]))
        starts = tuple(int(c) for c in rng.integers(0, 100, 2))
        pairs.append(Pair(TINY, programs, starts, [(0, "POLICY", policy)] if policy else [],
                          {"POLICY": policy}, {"latency": int(rng.choice([1, 20]))}))
    results = simulate(TINY, [pair.job for pair in pairs], source)
    problems = [f"pair {n}: {text}" for n, (pair, result) in
                enumerate(zip(pairs, results, strict=True)) for text in pair.check(result)]
    assert not problems, "\n".join(problems)
    assert sum(all(r.registers[f"{p}OPERATIONS"] for p in ("", "INFERENCE_"))
               for r in results) > 3
