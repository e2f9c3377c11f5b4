"""Which phase a clock counts under when both streams work."""

from hw.config import load
from hw.isa import Function, Kind
from tb.program import Program

TINY = load("tiny")


def test_the_array_stream_counts_first(verify):
    """A long VECTOR beside short GEMMs: theirs are all clocks of the array, it has the rest."""
    p = Program(TINY, 3)
    x, w, values = p.bfp(8, 8), p.bfp(8, 8), p.normal(40, 40)
    p.vector(Function.EXP, values, y=p.room(40, 40, False), phase=1)
    for phase in (2, 3):
        p.gemm(x, w, p.room(8, 8, False), overlap=1, phase=phase)
    p.vector(Function.RELU, values, y=p.room(4, 4, False), x_kind=Kind.X, phase=4)
    registers = verify(TINY, [p.job(p.end())])[0].registers
    busy = [registers[f"PHASE_BUSY_{n}"] for n in range(5)]
    cycles = [registers[f"PHASE_CYCLES_{n}"] for n in range(5)]
    assert all(busy[2:4])
    assert busy[2] + busy[3] == sum(busy) == 2 * 2 * 2 * 8
    assert sum(cycles) == registers["CYCLES_TOTAL"]
    assert cycles[1] > cycles[2] + cycles[3]  # it goes on when the GEMMs have finished
    assert all(cycles[1:])
