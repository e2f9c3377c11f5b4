"""Seeded random programs: legal instructions that depend on each other, mistakes, disturbances."""

from hw.config import DIM_BITS, Config
from hw.isa import FIELDS, INSTRUCTION, Function, Kind, Opcode, Order
from sw.compiler.assembler import window
from sw.compiler.layout import Matrix
from tb.freedom import Footprint, accumulator_slots, freedoms
from tb.fuzz_operands import Operands, Stepper
from tb.job import CHANNELS, Job
from tb.program import BIASES, BINARY, LOSSES, RATES, ROWS, Program, slots_of_set

#: Share of the jobs that are stopped, reset or answered with an error by the memory, and of the
#: instructions that are illegal.
MISHAPS, MISTAKES = 0.3, 0.03
#: Address registers that step through loops; the others hold what was set outside of all loops.
STEPPING = range(10, 16)
#: Operands whose addresses count with a register.
ADDRESSED = ("x", "w", "dy", "y", "dw")


class Fuzz(Operands):
    """Two random programs on one set of matrices, the first of them perhaps disturbed.

    They are appended to `program`, by default a fresh one.
    """

    def __init__(self, cfg: Config, seed: int, program: Program | None = None):
        program = program or Program(cfg, seed)
        super().__init__(program.cfg, program.rng, program)
        self.programs = [self._program(), self._program()]

    # --- instructions ---------------------------------------------------------------------

    def _common(self) -> dict:
        start = {f"{o}_{d}0": self.integer(0, 2**DIM_BITS - 1) for o in ("y", "dw")
                 for d in ("row", "col")}
        return {"stochastic": self.integer(0, 1), "salt": self.integer(0, 2**32 - 1), **start,
                "phase": self.integer(0, 31), "order": self.integer(0, 3),
                **{f"b{d}": self.integer(0, 3) for d in "mnk"}}

    def _accumulate(self, target: Matrix) -> int:
        return 0 if target.bfp else self.integer(0, 1)

    def _note(self, reads: dict[str, Matrix], *writes: Matrix):
        """Add registers to the last instruction, and note what it touches."""
        instruction = self.program.instructions[-1]
        for name in ADDRESSED:
            if name in self.registers:
                instruction[f"{name}_reg"] = self.registers[name]
            elif self.chance(0.3):
                register = self.integer(0, STEPPING[0] - 1)
                address = instruction.get(f"{name}_addr", 0) - self.contents[register]
                instruction |= {f"{name}_reg": register, f"{name}_addr": address % 2**32}
        if self.chance(0.3):
            instruction["salt_reg"] = self.integer(0, 15)
        self.footprints[len(self.program.instructions) - 1] = Footprint(
            {name: matrix.addr for name, matrix in reads.items()},
            frozenset(matrix.addr for matrix in writes), accumulator_slots(instruction))

    def _gemm(self):
        m, k, n = self.size(), self.size(), self.size()
        reads = {"x": self.source("x", m, k, True), "w": self.source("w", k, n, True)}
        functions = [Function.NONE, Function.NONE, Function.RELU]
        functions += BIASES if self.array_slots[1] > 2 else []
        function = functions[self.integer(0, len(functions) - 1)]
        noise = {"dw_addr", "dw_part_addr", "dw_pitch", "dy2_window", "y_off", "dw_off", "x_fp32",
                 "w_fp32", "scalar", "x_kind", "dy_kind"}
        if function in BIASES:
            reads["dy"] = self.source("dy", 1, n, False)
        else:
            noise |= {"dy_addr", "dy_pitch", "dy_window", "dy_independent", "e_window"}
        y = self.target("y", m, n, *reads.values())
        self.program.gemm(reads["x"], reads["w"], y, None, reads.get("dy"), **{
            **self.windows(), **self._common(), "function": function,
            "y_accumulate": self._accumulate(y), "x_row": self.integer(0, 1),
            "y_row": self.integer(0, 1), **self.noise(noise)})
        self._note(reads, y)

    def _grad(self):
        m, k, n = self.size(), self.size(), self.size()
        reads = {name: self.source(name, *size, True)
                 for name, size in (("x", (m, k)), ("w", (k, n)), ("dy", (m, n)))}
        dx = self.target("y", m, k, *reads.values())
        dw = self.target("dw", k, n, *reads.values(), dx)
        off = self.rng.choice(["", "y", "dw"], p=[0.7, 0.15, 0.15])
        noise = {"x_fp32", "w_fp32", "scalar", "w_kind"}
        if off:
            noise |= {f"{off}_{f}" for f in ("addr", "pitch", "part_addr", "part_pitch", "window")}
        gates = off != "y" and self.array_slots[1] > 2 and self.chance(0.5)
        common = self._common()
        self.program.grad(*reads.values(), dx, dw, Order(common.pop("order")), **{
            **self.windows(), **common, "y_accumulate": self._accumulate(dx),
            "function": Function.RELU_GRAD if gates else Function.NONE,
            "dw_accumulate": self._accumulate(dw), "y_off": int(off == "y"),
            "dw_off": int(off == "dw"), **self.noise(noise if gates else noise | {"e_window"})})
        self._note(reads, *([dx] if off != "y" else []), *([dw] if off != "dw" else []))

    def _streamed(self, **fields) -> dict:
        """Fields of CONVERT and VECTOR; `fields` replace them."""
        noise = {"k", "e_window", "x_window", "w_window", "dy_window", "dw_window", "y_part_addr",
                 "dw_part_addr", "dy_addr", "w_addr", "dw_addr", "w_pitch", "x_kind", "w_kind",
                 "dy_kind", "y_kind", "y_off", "dw_off"}
        return {**self._common(), "x_row": self.integer(0, 1), "y_row": self.integer(0, 1),
                **self.noise(noise - fields.keys()), **fields}

    def _convert(self):
        m, n = self.size(), self.size()
        x = self.source("x", m, n, self.chance(0.5))
        y = self.target("y", m, n, x)
        self.program.convert(x, y, **self._streamed(
            y_window=self.staging(1), y_accumulate=self._accumulate(y), **y.fields("y"),
            **x.fields("x")))
        self._note({"x": x}, y)

    def _vector(self):
        m, n = self.size(), self.size()
        slots = self.vector_slots[1]
        functions = [f for f in Function if f is not Function.NONE and self._least(f) <= slots]
        function = functions[self.integer(0, len(functions) - 1)]
        reads, writes = {"x": self.source("x", m, n, self.chance(0.5))}, {}
        if function is Function.SGD:
            for name in ("w", "dy"):
                reads[name] = self.source(name, m, n, False, *reads.values())
                writes[name] = reads[name]
        elif function in (*BINARY, *BIASES, *LOSSES):
            reads["w"] = self.source("w", 1 if function in BIASES else m, n, self.chance(0.5))
        off = self.rng.choice(["", "y", "dw"]) if function in (*LOSSES, Function.SGD) else ""
        if off != "y":
            writes["y"] = self.target("y", 1 if function is Function.COLUMN_SUM else m,
                                       1 if function in ROWS else n, *reads.values())
        if function in LOSSES and off != "dw":
            dw = self.program.room(m, 1, False)
            writes["dw"] = dw
        fixed = {f"{name}_addr": matrix.addr for name, matrix in (reads | writes).items()}
        fixed |= {f"{name}_pitch": matrix.pitch for name, matrix in (reads | writes).items()}
        self.program.vector(function, **{**reads, **writes}, **self._streamed(
            y_window=self.staging(self._least(function)), scalar=self.number(),
            y_off=int("y" not in writes), dw_off=int("dw" not in writes), **fixed))
        self._note(reads, *writes.values())

    def _least(self, function: Function) -> int:
        """Fewest staging slots of a function."""
        reduces = function in (Function.COLUMN_SUM, *ROWS, *LOSSES)
        return slots_of_set(function) * (2 if reduces else 1)

    # --- programs -------------------------------------------------------------------------

    def _addresses(self):
        """Set some registers, with what others hold."""
        for _ in range(self.integer(1, 4)):
            register, source = self.integer(0, STEPPING[0] - 1), self.integer(0, STEPPING[0] - 1)
            offset = self.integer(-2**31, 2**31)
            self.program.address(register, offset, source)
            if register:
                self.contents[register] = (self.contents[source] + offset) % 2**32

    def _loop(self, depth: int):
        """A loop with two stepping registers, if there are as many left."""
        p, turns = self.program, self.integer(0, 3 if depth < 2 else 2)
        mine = [Stepper(r, turns) for r in STEPPING[2 * depth:2 * depth + 2]]
        for stepper in mine:
            p.address(stepper.register, 0)
        self.steppers += mine
        with p.loop(turns):
            self._block(depth + 1, self.integer(1, 3 - min(depth, 2)))
            for stepper in mine:
                if stepper.step:
                    p.address(stepper.register, stepper.step, stepper.register)
        self.steppers = self.steppers[:len(self.steppers) - len(mine)]

    def _block(self, depth: int, count: int):
        """Instructions, of which some are loops."""
        for _ in range(count):
            if depth < 4 and self.chance(0.2):
                self._loop(depth)
                continue
            if depth == 0 and self.chance(0.2):
                self._addresses()
            self.registers = {}
            self.rng.choice([self._gemm, self._grad, self._convert, self._vector, self._vector])()
            if self.chance(MISTAKES):
                self.program.instructions[-1] |= self._mistake()
            if self.chance(0.15):
                self.program.fence()

    def _program(self) -> int:
        program = self.program
        self.contents = [0] * STEPPING[0]
        self.footprints: dict[int, Footprint] = {}
        self.divide()
        self._block(0, self.integer(1, 5))
        if self.chance(MISTAKES):
            program.add(Opcode.NEXT)
        for at, (most, free) in freedoms(program.instructions, self.footprints).items():
            instruction = program.instructions[at]
            instruction["overlap"] = most if self.chance(0.5) else self.integer(0, most)
            instruction |= {f"{name}_independent": self.integer(0, 1) for name in sorted(free)}
        return program.end()

    # --- jobs -----------------------------------------------------------------------------

    def _mistake(self) -> dict:
        """A change that makes nearly every instruction illegal."""
        cfg = self.cfg
        unused = [name for name in FIELDS if name.startswith("unused")]
        name = unused[self.integer(0, len(unused) - 1)]
        mistakes = (
            {"opcode": self.integer(10, 255)},
            {"config_hash": cfg.hash ^ 1 << self.integer(0, 31)},
            {name: 1 << self.integer(0, INSTRUCTION[name].width - 1)},
            {"order": self.integer(4, 15)}, {"m": 0}, {"n": 0}, {"x_addr": 1, "x_reg": 0},
            {"dw_part_addr": 2}, {"y_bfp": 1, "y_accumulate": 1}, {"function": 31},
            {"x_kind": len(Kind)}, {"y_window": window(cfg.acc_slots)},
            {"dw_bfp": 1, "dw_accumulate": 1}, {"y_pitch": 0xFFFF},
            {"y_addr": 2**32 - cfg.beat_bytes, "y_reg": 0})
        return mistakes[self.integer(0, len(mistakes) - 1)]

    def _memory(self) -> dict:
        """How the memory behaves."""
        stall = self.rng.choice([0.0, 0.3, 0.8])
        if self.chance(0.3):
            stall = {c: float(self.rng.choice([0.0, 0.3, 0.9])) for c in CHANNELS}
        return {"latency": int(self.rng.choice([1, 5, 20, 60])), "stall": stall,
                "bytes_per_cycle": int(self.rng.choice([0, 0, 3, self.cfg.beat_bytes])),
                "outstanding": int(self.rng.choice([1, 2, 64])), "seed": self.integer(0, 2**32 - 1)}

    def jobs(self) -> list[Job]:
        """The first program after a reset, the second one without."""
        program = self.program
        room = (1 << self.cfg.addr_width) - (1 << 26)
        region_base = self.integer(0, room // 4096) * 4096
        settings = self._memory()
        size = len(program.memory())
        if self.chance(MISHAPS):
            kind = self.rng.choice(["stop", "reset", "read", "write"])
            at = self.integer(0, size - 1)
            settings |= {
                "stop": {"stop_after": self.integer(0, 3000)},
                "reset": {"reset_after": self.integer(0, 3000)},
                "read": {"read_errors": (at, at + self.integer(1, 64))},
                "write": {"write_errors": (at, at + self.integer(1, 64))}}[str(kind)]
        first, second = self.programs
        rates = [{name: self.number() for name in RATES} for _ in range(2)]
        return [program.job(first, region_base=region_base, rates=rates[0], **settings),
                program.job(second, region_base=region_base, fresh=False, rates=rates[1])]


def jobs(cfg: Config, seeds: range) -> list[Job]:
    """Jobs of the random programs `seeds`."""
    return [job for seed in seeds for job in Fuzz(cfg, seed).jobs()]
