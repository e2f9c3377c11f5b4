"""One epoch of `sw train`: on the backend and in float32, with the test after it."""

import numpy as np

from hw.config import Config
from hw.isa import Kind
from sw.commands.report import measures
from sw.compiler.inference import InferencePlan
from sw.data import Dataset
from sw.model import Model
from sw.nn.float32 import Float32Trainer
from sw.runtime.trainer import Epoch, Trainer, infer


class Training:
    """A model in training on a backend, beside the same network in float32.

    Raises
    ------
    ValueError
        As the compiler does.
    """

    def __init__(self, cfg: Config, model: Model, data: Dataset, backend: str):
        self.model, self.data, self.backend = model, data, backend
        network, settings = model.network, model.settings
        self.targets = data.train.targets(model.sizes[-1])
        self.trainer = Trainer(cfg, network, batch=settings["batch"], samples=len(data.train.x),
                               order=settings["order"], rounding=settings["rounding"],
                               backend=backend, seed=settings["seed"])
        self.trainer.set_parameters(model.parameters)
        self.float32 = Float32Trainer(network, settings["batch"], model.float32)
        self.test = InferencePlan(cfg, network, settings["batch"], len(data.test.x))

    def run_epoch(self) -> str | None:
        """Train for an epoch in an order that follows from seed and epoch, test, and record it.

        Returns
        -------
        str or None
            The first difference between the RTL and the golden model. Then the model keeps the
            parameters of the epoch before.

        Raises
        ------
        RunError
            As `sw.runtime.backends.run`.
        """
        model, settings = self.model, self.model.settings
        number = len(model.epochs)
        rows = np.random.default_rng([settings["seed"], number]).permutation(len(self.targets))
        batches = self.data.train.x[rows], self.targets[rows]
        rates = {"learning_rate": settings["lr"], "momentum": settings["momentum"],
                 "weight_decay": settings["weight_decay"]}
        epoch = self.trainer.run_epoch(number, *batches, **rates)
        parameters = self.trainer.parameters()
        logits, _, difference = infer(self.test, parameters, self.data.test.x, self.backend,
                                      check=True)
        difference = epoch.difference or (difference and f"in the test: {difference}")
        with np.errstate(all="ignore"):
            losses = self.float32.run_epoch(*batches, **rates)
            record = {"epoch": number + 1, **self._measures("", epoch.losses, logits),
                      **self._measures("float32_", losses,
                                       self.float32.evaluate(self.data.test.x)),
                      **_counts(epoch), "match": epoch.match and difference is None}
        model.epochs.append(record)
        if difference is None:
            model.parameters, model.float32 = parameters, self.float32.parameters()
        return difference

    def _measures(self, prefix: str, losses: np.ndarray, logits: np.ndarray) -> dict:
        loss = self.model.settings["loss"]
        mean = losses.astype(np.float64).mean()
        test_loss, share = measures(logits, self.data.test, loss)
        return {f"{prefix}loss": float(mean / (logits.shape[1] if loss == "mse" else 1)),
                f"{prefix}test_loss": test_loss, f"{prefix}test_accuracy": share}


def _counts(epoch: Epoch) -> dict:
    """What the hardware counted in an epoch."""
    counters = epoch.counters
    cycles = counters.get("CYCLES_TOTAL")
    phases, vector = None, None
    if cycles is not None:
        phases = [{"layer": name.rpartition(" ")[0] or None, "phase": name.rpartition(" ")[2],
                   "cycles": clocks, "busy": busy}
                  for name, (clocks, busy) in epoch.phases.items()]
        vector = {"busy": counters["VECTOR_BUSY"], "overlap": counters["VECTOR_OVERLAP"]}
    return {"cycles": cycles, "phases": phases, "vector": vector,
            "dram_bytes": {way.lower(): {kind.name: counters[f"{way}_{kind.name}"] for kind in Kind
                                         if counters[f"{way}_{kind.name}"]}
                           for way in ("READ", "WRITE")},
            "nonfinite_tiles": counters["NONFINITE_TILES"]}
