"""Models of what is around the request unit: load unit, store unit, context; of random pace."""

from dataclasses import dataclass, field

from hw.config import Config
from hw.control.commands import Destination, Source
from hw.isa import Kind

REQUEST_RING, COMPLETION_RING, REGION = 0x1000, 0x3000, 0x100000


@dataclass
class Setup:
    """What the host sets, and how the world behaves."""

    cfg: Config
    ring_log2: int = 3
    batch_max: int = 4
    timeout: int = 60
    launch_idle: int = 0
    inputs: int = 10
    outputs: int = 5
    input_window: tuple = (3, 1, 4)   # base, h_log2, w_log2
    output_window: tuple = (2, 1, 3)
    requests: int = 30
    pace: float = 0.6                 # how often a unit is ready
    latency: int = 20                 # most clocks of a transfer
    program: int = 60                 # most clocks of a program
    host_programs: float = 0.01       # how often the host starts a program itself
    array: float = 0.2                # how often the array is idle
    doorbells: float = 0.05           # how often the host writes this
    consume: float = 0.1              # and CONSUMED
    group: int = 5                    # most requests of a doorbell
    bad: float = 0.1                  # share of bad descriptors
    wrong: float = 0.05               # share of writes that are to be refused
    restarts: dict = field(default_factory=dict)  # clock -> context_failed
    failing: int = 0                  # transfers that fail after the first restart
    disable_at: int | None = None     # clock; else when all is completed
    clocks: int = 8000                # the unit hangs if it needs more


@dataclass
class Request:
    number: int
    doorbell: int                     # clock
    input: int
    output: int
    tag: int
    zero: int
    batch: int | None = None
    outputs_done: set = field(default_factory=set)


@dataclass
class Launched:
    first: int                        # number of its first request
    rows: int
    buffer: int
    clock: int
    outputs_at: int | None = None     # clock of the last acknowledgement


