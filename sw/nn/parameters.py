"""Parameters of a network as float32 arrays by name."""

import numpy as np

from sw.compiler.network import Network

Parameters = dict[str, np.ndarray]


def shapes(network: Network) -> dict[str, tuple[int, int]]:
    """Names and shapes of all parameters and of their momenta, layer 1 first.

    Of layer l: weights_l (inputs x outputs), bias_l (1 x outputs), weights_momentum_l and
    bias_momentum_l.
    """
    result = {}
    for number, layer in enumerate(network.layers, 1):
        for state in ("", "momentum_"):
            result[f"weights_{state}{number}"] = (layer.inputs, layer.outputs)
            result[f"bias_{state}{number}"] = (1, layer.outputs)
    return result


def initial(network: Network, seed: int) -> Parameters:
    """Weights from a normal distribution (He's variance before a ReLU, else 1 / inputs), else 0."""
    rng = np.random.default_rng(seed)
    result = {name: np.zeros(shape, np.float32) for name, shape in shapes(network).items()}
    for number, layer in enumerate(network.layers, 1):
        scale = np.sqrt((2 if layer.relu else 1) / layer.inputs)
        weights = rng.standard_normal((layer.inputs, layer.outputs)) * scale
        result[f"weights_{number}"] = weights.astype(np.float32)
    return result
