"""Measures serving with and without training on the RTL.

`Colocation` measures what the machine can do alone: full batches a clock, training steps a clock.
`Colocation.serve` runs one arrival sequence twice, without and with training, and compares.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from hw.config import Config
from hw.regs import UNITS
from sw.compiler.network import Network
from sw.nn.parameters import Parameters
from sw.runtime.backends import Timing
from sw.runtime.server import Scheduling, Served, Server, TrainingJob, together

#: Full batches from which the capacity is measured.
FULL_BATCHES = 6
#: Clocks over which the units' use is summed.
BUCKET = 512
PERCENTILES = {"p50": 50, "p99": 99, "p999": 99.9, "max": 100}
TRAINING, INFERENCE = 0, 1


def percentiles(values: np.ndarray) -> dict[str, int]:
    """p50, p99, p99.9 and maximum; each is a value that occurs."""
    return {name: int(np.percentile(values, p, method="higher"))
            for name, p in PERCENTILES.items()}


def shares(served: Served) -> dict[str, tuple[float, float]]:
    """Part of the clocks until the last completion in which each unit worked, by context.

    The units of `hw.regs.UNITS` in small letters, and "bus": READ and WRITE together.
    """
    use = served.log.use
    use = use[use[:, 0] <= max(served.clocks, BUCKET)]
    clocks = use[-1, 0] if len(use) else 1
    part = {unit.lower(): tuple(float(use[:, 1 + 2 * n + c].sum() / clocks) for c in (0, 1))
            for n, (unit, _) in enumerate(UNITS)}
    part["bus"] = tuple(part["read"][c] + part["write"][c] for c in (0, 1))
    return part


def training_work(served: Served) -> tuple[np.ndarray, np.ndarray]:
    """Clocks, and the clocks in which the units have worked for training until then, summed."""
    use = served.log.use
    return (np.concatenate([[0], use[:, 0]]),
            np.concatenate([[0], np.cumsum(use[:, 1 + TRAINING::2].sum(1))]))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One arrival sequence without (`off`) and with training (`on`).

    Attributes
    ----------
    off, on : Served
        The same object if there is no training.
    busiest : str
        The unit of which inference takes the largest part: array, vector or bus.
    load : float
        That part.
    training_steps : float
        Optimizer steps until the last completion. A part of a step counts as the part of its time
        alone that the same work of all units takes then.
    training_alone : float
        Steps a clock, alone.
    match : bool
        Outputs are those of golden, requests one by one in any batch; training's memory is that of
        golden's solo run; nothing was wrong on the bus.
    """

    off: Served
    on: Served
    busiest: str
    load: float
    training_steps: float
    training_alone: float
    match: bool

    @property
    def training_rate(self) -> float:
        """Steps a clock, until the last completion."""
        return self.training_steps / self.on.clocks

    @property
    def harvest(self) -> float | None:
        """Training's rate over what the idle part of the busiest unit would give."""
        if not self.training_alone or self.load >= 1:
            return None
        return self.training_rate / (self.training_alone * (1 - self.load))


class Colocation:
    """A network to serve, maybe a training job beside, on the simulated RTL.

    Attributes
    ----------
    batch_clocks : float
        Clocks a batch when full batches follow each other, without training.
    training_alone : float
        Training's steps a clock with an idle inference context; 0 without training.
    """

    def __init__(self, cfg: Config, network: Network, parameters: Parameters, *, batch_max: int,
                 training: TrainingJob | None, timing: Timing):
        self.cfg, self.network, self.parameters = cfg, network, parameters
        self.batch_max, self.training, self.timing = batch_max, training, timing
        self._memories: dict[int, np.ndarray] = {}
        self._quiet: dict[tuple, Served] = {}
        x = np.zeros((FULL_BATCHES * batch_max, network.inputs), np.float32)
        runs = [partial(self._run, x, 0, Scheduling(), None)]
        if training:
            runs.append(partial(self._run, x[:1], 0, Scheduling(), training))
        full, *alone = together(*runs)
        launches = np.unique(full.posted + full.latency - full.service)
        self.batch_clocks = float(np.diff(launches).mean())
        self.training_alone = 0.0
        if training:
            self._alone = training_work(*alone)
            self.training_alone = training.steps / self._time_alone(self._alone[1][-1])

    def _run(self, x, clocks, scheduling, training, trace=0) -> Served:
        server = Server(self.cfg, self.network, batch_max=self.batch_max, scheduling=scheduling,
                        training=training, backend="rtl", timing=self.timing)
        server.load(self.parameters)
        server.submit(x, clocks)
        return server.wait(trace=trace, bucket=BUCKET)

    def arrivals(self, kind: str, load: float, count: int, seed: int) -> np.ndarray:
        """Clocks at which `count` requests arrive: "poisson" or "uniform" at `load` of capacity."""
        gap = self.batch_clocks / self.batch_max / load
        if kind == "uniform":
            return (gap * np.arange(count)).astype(np.int64)
        gaps = np.random.default_rng(seed).exponential(gap, count)
        return (np.cumsum(gaps) - gaps[0]).astype(np.int64)

    def serve(self, x: np.ndarray, clocks: np.ndarray, scheduling: Scheduling, *,
              trace: int = 0) -> Comparison:
        """Serve the rows of `x`, arriving at `clocks`, without and with training.

        Without training the policy changes nothing: such runs are kept.
        """
        undisturbed = replace(scheduling, policy="priority", spike_threshold=0)
        key = x.tobytes(), clocks.tobytes(), undisturbed
        runs = []
        if key not in self._quiet:
            runs.append(partial(self._run, x, clocks, undisturbed, None,
                                0 if self.training else trace))
        if self.training:
            runs.append(partial(self._run, x, clocks, scheduling, self.training, trace))
        results = together(*runs) if runs else []
        on = results.pop() if self.training else None
        if results:
            self._quiet[key], = results
        off = self._quiet[key]
        on = on or off
        part = shares(on)
        busiest = max(("array", "vector", "bus"), key=lambda unit: part[unit][INFERENCE])
        expected = self.expected(x)
        match = not (off.problems or on.problems) and all(
            _same(run.outputs, expected) for run in (off, on))
        if self.training:
            match &= np.array_equal(on.training, self._trained(on.starts))
        return Comparison(off=off, on=on, busiest=busiest, load=part[busiest][INFERENCE],
                          training_steps=self._steps(on) if self.training else 0.0,
                          training_alone=self.training_alone, match=match)

    def expected(self, x: np.ndarray) -> np.ndarray:
        """Golden: the outputs for `x`."""
        server = Server(self.cfg, self.network, batch_max=self.batch_max)
        server.load(self.parameters)
        server.submit(x)
        return server.wait().outputs

    def _trained(self, starts: int) -> np.ndarray:
        """Golden: training's memory after so many starts."""
        if starts not in self._memories:
            done = max((n for n in self._memories if n < starts), default=0)
            job = self.training
            if done:
                job = replace(job, memory=self._memories[done])
            self._memories[starts] = job.after(starts - done) if starts else job.memory
        return self._memories[starts]

    def _time_alone(self, work: float) -> float:
        """Clocks that training alone takes for so much work, of one start."""
        clocks, done = self._alone
        first = np.unique(done, return_index=True)[1]
        return float(np.interp(work, done[first], clocks[first]))

    def _steps(self, served: Served) -> float:
        """Optimizer steps of training until the last completion."""
        work = np.interp(served.clocks, *training_work(served))
        starts, rest = divmod(work, self._alone[1][-1])
        return starts * self.training.steps + self._time_alone(rest) * self.training_alone


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))
