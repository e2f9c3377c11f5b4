"""Scratchpad of BFP tiles that are read by rows or by columns."""

from amaranth.hdl import Assert, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config, clog2
from hw.lib.ram import Ram
from hw.lib.rotate import rotate_down, rotate_up


class _Bank(wiring.Component):
    """T lane RAMs and the exponents' RAM; reads have an address for each lane.

    One row written and one line read per clock; read latency 1.

    Members
    -------
    w_en, w_addr, w_data, w_exp : In
    r_en : In(1)
    r_addr : In(T x address)
    r_exp_addr : In(address)
    r_data, r_exp : Out
    """

    def __init__(self, cfg: Config):
        self.cfg, self.depth = cfg, cfg.bank_slots * cfg.tile
        addr, lanes = range(self.depth), data.ArrayLayout(cfg.mant_width, cfg.tile)
        bits = len(Signal(addr))
        super().__init__({
            "w_en": In(1), "w_addr": In(addr), "w_data": In(lanes), "w_exp": In(8),
            "r_en": In(1), "r_addr": In(data.ArrayLayout(bits, cfg.tile)), "r_exp_addr": In(addr),
            "r_data": Out(lanes), "r_exp": Out(8),
        })

    def elaborate(self, platform):
        if platform is None:
            return self._contents(self)
        cfg = self.cfg
        name = f"scratchpad_bank_t{cfg.tile}_m{cfg.mant_width}_d{self.depth}"
        return platform.instance(self, name, self._contents)

    def _contents(self, io):
        cfg, m = self.cfg, Module()
        lanes = [(f"lane_{n}", cfg.mant_width, io.w_data[n], io.r_addr[n], io.r_data[n])
                 for n in range(cfg.tile)]
        for name, width, w_data, r_addr, r_data in [
                *lanes, ("exponents", 8, io.w_exp, io.r_exp_addr, io.r_exp)]:
            m.submodules[name] = ram = Ram(width, self.depth)
            m.d.comb += [
                ram.w_en.eq(io.w_en), ram.w_addr.eq(io.w_addr), ram.w_data.eq(w_data),
                ram.r_en.eq(io.r_en), ram.r_addr.eq(r_addr), r_data.eq(ram.r_data),
            ]
        return m


