"""Wires from the parts of the NPU to their counters."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value

from hw.control.commands import ContextId
from hw.isa import Kind
from hw.parts import Parts
from hw.regs import COUNTER_BITS, UNITS


def sticky(m: Module, event: Value, clear: Value) -> Signal:
    """A flag that `event` sets and, unless it comes then, `clear` clears."""
    flag = Signal()
    with m.If(event):
        m.d.sync += flag.eq(1)
    with m.Elif(clear):
        m.d.sync += flag.eq(0)
    return flag


def count_context(m: Module, parts: Parts, c: int) -> None:
    """Counters of context number `c`."""
    context, regs, load, store = (p[c] for p in (parts.context, parts.registers, parts.load,
                                                 parts.store))
    execute, vector = parts.execute, parts.vector
    since_decode = Signal(COUNTER_BITS, name=f"since_decode_{c}")
    with m.If(context.decoded):
        m.d.sync += since_decode.eq(2)
    with m.Else():
        m.d.sync += since_decode.eq(since_decode + 1)
    stalled = {"STALL_BANK": execute.stall_bank[c], "STALL_WEIGHTS": execute.stall_weights[c],
               "STALL_ACC": execute.stall_acc[c]}
    occupied = execute.busy[c] | Cat(stalled.values()).any()
    stalled |= {"STALL_LOAD": context.wait_load & ~occupied,
                "STALL_STORE": context.wait_store & ~occupied}
    running = context.busy
    m.d.comb += [
        regs.count_CYCLES_TOTAL.eq(running), regs.count_INSTRUCTIONS.eq(context.taken),
        regs.count_NONFINITE_TILES.eq(store.nonfinite),
        regs.count_OPERATIONS.eq(execute.exec_done[c]),
        regs.count_ARRAY_BUSY.eq(running & execute.busy[c]),
        regs.count_ARRAY_IDLE.eq(running & ~execute.busy[c] & ~Cat(stalled.values()).any()),
        regs.set_CYCLES_OP.eq(parts.bus.write_use[c]),
        regs.cycles_op.eq(since_decode), regs.phase.eq(context.phase),
        regs.count_VECTOR_BUSY.eq(running & vector.busy[c]),
        regs.count_VECTOR_OVERLAP.eq(running & vector.busy[c] & execute.busy[c]),
        regs.count_VECTOR_OPERATIONS.eq(vector.vector_done[c]),
        *(getattr(regs, f"count_ARRAY_{n}").eq(running & s) for n, s in stalled.items()),
    ]
    for kind in Kind:
        for name, unit in (("READ", load), ("WRITE", store)):
            m.d.comb += getattr(regs, f"count_{name}_{kind.name}").eq(
                Mux(unit.count_en & (unit.count_kind == kind), unit.count_bytes, 0))


def count_shared(m: Module, parts: Parts) -> None:
    """Use of the shared units, batches and spikes."""
    occupancy, shared, policy = parts.occupancy, parts.shared, parts.policy
    execute, vector, quantiser, bus = parts.execute, parts.vector, parts.quantiser, parts.bus
    offers = Cat(context.exec.valid for context in parts.context)
    uses = {
        "ARRAY": (execute.occupied, offers | (Cat(execute.inside) & ~Cat(execute.occupied)),
                  parts.array_arbiter.held),
        "VECTOR": (vector.use, Cat(vector.asks), vector.held),
        "QUANTISER": (quantiser.use, Cat(quantiser.asks), quantiser.held),
        "READ": (bus.read_use, Cat(bus.read_asks), bus.read_held),
        "WRITE": (bus.write_use, Cat(bus.write_asks), bus.write_held),
    }
    for n, (unit, _) in enumerate(UNITS):
        use, asks, held = uses[unit]
        m.d.comb += [occupancy.use[n].eq(Cat(use)), occupancy.asks[n].eq(asks),
                     occupancy.held[n].eq(held), shared.hold_max[n].eq(occupancy.hold_max[n]),
                     shared.hold_bound[n].eq(occupancy.hold_bound[n])]
    m.d.comb += [
        occupancy.clear.eq(shared.strobe_SHARED_COUNTERS_CLEAR),
        occupancy.priority.eq(policy.priority), occupancy.max_beats.eq(policy.max_beats),
        occupancy.most_credits.eq(policy.most_credits),
        occupancy.training.eq(parts.context[ContextId.TRAINING.value].busy),
        *(here.eq(there) for here, there in zip(shared.occupied, occupancy.count, strict=True)),
        shared.count_BATCHES.eq(parts.requests.start),
        shared.count_SPIKE_CYCLES.eq(policy.spike),
    ]
