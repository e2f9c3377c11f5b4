import numpy as np
import pytest

from hw.isa import INSTRUCTION, Error, Opcode
from tb.job import Job
from tb.runner import SimulationError

END_AT = 256


@pytest.fixture(scope="module")
def memory(tiny):
    """8 KiB of noise with an END at END_AT."""
    noise = np.random.default_rng(1).integers(0, 256, 8192, np.uint8)
    end = INSTRUCTION.const({"opcode": Opcode.END.value, "config_hash": tiny.hash})
    noise[END_AT:END_AT + 128] = np.frombuffer(end.as_bits().to_bytes(128, "little"), np.uint8)
    return noise


def registers(**others):
    return {"REGION_SIZE": 8192, "PROGRAM_ADDR": END_AT, **others}


def test_jobs_are_independent_unless_they_keep_memory(simulate, tiny, memory):
    base = 1 << 33
    placed = registers(REGION_BASE_LO=base % 2**32, REGION_BASE_HI=base >> 32)
    first, kept, fresh, slow, stopped = simulate(tiny, [
        Job(memory=memory, registers=registers(SEED=5)),
        Job(memory=None, registers={"PROGRAM_ADDR": END_AT}),
        Job(memory=memory[:5001], registers=placed, base=base),
        Job(memory=memory, registers=registers(), latency=500, stall=0.5),
        Job(memory=memory, registers=registers(), latency=500, stop_after=100),
    ])
    for result, length in (first, 8192), (kept, 8192), (fresh, 5001), (slow, 8192):
        assert np.array_equal(result.memory, memory[:length])
        assert not result.protocol_errors
        assert not result.outstanding
        assert result.registers["STATUS"] == 2
        assert result.registers["READ_PROGRAM"] == 128 * (2 if result is kept else 1)
    for result in first, fresh, slow:
        assert abs(result.cycles - result.registers["CYCLES_TOTAL"]) <= 4
    assert [r.registers["SEED"] for r in (first, kept, fresh)] == [5, 5, 0]
    assert slow.cycles > 500 > 100 > first.cycles
    assert stopped.registers["STATUS"] == 0
    assert not stopped.outstanding


def test_bus_errors_and_protocol_errors_are_told_apart(simulate, tiny, memory):
    slverr, outside = simulate(tiny, [
        Job(memory=memory, registers=registers(), read_errors=(END_AT, END_AT + 8)),
        Job(memory=memory[:END_AT], registers=registers()),
    ])
    for result in slverr, outside:
        assert result.registers["ERROR_CODE"] == Error.READ_ERROR.value
        assert result.registers["ERROR_ADDR"] == END_AT
    assert slverr.protocol_errors == []
    assert outside.protocol_errors == ["burst outside the memory"]


def test_a_hang_is_explained(simulate, tiny, memory):
    with pytest.raises(SimulationError, match=r"job 1: no end within 50 clocks: STATUS 0x1.*: 1"):
        simulate(tiny, [Job(memory=memory, registers=registers()),
                        Job(memory=memory, registers=registers(), latency=900, timeout_cycles=50)])


@pytest.mark.parametrize(("job", "message"), [
    (Job(memory=None), "the first job must bring its memory"),
    (Job(memory=bytes((1 << 26) + 1)), "must be at most 67108864 bytes, not 67108865"),
    (Job(memory=b"", stall=0.95), "stall must be 0 .. 0.9, not 0.95"),
    (Job(memory=b"", stall={"x": 0.1}), "stall names channels ar, r, aw, w, b, not 'x'"),
    (Job(memory=b"", latency=0), "latency must be 1 .. 65535, not 0"),
    (Job(memory=b"", outstanding=65), "outstanding must be 1 .. 64, not 65"),
    (Job(memory=b"", error_limit=256), "error_limit must be 0 .. 255, not 256"),
    (Job(memory=b"", registers={"SEAD": 1}), "unknown register 'SEAD'"),
])
def test_refuses_bad_jobs(simulate, tiny, job, message):
    with pytest.raises(ValueError, match=message):
        simulate(tiny, [job])