class Scratchpad(wiring.Component):
    """BFP tiles, a row written and two rows or columns read per clock.

    Element (r, c) of a tile is in lane (r + c) mod T, so the elements of a row, and those of a
    column, are in different lanes. A slot number is {bank, index}.

    Of the writes that are asked for, the one of the lowest port is accepted: inference's load unit
    (0) and store unit (1), then training's (2, 3). Reads are always accepted. A row may be read
    from the clock after it is written on. Reads `a` and `b` must not be in one bank in one clock
    (asserted).

    Members
    -------
    w_valid : In(1).array(4), write row `w_row` of slot `w_slot`
    w_ready : Out(1).array(4), the write is accepted
    w_slot, w_row : In.array(4)
    w_data : In(T mantissas).array(4)
    w_exp : In(8).array(4), the row's exponent byte
    a_en, b_en : In(1), read a row or a column; its data come `LATENCY` clocks later
    a_slot, b_slot : In
    a_index, b_index : In, number of the row, or of the column if `a_col`, `b_col`
    a_col, b_col : In(1)
    a_data, b_data : Out(T mantissas)
    a_exp, b_exp : Out(8), exponent byte of row number `a_index`, `b_index`
    """

    #: Clocks from a read's request to its data.
    LATENCY = 2
    #: Write ports.
    WRITERS = 4

    def __init__(self, cfg: Config):
        self.cfg = cfg
        row, slot = data.ArrayLayout(cfg.mant_width, cfg.tile), cfg.spad_slot_bits
        members = {f"w_{name}": member.array(self.WRITERS) for name, member in (
            ("valid", In(1)), ("ready", Out(1)), ("slot", In(slot)), ("row", In(cfg.row_bits)),
            ("data", In(row)), ("exp", In(8)))}
        for port in "ab":
            members |= {
                f"{port}_en": In(1), f"{port}_slot": In(slot), f"{port}_index": In(cfg.row_bits),
                f"{port}_col": In(1), f"{port}_data": Out(row), f"{port}_exp": Out(8)}
        super().__init__(members)

    def _lane_rows(self, index: Value) -> list[Value]:
        """Row that each lane reads for column `index`: (lane - index) mod T."""
        tile = self.cfg.tile
        if tile == 1 << self.cfg.row_bits:
            return [(lane - index)[:self.cfg.row_bits] for lane in range(tile)]
        return [Mux(index > lane, lane + tile - index, lane - index)[:self.cfg.row_bits]
                for lane in range(tile)]

    def elaborate(self, platform):
        cfg, m = self.cfg, Module()
        tile, mant = cfg.tile, cfg.mant_width
        banks = [_Bank(cfg) for _ in range(cfg.spad_banks)]
        for n, bank in enumerate(banks):
            m.submodules[f"bank_{n}"] = bank

        def bank_of(slot):
            return slot[cfg.slot_index_bits:]

        met = self.a_en & self.b_en & (bank_of(self.a_slot) == bank_of(self.b_slot))
        m.d.sync += Assert(~met)

        w_slot = Signal(cfg.spad_slot_bits)
        w_row = Signal(cfg.row_bits)
        w_data = Signal(tile * mant)
        w_exp = Signal(8)
        for n in reversed(range(self.WRITERS)):  # the last assignment counts
            m.d.comb += self.w_ready[n].eq(~Cat(self.w_valid[:n]).any())
            with m.If(self.w_valid[n]):
                m.d.comb += [w_slot.eq(self.w_slot[n]), w_row.eq(self.w_row[n]),
                             w_data.eq(self.w_data[n].as_value()), w_exp.eq(self.w_exp[n])]
        w_en = Cat(self.w_valid).any()
        w_lanes = rotate_up(m, w_data, mant, w_row, "w_lanes")
        for n, bank in enumerate(banks):
            m.d.comb += [
                bank.w_en.eq(w_en & (bank_of(w_slot) == n)),
                bank.w_addr.eq(w_slot[:cfg.slot_index_bits] * tile + w_row),
                bank.w_data.as_value().eq(w_lanes), bank.w_exp.eq(w_exp),
            ]

        for port in "ab":
            en, slot, index, col = (getattr(self, f"{port}_{n}")
                                    for n in ("en", "slot", "index", "col"))
            base = Signal(len(banks[0].w_addr), name=f"{port}_base")
            row_addr = Signal.like(base, name=f"{port}_row_addr")
            addr = Signal(len(base) * tile, name=f"{port}_addr")
            m.d.comb += [
                base.eq(slot[:cfg.slot_index_bits] * tile), row_addr.eq(base + index),
                addr.eq(Mux(col, Cat((base + row)[:len(base)] for row in self._lane_rows(index)),
                            row_addr.replicate(tile))),
            ]
            for n, bank in enumerate(banks):
                with m.If(en & (bank_of(slot) == n)):
                    m.d.comb += [bank.r_en.eq(1), bank.r_addr.as_value().eq(addr),
                                 bank.r_exp_addr.eq(row_addr)]

            turn = Signal.like(index, name=f"{port}_turn")
            chosen = Signal(max(1, clog2(cfg.spad_banks)), name=f"{port}_bank")
            lanes = Signal(tile * mant, name=f"{port}_lanes")
            exponent = Signal(8, name=f"{port}_exponent")
            m.d.sync += [turn.eq(index), chosen.eq(bank_of(slot))]
            with m.Switch(chosen):
                for n, bank in enumerate(banks):
                    with m.Case(n):
                        m.d.comb += [lanes.eq(bank.r_data), exponent.eq(bank.r_exp)]
            result = Signal(tile * mant, name=f"{port}_result", reset_less=True)
            result_exponent = Signal(8, name=f"{port}_result_exponent", reset_less=True)
            m.d.sync += [result.eq(rotate_down(m, lanes, mant, turn, f"{port}_lanes")),
                         result_exponent.eq(exponent)]
            m.d.comb += [getattr(self, f"{port}_data").as_value().eq(result),
                         getattr(self, f"{port}_exp").eq(result_exponent)]
        return m
