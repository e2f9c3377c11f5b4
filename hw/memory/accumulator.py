"""Accumulator memory: FP32 tiles in banks."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config, clog2
from hw.lib.ram import Ram


class Accumulator(wiring.Component):
    """FP32 tiles; slot s is in bank s mod acc_banks, a row is one word of T elements.

    Per clock and bank one row is read and one written. The execute unit (x) always has its read
    and its write; the store unit (s) reads and the load unit (l) writes when the execute unit does
    not do the same in that bank in that clock, the vector unit (v) when neither of them does. A row
    may be read from the clock after it is written on.

    Members
    -------
    x_r_en : In(1), read row `x_r_row` of slot `x_r_slot`; `x_r_data` follows in the next clock
    x_r_slot, x_r_row : In
    x_r_data : Out(T x 32)
    x_w_en, x_w_slot, x_w_row, x_w_data : In, write a row
    s_r_valid : In(1)
    s_r_ready : Out(1), the read is accepted
    s_r_slot, s_r_row : In
    s_r_data : Out(T x 32), from the clock after an accepted read until that after the next one
    l_w_valid : In(1)
    l_w_ready : Out(1), the write is accepted
    l_w_slot, l_w_row, l_w_data : In
    v_r_valid : In(1)
    v_r_ready : Out(1), the read is accepted
    v_r_slot, v_r_row : In
    v_r_data : Out(T x 32), in the clock after an accepted read
    v_w_valid : In(1)
    v_w_ready : Out(1), the write is accepted
    v_w_slot, v_w_row, v_w_data : In
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        slot, row = In(cfg.acc_slot_bits), In(cfg.row_bits)
        line = data.ArrayLayout(32, cfg.tile)
        super().__init__({
            "x_r_en": In(1), "x_r_slot": slot, "x_r_row": row, "x_r_data": Out(line),
            "x_w_en": In(1), "x_w_slot": slot, "x_w_row": row, "x_w_data": In(line),
            "s_r_valid": In(1), "s_r_ready": Out(1), "s_r_slot": slot, "s_r_row": row,
            "s_r_data": Out(line),
            "l_w_valid": In(1), "l_w_ready": Out(1), "l_w_slot": slot, "l_w_row": row,
            "l_w_data": In(line),
            "v_r_valid": In(1), "v_r_ready": Out(1), "v_r_slot": slot, "v_r_row": row,
            "v_r_data": Out(line),
            "v_w_valid": In(1), "v_w_ready": Out(1), "v_w_slot": slot, "v_w_row": row,
            "v_w_data": In(line),
        })

    def elaborate(self, platform):
        cfg, m = self.cfg, Module()
        tile, bank_bits = cfg.tile, clog2(cfg.acc_banks)

        def bank(slot):
            return slot[:bank_bits]

        def addr(slot, row):
            return slot[bank_bits:] * tile + row

        rams = [Ram(32 * tile, cfg.acc_slots // cfg.acc_banks * tile)
                for _ in range(cfg.acc_banks)]
        for n, ram in enumerate(rams):
            m.submodules[f"bank_{n}"] = ram
            here = {port: bank(getattr(self, f"{port}_slot")) == n
                    for port in ("x_r", "s_r", "v_r", "x_w", "l_w", "v_w")}
            x_reads, s_reads = self.x_r_en & here["x_r"], self.s_r_valid & here["s_r"]
            x_writes, l_writes = self.x_w_en & here["x_w"], self.l_w_valid & here["l_w"]
            m.d.comb += [
                ram.r_en.eq(x_reads | s_reads | self.v_r_valid & here["v_r"]),
                ram.r_addr.eq(Mux(x_reads, addr(self.x_r_slot, self.x_r_row),
                                  Mux(s_reads, addr(self.s_r_slot, self.s_r_row),
                                      addr(self.v_r_slot, self.v_r_row)))),
                ram.w_en.eq(x_writes | l_writes | self.v_w_valid & here["v_w"]),
                ram.w_addr.eq(Mux(x_writes, addr(self.x_w_slot, self.x_w_row),
                                  Mux(l_writes, addr(self.l_w_slot, self.l_w_row),
                                      addr(self.v_w_slot, self.v_w_row)))),
                ram.w_data.eq(Mux(x_writes, self.x_w_data,
                                  Mux(l_writes, self.l_w_data, self.v_w_data))),
            ]

        def free(slot, *others):
            return ~Cat(valid & (bank(slot) == bank(other)) for valid, other in others).any()

        x_read, s_read = (self.x_r_en, self.x_r_slot), (self.s_r_valid, self.s_r_slot)
        x_write, l_write = (self.x_w_en, self.x_w_slot), (self.l_w_valid, self.l_w_slot)
        m.d.comb += [
            self.s_r_ready.eq(free(self.s_r_slot, x_read)),
            self.v_r_ready.eq(free(self.v_r_slot, x_read, s_read)),
            self.l_w_ready.eq(free(self.l_w_slot, x_write)),
            self.v_w_ready.eq(free(self.v_w_slot, x_write, l_write)),
        ]

        # A bank's output changes with the execute unit's next read there: keep the store unit's.
        x_bank = Signal(bank_bits)
        s_bank = Signal(bank_bits)
        v_bank = Signal(bank_bits)
        s_new = Signal()
        s_line = Signal(32 * tile)
        s_kept = Signal(32 * tile, reset_less=True)
        m.d.sync += [x_bank.eq(bank(self.x_r_slot)), s_bank.eq(bank(self.s_r_slot)),
                     v_bank.eq(bank(self.v_r_slot)), s_new.eq(self.s_r_valid & self.s_r_ready)]
        for select, line in (x_bank, self.x_r_data.as_value()), (s_bank, s_line), \
                (v_bank, self.v_r_data.as_value()):
            with m.Switch(select):
                for n, ram in enumerate(rams):
                    with m.Case(n):
                        m.d.comb += line.eq(ram.r_data)
        with m.If(s_new):
            m.d.sync += s_kept.eq(s_line)
        m.d.comb += self.s_r_data.as_value().eq(Mux(s_new, s_line, s_kept))
        return m
