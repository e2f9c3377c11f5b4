"""Size of a request's input or output in tile images."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import DIM_BITS, OFFSET_BITS, Config, clog2


def image_bits(cfg: Config) -> int:
    """Bits of an image's number within a request's input or output."""
    return max(1, clog2(-(-(1 << DIM_BITS) // cfg.tile**2)))


class Shape(wiring.Component):
    """Cuts `elements` numbers into tile images of T rows of T.

    Counts images, then rows of the last one, one a clock.

    Parameters
    ----------
    cfg : Config
    bfp : bool
        BFP images, else FP32.

    Members
    -------
    start : In(1), begin with `elements`, which stays
    elements : In(20), 0 is 1
    done : Out(1), the outputs are valid, until the next `start`
    last_image : Out, number of the last image, from 0
    last_rows : Out, rows of the last image, 1 .. T
    bytes : Out(32), bytes from the first image to the last one's last valid row
    """

    def __init__(self, cfg: Config, bfp: bool):
        self.cfg, self.bfp = cfg, bfp
        super().__init__({
            "start": In(1), "elements": In(DIM_BITS), "done": Out(1),
            "last_image": Out(image_bits(cfg)), "last_rows": Out(cfg.count_bits),
            "bytes": Out(OFFSET_BITS),
        })

    def elaborate(self, platform):
        cfg, m = self.cfg, Module()
        left = Signal(DIM_BITS)
        counted = Signal()
        before = Signal(OFFSET_BITS)  # bytes of the images before the last one
        row_bits = cfg.tile * (cfg.container if self.bfp else 32)
        beats = Signal(range(cfg.image_beats(self.bfp, cfg.tile) + 1))
        m.d.comb += beats.eq(
            ((self.last_rows * row_bits + cfg.axi_width - 1) >> clog2(cfg.axi_width))
            + cfg.exp_beats * self.bfp)
        with m.If(self.start):
            m.d.sync += [left.eq(self.elements), self.last_image.eq(0), self.last_rows.eq(1),
                         before.eq(0), counted.eq(0), self.done.eq(0)]
        with m.Elif(left > cfg.tile**2):
            m.d.sync += [left.eq(left - cfg.tile**2), self.last_image.eq(self.last_image + 1),
                         before.eq(before + cfg.image_bytes(self.bfp))]
        with m.Elif(left > cfg.tile):
            m.d.sync += [left.eq(left - cfg.tile), self.last_rows.eq(self.last_rows + 1)]
        with m.Else():
            m.d.sync += [counted.eq(1), self.done.eq(counted),
                         self.bytes.eq(before + (beats << clog2(cfg.beat_bytes)))]
        return m
