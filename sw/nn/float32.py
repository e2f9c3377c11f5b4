"""The same network, losses and optimizer in plain float32, for comparison."""

import numpy as np

from sw.compiler.network import Network
from sw.nn.parameters import Parameters


class Float32Trainer:
    """Trains in numpy's float32 with the batches and parameters that it is given.

    Parameters
    ----------
    network : Network
    batch : int
        Samples of a batch; the last one of an epoch may have fewer.
    """

    def __init__(self, network: Network, batch: int, parameters: Parameters):
        self.network, self.batch = network, batch
        self._p = {name: np.array(value, np.float32) for name, value in parameters.items()}

    def parameters(self) -> Parameters:
        """Copies of the parameters and momenta."""
        return {name: value.copy() for name, value in self._p.items()}

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        """Outputs of the last layer, one row a sample."""
        return self._forward(np.asarray(x, np.float32))[-1]

    def run_epoch(self, x: np.ndarray, targets: np.ndarray, *, learning_rate: float,
                  momentum: float = 0.0, weight_decay: float = 0.0) -> np.ndarray:
        """One epoch of SGD over the rows of `x` in order; returns the loss of every sample."""
        x, targets = np.asarray(x, np.float32), np.asarray(targets, np.float32)
        losses = []
        for start in range(0, len(x), self.batch):
            rows = slice(start, start + self.batch)
            loss, gradients = self.gradients(x[rows], targets[rows])
            losses.append(loss)
            for name, gradient in gradients.items():
                value = self._p[name]
                velocity = self._p[name.replace("_", "_momentum_")]
                velocity *= np.float32(momentum)
                velocity += value * np.float32(weight_decay) + gradient
                value -= np.float32(learning_rate) * velocity
        return np.concatenate(losses)

    def gradients(self, x: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, Parameters]:
        """Losses of the samples of one batch, and gradients by the parameters' names."""
        values = self._forward(x)
        loss, delta = self._loss(values[-1], targets)
        result = {}
        for number in range(len(self.network.layers), 0, -1):
            source = values[number - 1]
            result[f"weights_{number}"] = source.T @ delta
            result[f"bias_{number}"] = delta.sum(0, keepdims=True)
            delta = delta @ self._p[f"weights_{number}"].T
            if number > 1 and self.network.layers[number - 2].relu:
                delta = np.where(source > 0, delta, np.float32(0))
        return loss, result

    def _forward(self, x: np.ndarray) -> list[np.ndarray]:
        """Input, then the output of every layer."""
        values = [x]
        for number, layer in enumerate(self.network.layers, 1):
            y = values[-1] @ self._p[f"weights_{number}"] + self._p[f"bias_{number}"]
            values.append(np.maximum(y, 0) if layer.relu else y)
        return values

    def _loss(self, y: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Losses of the samples and gradient of their mean by `y`."""
        if self.network.loss == "mse":
            d = y - targets
            return (d * d).sum(1), d * np.float32(2 / d.size)
        shifted = y - y.max(1, keepdims=True)
        exps = np.exp(shifted)
        total = exps.sum(1, keepdims=True)
        loss = ((np.log(total) - shifted) * targets).sum(1)
        return loss, (exps / total - targets) * np.float32(1 / len(y))
