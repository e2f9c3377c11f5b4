"""A network to the program that serves requests, and the region of the inference context."""

from typing import NamedTuple

import numpy as np

from hw.config import MAX_REQUESTS, Config
from hw.isa import FIELDS, WINDOW, Function, Opcode, XSource, YTarget
from sw.compiler import phases
from sw.compiler.assembler import assemble
from sw.compiler.cost import ADDER, OVERHEAD, Bus
from sw.compiler.layers import Layers
from sw.compiler.network import Network
from sw.compiler.planner import PlanError
from sw.compiler.residence import Residence
from sw.compiler.schedule import dispatch

#: Most layers: each keeps its weights under a number of its own.
LAYERS = (1 << FIELDS["w_keep"][0]) - 1
#: Largest log2 of a ring's entries.
RING_LOG2 = 7


class Service(NamedTuple):
    """What is served: the registers of these names; windows are base, h_log2 and w_log2."""

    program: int
    batch_max: int
    inputs: int
    outputs: int
    input_window: dict
    output_window: dict


class ServingPlan:
    """The inference context's region, programs and registers.

    All weights stay in the scratchpad and all biases in the accumulator (`w_keep`). Activations go
    from layer to layer in the scratchpad, and the last layer's outputs stay in the accumulator,
    from where the request unit takes them. An operation's X and W lie in different banks wherever
    they fit.

    Parameters
    ----------
    batch_max : int
        Most requests of a batch.
    ring_log2 : int
        log2 of the entries of each ring.
    bus : Bus, optional
        The DRAM that `capacity` is estimated for.

    Attributes
    ----------
    parameters : list of str
        Tensors that the host writes (FP32) before it runs `prepare`.
    places : dict
        Tensor's name -> Matrix.
    ring, completions : int
        Offsets of the request ring and the completion ring.
    prepare : int
        Offset of the program that makes the weights' BFP copies (nearest even).
    program : int
        Offset of the program of a batch.
    service : Service
    registers : dict
        Register's name -> value; what depends on the host's policy is not among them.
    share, rest : Share
        Slots that are used, and those left for training.
    size : int
        Bytes of the region.
    capacity : float
        Estimated clocks of a full batch, batches following one another.

    Raises
    ------
    PlanError
        A network that does not fit on chip, or a batch or ring that cannot be.
    NetworkError, LayoutError
        As `sw.compiler.training.TrainingPlan`.
    """

    def __init__(self, cfg: Config, network: Network, batch_max: int, *,
                 ring_log2: int = RING_LOG2, bus: Bus | None = None):
        for name, value, low, high in (("batch_max", batch_max, 1, MAX_REQUESTS),
                                       ("ring_log2", ring_log2, 0, RING_LOG2)):
            if not low <= value <= high:
                raise PlanError(f"{name} must be {low}..{high}, not {value}")
        if len(network.layers) > LAYERS:
            raise PlanError(f"a network that is served must have at most {LAYERS} layers, "
                            f"not {len(network.layers)}")
        self.cfg, self.network, self.batch_max = cfg, network, batch_max
        self._entries, self._bus = 1 << ring_log2, bus or Bus()
        self._shapes = [tuple(-(-size // cfg.tile) for size in
                              (batch_max, layer.inputs, layer.outputs))
                        for layer in network.layers]
        self._chip = Residence(cfg, batch_max, self._shapes)
        self.share, self.rest = self._chip.share, self._chip.rest
        self._place()
        self.service = Service(self.program, batch_max, network.inputs, network.outputs,
                               self._chip.x[0], self._chip.y[-1])
        self.registers = {
            "INFERENCE_REGION_SIZE": self.size, "INFERENCE_PROGRAM_ADDR": self.program,
            "INFERENCE_SPAD_REGION": self.share.spad[-1] << 16,
            "INFERENCE_ACC_REGION": self.share.acc[-1] << 16,
            "REQUEST_RING": self.ring, "COMPLETION_RING": self.completions,
            "RING_LOG2": ring_log2, "BATCH_MAX": batch_max,
            "REQUEST_INPUTS": network.inputs, "REQUEST_OUTPUTS": network.outputs,
            **{name.upper(): WINDOW.const(getattr(self.service, name)).as_bits()
               for name in ("input_window", "output_window")}}
        self.capacity = self._estimate()

    def _place(self):
        cfg, numbers = self.cfg, range(1, len(self.network.layers) + 1)
        layers = Layers(cfg, self.network, self.batch_max, bus=self._bus, share=self.share)
        for number in numbers:
            layers.place_parameters(number)
        self.places, region = layers.places, layers.region
        self.parameters = [f"{what}_{number}" for number in numbers for what in ("weights", "bias")]
        self.ring, self.completions = (region.take(self._entries * cfg.entry_bytes)
                                       for _ in range(2))
        inputs, outputs = self._shapes[0][1], self._shapes[-1][2]
        self._input_bytes = -(-inputs // cfg.tile) * cfg.bfp_bytes
        self._output_bytes = -(-outputs // cfg.tile) * cfg.fp32_bytes
        self._inputs = region.take(self._entries * self._input_bytes)
        self._outputs = region.take(self._entries * self._output_bytes)
        copies = [layers.copy(number) for number in numbers]
        dispatch(copies)
        codes = [assemble(cfg, [c.instruction() for c in copies]),
                 assemble(cfg, [self._layer(number) for number in numbers])]
        self.prepare, self.program = (region.take(len(code)) for code in codes)
        self._codes = {self.prepare: codes[0], self.program: codes[1]}
        self.size = region.size

    def _layer(self, number: int) -> dict:
        """GEMM of layer `number`."""
        layer, last = self.network.layers[number - 1], number == len(self._shapes)
        chip, at = self._chip, number - 1
        fields = {
            "opcode": Opcode.GEMM, "m": self.batch_max, "k": layer.inputs, "n": layer.outputs,
            "run_m": 1, "function": Function.BIAS_RELU if layer.relu else Function.BIAS,
            "x_source": XSource.CHIP if at else XSource.REQUEST, "x_row": 1,
            "x_window": chip.x[at], "w_window": chip.w[at], "w_keep": number,
            "y_window": chip.y[at], "e_window": chip.biases[at],
            "phase": phases.phase(number, "forward"), "w_independent": 1, "dy_independent": 1,
            **self.places[f"weights_bfp_{number}"].fields("w"),
            **self.places[f"bias_{number}"].fields("dy")}
        if last:
            return fields | {"y_target": YTarget.ACC}
        high, wide = (1 << chip.y[at][f"{d}_log2"] for d in "hw")
        # One half of the window is computed while the other one is quantised.
        return fields | {"y_target": YTarget.CHIP, "y_bfp": 1, "y_row": 1,
                         "dw_window": chip.x[number], "bn": max(1, wide // 2),
                         "bm": 0 if high >= self._shapes[at][0] else high}

    def image(self) -> np.ndarray:
        """The region with the programs; what holds no data is 0xFF, which reads as NaN."""
        memory = np.full(self.size, 0xFF, np.uint8)
        for addr, code in self._codes.items():
            memory[addr:addr + len(code)] = np.frombuffer(code, np.uint8)
        return memory

    def entry(self, number: int) -> int:
        """Offset of request `number`'s descriptor."""
        return self.ring + number % self._entries * self.cfg.entry_bytes

    def completion(self, number: int) -> int:
        """Offset of its completion."""
        return self.completions + number % self._entries * self.cfg.entry_bytes

    def input(self, number: int) -> int:
        """Offset of its input."""
        return self._inputs + number % self._entries * self._input_bytes

    def output(self, number: int) -> int:
        """Offset of its output."""
        return self._outputs + number % self._entries * self._output_bytes

    def _estimate(self) -> float:
        """Clocks of the program, or of the bus if that takes longer."""
        cfg, t = self.cfg, self.cfg.tile
        array = sum(m * k * n * t + 2 * t + ADDER + OVERHEAD for m, k, n in self._shapes)
        request = self._input_bytes + self._output_bytes + 2 * cfg.entry_bytes
        return max(array + OVERHEAD + self._bus.latency,
                   self._bus.clocks(cfg, self.batch_max * request))
