"""Trains a network on a backend, one start of the NPU per epoch.

    network = perceptron([64, 32, 10])                       # sw.compiler.network
    trainer = Trainer(cfg, network, batch=32, samples=len(x), backend="golden", seed=1)
    trainer.set_parameters(initial(network, 1))              # sw.nn.parameters; also to resume
    epoch = trainer.run_epoch(0, x, one_hot(labels, 10), learning_rate=0.1, momentum=0.9)
    epoch.losses, epoch.counters, epoch.phases, epoch.match
    logits = trainer.evaluate(x_test)

The host writes DRAM only before a start: the epoch's samples in the order of `x`, and parameters
when they are set. The parameters in DRAM are FP32; every program makes its BFP copies of the
weights first, so that training goes on from `parameters()` as if it had never stopped. The SEED
register of an epoch follows from `seed` and the epoch's number.
"""

from dataclasses import dataclass, replace

import numpy as np

from hw.config import Config
from sw.compiler.cost import Bus
from sw.compiler.inference import InferencePlan
from sw.compiler.network import Network
from sw.compiler.share import Share
from sw.compiler.training import TrainingPlan
from sw.nn.parameters import Parameters, shapes
from sw.runtime.backends import Hyperparameters, Outcome, Timing, run
from sw.runtime.tensors import read, read_batches, write, write_batches

#: Clocks beyond which a run is given up, as a multiple of the compiler's estimate.
PATIENCE = 20


def one_hot(labels: np.ndarray, classes: int) -> np.ndarray:
    """Targets of cross-entropy: a row of `classes` float32 for each integer label.

    Raises
    ------
    ValueError
        A label outside 0 .. classes - 1.
    """
    labels = np.asarray(labels)
    if labels.size and not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"labels must be 0..{classes - 1}, not {labels.min()}..{labels.max()}")
    return np.eye(classes, dtype=np.float32)[labels]


@dataclass(frozen=True)
class Epoch:
    """One epoch.

    Attributes
    ----------
    losses : np.ndarray
        Of every sample, float32, in the order of the data.
    counters : dict
        Hardware counters by name (golden: those that do not depend on time).
    phases : dict
        Phase's name -> (clocks, clocks of ARRAY_BUSY); empty on golden.
    match : bool or None
        "rtl" with `check`: memory, counters and flags are those of golden; else None.
    difference : str or None
        If not, the first difference, naming the tensor.
    nonfinite, overflow : bool
        Sticky flags.
    """

    losses: np.ndarray
    counters: dict[str, int]
    phases: dict[str, tuple[int, int]]
    match: bool | None
    difference: str | None
    nonfinite: bool
    overflow: bool


