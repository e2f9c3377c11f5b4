"""Data sets of `sw train` and `sw infer`: scikit-learn's digits, or arrays of the user's."""

from dataclasses import dataclass

import numpy as np

from hw.config import DIM_BITS
from sw.files import UsageError, read_arrays

#: Every fifth sample is for the test, where the data do not say so themselves.
TEST_EVERY = 5
LABELS = (1 << DIM_BITS) - 1


@dataclass(frozen=True)
class Part:
    """Samples and what they should give.

    `x` is float32 (samples, features). `y` is int64 (samples,), the labels; or float32 (samples,
    outputs); or None if unknown.
    """

    x: np.ndarray
    y: np.ndarray | None

    @property
    def labelled(self) -> bool:
        """Whether `y` holds labels."""
        return self.y is not None and self.y.dtype.kind == "i"

    def targets(self, outputs: int) -> np.ndarray:
        """`y` as float32 (samples, outputs); labels as ones among zeros."""
        if not self.labelled:
            return self.y
        ones = np.zeros((len(self.y), outputs), np.float32)
        ones[np.arange(len(self.y)), self.y] = 1
        return ones


@dataclass(frozen=True)
class Dataset:
    """Samples for training and for the test."""

    train: Part
    test: Part

    @property
    def outputs(self) -> int:
        """Outputs of a network for these data: classes, or columns of the targets."""
        if self.train.labelled:
            return int(max(self.train.y.max(), self.test.y.max())) + 1
        return self.train.y.shape[1]


def training_data(name: str, loss: str) -> Dataset:
    """The data set `name`, `digits` or a file, for training with `loss`.

    A file holds x_train, y_train, x_test and y_test, or x and y, of which every fifth sample is for
    the test.

    Raises
    ------
    UsageError
        The file does not hold what it should.
    """
    arrays = _digits() if name == "digits" else read_arrays(name)
    four = ("x_train", "y_train", "x_test", "y_test")
    if name != "digits" and arrays.keys() not in ({"x", "y"}, set(four)):
        raise UsageError(f"{name} must hold x and y, or {', '.join(four)}, "
                         f"not {_listed(arrays)}")
    if "x" in arrays:
        whole = _part(name, arrays, "x", "y")
        if len(whole.x) < TEST_EVERY:
            raise UsageError(f"x must have at least {TEST_EVERY} samples, of which every "
                             f"{TEST_EVERY}th is for the test, not {len(whole.x)}")
        test = np.arange(len(whole.x)) % TEST_EVERY == TEST_EVERY - 1
        data = Dataset(Part(whole.x[~test], whole.y[~test]), Part(whole.x[test], whole.y[test]))
    else:
        data = Dataset(_part(name, arrays, "x_train", "y_train"),
                       _part(name, arrays, "x_test", "y_test"))
        _agree(data)
    if loss == "cross-entropy" and not data.train.labelled:
        raise UsageError(f"--loss cross-entropy needs labels, integers 0, 1, 2..., in {name}; "
                         "for targets that are no integers use --loss mse")
    return data


def inference_data(name: str) -> Part:
    """The samples of data set `name` to predict: those for the test, or all of x.

    A file holds x_test or x; y_test or y may be missing.

    Raises
    ------
    UsageError
        The file does not hold what it should.
    """
    if name == "digits":
        return training_data(name, "cross-entropy").test
    arrays = read_arrays(name)
    for x, y in (("x_test", "y_test"), ("x", "y")):
        if x in arrays:
            return _part(name, arrays, x, y)
    raise UsageError(f"{name} must hold x or x_test, not {_listed(arrays)}")


def _digits() -> dict[str, np.ndarray]:
    """1797 handwritten digits of 8 x 8 pixels, 0 to 1."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise UsageError("--data digits needs the package scikit-learn") from None
    digits = load_digits()
    return {"x": digits.data / 16, "y": digits.target}


def _listed(arrays: dict) -> str:
    return ", ".join(sorted(arrays)) or "nothing"


def _part(name: str, arrays: dict[str, np.ndarray], x: str, y: str) -> Part:
    """Arrays `x` and, if there, `y` of file `name`, checked."""
    samples = arrays[x]
    if samples.ndim < 2 or not samples.size:
        raise UsageError(f"{x} in {name} must be samples by features, "
                         f"not {_shape(samples)}")
    samples = _numbers(name, x, samples)
    if y not in arrays:
        return Part(samples, None)
    answers = arrays[y]
    if answers.ndim not in (1, 2) or len(answers) != len(samples) or not answers.size:
        raise UsageError(f"{y} in {name} must have one label or one row of targets for each of "
                         f"the {len(samples)} samples of {x}, not {_shape(answers)}")
    if answers.dtype.kind not in "iu" or answers.ndim == 2:
        return Part(samples, _numbers(name, y, answers.reshape(len(answers), -1)))
    for label in (answers.min(), answers.max()):
        if not 0 <= label < LABELS:
            raise UsageError(f"labels in {y} in {name} must be 0..{LABELS - 1}, not {label}")
    return Part(samples, answers.astype(np.int64))


def _numbers(name: str, key: str, values: np.ndarray) -> np.ndarray:
    """`values` as float32 (samples, all else)."""
    if values.dtype.kind not in "fiub":
        raise UsageError(f"{key} in {name} must hold real numbers, not {values.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        single = values.reshape(len(values), -1).astype(np.float32)
    if not np.isfinite(single).all():
        raise UsageError(f"{key} in {name} holds NaN, infinity, or a number beyond float32")
    return single


def _agree(data: Dataset):
    """Refuse parts of different kinds or sizes."""
    train, test = data.train, data.test
    if train.x.shape[1] != test.x.shape[1]:
        raise UsageError(f"x_test must have {train.x.shape[1]} features as x_train has, "
                         f"not {test.x.shape[1]}")
    if train.labelled != test.labelled or train.y.shape[1:] != test.y.shape[1:]:
        raise UsageError("y_train and y_test must both be labels, integers in one row, or both be "
                         "targets with the same columns")


def _shape(array: np.ndarray) -> str:
    return " x ".join(map(str, array.shape)) or "a scalar"
