"""What is trained: a chain of linear layers and a loss."""

from dataclasses import dataclass
from itertools import pairwise

from hw.config import DIM_BITS

LOSSES = ("cross-entropy", "mse")


class NetworkError(ValueError):
    """A network that cannot be trained as it is described."""


@dataclass(frozen=True)
class Linear:
    """Y = X W + bias, W of `inputs` x `outputs`; `relu`: max(Y, 0) of it.

    Raises
    ------
    NetworkError
        A size that an instruction cannot hold.
    """

    inputs: int
    outputs: int
    relu: bool = False

    def __post_init__(self):
        for name in ("inputs", "outputs"):
            value = getattr(self, name)
            if not isinstance(value, int) or not 1 <= value < 1 << DIM_BITS:
                raise NetworkError(f"{name} of a layer must be 1..{(1 << DIM_BITS) - 1}, "
                                   f"not {value!r}")


@dataclass(frozen=True)
class Network:
    """Layers from the input on, and the loss of the last one's outputs (without ReLU).

    "cross-entropy" is that of the softmax, summed over the targets; "mse" the sum of squared
    differences over the outputs, whose gradient is scaled to the mean over samples and outputs.

    Raises
    ------
    NetworkError
        No layers, layers that do not fit one another, or an unknown loss.
    """

    layers: tuple[Linear, ...]
    loss: str = "cross-entropy"

    def __post_init__(self):
        if not self.layers:
            raise NetworkError("a network must have at least one layer")
        for number, (below, above) in enumerate(pairwise(self.layers), 2):
            if above.inputs != below.outputs:
                raise NetworkError(f"layer {number} must have {below.outputs} inputs, the outputs "
                                   f"of the layer before it, not {above.inputs}")
        if self.layers[-1].relu:
            raise NetworkError("the last layer must have no ReLU: the loss takes its outputs")
        if self.loss not in LOSSES:
            raise NetworkError(f"loss must be {' or '.join(LOSSES)}, not {self.loss!r}")

    @property
    def inputs(self) -> int:
        """Columns of the data."""
        return self.layers[0].inputs

    @property
    def outputs(self) -> int:
        """Columns of the targets."""
        return self.layers[-1].outputs


def perceptron(sizes: tuple[int, ...] | list[int], loss: str = "cross-entropy") -> Network:
    """Network of `sizes` (inputs, hidden ..., outputs) with ReLU between its layers.

    Raises
    ------
    NetworkError
        Fewer than two sizes, or as `Network` does.
    """
    if len(sizes) < 2:
        raise NetworkError("a network must have at least two sizes: inputs and outputs")
    layers = [Linear(i, o, relu=True) for i, o in pairwise(sizes)]
    layers[-1] = Linear(sizes[-2], sizes[-1])
    return Network(tuple(layers), loss)
