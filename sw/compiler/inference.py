"""A network and its data to one program: outputs of the last layer for every sample."""

from hw.config import Config
from sw.compiler.cost import Bus
from sw.compiler.layers import RESULT_REG, X_REG, Layers
from sw.compiler.network import Network
from sw.compiler.programs import BatchProgram, advance, check_samples
from sw.compiler.share import Share


class InferencePlan(BatchProgram):
    """The program that runs `samples` rows forward, in batches; results are in "logits".

    Before the first batch the weights' BFP copies are made (nearest even).

    Parameters
    ----------
    rows : bool
        X and activations have one exponent per row of a tile instead of one per tile.
    bus : Bus, optional
        The DRAM that is planned for.
    share : Share, optional
        Slots that the program may use (default: all).

    Attributes
    ----------
    parameters : list of str
        Tensors that the host writes beside "x".

    Raises
    ------
    NetworkError, SlotError, PlanError, LayoutError
        As `sw.compiler.training.TrainingPlan`.
    """

    def __init__(self, cfg: Config, network: Network, batch: int, samples: int, *,
                 rows: bool = False, bus: Bus | None = None, share: Share | None = None):
        check_samples(batch, samples)
        self.rows = rows
        layers = Layers(cfg, network, batch, rows=rows, bus=bus, share=share)
        layers.place_forward()
        layers.place_batches("x", samples, network.inputs, True)
        layers.place_batches("logits", samples, network.outputs, False)
        numbers = range(1, len(network.layers) + 1)
        self.parameters = [f"{what}_{number}" for number in numbers for what in ("weights", "bias")]
        body, rest = ([layers.forward(number, count) for number in numbers] if count else []
                      for count in (batch if samples >= batch else 0, samples % batch))
        body += advance({X_REG: layers.batches["x"].stride,
                         RESULT_REG: layers.batches["logits"].stride})
        super().__init__(layers, samples, [layers.copy(number) for number in numbers], body, rest)
