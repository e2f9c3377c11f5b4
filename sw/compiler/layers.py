"""A network in DRAM, and the instructions of its layers."""

from functools import lru_cache

import numpy as np

from hw.config import Config
from hw.isa import Function, Kind, Opcode
from sw.compiler import phases
from sw.compiler.cost import OVERHEAD, Bus
from sw.compiler.layout import Batches, Matrix, Region
from sw.compiler.network import Network
from sw.compiler.planner import Layer, plan
from sw.compiler.schedule import Command
from sw.compiler.share import Share
from sw.compiler.slots import Slots

#: Address registers: offset of the batch in "x", "targets", "losses" or "logits"; salt of the step.
X_REG, TARGET_REG, RESULT_REG, SALT_REG = 1, 2, 3, 4

_plan = lru_cache(256)(plan)


def fp32_bits(value: float) -> int:
    """Bits of `value` rounded to FP32."""
    return int(np.float32(value).view(np.uint32))


class Layers:
    """Places the tensors of a network and builds instructions on them.

    Tensors of layer l are named as `sw.nn.parameters` does (FP32), and weights_bfp_l, output_l,
    output_gradient_l (BFP), weights_gradient_l and bias_gradient_l (FP32). The last layer's output
    is "logits" (FP32). "x", "targets" (one-hot: BFP; of "mse": FP32) and "losses" are batches.

    Parameters
    ----------
    order : str
        Of GRAD, as `sw.compiler.planner.plan`; one that is chosen by cost is kept for other numbers
        of samples.
    stochastic : bool
        Round BFP results stochastically, with salts from SALT_REG on.
    rows : bool
        X and activations have one exponent per row; forward only.
    share : Share, optional
        Slots that the instructions may use (default: all).
    """

    def __init__(self, cfg: Config, network: Network, batch: int, *, order: str = "auto",
                 stochastic: bool = False, rows: bool = False, bus: Bus | None = None,
                 share: Share | None = None):
        self.cfg, self.network, self.batch, self.bus = cfg, network, batch, bus or Bus()
        self.stochastic, self.rows = stochastic, rows
        self._orders = dict.fromkeys(range(1, len(network.layers) + 1), order)
        share = share or Share.whole(cfg)
        self.slots = Slots.of(cfg, share.acc)
        self._array = Share(share.spad, self.slots.array)
        self.region = Region(cfg)
        self.places: dict[str, Matrix] = {}
        self.batches: dict[str, Batches] = {}
        self.salts: dict[str, int] = {}

    def place(self, name: str, rows: int, cols: int, bfp: bool):
        """Place a matrix."""
        self.places[name] = self.region.matrix(rows, cols, bfp)

    def place_batches(self, name: str, samples: int, cols: int, bfp: bool):
        """Place `samples` rows in batches."""
        self.batches[name] = self.region.batches(samples, self.batch, cols, bfp)

    def place_parameters(self, number: int):
        """Place weights, bias and the weights' BFP copy of layer `number`."""
        layer = self.network.layers[number - 1]
        self.place(f"weights_{number}", layer.inputs, layer.outputs, False)
        self.place(f"bias_{number}", 1, layer.outputs, False)
        self.place(f"weights_bfp_{number}", layer.inputs, layer.outputs, True)

    def place_forward(self):
        """Place what the forward instructions need, but "x" and "logits"."""
        most = 0
        for number, layer in enumerate(self.network.layers, 1):
            self.place_parameters(number)
            if number < len(self.network.layers):
                self.place(f"output_{number}", self.batch, layer.outputs, True)
            most = max(most, layer.inputs, layer.outputs)
        self.place("partial_y", self.batch, most, False)

    def _fields(self, operand: str, tensor: str) -> dict:
        return (self.batches.get(tensor) or self.places[tensor]).fields(operand)

    def _rounding(self, tensor: str) -> dict:
        """Fields that round a BFP result; every tensor has a salt of its own, and one to spare."""
        if not self.stochastic:
            return {}
        salt = self.salts.setdefault(tensor, 2 * len(self.salts))
        return {"stochastic": 1, "salt": salt, "salt_reg": SALT_REG}

    def source(self, number: int) -> str:
        """Input of layer `number`."""
        return "x" if number == 1 else f"output_{number - 1}"

    def forward(self, number: int, rows: int) -> Command:
        """GEMM: output, or logits, of `rows` samples."""
        layer = self.network.layers[number - 1]
        last = number == len(self.network.layers)
        x, y = self.source(number), "logits" if last else f"output_{number}"
        function = Function.BIAS_RELU if layer.relu else Function.BIAS
        chosen = _plan(self.cfg, Layer(opcode=Opcode.GEMM, m=rows, k=layer.inputs, n=layer.outputs,
                                       y_bfp=not last, function=function),
                       bus=self.bus, share=self._array)
        fields = {
            **chosen.fields, **self._fields("x", x), **self._fields("y", y),
            **self._fields("w", f"weights_bfp_{number}"), **self._fields("dy", f"bias_{number}"),
            **self._fields("y_part", "partial_y"),
            "e_window": self.slots.epilogue_window(), "phase": phases.phase(number, "forward"),
            "x_reg": X_REG if x in self.batches else 0,
            "y_reg": RESULT_REG if y in self.batches else 0}
        if self.rows:
            fields |= {"x_row": 1, "y_row": int(not last)}
        if not last:
            fields |= self._rounding(y)
        reads = {"x": x, "w": f"weights_bfp_{number}", "dy": f"bias_{number}"}
        return self._command(fields, reads, (y, "partial_y"), number, chosen.clocks)

    def gradient(self, number: int, rows: int) -> Command:
        """GRAD: gradients of the weights and, but for the first layer, of the layer below."""
        layer, first = self.network.layers[number - 1], number == 1
        x, dy = self.source(number), f"output_gradient_{number}"
        dw, dx = f"weights_gradient_{number}", f"output_gradient_{number - 1}"
        masked = not first and self.network.layers[number - 2].relu
        function = Function.RELU_GRAD if masked else Function.NONE
        chosen = _plan(self.cfg, Layer(opcode=Opcode.GRAD, m=rows, k=layer.inputs, n=layer.outputs,
                                       y_bfp=not first, y_off=first, function=function),
                       order=self._orders[number], bus=self.bus, share=self._array)
        if self._orders[number] == "auto":
            self._orders[number] = chosen.order
        fields = {
            **chosen.fields, **self._fields("x", x), **self._fields("dy", dy),
            **self._fields("dw", dw), **self._fields("dw_part", "partial_dw"),
            "phase": phases.phase(number, "gradient"), "x_reg": X_REG if first else 0}
        reads, writes = {"x": x, "dy": dy}, (dw, "partial_dw")
        if not first:
            fields |= {**self._fields("w", f"weights_bfp_{number}"), **self._fields("y", dx),
                       **self._fields("y_part", "partial_y"), **self._rounding(dx)}
            reads["w"] = f"weights_bfp_{number}"
            writes += dx, "partial_y"
            if masked:
                fields["e_window"] = self.slots.epilogue_window()
        return self._command(fields, reads, writes, number, chosen.clocks)

    def loss(self, rows: int) -> Command:
        """SOFTMAX or MSE: losses, and gradient of their mean."""
        number, outputs = len(self.network.layers), self.network.outputs
        entropy = self.network.loss == "cross-entropy"
        dy = f"output_gradient_{number}"
        return self._vector(
            Function.SOFTMAX if entropy else Function.MSE, rows, outputs, number, phases.LOSS,
            {"x": "logits", "w": "targets"}, {"y": dy, "dw": "losses"},
            x_fp32=1, w_fp32=int(not entropy), y_bfp=1, **self._rounding(dy),
            x_kind=Kind.Y, w_kind=Kind.TARGET, y_kind=Kind.DY, w_reg=TARGET_REG, dw_reg=RESULT_REG,
            scalar=fp32_bits(1 / rows if entropy else 2 / (rows * outputs)))

    def bias_gradient(self, number: int, rows: int) -> Command:
        """COLUMN_SUM of the output's gradient."""
        return self._vector(
            Function.COLUMN_SUM, rows, self.network.layers[number - 1].outputs, number,
            phases.phase(number, "gradient"), {"x": f"output_gradient_{number}"},
            {"y": f"bias_gradient_{number}"}, x_kind=Kind.DY, y_kind=Kind.DW)

    def update(self, number: int, what: str) -> Command:
        """SGD of "weights", with their BFP copy, or of the "bias"."""
        layer, copy = self.network.layers[number - 1], f"weights_bfp_{number}"
        operands = {"x": f"{what}_gradient_{number}", "w": f"{what}_momentum_{number}",
                    "dy": f"{what}_{number}"}
        # Both states are results too.
        results = {"w": operands["w"], "dy": operands["dy"]}
        if what == "weights":
            results["y"] = copy
            copying = {"y_bfp": 1, "y_kind": Kind.W, **self._rounding(copy)}
        else:
            copying = {"y_off": 1}
        return self._vector(
            Function.SGD, layer.inputs if what == "weights" else 1, layer.outputs, number,
            phases.phase(number, "update"), operands, results, x_fp32=1, w_fp32=1, **copying,
            x_kind=Kind.DW, w_kind=Kind.STATE, dy_kind=Kind.STATE)

    def copy(self, number: int) -> Command:
        """CONVERT of the weights to BFP, to nearest even."""
        layer, x, y = self.network.layers[number - 1], f"weights_{number}", f"weights_bfp_{number}"
        fields = {"opcode": Opcode.CONVERT, "m": layer.inputs, "n": layer.outputs, "x_fp32": 1,
                  "y_bfp": 1, "x_kind": Kind.STATE, "y_kind": Kind.W, "phase": phases.PREPARE,
                  "y_window": self.slots.vector_window(), **self._fields("x", x),
                  **self._fields("y", y)}
        return self._command(fields, {"x": x}, (y,), number)

    def _vector(self, function, rows, cols, number, phase, operands, results, **fields) -> Command:
        """VECTOR on tensors by operand."""
        for operand, tensor in {**operands, **results}.items():
            fields |= self._fields(operand, tensor)
        fields |= {"opcode": Opcode.VECTOR, "function": function, "m": rows, "n": cols,
                   "y_window": self.slots.vector_window(), "phase": phase}
        return self._command(fields, operands, tuple(results.values()), number)

    def _command(self, fields, reads, writes, number, clocks=None) -> Command:
        if clocks is None:
            # Vector instructions move much and compute little.
            moved = sum(self._bytes(t) for t in (*reads.values(), *writes))
            clocks = self.bus.latency + OVERHEAD + self.bus.clocks(self.cfg, moved)
        return Command(fields=fields, reads=reads, writes=writes, slots=self.slots.used(fields),
                       clocks=clocks, layer=number)

    def _bytes(self, tensor: str) -> int:
        """Bytes of a tensor, or of one batch."""
        if tensor in self.batches:
            return self.batches[tensor].stride
        place = self.places[tensor]
        image = self.cfg.image_bytes(place.bfp)
        return -(-place.rows // self.cfg.tile) * place.pitch * image
