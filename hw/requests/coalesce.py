"""When completions raise the interrupt."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Coalesce(wiring.Component):
    """Raises the interrupt after `count` completions, or `clocks` clocks after the first of fewer.

    Members
    -------
    clear : In(1), forget completions for which it was not raised yet
    complete : In(1), pulse per completion
    count : In(16), 0 is 1
    clocks : In(32), 0 is never
    event : Out(1), pulse: in the clock of the `count`-th completion, or `clocks` clocks after that
        of the first one
    """

    def __init__(self):
        super().__init__({"clear": In(1), "complete": In(1), "count": In(16), "clocks": In(32),
                          "event": Out(1)})

    def elaborate(self, platform):
        m = Module()
        waiting = Signal(16)
        total = Signal(17)
        age = Signal(32)  # clocks since the first of them
        late = Signal()
        m.d.comb += [
            total.eq(waiting + self.complete),
            late.eq((waiting != 0) & (self.clocks != 0) & (age >= self.clocks)),
            self.event.eq((self.complete & (total >= self.count)) | late),
        ]
        m.d.sync += waiting.eq(total)
        with m.If(waiting == 0):
            m.d.sync += age.eq(1)
        with m.Elif(~age.all()):
            m.d.sync += age.eq(age + 1)
        with m.If(self.event | self.clear):
            m.d.sync += waiting.eq(0)
        return m
