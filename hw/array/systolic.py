"""Weight-stationary systolic array."""

from amaranth.hdl import Assert, Cat, Module, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.array.pe import Pe, PeColumns
from hw.config import Config
from hw.lib.delay import delay


def array_latency(cfg: Config) -> int:
    """Clocks from a streamed row to its sums: skew, PE rows, deskew."""
    return 2 * cfg.pe_rows + Pe.LATENCY


class SystolicArray(wiring.Component):
    """T x T tile times streamed rows: the T exact column sums of a row, `LATENCY` clocks after it.

    G = T/w rows of T PEs, in G groups of w columns. One streamed row and one stationary row per
    clock, no stall, no handshake.

    The stationary tile is loaded into second registers while the one before it multiplies. Its
    rows 0 .. T-1 come in T successive clocks; `load` marks row 0. `swap` marks the first streamed
    row that it multiplies. The caller keeps two distances (asserted):

    * from `load` to `swap` of the same tile at least T - G clocks (w = 1: the two rows 0 may come
      in the same clock);
    * from `swap` to the `load` of the next tile at least G clocks.

    So passes of T rows, each with a tile of its own, follow each other without a gap: the second
    register of a PE is written in the very clock in which its old contents move on, or later.

    Why: the row that comes in clock t is in group q of PE row g in clock t + g + q + 2, and the
    swap one clock ahead of it, q = 0 .. G-1. Row r = g*w + k of the next tile, loaded from clock s
    on and used from t' on, writes PE row g in clock s + r: not before the last group's swap,
    t + g + G, and before its own swap in the first group, t' + g + 1. The tightest cases are
    r = 0 (s >= t + G) and r = T - 1 (s + T - G <= t').

    Members
    -------
    a : In(T mantissas {sign, magnitude}), a streamed row
    swap : In(1), `a` is the first row for the stationary tile loaded last
    load : In(1), `w` is row 0 of a stationary tile
    w : In(T mantissas), a stationary row
    sums : Out(T x signed(sum_width))
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        #: Clocks from `a` to its `sums`.
        self.LATENCY = array_latency(cfg)
        mantissas = data.ArrayLayout(cfg.mant_width, cfg.tile)
        super().__init__({
            "a": In(mantissas), "swap": In(1), "load": In(1), "w": In(mantissas),
            "sums": Out(data.ArrayLayout(signed(cfg.sum_width), cfg.tile)),
        })

    def elaborate(self, platform):
        cfg, m = self.cfg, Module()
        groups, dot = cfg.pe_rows, cfg.dot_width

        loaded = Signal(cfg.tile - 1)
        loading = Cat(self.load, loaded)  # bit r: row r of the stationary tile comes now
        swapped = Signal(groups)          # bit g: PE row g swaps now
        m.d.sync += [loaded.eq(loading), swapped.eq(Cat(self.swap, swapped)),
                     Assert(~(self.swap & loading[:cfg.tile - groups].any())),
                     Assert(~(self.load & (loaded | swapped[:groups - 1]).any()))]

        # PE row g is g rows later; two clocks more put the swap ahead and the load in time.
        bits = dot * cfg.mant_width
        a = Cat(delay(m, self.a.as_value().word_select(g, bits), g + 2, name=f"skew{g}")
                for g in range(groups))
        swap = swapped
        for q in range(groups):
            m.submodules[f"columns_{q}"] = columns = PeColumns(cfg)
            m.d.comb += [
                columns.a.eq(a), columns.swap.eq(swap), columns.load.eq(loading),
                columns.w.eq(self.w.as_value().word_select(q, bits)),
                # the groups finish one after the other: delay the early ones
                self.sums.as_value().word_select(q, dot * cfg.sum_width).eq(
                    delay(m, columns.sums, groups - 1 - q, name=f"deskew{q}")),
            ]
            a, swap = columns.a_next, columns.swap_next
        return m
