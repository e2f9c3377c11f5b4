"""A program over many batches in a region of DRAM, with everything that it works on."""

import numpy as np

from hw.config import DIM_BITS, Config
from hw.isa import ADDRESS_REGISTERS, INSTRUCTION_BYTES, Opcode
from sw.compiler import phases
from sw.compiler.assembler import assemble
from sw.compiler.layers import Layers
from sw.compiler.layout import Batches, Matrix
from sw.compiler.network import NetworkError
from sw.compiler.schedule import Command, dispatch

#: Turns of a loop that show every pair of instructions that can meet.
TURNS = 3


def check_samples(batch: int, samples: int):
    """Refuse batches and samples that make no program.

    Raises
    ------
    NetworkError
        One is below 1, or too large for an instruction.
    """
    for name, value in (("batch", batch), ("samples", samples)):
        if not 1 <= value < 1 << DIM_BITS:
            raise NetworkError(f"{name} must be 1..{(1 << DIM_BITS) - 1}, not {value}")


def advance(steps: dict[int, int]) -> list[dict]:
    """ADDRESS instructions that add `steps` (register -> bytes, or salts) to the registers."""
    assert all(0 < register < ADDRESS_REGISTERS for register in steps)
    return [{"opcode": Opcode.ADDRESS, "x_reg": register, "w_reg": register, "x_addr": step}
            for register, step in steps.items()]


class BatchProgram:
    """Instructions for full batches in a loop, and for a last smaller one, placed with their data.

    Attributes
    ----------
    cfg : Config
    network : Network
    batch, samples : int
    places, batches : dict
        Tensor's name -> where it is.
    phases : dict
        Phase -> name, of the phases that the network uses.
    program : int
        Offset of the program.
    size : int
        Bytes of the region.
    clocks : float
        Estimate for the whole program, nothing overlapping.
    code : bytes
        The program.
    """

    def __init__(self, layers: Layers, samples: int, prepare: list[Command],
                 step: list[Command | dict], rest: list[Command]):
        """Put together `prepare`, a loop over `step` if there are full batches, and `rest`.

        The dictionaries in `step` are its ADDRESS instructions.
        """
        self.cfg: Config = layers.cfg
        self.network, self.batch, self.samples = layers.network, layers.batch, samples
        self.places: dict[str, Matrix] = layers.places
        self.batches: dict[str, Batches] = layers.batches
        self.phases = phases.names(len(self.network.layers))
        turns = samples // self.batch
        body = [c for c in step if isinstance(c, Command)]
        dispatch(prepare + body * min(turns, TURNS) + rest)
        self.clocks = sum(c.clocks for c in prepare + rest) + turns * sum(c.clocks for c in body)
        instructions = [c.instruction() for c in prepare]
        if turns:
            inner = [c.instruction() if isinstance(c, Command) else c for c in step]
            instructions += [{"opcode": Opcode.LOOP, "m": turns, "bm": len(inner) + 1}, *inner,
                             {"opcode": Opcode.NEXT}]
        instructions += [c.instruction() for c in rest]
        self.code = assemble(self.cfg, instructions)
        self.program = layers.region.take(len(self.code))
        self.size = layers.region.size

    def image(self) -> np.ndarray:
        """The region with the program; what holds no data is 0xFF, which reads as NaN."""
        memory = np.full(self.size, 0xFF, np.uint8)
        memory[self.program:self.program + len(self.code)] = np.frombuffer(self.code, np.uint8)
        return memory

    def locate(self, addr: int) -> str:
        """What lies at offset `addr`: tensor, batch, tile, byte."""
        if addr >= self.program:
            return f"the program, instruction {(addr - self.program) // INSTRUCTION_BYTES}"
        name, place = max(((n, p) for n, p in {**self.places, **self.batches}.items()
                           if p.addr <= addr), key=lambda item: item[1].addr)
        offset, where = addr - place.addr, ""
        if isinstance(place, Batches):
            number, offset = divmod(offset, place.stride)
            where = f", batch {number}"
        size = self.cfg.image_bytes(place.bfp)
        tile, byte = divmod(offset, size)
        i, j = divmod(tile, place.pitch)
        return f"{name}{where}, tile ({i}, {j}), byte {byte}"