class Trainer:
    """A network in the DRAM of one NPU.

    Parameters
    ----------
    cfg : Config
    network : Network
    batch : int
        Samples of a batch; the last one of an epoch may have fewer.
    samples : int
        Samples of an epoch.
    order, rounding : str
        As `sw.compiler.training.TrainingPlan`.
    backend : str
        "golden" or "rtl".
    check : bool
        "rtl": run every epoch on golden too and compare the whole memory.
    seed : int
        Of stochastic rounding.
    timing : Timing, optional
        The simulated memory; also what the compiler plans for.
    share : Share, optional
        On-chip slots that programs may use (default: all).

    Raises
    ------
    NetworkError, SlotError, PlanError, LayoutError
        As `sw.compiler.training.TrainingPlan`.
    """

    def __init__(self, cfg: Config, network: Network, *, batch: int, samples: int,
                 order: str = "auto", rounding: str = "even", backend: str = "golden",
                 check: bool = True, seed: int = 0, timing: Timing | None = None,
                 share: Share | None = None):
        self.cfg, self.network, self.batch, self.backend = cfg, network, batch, backend
        self.check, self.seed, self.timing = check, seed, timing or Timing()
        self._share = share
        self._bus = Bus(self.timing.latency, self.timing.bytes_per_cycle)
        self.plan = TrainingPlan(cfg, network, batch, samples, order=order, rounding=rounding,
                                 bus=self._bus, share=share)
        self._memory = self.plan.image()
        self._inference: dict[tuple[int, bool], InferencePlan] = {}

    def set_parameters(self, parameters: Parameters):
        """Write parameters and momenta (`sw.nn.parameters.shapes`); missing momenta are zero.

        Raises
        ------
        ValueError
            A missing or unknown name, or a wrong shape.
        """
        known = shapes(self.network)
        for name in parameters.keys() - known:
            raise ValueError(f"the network has no parameter {name!r}; it has {', '.join(known)}")
        for name, shape in known.items():
            if name not in parameters and "momentum" not in name:
                raise ValueError(f"parameter {name} is missing")
            values = np.asarray(parameters.get(name, np.zeros(shape)), np.float32)
            if values.shape != shape:
                raise ValueError(f"{name} must have shape {shape}, not {values.shape}")
            write(self.cfg, self._memory, self.plan.places[name], values)

    def parameters(self) -> Parameters:
        """Copies of the parameters and momenta."""
        return {name: read(self.cfg, self._memory, self.plan.places[name])
                for name in shapes(self.network)}

    def run_epoch(self, number: int, x: np.ndarray, targets: np.ndarray, *, learning_rate: float,
                  momentum: float = 0.0, weight_decay: float = 0.0) -> Epoch:
        """Train once over the rows of `x` and `targets`, in order.

        Parameters
        ----------
        number : int
            The epoch's number since the beginning of training, for the SEED register.
        x, targets : np.ndarray
            samples x inputs and samples x outputs, float32.

        Raises
        ------
        ValueError
            Arrays of another shape.
        RunError
            As `sw.runtime.backends.run`.
        """
        samples = self.plan.samples
        self._expect("x", x, (samples, self.network.inputs))
        self._expect("targets", targets, (samples, self.network.outputs))
        before, plan = self._memory.copy(), self.plan
        write_batches(self.cfg, before, plan.batches["x"], x)
        write_batches(self.cfg, before, plan.batches["targets"], targets)
        settings = {
            "seed": (self.seed + number * 0x9E3779B9) % 2**32,
            "hyperparameters": Hyperparameters(learning_rate=learning_rate, momentum=momentum,
                                               weight_decay=weight_decay)}
        after, outcome, difference = self._run(self.backend, plan, before, settings)
        self._memory = after
        names = plan.phases if outcome.phases else {}
        return Epoch(
            losses=read_batches(self.cfg, after, plan.batches["losses"])[:, 0],
            counters=outcome.counters,
            phases={name: outcome.phases[number] for number, name in names.items()},
            match=difference is None if self.backend == "rtl" and self.check else None,
            difference=difference, nonfinite=outcome.nonfinite, overflow=outcome.overflow)

    def evaluate(self, x: np.ndarray, *, rows: bool = False, backend: str | None = None) \
            -> np.ndarray:
        """Outputs of the last layer for the rows of `x` (at least one), float32.

        Parameters
        ----------
        rows : bool
            One exponent per row of the activations' tiles instead of one per tile.
        backend : str, optional
            Another backend than the trainer's.

        Raises
        ------
        ValueError
            `x` of another shape.
        RunError
            As `sw.runtime.backends.run`.
        """
        self._expect("x", x, (len(x), self.network.inputs))
        key = len(x), rows
        if key not in self._inference:
            self._inference[key] = InferencePlan(self.cfg, self.network, self.batch, len(x),
                                                 rows=rows, bus=self._bus,
                                                 share=self._share)
        return infer(self._inference[key], self.parameters(), x, backend or self.backend,
                     timing=self.timing)[0]

    def _expect(self, name: str, values: np.ndarray, shape: tuple[int, int]):
        if np.shape(values) != shape:
            raise ValueError(f"{name} must have shape {shape}, not {np.shape(values)}")

    def _run(self, backend: str, plan: TrainingPlan, before: np.ndarray, settings: dict):
        after, outcome = _run(backend, plan, before, self.timing, settings)
        if backend != "rtl" or not self.check:
            return after, outcome, None
        return after, outcome, _difference(plan, before, after, outcome, settings)


def infer(plan: InferencePlan, parameters: Parameters, x: np.ndarray, backend: str, *,
          timing: Timing | None = None, check: bool = False) \
        -> tuple[np.ndarray, Outcome, str | None]:
    """Outputs of the last layer for the rows of `x`, float32.

    Returns
    -------
    (np.ndarray, Outcome, str or None)
        With `check`, the last is the first difference between "rtl" and golden, naming the tensor.

    Raises
    ------
    RunError
        As `sw.runtime.backends.run`.
    """
    before = plan.image()
    for name in plan.parameters:
        write(plan.cfg, before, plan.places[name], parameters[name])
    write_batches(plan.cfg, before, plan.batches["x"], x, plan.rows)
    after, outcome = _run(backend, plan, before, timing or Timing(), {})
    difference = None
    if check and backend == "rtl":
        difference = _difference(plan, before, after, outcome, {})
    return read_batches(plan.cfg, after, plan.batches["logits"]), outcome, difference


def _run(backend: str, plan: TrainingPlan | InferencePlan, before: np.ndarray, timing: Timing,
         settings: dict) -> tuple[np.ndarray, Outcome]:
    patience = max(timing.timeout_cycles, int(PATIENCE * plan.clocks))
    after, outcomes = run(backend, plan.cfg, before, [plan.program],
                          timing=replace(timing, timeout_cycles=patience), **settings)
    return after, outcomes[0]


def _difference(plan: TrainingPlan | InferencePlan, before: np.ndarray, after: np.ndarray,
                outcome: Outcome, settings: dict) -> str | None:
    """First difference between a run of the RTL and the same run on golden."""
    expected, outcomes = run("golden", plan.cfg, before, [plan.program], **settings)
    differs = np.flatnonzero(after != expected)
    if len(differs):
        return f"{len(differs)} bytes differ, the first in {plan.locate(int(differs[0]))}"
    return next(iter(outcome.differences(outcomes[0])), None)
