"""Trained networks in files: `model.npz`, which `sw train` writes and resumes and `sw infer` reads.

The file holds the array `header`, JSON text, and the float32 arrays of `sw.nn.parameters`: for
every layer weights, bias and their momenta; and all of them with `float32_` before their names, of
the network that was trained in float32.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from hw.config import DIM_BITS
from sw.compiler.network import Network, perceptron
from sw.data import Part
from sw.files import UsageError, read_arrays, replacing
from sw.nn.parameters import Parameters, shapes

#: Version of the file's format.
FORMAT = 1
PREFIXES = ("", "float32_")
#: Lowest and highest value of the settings that are numbers.
RANGES = {"batch": (1, (1 << DIM_BITS) - 1), "lr": (0, 1000), "momentum": (0, 1),
          "weight_decay": (0, 1), "seed": (0, 0xFFFFFFFF)}
INTEGERS = ("batch", "seed")
SETTINGS = {"loss", "order", "rounding", *RANGES}
#: What an epoch's record holds.
RECORD = {"epoch", "match", "cycles", "phases", "vector", "dram_bytes", "nonfinite_tiles",
          *(prefix + name for prefix in PREFIXES for name in ("loss", "test_loss",
                                                              "test_accuracy"))}


@dataclass(kw_only=True)
class Model:
    """A network, how it was trained, and what came of it.

    Attributes
    ----------
    sizes : list of int
        Inputs, outputs of each hidden layer, outputs.
    config, overrides : str, list of str
        Configuration of the NPU, as --config and --set give it.
    settings : dict
        loss, batch, lr, momentum, weight_decay, order, rounding, seed: the values of the flags.
    epochs : list of dict
        Records of the epochs that are finished, as in report.json.
    parameters, float32 : Parameters
        Of the NPU, and of the same network in float32.
    """

    sizes: list[int]
    config: str
    overrides: list[str]
    settings: dict
    epochs: list[dict]
    parameters: Parameters
    float32: Parameters

    @property
    def network(self) -> Network:
        """The network; NetworkError if there can be none of these sizes."""
        return perceptron(self.sizes, self.settings["loss"])

    def configuration(self, config: str | None, overrides: list[str]) -> tuple[str, list[str]]:
        """(preset, overrides) of --config and --set; without --config --set changes the model's."""
        return (config, overrides) if config else (self.config, self.overrides + overrides)

    def check_data(self, name: str, part: Part) -> None:
        """Refuse data set `name` unless its `part` fits the network.

        Raises
        ------
        UsageError
            Other features or outputs than the network has, or no labels for cross-entropy.
        """
        if part.x.shape[1] != self.sizes[0]:
            raise UsageError(f"{name} must have {self.sizes[0]} features a sample, "
                             f"as the model has inputs, not {part.x.shape[1]}")
        if part.y is None:
            return
        if not part.labelled and self.settings["loss"] == "cross-entropy":
            raise UsageError(f"y in {name} must be labels, integers 0, 1, 2..., "
                             "for a model of cross-entropy")
        if part.labelled and part.y.max() >= self.sizes[-1]:
            raise UsageError(f"labels in {name} must be 0..{self.sizes[-1] - 1}, "
                             f"as the model has outputs, not {part.y.max()}")
        if not part.labelled and part.y.shape[1] != self.sizes[-1]:
            raise UsageError(f"targets in {name} must have {self.sizes[-1]} columns, "
                             f"as the model has outputs, not {part.y.shape[1]}")

    def save(self, path: Path) -> None:
        """Write the file; it replaces an older one at once, or not at all."""
        header = {"format": FORMAT, **asdict(self)}
        arrays = {prefix + name: value
                  for prefix, key in zip(PREFIXES, ("parameters", "float32"), strict=True)
                  for name, value in header.pop(key).items()}
        with replacing(path) as file:
            np.savez(file, header=np.array(json.dumps(header)), **arrays)


def read_model(path: str) -> Model:
    """Read a model's file.

    Raises
    ------
    UsageError
        It is no such file, or one of another format.
    OSError
        It cannot be read.
    """
    arrays = read_arrays(path)
    try:
        header = json.loads(str(arrays.pop("header")))
        version = header.pop("format")
    except (KeyError, ValueError, AttributeError, TypeError):
        raise UsageError(f"{path} is no model that `python -m sw train` wrote") from None
    if version != FORMAT:
        raise UsageError(f"{path} is a model of format {version}; this is format {FORMAT}")
    try:
        model = Model(**header, parameters={}, float32={})
        _check(model)
        for name, shape in shapes(model.network).items():
            for prefix, target in zip(PREFIXES, (model.parameters, model.float32), strict=True):
                target[name] = _array(arrays, prefix + name, shape)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is a damaged model: {error}") from None
    return model


def _check(model: Model) -> None:
    """Refuse what `Model.save` cannot have written, as ValueError."""
    for name, item in (("sizes", int), ("overrides", str), ("epochs", dict)):
        value = getattr(model, name)
        if not isinstance(value, list) or not all(type(i) is item for i in value):
            raise ValueError(f"{name} must be a list of {item.__name__}, not {value!r}")
    for name, kind in (("config", str), ("settings", dict)):
        if not isinstance(getattr(model, name), kind):
            raise ValueError(f"{name} must be {kind.__name__}, not {getattr(model, name)!r}")
    if model.settings.keys() != SETTINGS:
        raise ValueError(f"settings must be {', '.join(sorted(SETTINGS))}, "
                         f"not {', '.join(sorted(model.settings))}")
    for name, (low, high) in RANGES.items():
        value = model.settings[name]
        if type(value) not in (int, *(() if name in INTEGERS else (float,))) \
                or not low <= value <= high:
            raise ValueError(f"{name} must be {low}..{high}, not {value!r}")
    for number, record in enumerate(model.epochs, 1):
        if record.keys() != RECORD or record["epoch"] != number:
            raise ValueError(f"the record of epoch {number} is incomplete")


def _array(arrays: dict[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    value = arrays.get(name)
    if value is None or value.shape != shape or value.dtype != np.float32:
        found = "missing" if value is None else f"{value.dtype} of shape {value.shape}"
        raise ValueError(f"{name} must be float32 of shape {shape}, is {found}")
    return value
