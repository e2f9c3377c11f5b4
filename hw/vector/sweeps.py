"""Functions as lists of sweeps (docs/architecture.md, "Vector unit").

One sweep computes, for every row of a tile, `to = function(x * factor + addend)` or
`to = function(max(x * factor, addend))`. This is all that the unit knows about a function.
"""

from dataclasses import dataclass, fields, replace

from amaranth.hdl import unsigned
from amaranth.lib import data, enum

from hw.isa import Function
from hw.numerics.functions import Table
from hw.vector.lane import Addend, Factor


class Tile(enum.Enum, shape=unsigned(3)):
    """A tile of the command."""

    A = 0
    B = 1
    C = 2
    T0 = 3
    T1 = 4


class Number(enum.Enum, shape=unsigned(4)):
    """Number that all lanes multiply with (Factor.UNIFORM)."""

    ONE = 0
    LOG2E = 1
    MINUS_LOG2E = 2
    LN2 = 3
    SCALAR = 4  #: Of the command.
    WEIGHT_DECAY = 5
    MOMENTUM = 6
    MINUS_RATE = 7
    STATISTIC = 8  #: The row's.


class Second(enum.Enum, shape=unsigned(3)):
    """Where the second operand comes from."""

    NONE = 0  #: There is none.
    ROW = 1  #: The same row of tile `y`.
    FIRST = 2  #: One row of tile `y` for all: row `b_row` of the command.
    BELOW = 3  #: Row r + h of tile `y`: the sweep is repeated for h = W/2 .. 1, for rows r < h.
    RIGHT = 4  #: Column c + h of x: the same over the columns.


class Columns(enum.Enum, shape=unsigned(2)):
    """Columns that a sweep computes; it writes those beyond as +0, as -Inf if `maximum`.

    With Second.RIGHT they are the first h.
    """

    VALID = 0  #: Those of the command.
    ALL = 1  #: All T; beyond those of the command, x counts as +0, as -Inf if `maximum`.
    ONE = 2  #: Column 0.


