"""FP32 to block floating point: one lane of the quantiser, and the bits it rounds with."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import DIM_BITS


class QuantiseLane(wiring.Component):
    """One FP32 number to a mantissa on the grid of its tile's exponent.

    Rounded once, to nearest even or stochastically, then clamped to the largest mantissa. The
    result is 0 if `exp` is 0 (zero tile) or 255 (NaN), and for a subnormal; 0 has no sign.

    Latency `LATENCY` clocks, one number per clock. The random bits are needed only at the end:
    `r` is for the number that went in `R_DELAY` clocks before.

    Parameters
    ----------
    mant_width : int
        Bits m of a mantissa with its sign, 4..16.

    Members
    -------
    x : In(32), FP32
    exp : In(8), exponent byte of the tile (row); not less than the exponent field of `x`
    stochastic : In(1)
    r : In(16), random bits, `R_DELAY` clocks after `x`
    q : Out(mant_width), {sign, magnitude}, sign in the highest bit
    """

    LATENCY = 3
    R_DELAY = 2

    def __init__(self, mant_width: int):
        self.mant_width = mant_width
        super().__init__({"x": In(32), "exp": In(8), "stochastic": In(1), "r": In(16),
                          "q": Out(mant_width)})

    def elaborate(self, platform):
        if platform is None:
            return self._contents(self)
        return platform.instance(self, f"quantise_m{self.mant_width}", self._contents)

    def _contents(self, ports):
        m = Module()
        integer_bits, fraction_bits = self.mant_width - 1, 16
        width = integer_bits + fraction_bits

        def register(shape, name):
            return Signal(shape, name=name, reset_less=True)

        # 1: distance to the tile's exponent. Beyond 31 nothing is left, not even random bits.
        field = ports.x[23:31]
        distance = Signal(9)
        m.d.comb += distance.eq(ports.exp - field)
        fraction = register(23, "fraction")
        shift = register(5, "shift")
        sign1, live1, stochastic1 = (register(1, n) for n in ("sign1", "live1", "stochastic1"))
        m.d.sync += [fraction.eq(ports.x), shift.eq(distance), sign1.eq(ports.x[31]),
                     live1.eq((field != 0) & (ports.exp != 255) & (distance[5:] == 0)),
                     stochastic1.eq(ports.stochastic)]

        # 2: fixed point: integer and 16 bits of fraction; `sticky` is what lies below.
        significand = Cat(fraction, Const(1, 1))
        spare = 24 - width
        fixed = significand[spare:] if spare > 0 else Cat(Const(0, -spare), significand)
        below = significand[:spare].any() if spare > 0 else Const(0, 1)
        for k in range(len(shift)):
            below = below | (shift[k] & fixed[:1 << k].any())
            fixed = Mux(shift[k], fixed[1 << k:], fixed)
        value = register(width, "value")
        sticky = register(1, "sticky")
        sign2, live2, stochastic2 = (register(1, n) for n in ("sign2", "live2", "stochastic2"))
        m.d.sync += [value.eq(fixed), sticky.eq(below), sign2.eq(sign1), live2.eq(live1),
                     stochastic2.eq(stochastic1)]

        # 3: round: the fraction plus R, or plus 0x7FFF and one more unless a tie falls to even.
        integer = value[fraction_bits:]
        one = ~stochastic2 & (integer[0] | sticky)
        total = Signal(fraction_bits + 2)
        magnitude = Signal(integer_bits)
        m.d.comb += [
            total.eq(Cat(one, value[:fraction_bits])
                     + Cat(one, Mux(stochastic2, ports.r, 0x7FFF))),
            magnitude.eq(Mux(live2, integer + (total[-1] & ~integer.all()), 0)),
        ]
        mantissa = register(self.mant_width, "mantissa")
        m.d.comb += ports.q.eq(mantissa)
        m.d.sync += mantissa.eq(Cat(magnitude, sign2 & magnitude.any()))
        return m


class StochasticBits(wiring.Component):
    """Random bits for the elements of a row: a hash of seed, salt and the element's position.

    Latency `LATENCY` clocks, one row per clock.

    Parameters
    ----------
    lanes : int
        Elements of a row; lane c is at column `col` + c (modulo 2**20).

    Members
    -------
    row, col : In(20), position of the row's first element
    seed, salt : In(32), the row's
    r : Out(data.ArrayLayout(16, lanes))
    """

    LATENCY = 3

    def __init__(self, lanes: int):
        self.lanes = lanes
        super().__init__({"row": In(DIM_BITS), "col": In(DIM_BITS), "seed": In(32),
                          "salt": In(32), "r": Out(data.ArrayLayout(16, lanes))})

    def elaborate(self, platform):
        m = Module()
        seed1, salt1 = (Signal(32, name=n, reset_less=True) for n in ("seed1", "salt1"))
        seed2, salt2 = (Signal(16, name=n, reset_less=True) for n in ("seed2", "salt2"))
        m.d.sync += [seed1.eq(self.seed), salt1.eq(self.salt), seed2.eq(seed1), salt2.eq(salt1)]
        later_keys = (seed1[16:], salt1[16:]), (seed2 ^ 0x9E37, salt2 ^ 0x79B9)
        for lane in range(self.lanes):
            col = Signal(DIM_BITS, name=f"col{lane}")
            m.d.comb += col.eq(self.col + lane)
            x, y = self.row[:16], col[:16]
            keys = ((self.seed[:16] ^ self.row[16:], self.salt[:16] ^ col[16:]), *later_keys)
            for stage, (key0, key1) in enumerate(keys):
                m.submodules[f"rounds{lane}_{stage}"] = rounds = _HashRounds()
                m.d.comb += [rounds.x.eq(x), rounds.y.eq(y), rounds.key0.eq(key0),
                             rounds.key1.eq(key1)]
                x, y = rounds.x_next, rounds.y_next
            m.d.comb += self.r[lane].eq(x)
        return m


class _HashRounds(wiring.Component):
    """Two rounds of Speck32 and a register."""

    def __init__(self):
        super().__init__({"x": In(16), "y": In(16), "key0": In(16), "key1": In(16),
                          "x_next": Out(16), "y_next": Out(16)})

    def elaborate(self, platform):
        if platform is None:
            return self._contents(self)
        return platform.instance(self, "hash_rounds", self._contents)

    def _contents(self, ports):
        m = Module()
        x, y = ports.x, ports.y
        for k, key in enumerate((ports.key0, ports.key1)):
            mixed = Signal(16, name=f"mixed{k}")
            turned = Signal(16, name=f"turned{k}")
            m.d.comb += [mixed.eq((x.rotate_right(7) + y) ^ key),
                         turned.eq(y.rotate_left(2) ^ mixed)]
            x, y = mixed, turned
        x_register = Signal(16, reset_less=True)
        y_register = Signal(16, reset_less=True)
        m.d.comb += [ports.x_next.eq(x_register), ports.y_next.eq(y_register)]
        m.d.sync += [x_register.eq(x), y_register.eq(y)]
        return m
