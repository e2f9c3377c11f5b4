"""One GEMM or GRAD on FP32 matrices: quantised on chip, computed, read back."""

from dataclasses import dataclass

import numpy as np

from hw.config import Config
from hw.isa import Kind, Opcode, Order
from sw.compiler.assembler import assemble, window
from sw.compiler.cost import Bus
from sw.compiler.layout import Matrix, Region
from sw.compiler.planner import Layer, Plan, plan
from sw.compiler.reuse import power_floor
from sw.golden import images

#: Salt of stochastic rounding, by matrix; dW's is dX's plus 1, as the instruction has it.
SALTS = {"X": 1, "W": 2, "dY": 3, "Y": 4, "dX": 4, "dW": 5}


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to compute: Y = X W, or dX and dW."""

    opcode: Opcode
    m: int
    k: int
    n: int
    row_exponents: bool = False
    stochastic: bool = False
    bfp_result: bool = False

    @property
    def inputs(self) -> dict[str, tuple[int, int]]:
        """Shapes of the operands by name."""
        shapes = {"X": (self.m, self.k), "W": (self.k, self.n)}
        return shapes | ({"dY": (self.m, self.n)} if self.opcode is Opcode.GRAD else {})

    @property
    def outputs(self) -> dict[str, tuple[int, int]]:
        """Shapes of the results by name."""
        if self.opcode is Opcode.GRAD:
            return {"dX": (self.m, self.k), "dW": (self.k, self.n)}
        return {"Y": (self.m, self.n)}


class Operation:
    """A request placed in memory, with its two programs: quantise, then compute.

    `order`, `blocks` and `bus` are those of `sw.compiler.planner.plan`.

    Attributes
    ----------
    plan : Plan
    programs : list of int
        Offsets of the programs.
    places : dict
        Name -> Matrix of all that is in the region.
    size : int
        Bytes of the region.

    Raises
    ------
    PlanError, LayoutError
        As the planner and the layout do.
    """

    def __init__(self, cfg: Config, request: Request, *, order: str = "auto",
                 blocks: tuple[int, int, int] | None = None, bus: Bus | None = None):
        self.cfg, self.request = cfg, request
        bfp = request.bfp_result
        layer = Layer(opcode=request.opcode, m=request.m, k=request.k, n=request.n, y_bfp=bfp,
                      dw_bfp=bfp and request.opcode is Opcode.GRAD)
        region = Region(cfg)
        self.programs = [region.take(1024), region.take(1024)]
        self.places: dict[str, Matrix] = {}
        for name, shape in request.inputs.items():
            self.places[f"FP32 {name}"] = region.matrix(*shape, False)
            self.places[name] = region.matrix(*shape, True)
        for name, shape in request.outputs.items():
            self.places[name] = region.matrix(*shape, bfp)
            self.places[f"partial {name}"] = region.matrix(*shape, False)
        self.size = region.size
        self.plan: Plan = plan(cfg, layer, order=order, blocks=blocks, bus=bus)

    def image(self, matrices: dict[str, np.ndarray]) -> np.ndarray:
        """The region before the first program; what holds no data is 0xFF, which reads as NaN."""
        memory = np.full(self.size, 0xFF, np.uint8)
        for name, matrix in matrices.items():
            self._write(memory, self.places[f"FP32 {name}"], matrix)
        for addr, program in zip(self.programs, (self._quantise(), [self._compute()]), strict=True):
            code = assemble(self.cfg, program)
            memory[addr:addr + len(code)] = np.frombuffer(code, np.uint8)
        return memory

    def _write(self, memory: np.ndarray, place: Matrix, values: np.ndarray):
        t = self.cfg.tile
        tm, tn = (images.tiles(self.cfg, s) for s in values.shape)
        padded = np.full((tm * t, tn * t), np.nan, np.float32)
        padded[:values.shape[0], :values.shape[1]] = values
        grid = images.grid(memory, place.addr, place.pitch, (tm, tn), self.cfg.fp32_bytes)
        grid[...] = images.pack_fp32(self.cfg, padded)

    def _quantise(self) -> list[dict]:
        """Program that turns the FP32 inputs into BFP."""
        staging = power_floor(self.cfg.acc_slots).bit_length() - 1
        parts = []
        for name, (rows, cols) in self.request.inputs.items():
            kind = Kind[name.upper()]
            parts.append({
                "opcode": Opcode.CONVERT, "m": rows, "n": cols, "x_fp32": 1, "y_bfp": 1,
                "y_row": int(name == "X" and self.request.row_exponents),
                "stochastic": int(self.request.stochastic), "salt": SALTS[name],
                "x_kind": kind, "y_kind": kind, "y_window": window(0, 0, min(staging, 8)),
                **self.places[f"FP32 {name}"].fields("x"), **self.places[name].fields("y")})
        return parts

    def _compute(self) -> dict:
        """The GEMM or GRAD."""
        request, places = self.request, self.places
        fields = {**self.plan.fields, "stochastic": int(request.stochastic)}
        for name in request.inputs:
            fields |= places[name].fields(name.lower())
            fields[f"{name.lower()}_independent"] = 1
        for name, field in (("Y", "y"), ("dX", "y"), ("dW", "dw")):
            if name in places:
                fields |= places[name].fields(field)
                fields |= places[f"partial {name}"].fields(f"{field}_part")
        if request.opcode is Opcode.GEMM:
            fields |= {"x_row": int(request.row_exponents), "salt": SALTS["Y"],
                       "y_row": int(request.row_exponents and request.bfp_result)}
        else:
            fields["salt"] = SALTS["dX"]
        return fields

    def results(self, memory: np.ndarray) -> dict[str, np.ndarray]:
        """The results in `memory` as float32 matrices."""
        values = {}
        for name, (rows, cols) in self.request.outputs.items():
            place, cfg = self.places[name], self.cfg
            shape = images.tiles(cfg, rows), images.tiles(cfg, cols)
            grid = images.grid(memory, place.addr, place.pitch, shape,
                               cfg.image_bytes(place.bfp))
            if place.bfp:
                row_exp = name == "Y" and self.request.row_exponents
                full = images.decode(cfg, *images.unpack_bfp(cfg, grid, rows, cols, row_exp),
                                     rows, cols)
            else:
                full = images.unpack_fp32(cfg, grid, rows, cols)
            values[name] = full[:rows, :cols]
        return values

    def locate(self, addr: int) -> str:
        """What lies at offset `addr`."""
        name, place = max(((n, p) for n, p in self.places.items() if p.addr <= addr),
                          key=lambda item: item[1].addr, default=(None, None))
        if place is None:
            return "programs"
        size = self.cfg.image_bytes(place.bfp)
        i, j = divmod((addr - place.addr) // size, place.pitch)
        return f"{name}, tile ({i}, {j}), byte {(addr - place.addr) % size}"

    @property
    def order(self) -> Order:
        """Order of the plan."""
        return self.plan.fields["order"]