class Statistic(enum.Enum, shape=unsigned(2)):
    """A number per row that the unit keeps between the turns of SOFTMAX; docs/numerics.md."""

    NONE = 0
    P = 1
    R = 2
    H = 3


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One sweep; the fields are those of `SWEEP`."""

    to: Tile
    x: Tile
    y: Tile = Tile.A
    second: Second = Second.NONE
    factor: Factor = Factor.UNIFORM
    number: Number = Number.ONE
    addend: Addend = Addend.NONE
    negate: bool = False  #: The addend is subtracted.
    maximum: bool = False
    function: Table = Table.IDENTITY
    log2: bool = False  #: The result is log2(x), in column 0.
    columns: Columns = Columns.VALID
    whole: bool = False  #: All T rows, not those of the command.
    read: Statistic = Statistic.NONE
    keep: Statistic = Statistic.NONE  #: Column 0 of the result becomes this one.
    follows: bool = True  #: Uses what earlier sweeps have written.
    end: bool = False  #: Last of the command.


SWEEP = data.StructLayout({
    "to": Tile, "x": Tile, "y": Tile, "second": Second, "factor": Factor, "number": Number,
    "addend": Addend, "negate": 1, "maximum": 1, "function": Table, "log2": 1,
    "columns": Columns, "whole": 1, "read": Statistic, "keep": Statistic, "follows": 1, "end": 1,
})
assert [f.name for f in fields(Sweep)] == list(SWEEP.members)

A, B, C, T0, T1 = Tile
_ADD_ROW = dict(second=Second.ROW, addend=Addend.SECOND)
_BIAS = dict(to=A, x=A, y=B, second=Second.FIRST, addend=Addend.SECOND)

_ELEMENTWISE = {
    Function.ADD: [Sweep(to=A, x=A, y=B, **_ADD_ROW)],
    Function.SUB: [Sweep(to=A, x=A, y=B, negate=True, **_ADD_ROW)],
    Function.MUL: [Sweep(to=A, x=A, y=B, second=Second.ROW, factor=Factor.SECOND)],
    Function.SCALE: [Sweep(to=A, x=A, number=Number.SCALAR)],
    Function.RELU: [Sweep(to=A, x=A, function=Table.RELU)],
    Function.RELU_GRAD: [Sweep(to=A, x=A, y=B, second=Second.ROW, factor=Factor.GATE)],
    Function.BIAS: [Sweep(**_BIAS)],
    Function.BIAS_RELU: [Sweep(**_BIAS, function=Table.RELU)],
    Function.EXP: [Sweep(to=A, x=A, number=Number.LOG2E, function=Table.EXP2)],
    Function.RECIP: [Sweep(to=A, x=A, function=Table.RECIP)],
    Function.RSQRT: [Sweep(to=A, x=A, function=Table.RSQRT)],
    Function.SGD: [
        Sweep(to=A, x=C, number=Number.WEIGHT_DECAY, y=A, **_ADD_ROW),
        Sweep(to=B, x=B, number=Number.MOMENTUM, y=A, **_ADD_ROW),
        Sweep(to=C, x=B, number=Number.MINUS_RATE, y=C, **_ADD_ROW),
    ],
}


def _accumulate(to: Tile, first: bool, **sweep) -> Sweep:
    """A result that begins a reduction, or the same added to (or compared with) what is there."""
    if first:
        return Sweep(to=to, **sweep)
    return Sweep(to=to, y=to, columns=Columns.ALL, **_ADD_ROW, **sweep)


def _fold(tile: Tile, **sweep) -> Sweep:
    """The columns of a tile combined in pairs, until the result is in column 0."""
    return Sweep(to=tile, x=tile, second=Second.RIGHT, addend=Addend.SECOND, **sweep)


def _softmax(turn: int, first: bool, last: bool) -> list[Sweep]:
    power = dict(x=A, number=Number.LOG2E, addend=Addend.STATISTIC, negate=True,
                 read=Statistic.P, function=Table.EXP2)
    if turn == 0:
        sweeps = [_accumulate(T0, first, x=A, maximum=True)]
        closing = [_fold(T0, maximum=True),
                   Sweep(to=T0, x=T0, number=Number.LOG2E, columns=Columns.ONE, keep=Statistic.P)]
    elif turn == 1:
        sweeps = [Sweep(to=T0, **power)] if first else \
            [Sweep(to=A, **power), _accumulate(T0, False, x=A)]
        closing = [_fold(T0),
                   Sweep(to=T1, x=T0, function=Table.RECIP, columns=Columns.ONE,
                         keep=Statistic.R),
                   Sweep(to=T0, x=T0, log2=True, columns=Columns.ONE),
                   Sweep(to=T0, x=T0, columns=Columns.ONE, addend=Addend.STATISTIC,
                         read=Statistic.P, keep=Statistic.H)]
    else:
        loss = [Sweep(to=T0, x=T0, y=B, second=Second.ROW, factor=Factor.SECOND)]
        sweeps = [Sweep(to=T0, x=A, number=Number.MINUS_LOG2E, addend=Addend.STATISTIC,
                        read=Statistic.H),
                  *([replace(loss[0], to=T1)] if first else
                    [*loss, _accumulate(T1, False, x=T0)]),
                  Sweep(to=A, **power),
                  Sweep(to=A, x=A, number=Number.STATISTIC, read=Statistic.R, y=B, negate=True,
                        **_ADD_ROW),
                  Sweep(to=A, x=A, number=Number.SCALAR)]
        closing = [_fold(T1), Sweep(to=T1, x=T1, number=Number.LN2, columns=Columns.ONE)]
    return sweeps + (closing if last else [])


def _reduction(function: Function, first: bool, last: bool) -> list[Sweep]:
    if function is Function.COLUMN_SUM:
        sweeps = [Sweep(to=T0, x=A, whole=True)] if first else \
            [Sweep(to=T0, x=A, y=T0, **_ADD_ROW)]
        closing = [Sweep(to=T0, x=T0, y=T0, second=Second.BELOW, addend=Addend.SECOND)]
    elif function is Function.ROW_MEAN:
        sweeps = [_accumulate(T0, first, x=A)]
        closing = [_fold(T0), Sweep(to=T0, x=T0, number=Number.SCALAR, columns=Columns.ONE)]
    elif function is Function.ROW_MAX:
        sweeps = [_accumulate(T0, first, x=A, maximum=True)]
        closing = [_fold(T0, maximum=True)]
    else:  # MSE
        square = Sweep(to=A, x=A, factor=Factor.SQUARE)
        sweeps = [Sweep(to=A, x=A, y=B, negate=True, **_ADD_ROW),
                  replace(square, to=T1) if first else
                  Sweep(to=T1, x=A, factor=Factor.SQUARE, y=T1, columns=Columns.ALL, **_ADD_ROW),
                  Sweep(to=A, x=A, number=Number.SCALAR)]
        closing = [_fold(T1)]
    return sweeps + (closing if last else [])


def sweeps(function: Function, turn: int, first: bool, last: bool) -> list[Sweep]:
    """The sweeps of a command, in order."""
    if function in _ELEMENTWISE:
        found = _ELEMENTWISE[function]
    elif function is Function.SOFTMAX:
        found = _softmax(turn, first, last)
    else:
        found = _reduction(function, first, last)
    start = found[0]
    state = {start.x, start.y if start.second is not Second.NONE else start.x} & {T0, T1}
    found = [replace(start, follows=bool(state or start.read is not Statistic.NONE)), *found[1:]]
    return [*found[:-1], replace(found[-1], end=True)]


def programs() -> dict[tuple, list[Sweep]]:
    """Sweeps by (function, turn, first, last) of every command that exists."""
    return {(function, turn, first, last): sweeps(function, turn, first, last)
            for function in Function if function is not Function.NONE
            for turn in range(3 if function is Function.SOFTMAX else 1)
            for first in (False, True) for last in (False, True)}
