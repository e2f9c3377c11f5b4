"""Quantiser: rows of BFP tiles from both contexts, in passing."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import DIM_BITS, Config
from hw.lib.context_arbiter import ContextArbiter
from hw.lib.delay import delay
from hw.numerics.quantise import QuantiseLane, StochasticBits


def quantise_request(cfg: Config) -> data.StructLayout:
    """A row of FP32 numbers to be quantised."""
    return data.StructLayout({
        "x": 32 * cfg.tile,
        "exp": 8,            # exponent byte of the tile (row)
        "stochastic": 1,     # round stochastically, not to nearest even
        "seed": 32,
        "salt": 32,
        "row": DIM_BITS,     # global row and column of the first element (hash)
        "col": DIM_BITS,
    })


class Quantiser(wiring.Component):
    """Turns rows of FP32 numbers into mantissas (docs/numerics.md, "Quantise").

    One row per clock for both contexts together; docs/serving.md, "Arbitration", says which. A
    result comes `LATENCY` clocks after its request was taken and is not held back, so a store unit
    asks only when it has room for it.

    Members
    -------
    i : In(stream.Signature(quantise_request(cfg))).array(2), by ContextId; `ready` does not depend
        on the context's own `valid`
    valid : Out(1).array(2), pulse: `mant` is the result of the context's oldest request
    mant : Out(data.ArrayLayout(mant_width, tile)), {sign, magnitude} each
    fair, hold : In(1), as of ContextArbiter
    use : Out(1).array(2), a row of the context is taken
    asks : Out(1).array(2), the context asks for a row to be taken
    held : Out(16), clocks for which inference's present request has been waiting up to now, in
        each of which a row of training was taken; at most 1, with `fair` only
    """

    LATENCY = 1 + QuantiseLane.LATENCY

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({
            "i": In(stream.Signature(quantise_request(cfg))).array(2), "valid": Out(1).array(2),
            "mant": Out(data.ArrayLayout(cfg.mant_width, cfg.tile)), "fair": In(1), "hold": In(1),
            "use": Out(1).array(2), "asks": Out(1).array(2), "held": Out(16),
        })

    def elaborate(self, platform):
        cfg = self.cfg
        m = Module()
        m.submodules.arbiter = arbiter = ContextArbiter(quantise_request(cfg))
        m.submodules.bits = bits = StochasticBits(cfg.tile)
        # The row waits a clock for its bits, behind the choice between the contexts.
        assert bits.LATENCY == 1 + QuantiseLane.R_DELAY, "bits meet the row they belong to"
        request = arbiter.o.payload
        x = Signal(32 * cfg.tile, reset_less=True)
        exp = Signal(8, reset_less=True)
        stochastic = Signal(reset_less=True)
        inference = self.i[1]
        m.d.comb += [
            arbiter.fair.eq(self.fair), arbiter.hold.eq(self.hold), arbiter.o.ready.eq(1),
            *(port.eq(getattr(request, name)) for name, port in (
                ("row", bits.row), ("col", bits.col), ("seed", bits.seed), ("salt", bits.salt))),
        ]
        with m.If(arbiter.o.valid):
            m.d.sync += [x.eq(request.x), exp.eq(request.exp), stochastic.eq(request.stochastic)]
        m.d.sync += self.held.eq(Mux(inference.valid & ~inference.ready, self.held + 1, 0))

        for c in range(cfg.tile):
            m.submodules[f"lane{c}"] = lane = QuantiseLane(cfg.mant_width)
            m.d.comb += [lane.x.eq(x.word_select(c, 32)), lane.exp.eq(exp),
                         lane.stochastic.eq(stochastic), lane.r.eq(bits.r[c]),
                         self.mant[c].eq(lane.q)]
        for context, (port, there) in enumerate(zip(self.i, arbiter.i, strict=True)):
            m.d.comb += [
                there.valid.eq(port.valid), there.payload.eq(port.payload),
                port.ready.eq(there.ready), self.asks[context].eq(port.valid),
                self.use[context].eq(port.valid & port.ready),
            ]
        taken = delay(m, Cat(self.use[0], self.use[1]), self.LATENCY, name="taken", reset=True)
        m.d.comb += [self.valid[context].eq(taken[context]) for context in range(2)]
        return m
