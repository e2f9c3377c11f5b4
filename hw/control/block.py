"""Blocks of registers: how the AXI4-Lite slave reaches them, and their values after reset."""

from amaranth.hdl import Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config, clog2
from hw.regs import BLOCK, Register

#: Accesses to a block, as the slave sees them.
#:
#: w_en : Out(1), write `w_data` to the register at `w_offset` in this clock; only while `w_ok`
#: w_ok : In(1), a register that can be written is at `w_offset`
#: r_valid : Out(1), read the register at `r_offset`; it stays until `r_ready`
#: r_ready : In(1), `r_data` is its value in this clock, if `r_ok`; else there is none to read
BUS = wiring.Signature({
    "w_en": Out(1), "w_offset": Out(clog2(BLOCK)), "w_data": Out(32), "w_ok": In(1),
    "r_valid": Out(1), "r_offset": Out(clog2(BLOCK)), "r_ready": In(1), "r_data": In(32),
    "r_ok": In(1),
})


def reset_value(cfg: Config, name: str) -> int:
    """Value of a writable register after reset; `name` is as in its block."""
    return {"SPAD_REGION": (1 << cfg.spad_slot_bits) - 1 << 16,
            "ACC_REGION": cfg.acc_slots - 1 << 16,
            "MAX_BURST_BEATS": 16, "READ_CREDITS": 64, "READ_CREDITS_IDLE": 0xFFFF,
            "BATCH_MAX": 1}.get(name, 0)


def on_write(m: Module, bus, registers: tuple[Register, ...], act) -> None:
    """Call `act(register)` under the condition that it is written in this clock."""
    with m.Switch(bus.w_offset):
        for register in registers:
            if register.access != "ro":
                with m.Case(register.offset):
                    m.d.comb += bus.w_ok.eq(1)
                    with m.If(bus.w_en):
                        act(register)


def words(register: Register, value: Value) -> dict[int, Value]:
    """Words of a register by offset."""
    return {register.offset + 4 * n: value[32 * n:32 * n + 32] for n in range(register.words)}


def answer(m: Module, bus, values: dict[int, Value]) -> None:
    """Answer reads of the words `values`, by offset, in the clock in which they are asked for."""
    m.d.comb += bus.r_ready.eq(bus.r_valid)
    with m.Switch(bus.r_offset):
        for offset, value in values.items():
            with m.Case(offset):
                m.d.comb += [bus.r_ok.eq(1), bus.r_data.eq(value)]
