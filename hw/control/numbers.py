"""Numbers of commands: how a command waits for earlier ones (docs/architecture.md, "Ordering")."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

#: Bits of a command's number; it counts modulo 2**NUMBER_BITS.
NUMBER_BITS = 24
#: Bits of a number that a directory keeps; more than the commands in flight can count to.
LOW_BITS = 8


def reached(done, number):
    """Whether `done` counts up to `number`, both within half the range of each other."""
    return ~(done - number)[NUMBER_BITS - 1]


def later(a, b):
    """The later of two numbers within half the range of each other."""
    return Mux(reached(a, b), a, b)


def age(issued, done, low):
    """How many commands were issued after number `low`; those in flight if it is done."""
    since = (issued[:LOW_BITS] - low)[:LOW_BITS]
    in_flight = (issued - done)[:LOW_BITS]
    return Mux(since < in_flight, since, in_flight)


def count_issued(m: Module, sequencer: wiring.Component, queues: tuple[str, ...]) -> None:
    """Let the ports `*_issued` of `sequencer` count the commands that its queues take."""
    for queue in queues:
        port, issued = getattr(sequencer, queue), getattr(sequencer, f"{queue}_issued")
        with m.If(port.valid & port.ready):
            m.d.sync += issued.eq(issued + 1)


class Fence(wiring.Component):
    """What a command waits for that must follow all commands before its instruction.

    `number` is that of the last one issued before `start`, or what `done` has reached once that is
    done, so it never grows older than half the range. Valid from the clock after `start` on.

    Members
    -------
    start : In(1)
    issued, done, number : NUMBER_BITS; In, In, Out
    """

    def __init__(self):
        super().__init__({"start": In(1), "issued": In(NUMBER_BITS), "done": In(NUMBER_BITS),
                          "number": Out(NUMBER_BITS)})

    def elaborate(self, platform):
        m = Module()
        before = Signal(NUMBER_BITS, reset_less=True)
        passed = Signal()
        m.d.comb += self.number.eq(Mux(passed, self.done, before))
        with m.If(self.start):
            m.d.sync += [before.eq(self.issued), passed.eq(0)]
        with m.Elif(reached(self.done, before)):
            m.d.sync += passed.eq(1)
        return m
