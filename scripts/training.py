"""A training step on the RTL of `edge`: its clocks, and its DRAM traffic by gradient order.

``python -m scripts.training``: the network 64-256-256-10, batch 64, on four batches of
scikit-learn's digits; memory of 16 bytes per cycle and 100 cycles of latency. Every run's memory,
counters and flags are compared with the golden model. Prints Markdown tables. In 256 KiB of
scratchpad the tensors of a layer fit, and every order reads each tile once; so orders are compared
in less too.
"""

import sys
from collections import Counter

import numpy as np

from hw.config import load
from hw.isa import Kind, Opcode
from sw.compiler.network import perceptron
from sw.compiler.planner import ORDERS
from sw.data import training_data
from sw.golden.program import steps
from sw.nn.parameters import initial
from sw.runtime.backends import Timing
from sw.runtime.trainer import Epoch, Trainer, one_hot

#: Scratchpads in which orders are compared.
SCRATCHPADS = ("spad_kib=256", "spad_kib=32", "spad_kib=16")
CONFIG, SIZES, BATCH, BATCHES = "edge", [64, 256, 256, 10], 64, 4
TIMING = Timing(latency=100, bytes_per_cycle=16)


def train(order: str, *overrides: str) -> tuple[Trainer, Epoch]:
    """One epoch with gradients in `order`.

    Raises
    ------
    SystemExit
        The RTL differs from the golden model.
    """
    network = perceptron(SIZES)
    data = training_data("digits", "cross-entropy").train
    targets = one_hot(data.y, SIZES[-1])
    samples = BATCH * BATCHES
    trainer = Trainer(load(CONFIG, overrides), network, batch=BATCH, samples=samples, order=order,
                      backend="rtl", timing=TIMING)
    trainer.set_parameters(initial(network, 0))
    epoch = trainer.run_epoch(0, data.x[:samples], targets[:samples], learning_rate=0.1,
                              momentum=0.9)
    if not epoch.match:
        raise SystemExit(f"{order}: {epoch.difference}")
    return trainer, epoch


def backward(trainer: Trainer) -> Counter:
    """DRAM bytes of the epoch's GRADs by (direction, kind), from the program's trace."""
    total = Counter()
    plan = trainer.plan
    for step in steps(plan.cfg, plan.image(), plan.program):
        if step.walk and step.fields["opcode"] == Opcode.GRAD.value:
            for access in step.walk.accesses:
                total["write" if access.write else "read", access.kind] += access.total
    return total


def phase_table(epoch: Epoch) -> None:
    """Print clocks and array use by phase."""
    print("| phase | cycles per step | share | array busy |\n| --- | --- | --- | --- |")
    total = epoch.counters["CYCLES_TOTAL"]
    for name, (cycles, busy) in (*epoch.phases.items(),
                                 ("all", (total, epoch.counters["ARRAY_BUSY"]))):
        if cycles:
            print(f"| {name} | {cycles / BATCHES:,.0f} | {cycles / total:.1%} "
                  f"| {busy / cycles:.1%} |")
    counters = epoch.counters
    moved = sum(n for name, n in counters.items() if name.startswith(("READ_", "WRITE_")))
    beside = counters["VECTOR_OVERLAP"] / counters["VECTOR_BUSY"]
    print(f"\nDRAM: {moved / BATCHES:,.0f} bytes per step, "
          f"{moved / TIMING.bytes_per_cycle / total:.1%} of what the memory can move.\n"
          f"Vector unit: busy {counters['VECTOR_BUSY'] / total:.1%} of all cycles, {beside:.1%} of "
          "them beside the array.\n")


def order_table(scratchpad: str) -> bool:
    """Print DRAM bytes of the backward pass by order; whether the weights are the same in all."""
    print(f"| {scratchpad}, order | cycles per step | backward: bytes per step | of dY read "
          "| of partial sums | saved |\n| --- | --- | --- | --- | --- | --- |")
    weights, first = set(), None
    for order in ORDERS:
        trainer, epoch = train(order, scratchpad)
        traffic = backward(trainer)
        total = sum(traffic.values())
        first = first or total
        partial = traffic["read", Kind.PARTIAL] + traffic["write", Kind.PARTIAL]
        print(f"| {order} | {epoch.counters['CYCLES_TOTAL'] / BATCHES:,.0f} "
              f"| {total / BATCHES:,.0f} | {traffic['read', Kind.DY] / BATCHES:,.0f} "
              f"| {partial / BATCHES:,.0f} | {1 - total / first:.1%} |", flush=True)
        weights.add(b"".join(np.ascontiguousarray(v).tobytes()
                             for v in trainer.parameters().values()))
    print()
    return len(weights) == 1


def main() -> int:
    """Print the tables; returns 1 if the orders' weights differ."""
    print(f"{'-'.join(map(str, SIZES))}, batch {BATCH}, {CONFIG}, memory of "
          f"{TIMING.bytes_per_cycle} bytes per cycle\n")
    phase_table(train("auto")[1])
    same = all([order_table(scratchpad) for scratchpad in SCRATCHPADS])
    print(f"RTL's memory, byte counters and flags equal to golden's: yes. Weights the same in "
          f"all orders: {'yes' if same else 'NO'}.")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
