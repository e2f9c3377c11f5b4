"""A network and its data to one program: an epoch of SGD.

A step, with G the GRAD of a layer, C and B its bias's gradient and update, U the update of its
weights:

    forward 1 .. L | loss | G(L), C(L), B(L) | G(L-1), U(L), C(L-1), B(L-1) | .. | G(1), U(2), ..
    | U(1) | forward 1 of the next batch ..

Forward and G are the array stream's, the others the vector stream's. What must wait for what:

* RAW: loss for the logits; G(L) for the loss; G(l) for dY(l) of G(l+1), and for the activations;
  C(l) for dY(l); B(l) for C(l); U(l) for dW of G(l); the next forward(l) for U(l) and B(l).
* WAR: U(l) overwrites the BFP weights that forward(l) and G(l) read; the next forward(l)
  overwrites activations that G(l+1) reads; the next loss and G(l+1) overwrite dY(l) that C(l)
  reads; the next G(l) overwrites the dW that U(l) reads.
* WAW: none beyond these: each tensor has one writer in a step, but for the copies at the start.

dW, dY and activations are there once per layer, so U(l), C(l) and B(l) may run beside G(l-1) and
below, and the last of them beside the next forward. `sw.compiler.schedule` finds the order and
proves from the tensors and accumulator slots what may overlap.
"""

from hw.config import Config
from sw.compiler.cost import Bus
from sw.compiler.layers import RESULT_REG, SALT_REG, TARGET_REG, X_REG, Layers
from sw.compiler.network import Network, NetworkError
from sw.compiler.programs import BatchProgram, advance, check_samples
from sw.compiler.schedule import Command, arrange
from sw.compiler.share import Share

ROUNDINGS = ("even", "stochastic")


class TrainingPlan(BatchProgram):
    """The program of an epoch: every batch of `samples` once, in order.

    Before the first batch the weights' BFP copies are made (nearest even).

    Parameters
    ----------
    batch : int
        Samples of a batch; the last one may have fewer.
    order : str
        Of the GRADs: "auto" (by cost), "paper", or one of `sw.compiler.planner.ORDERS`.
    rounding : str
        Of BFP results: "even" or "stochastic", with a salt of its own for each tensor and step.
    bus : Bus, optional
        The DRAM that is planned for.
    share : Share, optional
        Slots that the program may use (default: all).

    Raises
    ------
    NetworkError
        Sizes or names that cannot be.
    SlotError
        The accumulator, or the share of it, is too small.
    PlanError, LayoutError
        As planner and layout do.
    """

    def __init__(self, cfg: Config, network: Network, batch: int, samples: int, *,
                 order: str = "auto", rounding: str = "even", bus: Bus | None = None,
                 share: Share | None = None):
        check_samples(batch, samples)
        if rounding not in ROUNDINGS:
            raise NetworkError(f"rounding must be {' or '.join(ROUNDINGS)}, not {rounding!r}")
        layers = Layers(cfg, network, batch, order=order, stochastic=rounding == "stochastic",
                        bus=bus, share=share)
        self._place(layers, samples)
        prepare = [layers.copy(number) for number in range(1, len(network.layers) + 1)]
        body = self._step(layers, batch) if samples >= batch else []
        rest = self._step(layers, samples % batch) if samples % batch else []
        # The addresses advance while the last GRAD runs: nothing else waits to be dispatched.
        last = max((i for i, c in enumerate(body, 1) if c.array), default=0)
        body[last:last] = advance({
            X_REG: layers.batches["x"].stride, TARGET_REG: layers.batches["targets"].stride,
            RESULT_REG: layers.batches["losses"].stride})
        if layers.salts:
            body += advance({SALT_REG: 2 * len(layers.salts)})
        super().__init__(layers, samples, prepare, body, rest)

    @staticmethod
    def _place(layers: Layers, samples: int):
        network, batch = layers.network, layers.batch
        layers.place_forward()
        depth = max(layer.inputs for layer in network.layers)
        layers.place("partial_dw", depth, max(layer.outputs for layer in network.layers), False)
        for number, layer in enumerate(network.layers, 1):
            layers.place(f"weights_momentum_{number}", layer.inputs, layer.outputs, False)
            layers.place(f"bias_momentum_{number}", 1, layer.outputs, False)
            layers.place(f"output_gradient_{number}", batch, layer.outputs, True)
            layers.place(f"weights_gradient_{number}", layer.inputs, layer.outputs, False)
            layers.place(f"bias_gradient_{number}", 1, layer.outputs, False)
        layers.place("logits", batch, network.outputs, False)
        layers.place_batches("x", samples, network.inputs, True)
        layers.place_batches("targets", samples, network.outputs, network.loss == "cross-entropy")
        layers.place_batches("losses", samples, 1, False)

    @staticmethod
    def _step(layers: Layers, rows: int) -> list[Command]:
        """Instructions of one batch of `rows` samples."""
        numbers = range(1, len(layers.network.layers) + 1)
        commands = [layers.forward(number, rows) for number in numbers]
        commands.append(layers.loss(rows))
        for number in reversed(numbers):
            commands += [layers.gradient(number, rows), layers.bias_gradient(number, rows),
                         layers.update(number, "bias"), layers.update(number, "weights")]
        return arrange(commands)
