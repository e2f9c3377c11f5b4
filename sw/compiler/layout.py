"""Placement of matrices in a context's DRAM region."""

from dataclasses import dataclass

from hw.config import Config

#: Matrices and programs begin on multiples of this, a DRAM page.
ALIGN = 4096


class LayoutError(ValueError):
    """Matrices that do not fit the offsets or pitches of an instruction."""


@dataclass(frozen=True)
class Matrix:
    """A matrix of `rows` x `cols` elements as a dense grid of tile images at `addr`."""

    rows: int
    cols: int
    bfp: bool
    addr: int
    pitch: int

    def fields(self, name: str) -> dict[str, int]:
        """Address and pitch under the names that an instruction gives operand `name`."""
        return {f"{name}_addr": self.addr, f"{name}_pitch": self.pitch}


class Region:
    """Hands out the bytes of a region from offset 0 on."""

    def __init__(self, cfg: Config):
        self.cfg, self.size = cfg, 0

    def take(self, count: int) -> int:
        """Offset of `count` fresh bytes.

        Raises
        ------
        LayoutError
            The region would exceed the 32 bits of an offset.
        """
        addr = self.size
        self.size = -(-(addr + count) // ALIGN) * ALIGN
        if self.size >= 1 << 32:
            raise LayoutError(f"matrices must fit into 4 GiB, these take {self.size / 2**30:.1f}")
        return addr

    def matrix(self, rows: int, cols: int, bfp: bool) -> Matrix:
        """Place a matrix."""
        tm, tn = (-(-s // self.cfg.tile) for s in (rows, cols))
        if tn >= 1 << 16:
            raise LayoutError(f"a matrix must have at most {((1 << 16) - 1) * self.cfg.tile} "
                              f"columns, not {cols}")
        image = self.cfg.bfp_bytes if bfp else self.cfg.fp32_bytes
        return Matrix(rows, cols, bfp, self.take(tm * tn * image), tn)
