"""Limits of AXI4 bursts, and the beats of tile images."""

from math import gcd

from amaranth.hdl import Mux, Value

from hw.config import Config, clog2

#: No burst crosses a multiple of this address.
PAGE_BYTES = 4096
#: A burst has at most this many beats.
MAX_BEATS = 256


def image_beats(cfg: Config, bfp: Value, rows: Value) -> Value:
    """`Config.image_beats` in hardware: `rows` times a constant, no division."""
    def beats(row_bits):
        unit = gcd(row_bits, cfg.axi_width)
        beat = cfg.axi_width // unit  # a power of two
        return (rows * (row_bits // unit) + beat - 1) >> clog2(beat)

    return Mux(bfp, beats(cfg.tile * cfg.container) + cfg.exp_beats, beats(cfg.tile * 32))
