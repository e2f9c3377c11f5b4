"""The NPU: two contexts on shared units, with registers and buses."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from hw.accounting import count_context, count_shared, sticky
from hw.config import Config, clog2
from hw.control.commands import ContextId, Source
from hw.control.context_streams import SOURCES
from hw.control.policy import NO_CREDIT_LIMIT
from hw.memory.axi import MAX_BEATS
from hw.parts import Parts
from hw.ports import axi_lite_ports, axi_ports, top_ports


class Npu(wiring.Component):
    """Top level.

    Members
    -------
    irq : Out(1), high while an enabled interrupt cause is set
    activity : Out(10), unit in use by context, for logic analysers, a clock late: bit
        2 * unit + context, units in the order of `UNITS`
    s_axil_* : AXI4-Lite slave, registers (docs/registers.md)
    m_axi_* : AXI4 master, DRAM: INCR bursts that cross no 4 KiB boundary, full-width beats
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(top_ports(cfg))

    def elaborate(self, platform):
        m = Module()
        parts = Parts(m, self.cfg, platform)
        irqs = [self._context(m, parts, c) for c in ContextId]
        self._memories(m, parts)
        self._buses(m, parts)
        irqs.append(self._requests(m, parts))
        self._policy(m, parts)
        for c in range(len(ContextId)):
            count_context(m, parts, c)
        count_shared(m, parts)
        m.d.comb += [self.irq.eq(Cat(irqs).any()), self.activity.eq(parts.occupancy.activity)]
        return m

    def _context(self, m, parts, which) -> Value:
        """A context with its registers and units; its interrupt."""
        c = which.value
        context, regs = parts.context[c], parts.registers[c]
        load, store = parts.load[c], parts.store[c]
        execute, vector = parts.execute, parts.vector
        wiring.connect(m, parts.slave.block[c], regs.bus)

        # Registers.
        # A launch by the request unit goes before START; the end of its program is no event.
        launch = parts.requests.start if which is ContextId.INFERENCE else 0
        launched = Signal(name=f"{which.name.lower()}_launched")
        m.d.comb += [context.start.eq((regs.write_CONTROL[0] & ~context.busy) | launch),
                     context.cached.eq(launch), context.stop.eq(regs.write_CONTROL[1])]
        with m.If(context.start):
            m.d.sync += launched.eq(launch)
        ended_well = context.finished & ~context.error & (~launched | context.restart)
        done = sticky(m, ended_well, regs.write_IRQ_STATUS[0])
        failed = sticky(m, context.finished & context.error, regs.write_IRQ_STATUS[1])
        nonfinite = sticky(m, store.nonfinite, regs.write_EXCEPTIONS[0])
        overflow = sticky(m, execute.overflow[c] | vector.overflow[c], regs.write_EXCEPTIONS[1])
        base = Cat(regs.value_REGION_BASE_LO, regs.value_REGION_BASE_HI)[:self.cfg.addr_width]
        m.d.comb += [
            regs.status_STATUS.eq(Cat(context.busy, context.done, context.error)),
            regs.status_IRQ_STATUS.eq(Cat(done, failed)),
            regs.status_EXCEPTIONS.eq(Cat(nonfinite, overflow)),
            regs.status_ERROR_CODE.eq(context.error_code),
            regs.status_ERROR_ADDR.eq(context.error_addr),
            regs.status_ERROR_PC.eq(context.error_pc),
            context.program_addr.eq(regs.value_PROGRAM_ADDR),
            context.region_size.eq(regs.value_REGION_SIZE),
            Cat(context.spad_first, context.spad_last).eq(regs.value_SPAD_REGION),
            Cat(context.acc_first, context.acc_last).eq(regs.value_ACC_REGION),
            load.base.eq(base), store.base.eq(base), store.seed.eq(regs.value_SEED),
            vector.learning_rate[c].eq(regs.value_LEARNING_RATE),
            vector.momentum[c].eq(regs.value_MOMENTUM),
            vector.weight_decay[c].eq(regs.value_WEIGHT_DECAY),
        ]

        # Commands and events.
        own_load, own_store = load.cmd, store.cmd
        if which is ContextId.INFERENCE:  # shared with the request unit
            own_load, own_store = parts.loads.i[0], parts.stores.i[0]
        wiring.connect(m, context.load, own_load)
        wiring.connect(m, context.store, own_store)
        wiring.connect(m, context.exec, parts.array_arbiter.i[c])
        wiring.connect(m, context.vector, vector.cmd[c])
        wiring.connect(m, store.q, parts.quantiser.i[c])
        for event, source in SOURCES.items():
            unit = load if event == "load_done" else execute if event.startswith("exec") \
                else vector if event == "vector_done" else store
            for name in filter(None, (event, source)):
                port = getattr(unit, name)
                m.d.comb += getattr(context, name).eq(port[c] if unit in (execute, vector)
                                                      else port)
        m.d.comb += [
            context.instr_valid.eq(load.instr_valid), context.instr.eq(load.instr),
            context.read_error.eq(load.error), context.read_error_addr.eq(load.error_addr),
            context.write_error.eq(store.error), context.write_error_addr.eq(store.error_addr),
            context.units_idle.eq(load.idle & store.idle),
            load.abort.eq(context.abort), store.abort.eq(context.abort),
            store.q_valid.eq(parts.quantiser.valid[c]), store.q_mant.eq(parts.quantiser.mant),
        ]
        return (Cat(done, failed) & regs.value_IRQ_ENABLE).any()

    def _memories(self, m, parts):
        """On-chip memories: ports of the units by name, or one of a pair."""
        spad, acc, execute, vector = (parts.scratchpad, parts.accumulator, parts.execute,
                                      parts.vector)
        wiring.connect(m, parts.array_arbiter.o, execute.cmd)
        m.d.comb += parts.array_arbiter.inside.eq(execute.inside[ContextId.TRAINING.value])
        for port in "ab":
            m.d.comb += [getattr(spad, f"{port}_{n}").eq(getattr(execute, f"{port}_{n}"))
                         for n in ("en", "slot", "index", "col")]
            m.d.comb += [getattr(execute, f"{port}_{n}").eq(getattr(spad, f"{port}_{n}"))
                         for n in ("data", "exp")]
        m.d.comb += [getattr(acc, n).eq(getattr(execute, n)) for n in (
            "x_r_en", "x_r_slot", "x_r_row", "x_w_en", "x_w_slot", "x_w_row", "x_w_data")]
        m.d.comb += execute.x_r_data.eq(acc.x_r_data)
        for c in range(len(ContextId)):
            load, store = parts.load[c], parts.store[c]
            for unit, prefix, port in ((load, "w", 2 * (1 - c)), (store, "s_w", 2 * (1 - c) + 1)):
                m.d.comb += [getattr(spad, f"w_{n}")[port].eq(getattr(unit, f"{prefix}_{n}"))
                             for n in ("valid", "slot", "row", "data", "exp")]
                m.d.comb += getattr(unit, f"{prefix}_ready").eq(spad.w_ready[port])
            for unit, names in ((load, ("l_w_valid", "l_w_slot", "l_w_row", "l_w_data")),
                                (store, ("s_r_valid", "s_r_slot", "s_r_row"))):
                m.d.comb += [getattr(acc, n)[c].eq(getattr(unit, n)) for n in names]
            m.d.comb += [load.l_w_ready.eq(acc.l_w_ready[c]), store.s_r_ready.eq(acc.s_r_ready[c]),
                         store.s_r_data.eq(acc.s_r_data[c])]
            m.d.comb += [getattr(acc, n)[c].eq(getattr(vector, n)[c]) for n in (
                "v_r_valid", "v_r_slot", "v_r_row", "v_w_valid", "v_w_slot", "v_w_row",
                "v_w_data")]
            m.d.comb += [getattr(vector, n)[c].eq(getattr(acc, n)[c])
                         for n in ("v_r_ready", "v_r_data", "v_w_ready")]

    def _buses(self, m, parts):
        """AXI4-Lite slave and AXI4 master."""
        bus = parts.bus
        for ports, prefix, part, names in (
                (axi_lite_ports(), "s_axil_", parts.slave, ""), (axi_ports(self.cfg), "m_axi_",
                                                                 bus, "m_")):
            for name, member in ports.items():
                here, there = getattr(self, prefix + name), getattr(part, names + name, None)
                if there is not None:
                    m.d.comb += there.eq(here) if member.flow == In else here.eq(there)
        for channel in ("aw", "ar"):
            m.d.comb += [
                getattr(self, f"m_axi_{channel}size").eq(clog2(self.cfg.beat_bytes)),
                getattr(self, f"m_axi_{channel}burst").eq(1),  # INCR
                getattr(self, f"m_axi_{channel}cache").eq(3),  # normal, non-cacheable, bufferable
            ]
        m.d.comb += self.m_axi_wstrb.eq(~0)
        for c in range(len(ContextId)):
            load, store = parts.load[c], parts.store[c]
            for unit, names in ((load, ("ar_valid", "ar_addr", "ar_len", "r_ready")),
                                (store, ("aw_valid", "aw_addr", "aw_len", "w_valid", "w_data",
                                         "w_last", "b_ready"))):
                m.d.comb += [getattr(bus, n)[c].eq(getattr(unit, n)) for n in names]
            for unit, names in ((load, ("ar_ready", "r_valid")),
                                (store, ("aw_ready", "w_ready", "b_valid"))):
                m.d.comb += [getattr(unit, n).eq(getattr(bus, n)[c]) for n in names]
            m.d.comb += [*(getattr(load, n).eq(getattr(bus, n))
                           for n in ("r_data", "r_resp", "r_last")), store.b_resp.eq(bus.b_resp)]

    def _requests(self, m, parts) -> Value:
        """The request unit with its registers, beside the inference context; its interrupt."""
        c = ContextId.INFERENCE.value
        unit, shared, context = parts.requests, parts.shared, parts.context[c]
        load, store = parts.load[c], parts.store[c]
        wiring.connect(m, parts.slave.block[len(ContextId)], shared.bus)
        wiring.connect(m, unit.load, parts.loads.i[1])
        wiring.connect(m, unit.store, parts.stores.i[1])
        wiring.connect(m, parts.loads.o, load.cmd)
        wiring.connect(m, parts.stores.o, store.cmd)
        wiring.connect(m, unit.raw, store.raw)
        for name in ("request_ring", "completion_ring", "ring_log2", "batch_max", "batch_timeout",
                     "input_window", "output_window", "coalesce_count", "coalesce_clocks"):
            m.d.comb += Value.cast(getattr(unit, name)).eq(getattr(shared, f"value_{name.upper()}"))
        completion = sticky(m, unit.completion_event, shared.write_REQUEST_IRQ_STATUS[0])
        ring_error = sticky(m, unit.ring_error, shared.write_REQUEST_IRQ_STATUS[1])
        execs = [part.exec.valid for part in parts.context]
        m.d.comb += [
            unit.inputs.eq(shared.value_REQUEST_INPUTS),
            unit.outputs.eq(shared.value_REQUEST_OUTPUTS),
            *(getattr(unit, n).eq(getattr(context, n)) for n in (
                "region_size", "spad_first", "spad_last", "acc_first", "acc_last")),
            unit.control_write.eq(shared.strobe_REQUEST_CONTROL),
            unit.doorbell_write.eq(shared.strobe_DOORBELL),
            unit.consumed_write.eq(shared.strobe_CONSUMED), unit.wdata.eq(shared.wdata),
            shared.status_REQUEST_CONTROL.eq(unit.control),
            shared.status_CONSUMED.eq(unit.consumed), shared.status_COMPLETED.eq(unit.completed),
            shared.status_REQUEST_SPACE.eq(unit.space),
            shared.status_REQUEST_QUEUE.eq(unit.queued),
            shared.status_REQUEST_IRQ_STATUS.eq(Cat(completion, ring_error)),
            shared.status_BATCH_ROWS.eq(unit.batch_rows),
            context.drop.eq(unit.drop), context.attached.eq(unit.attached),
            context.batch_rows.eq(unit.batch_rows), context.batch_buffer.eq(unit.batch_buffer),
            unit.context_busy.eq(context.busy), unit.context_finished.eq(context.finished),
            unit.context_failed.eq(context.error), unit.context_restart.eq(context.restart),
            unit.array_idle.eq(~Cat(*parts.execute.inside, *execs).any()),
            unit.descriptor_valid.eq(load.descriptor_valid), unit.descriptor.eq(load.descriptor),
            unit.load_done.eq(load.load_done & (load.load_source == Source.REQUEST)),
            unit.store_read.eq(store.store_read & (store.store_read_source == Source.REQUEST)),
            unit.store_done.eq(store.store_done & (store.store_done_source == Source.REQUEST)),
            shared.time_valid.eq(unit.time_valid), shared.wait.eq(unit.wait),
            shared.service.eq(unit.service), shared.latency.eq(unit.latency),
        ]
        return (Cat(completion, ring_error) & shared.value_REQUEST_IRQ_ENABLE).any()

    def _policy(self, m, parts):
        """Who gets the shared units, and what training may ask of the memory."""
        policy, shared, unit = parts.policy, parts.shared, parts.requests
        in_flight = (unit.space + unit.completed - unit.consumed)[:16] != 1 << unit.ring_log2
        m.d.comb += [
            policy.active.eq(parts.context[ContextId.INFERENCE.value].busy
                             | (unit.attached & in_flight)),
            policy.queue.eq(unit.queued),
            *(getattr(policy, n).eq(getattr(shared, f"value_{n.upper()}")) for n in (
                "policy", "max_burst_beats", "read_credits", "read_credits_idle",
                "spike_threshold")),
        ]
        # An operation of training keeps its accumulator bank's ports busy, so none is begun while
        # inference waits for one.
        n = ContextId.INFERENCE.value
        waits = [getattr(parts.accumulator, f"{port}_valid")[n]
                 & ~getattr(parts.accumulator, f"{port}_ready")[n]
                 for port in ("s_r", "l_w", "v_r", "v_w")]
        in_the_way = policy.priority & Cat(waits).any()
        # What training has begun must come to its end when it is stopped while held.
        held = policy.hold & ~parts.context[ContextId.TRAINING.value].abort
        for part, hold in ((parts.array_arbiter, policy.hold | in_the_way),
                           (parts.vector, policy.hold), (parts.quantiser, held),
                           (parts.bus, held)):
            m.d.comb += [part.fair.eq(policy.fair), part.hold.eq(hold)]
        for c, (beats, credits_) in enumerate(((policy.max_beats, policy.credits),
                                               (MAX_BEATS, NO_CREDIT_LIMIT))):
            m.d.comb += [parts.load[c].max_beats.eq(beats), parts.store[c].max_beats.eq(beats),
                         parts.load[c].credits.eq(credits_)]
