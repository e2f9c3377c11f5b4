"""Where a tile image lies in DRAM."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import OFFSET_BITS, Config, clog2


class TileAddress(wiring.Component):
    """Offset of a tile's image: base + (i * pitch + j) * bytes of an image.

    A pipeline of `LATENCY` clocks that runs all the time.

    Members
    -------
    base : In(32), pitch : In(16), i, j : In(index_bits)
    fp32 : In(1), FP32 images; else BFP
    region_size : In(32)
    address : Out(32)
    outside : Out(1), the image does not lie inside the region (`base` and `fp32` held until then)
    """

    LATENCY = 3

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "base": In(OFFSET_BITS), "pitch": In(16), "i": In(cfg.index_bits),
            "j": In(cfg.index_bits), "fp32": In(1), "region_size": In(OFFSET_BITS),
            "address": Out(OFFSET_BITS), "outside": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        cfg = self.cfg
        number = Signal(cfg.index_bits + 17)  # of the tile, counted from the first one
        offset = Signal(len(number) + clog2(max(cfg.bfp_bytes, cfg.fp32_bytes) + 1))
        begin = Signal(len(offset) + 1)
        m.d.sync += [
            number.eq(self.i * self.pitch + self.j),
            offset.eq(Mux(self.fp32, number * cfg.fp32_bytes, number * cfg.bfp_bytes)),
            begin.eq(self.base + offset),
        ]
        m.d.comb += [
            self.address.eq(begin),
            self.outside.eq(begin + Mux(self.fp32, cfg.fp32_bytes, cfg.bfp_bytes)
                            > self.region_size),
        ]
        return m
