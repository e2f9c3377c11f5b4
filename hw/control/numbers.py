"""Numbers of commands: how a command waits for earlier ones (docs/architecture.md, "Ordering")."""

from amaranth.hdl import Mux

#: Bits of a command's number; it counts modulo 2**NUMBER_BITS.
NUMBER_BITS = 24
#: Bits of a number that a directory keeps; more than the commands in flight can count to.
LOW_BITS = 8


def reached(done, number):
    """Whether `done` counts up to `number`, both within half the range of each other."""
    return ~(done - number)[NUMBER_BITS - 1]


def age(issued, done, low):
    """How many commands were issued after number `low`; those in flight if it is done."""
    since = (issued[:LOW_BITS] - low)[:LOW_BITS]
    in_flight = (issued - done)[:LOW_BITS]
    return Mux(since < in_flight, since, in_flight)
