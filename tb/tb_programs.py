"""Long tests: programs on the behavioural memory, compared with the golden model.

A test takes a configuration and a seed, and raises AssertionError with all that is wrong.
"""

import numpy as np

from hw.config import Config
from hw.isa import Opcode, Order
from sw.compiler.network import perceptron
from sw.compiler.slots import SlotError
from sw.nn.parameters import initial
from sw.runtime import backends
from sw.runtime.operation import Operation, Request
from sw.runtime.trainer import Trainer, one_hot
from tb import fuzz, scoreboard
from tb.job import Job
from tb.program import Program, contents

#: Beats of FP32 tile images that `random_programs` divides by an image's to get its seeds.
BEATS, MOST, LEAST = 1600, 40, 2


def _verify(cfg: Config, jobs: list[Job]) -> list[np.ndarray]:
    """Run jobs; the memory after each."""
    verdicts = scoreboard.run(cfg, jobs)
    problems = [f"job {n}: {text}" for n, v in enumerate(verdicts) for text in v.problems]
    assert not problems, "\n".join(problems)
    return [v.result.memory for v in verdicts]


def random_programs(cfg: Config, seed: int):
    """Random instructions that depend on each other, stops, resets, errors, stalls."""
    count = min(MOST, max(LEAST, BEATS // cfg.fp32_beats))
    _verify(cfg, fuzz.jobs(cfg, range(seed * MOST, seed * MOST + count)))


def gradient_orders(cfg: Config, seed: int):
    """All orders of a GRAD give the same bytes."""
    p, t = Program(cfg, seed), cfg.tile
    m, k, n = (int(t + p.rng.integers(1, 2 * t + 1)) for _ in "mkn")
    x, w, dy = p.bfp(m, k), p.bfp(k, n), p.bfp(m, n)
    results = []
    for order in Order:
        results.append((p.room(m, k, True), p.room(k, n, False)))
        p.grad(x, w, dy, *results[-1], order, stochastic=1, salt=seed)
    memory, = _verify(cfg, [p.job(p.end(), stall=0.2, seed=seed)])
    for pair in results[1:]:
        for first, other in zip(results[0], pair, strict=True):
            same = [contents(cfg, memory, matrix) for matrix in (first, other)]
            assert np.array_equal(*same), "the orders' gradients differ"


def planned_layers(cfg: Config, seed: int):
    """Layers as the compiler plans them, from FP32 matrices on."""
    rng = np.random.default_rng(seed)
    timing = backends.Timing(stall=0.1, stall_seed=seed)
    for opcode in (Opcode.GEMM, Opcode.GRAD):
        m, k, n = (int(2 * cfg.tile + rng.integers(1, cfg.tile + 1)) for _ in "mkn")
        operation = Operation(cfg, Request(opcode=opcode, m=m, k=k, n=n, stochastic=True))
        before = operation.image({name: rng.standard_normal(shape, np.float32)
                                  for name, shape in operation.request.inputs.items()})
        (golden, expected), (memory, outcomes) = (
            backends.run(backend, cfg, before, operation.programs, seed=seed, timing=timing)
            for backend in backends.BACKENDS)
        problems = [text for got, want in zip(outcomes, expected, strict=True)
                    for text in got.differences(want)]
        if len(different := np.flatnonzero(memory != golden)):
            problems.append(f"{operation.locate(int(different[0]))} differs")
        assert not problems, "\n".join(problems)


def training(cfg: Config, seed: int):
    """Two epochs of a network's training, if the accumulator has the slots that it takes."""
    rng, t = np.random.default_rng(seed), cfg.tile
    batch, samples, classes = t + 1, 2 * t + 3, 3
    network = perceptron([t + 2, int(rng.integers(2, 2 * t)), classes])
    timing = backends.Timing(latency=9, stall=0.1, stall_seed=seed)
    try:
        trainer = Trainer(cfg, network, batch=batch, samples=samples, rounding="stochastic",
                          seed=seed, backend="rtl", timing=timing)
    except SlotError:
        return
    trainer.set_parameters(initial(network, seed))
    for number in range(2):
        x = rng.standard_normal((samples, t + 2), np.float32)
        targets = one_hot(rng.integers(0, classes, samples), classes)
        epoch = trainer.run_epoch(number, x, targets, learning_rate=0.1, momentum=0.9,
                                  weight_decay=1e-3)
        assert epoch.match, epoch.difference


TESTS = (random_programs, gradient_orders, planned_layers, training)
