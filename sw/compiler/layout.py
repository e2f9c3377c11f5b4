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


@dataclass(frozen=True)
class Batches:
    """`samples` rows in batches of `batch`, each a matrix of its own, one after the other.

    `stride` is the bytes from one batch to the next. The last one may have fewer rows.
    """

    samples: int
    batch: int
    cols: int
    bfp: bool
    addr: int
    pitch: int
    stride: int

    @property
    def rest(self) -> int:
        """Samples of the last batch if it is not a full one, else 0."""
        return self.samples % self.batch

    @property
    def full(self) -> int:
        """Full batches."""
        return self.samples // self.batch

    def fields(self, name: str) -> dict[str, int]:
        """As `Matrix.fields`, of the first batch."""
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
        pitch = self._pitch(cols)
        return Matrix(rows, cols, bfp, self.take(self._bytes(rows, pitch, bfp)), pitch)

    def batches(self, samples: int, batch: int, cols: int, bfp: bool) -> Batches:
        """Place `samples` rows in batches."""
        pitch = self._pitch(cols)
        stride = self._bytes(batch, pitch, bfp)
        rest = self._bytes(samples % batch, pitch, bfp)
        addr = self.take(samples // batch * stride + rest)
        return Batches(samples, batch, cols, bfp, addr, pitch, stride)

    def _pitch(self, cols: int) -> int:
        tn = -(-cols // self.cfg.tile)
        if tn >= 1 << 16:
            raise LayoutError(f"a matrix must have at most {((1 << 16) - 1) * self.cfg.tile} "
                              f"columns, not {cols}")
        return tn

    def _bytes(self, rows: int, pitch: int, bfp: bool) -> int:
        image = self.cfg.image_bytes(bfp)
        return -(-rows // self.cfg.tile) * pitch * image
