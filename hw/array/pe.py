"""Processing element and the group of columns that the array repeats."""

from amaranth.hdl import Cat, Module, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.lib.trees import add_carry, reduce_pairs


class Pe(wiring.Component):
    """`w` products of sign-magnitude mantissas, added to a partial sum.

    One row per clock: `psum` is `psum_in` of the last clock plus the dot product of the stationary
    mantissas with `a` of the clock before that. Exact. Each stationary mantissa has two registers:
    `w_en[k]` writes `w_data` to the second one, `swap` copies all second ones to the first ones,
    which multiply from the next clock on. Both in one clock: the copy takes the old value.

    Parameters
    ----------
    mant_width, dot_width, sum_width : m, w and the bits of a partial sum

    Members
    -------
    a : In(w mantissas {sign, magnitude})
    swap : In(1)
    w_en : In(w)
    w_data : In(m)
    psum_in : In(signed(sum_width))
    psum : Out(signed(sum_width))
    """

    #: Clocks from `a` to the `psum` that contains it.
    LATENCY = 2

    def __init__(self, mant_width: int, dot_width: int, sum_width: int):
        self.mant_width, self.dot_width, self.sum_width = mant_width, dot_width, sum_width
        super().__init__({
            "a": In(data.ArrayLayout(mant_width, dot_width)), "swap": In(1),
            "w_en": In(dot_width), "w_data": In(mant_width),
            "psum_in": In(signed(sum_width)), "psum": Out(signed(sum_width)),
        })

    def elaborate(self, platform):
        if platform is None:
            return self._contents(self)
        name = f"pe_m{self.mant_width}_w{self.dot_width}_s{self.sum_width}"
        return platform.instance(self, name, self._contents)

    def _contents(self, io):
        m = Module()
        magnitude = self.mant_width - 1
        terms, carries = [], []
        for k in range(self.dot_width):
            second = Signal(self.mant_width, name=f"second{k}", reset_less=True)
            first = Signal(self.mant_width, name=f"first{k}", reset_less=True)
            product = Signal(2 * magnitude, name=f"product{k}", reset_less=True)
            negative = Signal(name=f"negative{k}", reset_less=True)
            with m.If(io.w_en[k]):
                m.d.sync += second.eq(io.w_data)
            with m.If(io.swap):
                m.d.sync += first.eq(second)
            m.d.sync += [product.eq(io.a[k][:magnitude] * first[:magnitude]),
                         negative.eq(io.a[k][magnitude] ^ first[magnitude])]
            # -p = ~p + 1, the 1 being an adder's carry-in; right for p = 0 too.
            terms.append(Cat(product ^ negative.replicate(2 * magnitude), negative))
            carries.append(negative)
        # w terms and the partial sum take w adders: one carry-in for each term.
        carries = iter(carries)
        dot = reduce_pairs(terms, lambda a, b: add_carry(a, b, next(carries)))
        total = Signal(signed(self.sum_width), reset_less=True)
        m.d.sync += total.eq(add_carry(io.psum_in, dot, next(carries)))
        m.d.comb += io.psum.eq(total)
        return m


class PeColumns(wiring.Component):
    """w neighbouring columns of the array, G = T/w PEs each.

    The PEs of a row share `a` and `swap` and hand them to the next group one clock later.
    Stationary rows reach all PEs of a column in the same clock; `load` says which row takes them.

    Members
    -------
    a : In(T * m), the mantissas, w of them for each PE row
    swap : In(G), one bit for each PE row
    load : In(T), bit r: `w` is row r of the stationary tile
    w : In(w mantissas), one per column
    a_next, swap_next : Out, `a` and `swap` of the last clock
    sums : Out(w x signed(sum_width)), of the last PE row
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        row = cfg.tile * cfg.mant_width  # plain bits: no wire for each mantissa in the Verilog
        super().__init__({
            "a": In(row), "swap": In(cfg.pe_rows),
            "a_next": Out(row), "swap_next": Out(cfg.pe_rows),
            "load": In(cfg.tile), "w": In(data.ArrayLayout(cfg.mant_width, cfg.dot_width)),
            "sums": Out(data.ArrayLayout(signed(cfg.sum_width), cfg.dot_width)),
        })

    def elaborate(self, platform):
        if platform is None:
            return self._contents(self)
        cfg = self.cfg
        name = f"pe_columns_t{cfg.tile}_m{cfg.mant_width}_w{cfg.dot_width}"
        return platform.instance(self, name, self._contents)

    def _contents(self, io):
        cfg, m = self.cfg, Module()
        a = Signal.like(io.a, reset_less=True)
        swap = Signal(cfg.pe_rows)
        m.d.sync += [a.eq(io.a), swap.eq(io.swap)]
        m.d.comb += [io.a_next.eq(a), io.swap_next.eq(swap)]
        bits = cfg.dot_width * cfg.mant_width
        for column in range(cfg.dot_width):
            psum = 0
            for g in range(cfg.pe_rows):
                pe = Pe(cfg.mant_width, cfg.dot_width, cfg.sum_width)
                m.submodules[f"pe_{g}_{column}"] = pe
                m.d.comb += [pe.a.eq(io.a.word_select(g, bits)), pe.swap.eq(io.swap[g]),
                             pe.w_en.eq(io.load.word_select(g, cfg.dot_width)),
                             pe.w_data.eq(io.w[column]), pe.psum_in.eq(psum)]
                psum = pe.psum
            m.d.comb += io.sums[column].eq(psum)
        return m
