"""Accumulator memory: FP32 tiles in banks."""

from functools import reduce
from operator import xor
from typing import NamedTuple

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config, clog2
from hw.control.commands import ContextId
from hw.lib.ram import Ram


class _Port(NamedTuple):
    """A read or write port; `kept`: its data stay until the next accepted read."""

    valid: Value
    slot: Value
    row: Value
    data: data.View
    ready: Value | None = None
    kept: bool = False


class Accumulator(wiring.Component):
    """FP32 tiles, a row is one word of T elements.

    The lower half of the slots is in the lower half of the banks, the upper half in the upper one;
    inside a half a slot's bank is the exclusive or of all digits of its number there, a digit being
    as wide as a bank's number. So contexts with a half each never meet, and neighbouring tiles of
    one, in a row or a column of a window, seldom do.

    Per clock and bank one row is read and one written, for the first that asks. Reads: the execute
    unit (x), inference's store unit (s), the vector unit for inference (v), then training's s and
    v; writes: x, inference's load unit (l) and v, then training's. So x is always served. A row may
    be read from the clock after it is written on.

    Pairs of ports are indexed by `ContextId`.

    Members
    -------
    x_r_en : In(1), read row `x_r_row` of slot `x_r_slot`; `x_r_data` follows in the next clock
    x_r_slot, x_r_row : In
    x_r_data : Out(T x 32)
    x_w_en, x_w_slot, x_w_row, x_w_data : In, write a row
    s_r_valid : In(1).array(2)
    s_r_ready : Out(1).array(2), the read is accepted
    s_r_slot, s_r_row : In.array(2)
    s_r_data : Out(T x 32).array(2), from the clock after the port's accepted read until that after
        the next one
    l_w_valid : In(1).array(2)
    l_w_ready : Out(1).array(2), the write is accepted
    l_w_slot, l_w_row, l_w_data : In.array(2)
    v_r_valid : In(1).array(2)
    v_r_ready : Out(1).array(2), the read is accepted
    v_r_slot, v_r_row : In.array(2)
    v_r_data : Out(T x 32).array(2), in the clock after the port's accepted read
    v_w_valid : In(1).array(2)
    v_w_ready : Out(1).array(2), the write is accepted
    v_w_slot, v_w_row, v_w_data : In.array(2)
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        slot, row = In(cfg.acc_slot_bits), In(cfg.row_bits)
        line = data.ArrayLayout(32, cfg.tile)
        members = {"x_r_en": In(1), "x_r_slot": slot, "x_r_row": row, "x_r_data": Out(line),
                   "x_w_en": In(1), "x_w_slot": slot, "x_w_row": row, "x_w_data": In(line)}
        for port, value in ("s_r", Out(line)), ("v_r", Out(line)), ("l_w", In(line)), \
                ("v_w", In(line)):
            members |= {f"{port}_{name}": member.array(2) for name, member in (
                ("valid", In(1)), ("ready", Out(1)), ("slot", slot), ("row", row), ("data", value))}
        super().__init__(members)

    def elaborate(self, platform):
        cfg, m = self.cfg, Module()
        tile, bank_bits, half = cfg.tile, clog2(cfg.acc_banks), cfg.acc_slots // 2

        def split(slot):
            """Bank, and slot in the bank."""
            upper = slot >= half
            inside = Mux(upper, slot - half, slot)[:clog2(half)]
            width = bank_bits - 1
            digits = [inside[n:n + width] for n in range(0, len(inside), width)] if width else []
            return Cat(reduce(xor, digits, C(0, width))[:width], upper), inside[width:]

        def bank(slot):
            return split(slot)[0]

        def ports(channel, *units):
            """Ports of a channel, that which goes first first."""
            x = [getattr(self, f"x_{channel}_{n}") for n in ("en", "slot", "row", "data")]
            return [_Port(*x), *(
                _Port(*(getattr(self, f"{unit}_{channel}_{n}")[context.value]
                        for n in ("valid", "slot", "row", "data", "ready")), kept=unit == "s")
                for context in (ContextId.INFERENCE, ContextId.TRAINING) for unit in units)]

        reads, writes = ports("r", "s", "v"), ports("w", "l", "v")
        rams = [Ram(32 * tile, cfg.acc_slots // cfg.acc_banks * tile)
                for _ in range(cfg.acc_banks)]
        for n, ram in enumerate(rams):
            m.submodules[f"bank_{n}"] = ram
            for channel, en, address in ((reads, ram.r_en, ram.r_addr),
                                         (writes, ram.w_en, ram.w_addr)):
                for port in reversed(channel):  # the last assignment counts
                    with m.If(port.valid & (bank(port.slot) == n)):
                        m.d.comb += [en.eq(1),
                                     address.eq(split(port.slot)[1] * tile + port.row)]
                        if channel is writes:
                            m.d.comb += ram.w_data.eq(port.data)
        for channel in reads, writes:
            for k, port in enumerate(channel[1:], 1):
                m.d.comb += port.ready.eq(
                    ~Cat(p.valid & (bank(p.slot) == bank(port.slot)) for p in channel[:k]).any())

        for k, port in enumerate(reads):
            line = Signal(32 * tile, name=f"line_{k}")
            chosen = Signal(bank_bits, name=f"bank_of_{k}")
            m.d.sync += chosen.eq(bank(port.slot))
            with m.Switch(chosen):
                for n, ram in enumerate(rams):
                    with m.Case(n):
                        m.d.comb += line.eq(ram.r_data)
            m.d.comb += port.data.as_value().eq(line)
            if port.kept:  # a bank's output changes with the next read there
                new = Signal(name=f"new_{k}")
                kept = Signal(32 * tile, name=f"kept_{k}", reset_less=True)
                m.d.sync += new.eq(port.valid & port.ready)
                with m.If(new):
                    m.d.sync += kept.eq(line)
                with m.Else():
                    m.d.comb += port.data.as_value().eq(kept)
        return m
