"""Classes of VECTOR's functions, as decoder and sequencer see them."""

from amaranth.hdl import Cat, Value

from hw.isa import Function

LOSSES = (Function.SOFTMAX, Function.MSE)
ROWS = (Function.ROW_MEAN, Function.ROW_MAX)
#: Functions with state, in set 0.
REDUCING = (Function.COLUMN_SUM, *ROWS, *LOSSES)
#: W is one row of tiles.
BROADCAST = (Function.BIAS, Function.BIAS_RELU)
#: Functions with an operand W (SOFTMAX in its last turn only).
TWO_OPERANDS = (Function.ADD, Function.SUB, Function.MUL, Function.RELU_GRAD, *BROADCAST,
                *LOSSES, Function.SGD)


def is_one_of(function: Value, *functions: Function) -> Value:
    """Whether `function` is one of `functions`."""
    return Cat(function == f.value for f in functions).any()