def images(cfg, elements):
    """Rows of each tile image of `elements` numbers."""
    left, out = -(-max(1, elements) // cfg.tile), []
    while left > 0:
        out.append(min(left, cfg.tile))
        left -= cfg.tile
    return out


def tensor_bytes(cfg, bfp, elements):
    rows = images(cfg, elements)
    return ((len(rows) - 1) * cfg.image_bytes(bfp)
            + cfg.image_beats(bfp, rows[-1]) * cfg.beat_bytes)


class Units:
    """Load unit, store unit and context. What they see must be what docs/serving.md says."""

    def begin(self, setup: Setup):
        self.s, self.cfg, self.clock = setup, setup.cfg, 0
        self.requests, self.ring = [], {}
        self.status = None            # of requests, once the context has stopped
        self.spad, self.acc, self.memory = {}, {}, {}
        self.loads, self.scatters, self.entries, self.beats = [], [], [], []
        self.cursor = 0, 0            # request and image that are gathered next
        self.batches, self.running, self.ends = [], None, None
        self.host_program = 0

    def due(self):
        return self.clock + self.rng.randint(1, self.s.latency)

    def is_bad(self, r):
        s, cfg = self.s, self.cfg
        return bool(r.zero or r.input % cfg.beat_bytes or r.output % cfg.beat_bytes
                    or r.input + tensor_bytes(cfg, True, s.inputs) > REGION
                    or r.output + tensor_bytes(cfg, False, s.outputs) > REGION)

    def places(self, bfp, r, q, buffer=0):
        """(slot, its row, address of the image, row of it) of request `r`, number q of a batch."""
        cfg, s = self.cfg, self.s
        base, h, w = s.input_window if bfp else s.output_window
        first = base + buffer * 2**(h + w) + q // cfg.tile % 2**h * 2**w
        for i, rows in enumerate(images(cfg, s.inputs if bfp else s.outputs)):
            addr = (r.input if bfp else r.output) + i * cfg.image_bytes(bfp)
            for j in range(rows):
                yield first + i * cfg.tile + j, q % cfg.tile, addr, j

    # --- load unit ------------------------------------------------------------------------------

    def load_unit(self, ctx):
        """In order: descriptors and inputs."""
        dut = self.dut
        ctx.set(dut.load.ready, self.rng.random() < self.s.pace)
        ctx.set(dut.load_done, 0)
        ctx.set(dut.descriptor_valid, 0)
        if not self.loads or self.loads[0][0] > self.clock:
            return
        _, c = self.loads.pop(0)
        if c["dest"] == Destination.DESCRIPTOR.value:
            entry, rest = divmod(c["addr"] - REQUEST_RING, self.cfg.entry_bytes)
            assert rest == 0
            r = self.ring[entry]
            ctx.set(dut.descriptor_valid, 1)
            ctx.set(dut.descriptor, r.input | r.output << 32 | r.tag << 64 | r.zero << 96)
            return
        number = self.gathered(c)
        for j in range(c["rows"]):
            self.spad[c["slot"] + j, c["row"]] = number, c["addr"], j
        ctx.set(dut.load_done, 1)

    def gathered(self, command):
        """Number of the request whose image is gathered: they come in order."""
        assert self.status is None
        while self.is_bad(self.requests[self.cursor[0]]):
            self.cursor = self.cursor[0] + 1, 0
        n, i = self.cursor
        rows = images(self.cfg, self.s.inputs)
        assert command["rows"] == rows[i]
        assert command["addr"] == self.requests[n].input + i * self.cfg.bfp_bytes
        self.cursor = (n, i + 1) if i + 1 < len(rows) else (n + 1, 0)
        return n

    # --- store unit -----------------------------------------------------------------------------

    def store_unit(self, ctx):
        """Scatters in order, completions in order, neither before the other."""
        dut, rng = self.dut, self.rng
        ctx.set(dut.store.ready, rng.random() < self.s.pace)
        ctx.set(dut.raw.ready, rng.random() < self.s.pace)
        ctx.set(dut.store_read, 0)
        ctx.set(dut.store_done, 0)
        x = next((x for x in self.scatters if x["from"] is None), None)
        if x and x["due"] <= self.clock:
            x["due"] = self.due()
            ctx.set(dut.store_read, 1)
            c = x["command"]
            x["from"], = {self.acc[c["slot"] + j, c["row"]] for j in range(c["rows"])}
        done = [x for x in (*self.scatters[:1], *self.entries[:1])
                if x.get("from", x) is not None and x["due"] <= self.clock]
        if done:
            ctx.set(dut.store_done, 1)
            (self.scattered if "command" in done[0] else self.written)(done[0])

    def scattered(self, x):
        self.scatters.remove(x)
        batch, q = x["from"]
        c, launched = x["command"], self.batches[batch]
        r = self.requests[launched.first + q]
        assert not self.is_bad(r)
        whole = [place for place in self.places(False, r, q) if place[2] == c["addr"]]
        assert [(c["slot"] + j, c["row"], c["addr"], j) for j in range(c["rows"])] == whole
        r.outputs_done.add(c["addr"])
        launched.outputs_at = self.clock

    def written(self, x):
        self.entries.remove(x)
        self.memory[x["offset"]] = x["words"]

    # --- context --------------------------------------------------------------------------------

    def context(self, ctx):
        """Returns whether the array is idle, whether the context restarts now, after an error."""
        dut, s, rng = self.dut, self.s, self.rng
        idle, failed = rng.random() < s.array, s.restarts.get(self.clock)
        if (self.failing and self.status is not None and failed is None and rng.random() < 0.1
                and (self.loads or self.entries or self.beats)):
            self.failing, failed = self.failing - 1, 1
        restart = failed is not None
        busy = self.running is not None or self.host_program > 0
        ended = busy and self.clock == self.ends
        if self.running and ended:
            self.check_inputs()
        for name, value in {"array_idle": idle, "context_busy": busy, "context_restart": restart,
                            "context_failed": bool(failed),
                            "context_finished": ended or restart}.items():
            ctx.set(getattr(dut, name), value)
        return idle, restart, failed

    def context_ends(self):
        """After a clock."""
        if self.clock == self.ends:
            self.running, self.host_program = None, 0
        elif not self.running and not self.host_program and (
                self.rng.random() < self.s.host_programs):
            self.host_program = 1
            self.ends = self.clock + self.rng.randint(2, 40)

    def check_inputs(self):
        b = self.running
        for q, r in enumerate(self.requests[b.first:b.first + b.rows]):
            if not self.is_bad(r):
                for slot, row, addr, j in self.places(True, r, q, b.buffer):
                    assert self.spad[slot, row] == (r.number, addr, j)

    def launch(self, batch):
        """The program runs, and writes what it finds in the accumulator."""
        self.running = batch
        self.ends = self.clock + self.rng.randint(2, self.s.program)
        for q, r in enumerate(self.requests[batch.first:batch.first + batch.rows]):
            r.batch = len(self.batches)
            for slot, row, *_ in self.places(False, r, q):
                self.acc[slot, row] = len(self.batches), q
        self.batches.append(batch)
        self.check_inputs()

    def restart(self):
        self.loads, self.scatters, self.entries, self.beats = [], [], [], []
        self.running, self.host_program = None, 0

    # --- commands -------------------------------------------------------------------------------

    def taken(self, name, payload):
        fields = {n: getattr(payload, n) for n in payload.shape().members}
        fields = {n: getattr(v, "value", v) for n, v in fields.items()}
        assert fields["source"] == Source.REQUEST.value
        if name == "load":
            gather = fields["dest"] != Destination.DESCRIPTOR.value
            assert fields["kind"] == (Kind.X if gather else Kind.REQUEST).value
            if gather:
                assert fields["dest"] == Destination.SPAD.value
                assert (fields["gather"], fields["row_exp"], fields["fp32"]) == (1, 1, 0)
                assert fields["cols"] == self.cfg.tile
            self.loads.append((self.due(), fields))
        elif name == "store":
            assert (fields["scatter"], fields["final"], fields["bfp"], fields["spad"]) == (
                1, 1, 0, 0)
            assert (fields["kind"], fields["cols"]) == (Kind.Y.value, self.cfg.tile)
            assert not self.entries, "store_done would not tell what is done"
            self.scatters.append({"command": fields, "from": None, "due": self.due()})
        else:
            assert fields["kind"] == Kind.REQUEST.value
            assert not self.scatters, "a completion before its outputs are written"
            self.beats.append(fields["data"])
            assert fields["last"] == (len(self.beats)
                                      == self.cfg.entry_bytes // self.cfg.beat_bytes)
            if fields["last"]:
                value = sum(b << k * self.cfg.axi_width for k, b in enumerate(self.beats))
                assert value < 2**128
                words = [value >> 32 * k & 0xFFFFFFFF for k in range(4)]
                self.entries.append({"offset": fields["offset"], "words": words,
                                     "due": self.due()})
                self.beats = []
