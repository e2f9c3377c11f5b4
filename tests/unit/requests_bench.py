"""The request unit with a host, between models of the other units."""

import random

from amaranth.sim import Simulator
from requests_units import (
    COMPLETION_RING,
    REGION,
    REQUEST_RING,
    Launched,
    Request,
    Setup,
    Units,
    tensor_bytes,
)

from hw.requests.unit import RequestUnit

OK, BAD, ABORTED, FAILED = range(4)


class Bench(Units):
    """Sessions from ENABLE until the unit is no longer attached.

    `completions` are (status, tag, latency) by number, None for one that could not be written.
    """

    def __init__(self, setups, seed):
        self.setups, self.rng = setups, random.Random(seed)
        self.dut = RequestUnit(setups[0].cfg)

    def begin(self, setup):
        super().begin(setup)
        self.consumed, self.refused, self.drops, self.last_buffer = 0, 0, 0, 1
        self.completions, self.times = [], []
        self.accepting, self.failing = True, setup.failing

    # --- host -----------------------------------------------------------------------------------

    def random_request(self):
        cfg, s, rng = self.cfg, self.s, self.rng
        sizes = tensor_bytes(cfg, True, s.inputs), tensor_bytes(cfg, False, s.outputs)
        offsets = [rng.choice([REGION - size, rng.randrange(REGION - size)])
                   // cfg.beat_bytes * cfg.beat_bytes for size in sizes]
        zero = 0
        if rng.random() < s.bad:
            k = rng.randrange(2)
            wrong = [offsets[k] + rng.choice([1, cfg.beat_bytes // 2]),
                     REGION - sizes[k] + cfg.beat_bytes, 2**32 - cfg.beat_bytes]
            if rng.random() < 0.3:
                zero = 1 << rng.randrange(32)
            else:
                offsets[k] = rng.choice(wrong)
        return Request(len(self.requests), self.clock, *offsets, rng.getrandbits(32), zero)

    def host(self, ctx):
        """Writes a register or none; returns whether that must be refused."""
        dut, s, rng = self.dut, self.s, self.rng
        posted, space = len(self.requests), 2**s.ring_log2 - len(self.requests) + self.consumed
        done = len(self.completions) - self.consumed
        name, value, refuse = None, 0, False
        if self.clock == s.disable_at or (
                s.disable_at is None and done + self.consumed == s.requests):
            name, value, self.accepting = "control_write", s.launch_idle << 1, False
        elif rng.random() < s.doorbells:
            n = rng.randint(0, min(s.group, space, s.requests - posted))
            if rng.random() < s.wrong:
                n = rng.choice([space + rng.randint(1, 5), -1])
            refuse = not self.accepting or not 0 <= n <= space
            name, value = "doorbell_write", (posted + n) % 2**16 | rng.getrandbits(16) << 16
            for _ in range(0 if refuse else n):
                r = self.random_request()
                self.ring[r.number % 2**s.ring_log2] = r
                self.requests.append(r)
        elif rng.random() < s.consume:
            n = rng.randint(0, done)
            if rng.random() < s.wrong:
                n = rng.choice([done + 1, -1])
            refuse = not 0 <= n <= done
            name, value = "consumed_write", (self.consumed + n) % 2**16
            self.consumed += 0 if refuse else n
        for other in ("control_write", "doorbell_write", "consumed_write"):
            ctx.set(getattr(dut, other), other == name)
        ctx.set(dut.wdata, value)
        self.refused += refuse
        return refuse

    # --- checks ---------------------------------------------------------------------------------

    def check_registers(self, ctx):
        dut = self.dut
        queued = len(self.requests) - sum(b.rows for b in self.batches)
        for name, value in {
                "space": 2**self.s.ring_log2 - len(self.requests) + self.consumed,
                "completed": len(self.completions), "consumed": self.consumed,
                "queued": queued if self.status is None else 0,
                "batch_rows": self.running.rows if self.running else 0,
                "control": self.accepting | self.s.launch_idle << 1}.items():
            assert ctx.get(getattr(dut, name)) == value, name

    def launched(self, ctx, idle):
        """The unit gives `start`; returns whether a batch that is not full is right."""
        assert not self.running
        assert not self.host_program
        assert self.status is None
        assert all(x["from"] is not None for x in self.scatters)
        assert self.drops == 1
        oldest = self.requests[sum(b.rows for b in self.batches)]
        return (self.clock - oldest.doorbell >= self.s.timeout
                or (self.s.launch_idle and idle) or not self.accepting)

    def check_launch(self, ctx, early):
        """In the clock after it."""
        s = self.s
        rows, buffer = ctx.get(self.dut.batch_rows), ctx.get(self.dut.batch_buffer)
        limit = min(s.batch_max or 1, self.cfg.tile << s.input_window[1], 128)
        assert 1 <= rows <= limit
        assert early or rows == limit, "launched too early"
        assert buffer != self.last_buffer
        self.last_buffer = buffer
        self.launch(Launched(sum(b.rows for b in self.batches), rows, buffer, self.clock - 1))

    def check_completion(self, n):
        """COMPLETED has risen to n + 1."""
        r = self.requests[n]
        place = COMPLETION_RING + n % 2**self.s.ring_log2 * self.cfg.entry_bytes
        entry = self.memory.pop(place, None)
        if entry is None:
            assert self.s.failing > 1
            self.completions.append(None)
            return
        tag, status, latency, service = entry
        self.completions.append((status, tag, latency))
        served = BAD if self.is_bad(r) else OK
        assert status in ({served} if self.status is None else {served, self.status})
        assert tag == r.tag or (self.s.failing and tag == 0)
        assert status == OK or (service == 0 and 0 < latency <= self.clock - r.doorbell)
        if status == OK and (self.times or self.s.failing < 2):
            b = self.batches[r.batch]
            assert len(r.outputs_done) == len({addr for _, _, addr, _ in self.places(False, r, 0)})
            assert (latency, service) == (b.outputs_at - r.doorbell, b.outputs_at - b.clock)
            assert self.times.pop(0) == (b.clock - r.doorbell, b.outputs_at - b.clock, latency)

    # --- clocks ---------------------------------------------------------------------------------

    async def enable(self, ctx):
        dut, s = self.dut, self.s
        for name, value in {
                "request_ring": REQUEST_RING, "completion_ring": COMPLETION_RING,
                "ring_log2": s.ring_log2, "batch_max": s.batch_max, "batch_timeout": s.timeout,
                "inputs": s.inputs, "outputs": s.outputs, "region_size": REGION}.items():
            ctx.set(getattr(dut, name), value)
        for side, name, buffers in (("spad", "input_window", 2), ("acc", "output_window", 1)):
            base, h, w = getattr(s, name)
            ctx.set(getattr(dut, name), {"base": base, "h_log2": h, "w_log2": w})
            ctx.set(getattr(dut, f"{side}_first"), base)
            ctx.set(getattr(dut, f"{side}_last"), base + (buffers << h + w) - 1)
        ctx.set(dut.wdata, 0)
        ctx.set(dut.doorbell_write, 1)
        assert ctx.get(dut.ring_error)
        await ctx.tick()
        ctx.set(dut.doorbell_write, 0)
        ctx.set(dut.control_write, 1)
        ctx.set(dut.wdata, 1 | s.launch_idle << 1)
        await ctx.tick()

    async def session(self, ctx):
        dut, s, held = self.dut, self.s, {}
        await self.enable(ctx)
        while self.clock < s.clocks:
            self.check_registers(ctx)
            if not ctx.get(dut.attached):
                break
            refuse = self.host(ctx)
            self.load_unit(ctx)
            self.store_unit(ctx)
            idle, restart, failed = self.context(ctx)
            assert ctx.get(dut.ring_error) == refuse
            self.drops += ctx.get(dut.drop)
            assert not (ctx.get(dut.drop) and ctx.get(dut.context_busy))
            if ctx.get(dut.time_valid):
                self.times.append(tuple(ctx.get(x) for x in (dut.wait, dut.service, dut.latency)))
            start = ctx.get(dut.start) and not restart
            early = self.launched(ctx, idle) if start else None
            for name in ("load", "store", "raw"):
                port = getattr(dut, name)
                offer = ctx.get(port.payload.as_value()) if ctx.get(port.valid) else None
                assert held.get(name) in (None, offer), "an offer changed"
                taken = offer is not None and ctx.get(port.ready)
                held[name] = None if taken or restart else offer
                if taken:
                    self.taken(name, ctx.get(port.payload))
            if restart:
                self.restart()
                self.status = self.status or (FAILED if failed else ABORTED)
                self.accepting = False
            elif not start:
                self.context_ends()
            await ctx.tick()
            self.clock += 1
            if start:
                self.check_launch(ctx, early)
            if (ctx.get(dut.completed) - len(self.completions)) % 2**16:
                self.check_completion(len(self.completions))
        assert self.clock < s.clocks, "stuck"
        assert len(self.completions) == len(self.requests)
        assert not self.times
        for _ in range(20):
            assert not any(ctx.get(port.valid) for port in (dut.load, dut.store, dut.raw))
            assert not ctx.get(dut.start)
            await ctx.tick()

    async def run(self, ctx):
        for setup in self.setups:
            self.begin(setup)
            await self.session(ctx)


def run(*setups: Setup, seed=0) -> Bench:
    """Runs one session after the other on one unit."""
    bench = Bench(setups, seed)
    sim = Simulator(bench.dut)
    sim.add_clock(1e-6)
    sim.add_testbench(bench.run)
    sim.run()
    return bench
