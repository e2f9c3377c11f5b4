"""Instructions to bytes, back, and to text."""

import numpy as np
import pytest

from hw.config import load
from hw.isa import (
    FIELDS,
    INSTRUCTION,
    INSTRUCTION_BYTES,
    WINDOW,
    Function,
    Kind,
    Opcode,
    Order,
    XSource,
    YTarget,
)
from sw.compiler.assembler import AssemblyError, assemble, disassemble, instruction, window
from sw.golden.decode import decode

CFG = load("tiny")


def test_every_field_lands_in_its_bits():
    """Against Amaranth's own packing, and back through the golden decoder."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        fields = {}
        for name, (shape, _) in FIELDS.items():
            if shape is WINDOW:
                fields[name] = {part: int(rng.integers(1 << WINDOW[part].width))
                                for part in dict(WINDOW)}
            else:
                fields[name] = int.from_bytes(rng.bytes(12), "little") % (1 << shape)
        opcode = fields.pop("opcode")
        raw = instruction(CFG, opcode, **fields)
        fields["opcode"] = opcode
        expected = INSTRUCTION.const(fields).as_bits()
        assert raw == expected.to_bytes(INSTRUCTION_BYTES, "little")
        assert decode(np.frombuffer(raw, np.uint8)) == fields


def test_programs_end_and_carry_the_configuration():
    program = assemble(CFG, [{"opcode": Opcode.FENCE}])
    assert len(program) == 2 * INSTRUCTION_BYTES
    for part, opcode in ((program[:128], Opcode.FENCE), (program[128:], Opcode.END)):
        fields = decode(np.frombuffer(part, np.uint8))
        assert (fields["opcode"], fields["config_hash"]) == (opcode.value, CFG.hash)


def test_disassembly_is_readable():
    program = assemble(CFG, [{"opcode": Opcode.GRAD, "order": Order.DX_MAJOR, "m": 5, "y_bfp": True,
                              "x_addr": 0x1000, "dw_window": window(3, 2, 1)}])
    first, last = disassemble(program).splitlines()
    assert first == (f"0x0000  GRAD order=DX_MAJOR y_bfp=1 config_hash={CFG.hash:#x} m=5 "
                     "x_addr=0x1000 dw_window=3+4x2")
    assert last == f"0x0080  END config_hash={CFG.hash:#x}"
    text = disassemble(instruction(CFG, Opcode.VECTOR, function=Function.SGD, dy_kind=Kind.STATE,
                                   salt_reg=3, overlap=2))
    assert text == (f"0x0000  VECTOR function=SGD config_hash={CFG.hash:#x} overlap=2 "
                    "dy_kind=STATE salt_reg=3")
    text = disassemble(instruction(CFG, Opcode.GEMM, x_source=XSource.REQUEST,
                                   y_target=YTarget.CHIP, run_m=1, w_keep=15))
    assert text == (f"0x0000  GEMM config_hash={CFG.hash:#x} x_source=REQUEST y_target=CHIP "
                    "run_m=1 w_keep=15")
    assert disassemble(bytes([99]) + bytes(127)) == "0x0000  99?"


@pytest.mark.parametrize(("fields", "message"), [
    ({"mm": 1}, "instructions have no field 'mm'; fields are opcode, order, "),
    ({"m": 1 << 20}, "m must be 0..1048575, not 1048576"),
    ({"bm": -1}, "bm must be 0..65535, not -1"),
    ({"n": 2.0}, "n must be 0..1048575, not 2.0"),
    ({"x_window": 3}, "x_window must be a window(base, h_log2, w_log2), not 3"),
    ({"x_window": {"size": 1}}, "x_window must be a window"),
    ({"x_window": window(0, 16)}, "x_window.h_log2 must be 0..15, not 16"),
])
def test_mistakes_are_named(fields, message):
    with pytest.raises(AssemblyError) as error:
        instruction(CFG, Opcode.GEMM, **fields)
    assert str(error.value).startswith(message)


def test_half_a_program_is_refused():
    with pytest.raises(AssemblyError, match="must be a multiple of 128 bytes, not 5"):
        disassemble(bytes(5))
