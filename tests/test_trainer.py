"""Training on the golden model: close to float32, the same in every order, exact on resuming."""

import re
from dataclasses import replace

import numpy as np
import pytest

from hw.config import Config, load
from sw.compiler.network import perceptron
from sw.nn.float32 import Float32Trainer
from sw.nn.parameters import initial, shapes
from sw.runtime.backends import run
from sw.runtime.trainer import Trainer, one_hot

TINY = load("tiny")


def data(network, samples, seed=0):
    """Inputs of a teacher's classes, or its outputs."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((samples, network.inputs)).astype(np.float32)
    y = np.tanh(x @ rng.standard_normal((network.inputs, network.outputs)) / 2)
    if network.loss == "mse":
        return x, y.astype(np.float32)
    return x, one_hot(y.argmax(1), network.outputs)


def trainer(network, batch, samples, cfg=TINY, parameters=None, **options):
    result = Trainer(cfg, network, batch=batch, samples=samples, **options)
    result.set_parameters(parameters or initial(network, 1))
    return result


def distance(a, b):
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@pytest.mark.parametrize(("sizes", "loss", "batch", "samples"), [
    ((12, 9, 5), "cross-entropy", 8, 50),         # a smaller last batch
    ((12, 9, 5), "mse", 8, 64),
    ((7, 3), "cross-entropy", 16, 48),            # one layer
    ((7, 1), "mse", 5, 48),
    ((6, 10, 11, 9, 5), "cross-entropy", 16, 90),  # four
    ((12, 9, 5), "cross-entropy", 1, 30),         # batches of one
    ((12, 9, 5), "cross-entropy", 64, 30),        # only a smaller batch
], ids=str)
def test_training_learns(sizes, loss, batch, samples):
    network = perceptron(sizes, loss)
    x, targets = data(network, samples)
    npu = trainer(network, batch, samples)
    reference = Float32Trainer(network, batch, npu.parameters())
    means, expected = [], []
    for number in range(6):
        epoch = npu.run_epoch(number, x, targets, learning_rate=0.05, momentum=0.5)
        assert not epoch.nonfinite
        assert not epoch.overflow
        assert epoch.match is None
        assert epoch.losses.shape == (samples,)
        means.append(float(epoch.losses.mean()))
        expected.append(float(reference.run_epoch(x, targets, learning_rate=0.05,
                                                  momentum=0.5).mean()))
    assert means[-1] < 0.9 * means[0]
    assert np.allclose(means, expected, rtol=0.2)
    outputs = npu.evaluate(x)
    assert distance(outputs, reference.evaluate(x)) < 0.2


@pytest.mark.parametrize("cfg", [TINY, load("small45"), Config(tile=5, mant_width=12, acc_kib=1),
                                 Config(tile=16, spad_kib=1, acc_kib=4, acc_banks=2)],
                         ids=lambda c: f"T{c.tile}m{c.mant_width}")
@pytest.mark.parametrize("loss", ["cross-entropy", "mse"])
def test_gradients_are_close_to_float32(cfg, loss):
    """One step with learning rate 1: the gradients are what the weights lose.

    Below a ReLU most of the difference are activations near zero that round to zero.
    """
    network = perceptron([50, 37, 20, 11], loss)
    x, targets = data(network, 53)
    npu = trainer(network, 53, 53, cfg)
    before = npu.parameters()
    losses, gradients = Float32Trainer(network, 53, before).gradients(x, targets)
    epoch = npu.run_epoch(0, x, targets, learning_rate=1.0)
    after = npu.parameters()
    last, below = (0.04, 0.15) if cfg.mant_width == 8 else (0.003, 0.01)
    assert distance(epoch.losses, losses) < last
    for name, gradient in gradients.items():
        limit = last if name.endswith("3") else below
        assert distance(before[name] - after[name], gradient) < limit, name
        assert distance(after[name.replace("_", "_momentum_")], gradient) < limit


@pytest.mark.parametrize("rounding", ["even", "stochastic"])
def test_orders_give_the_same_weights(rounding):
    network = perceptron([22, 19, 9, 5])
    x, targets = data(network, 26)
    results = []
    for order in ("sequential", "interleaved", "dx-major", "dw-major", "paper", "auto"):
        npu = trainer(network, 10, 26, order=order, rounding=rounding, seed=3)
        epoch = npu.run_epoch(0, x, targets, learning_rate=0.1, momentum=0.9, weight_decay=0.01)
        results.append(npu.parameters() | {"losses": epoch.losses})
    for other in results[1:]:
        for name, value in results[0].items():
            assert np.array_equal(other[name].view(np.uint32), value.view(np.uint32)), name


@pytest.mark.parametrize("rounding", ["even", "stochastic"])
def test_training_resumes_exactly(rounding):
    """With the parameters alone, another trainer goes on to the same bits."""
    network = perceptron([12, 9, 5])
    x, targets = data(network, 20)
    settings = {"learning_rate": 0.1, "momentum": 0.9}
    whole = trainer(network, 8, 20, rounding=rounding, seed=7)
    whole.run_epoch(0, x, targets, **settings)
    part = trainer(network, 8, 20, rounding=rounding, seed=7, parameters=whole.parameters())
    outputs = whole.evaluate(x)
    assert np.array_equal(part.evaluate(x), outputs)
    for t in (whole, part):
        t.run_epoch(1, x, targets, **settings)
    for name, value in whole.parameters().items():
        assert np.array_equal(part.parameters()[name], value), name


def test_stochastic_rounding_follows_seed_and_epoch():
    network = perceptron([12, 9, 5])
    x, targets = data(network, 20)

    def weights(seed, number):
        t = trainer(network, 8, 20, rounding="stochastic", seed=seed)
        t.run_epoch(number, x, targets, learning_rate=0.1)
        return t.parameters()["weights_1"]

    assert np.array_equal(weights(1, 0), weights(1, 0))
    assert not np.array_equal(weights(1, 0), weights(1, 1))
    assert not np.array_equal(weights(1, 0), weights(2, 0))


def test_weight_decay_and_momentum():
    """Without a gradient weights decay as SGD says."""
    network = perceptron([4, 4], "mse")
    npu = trainer(network, 4, 4)
    before = npu.parameters()["weights_1"]
    zero = np.zeros((4, 4), np.float32)
    npu.run_epoch(0, zero, zero, learning_rate=0.5, weight_decay=0.25)
    assert np.allclose(npu.parameters()["weights_1"], before * 0.875, rtol=1e-6)
    npu.run_epoch(1, zero, zero, learning_rate=0.5, momentum=0.5)
    assert np.allclose(npu.parameters()["weights_1"], before * (0.875 - 0.0625), rtol=1e-6)


@pytest.mark.parametrize("count", [1, 8, 19])
def test_row_exponents_are_closer_than_square_ones(count):
    network = perceptron([40, 30, 10])
    npu = trainer(network, 8, 8)
    x = data(network, count)[0] * np.exp2(np.arange(count) % 4 * 3)[:, None].astype(np.float32)
    exact = Float32Trainer(network, 8, npu.parameters()).evaluate(x)
    rows, square = (npu.evaluate(x, rows=rows) for rows in (True, False))
    assert rows.shape == (count, 10)
    small = np.arange(count) % 4 == 0
    if count > 1:
        assert distance(rows[small], exact[small]) < 0.5 * distance(square[small], exact[small])
    assert distance(rows, exact) < 0.05


@pytest.mark.parametrize(("sizes", "batch", "samples", "options", "loss"), [
    ((12, 9, 5), 6, 14, {"order": "interleaved"}, "cross-entropy"),
    ((22, 19, 9, 7, 5), 10, 24, {"rounding": "stochastic"}, "mse"),
    ((9, 3), 1, 3, {"order": "dw-major"}, "mse"),
], ids=str)
def test_rtl_trains_to_the_same_bits(sizes, batch, samples, options, loss):
    network = perceptron(sizes, loss)
    x, targets = data(network, samples)
    npu = trainer(network, batch, samples, backend="rtl", seed=5, **options)
    epoch = npu.run_epoch(0, x, targets, learning_rate=0.1, momentum=0.9, weight_decay=0.01)
    assert epoch.match, epoch.difference
    assert epoch.phases.keys() == set(npu.plan.phases.values())
    total = sum(clocks for clocks, _ in epoch.phases.values())
    assert 0 <= epoch.counters["CYCLES_TOTAL"] - total < 1000
    assert sum(busy for _, busy in epoch.phases.values()) == epoch.counters["ARRAY_BUSY"]
    assert np.array_equal(npu.evaluate(x), npu.evaluate(x, backend="golden"))


@pytest.mark.parametrize(("wrong", "message"), [
    ("memory", "2 bytes differ, the first in weights_2, tile (0, 0), byte 5"),
    ("counter", "READ_W is 1, not "), ("bus", "burst not aligned to a beat")])
def test_differences_are_named(monkeypatch, wrong, message):
    """A run that differs from golden in one way."""
    network = perceptron([6, 5, 4])
    x, targets = data(network, 10)
    npu = trainer(network, 4, 10, backend="rtl")

    def wrong_rtl(backend, *arguments, timing=None, **settings):
        memory, (outcome,) = run("golden", *arguments, **settings)
        if backend == "rtl" and wrong == "memory":
            memory[npu.plan.places["weights_2"].addr + np.array([5, 8])] ^= 1
        elif backend == "rtl" and wrong == "counter":
            outcome = replace(outcome, counters=outcome.counters | {"READ_W": 1})
        elif backend == "rtl":
            outcome = replace(outcome, problems=["burst not aligned to a beat"])
        return memory, [outcome]

    monkeypatch.setattr("sw.runtime.trainer.run", wrong_rtl)
    epoch = npu.run_epoch(0, x, targets, learning_rate=0.1)
    assert epoch.match is False
    assert epoch.difference.startswith(message)


@pytest.mark.parametrize(("call", "message"), [
    (lambda t: t.run_epoch(0, np.zeros((9, 4)), np.zeros((8, 3)), learning_rate=1),
     "x must have shape (8, 4), not (9, 4)"),
    (lambda t: t.run_epoch(0, np.zeros((8, 4)), np.zeros((8, 4)), learning_rate=1),
     "targets must have shape (8, 3), not (8, 4)"),
    (lambda t: t.evaluate(np.zeros((2, 5))), "x must have shape (2, 4), not (2, 5)"),
    (lambda t: t.set_parameters({"weights_1": np.zeros((4, 3))}), "parameter bias_1 is missing"),
    (lambda t: t.set_parameters({"weights_3": 1}),
     "the network has no parameter 'weights_3'; it has weights_1, bias_1, "),
    (lambda t: t.set_parameters({n: np.zeros((2, 2)) for n in ("weights_1", "bias_1")}),
     "weights_1 must have shape (4, 3), not (2, 2)"),
    (lambda _: one_hot(np.array([0, 5]), 5), "labels must be 0..4, not 0..5"),
])
def test_mistakes_are_named(call, message):
    npu = trainer(perceptron([4, 3]), 4, 8)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        call(npu)


def test_parameters_have_names_and_shapes():
    network = perceptron([4, 3, 2])
    assert list(shapes(network))[:4] == ["weights_1", "bias_1", "weights_momentum_1",
                                         "bias_momentum_1"]
    values = initial(network, 5)
    assert {n: v.shape for n, v in values.items()} == shapes(network)
    assert trainer(network, 2, 2, parameters=values).parameters().keys() == values.keys()
