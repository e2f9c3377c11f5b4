"""Functions of whole matrices: VECTOR and the epilogues of GEMM and GRAD.

Written from docs/numerics.md, "Functions". Matrices are float32 and canonical, and hold their
valid elements only.
"""

from dataclasses import dataclass

import numpy as np

from hw.isa import Function
from sw.golden import arithmetic, functions
from sw.golden.functions import LN2, LOG2E


@dataclass(frozen=True)
class Rates:
    """What SGD takes from registers, as FP32 numbers."""

    learning_rate: np.float32
    momentum: np.float32
    weight_decay: np.float32


class VectorUnit:
    """Applies functions; `overflow` says whether a finite operation gave Inf so far.

    Parameters
    ----------
    tile : int
        T, which fixes the order of reductions.
    rates : Rates
    """

    def __init__(self, tile: int, rates: Rates):
        self.tile, self.rates, self.overflow = tile, rates, False

    def _watched(self, outcome: tuple[np.ndarray, bool]) -> np.ndarray:
        self.overflow |= outcome[1]
        return outcome[0]

    def _add(self, a, b):
        return self._watched(arithmetic.add(a, b))

    def _mul(self, a, b):
        return self._watched(arithmetic.mul(a, b))

    def _exp2(self, a):
        return self._watched(functions.exp2(a))

    def _row_sum(self, a):
        return self._watched(functions.row_sum(a, self.tile))

    def apply(self, function: Function, x: np.ndarray, w: np.ndarray | None,
              scalar: np.float32) -> np.ndarray:
        """Y of a function of X and, where it has one, W.

        BIAS and BIAS_RELU take W of shape (1, columns). Not for SOFTMAX, MSE, SGD.
        """
        match function:
            case Function.ADD | Function.BIAS:
                return self._add(x, w)
            case Function.SUB:
                return self._add(x, -w)
            case Function.MUL:
                return self._mul(x, w)
            case Function.SCALE:
                return self._mul(x, scalar)
            case Function.RELU:
                return arithmetic.relu(x)
            case Function.RELU_GRAD:
                return arithmetic.relu_grad(x, w)
            case Function.BIAS_RELU:
                return arithmetic.relu(self._add(x, w))
            case Function.EXP:
                return self._watched(functions.exp(x))
            case Function.RECIP:
                return functions.recip(x)
            case Function.RSQRT:
                return functions.rsqrt(x)
            case Function.COLUMN_SUM:
                return self._watched(functions.column_sum(x, self.tile))
            case Function.ROW_MEAN:
                return self._mul(self._row_sum(x), scalar)
            case Function.ROW_MAX:
                return functions.row_max(x, self.tile)
        raise ValueError(f"{function} gives more than Y")

    def softmax(self, x: np.ndarray, t: np.ndarray, scalar: np.float32):
        """Gradient, and the losses of the rows as a column."""
        peak = self._mul(functions.row_max(x, self.tile), LOG2E)
        powers = self._exp2(self._add(self._mul(x, LOG2E), -peak))
        total = self._row_sum(powers)
        entropy = self._add(functions.log2(total), peak)
        shares = self._mul(powers, functions.recip(total))
        gradient = self._mul(self._add(shares, -t), scalar)
        surprise = self._mul(self._add(self._mul(x, -LOG2E), entropy), t)
        return gradient, self._mul(self._row_sum(surprise), LN2)

    def mse(self, x: np.ndarray, t: np.ndarray, scalar: np.float32):
        """Gradient, and the losses of the rows as a column."""
        difference = self._add(x, -t)
        return self._mul(difference, scalar), self._row_sum(self._mul(difference, difference))

    def sgd(self, gradient: np.ndarray, momentum: np.ndarray, weights: np.ndarray):
        """New momentum and new weights."""
        rates = self.rates
        step = self._add(self._mul(weights, rates.weight_decay), gradient)
        momentum = self._add(self._mul(momentum, rates.momentum), step)
        return momentum, self._add(weights, self._mul(momentum, -rates.learning_rate))
