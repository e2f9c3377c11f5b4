"""Serves requests of a network on one NPU, alone or beside a training job.

    server = Server(cfg, network, batch_max=16, backend="rtl", training=job)   # or "golden"
    server.load(parameters)                        # sw.nn.parameters
    numbers = server.submit(x, clocks)             # rows of x arrive at these clocks
    served = server.wait()                         # runs until all are completed
    served.outputs, served.statuses, served.latency, served.counters

A request's output depends neither on its batch nor on training. On "golden" there is no time.
Both regions lie in one memory: training's at address 0, inference's behind it.
"""

import contextlib
import sys
import threading
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

import numpy as np

from hw.config import MAX_REQUESTS, Config
from hw.isa import Error
from hw.regs import OFFSETS
from sw.compiler.cost import Bus
from sw.compiler.network import Network
from sw.compiler.serving import ServingPlan
from sw.compiler.training import TrainingPlan
from sw.golden.machine import Machine
from sw.golden.serving import (
    Request,
    Service,
    Status,
    decode_output,
    encode_input,
    input_bytes,
    output_bytes,
)
from sw.golden.serving import Server as GoldenServer
from sw.nn.parameters import Parameters
from sw.runtime.backends import BACKENDS, Hyperparameters, RunError, Timing, run
from sw.runtime.tensors import write, write_batches

POLICIES = ("priority", "fair", "exclusive")
#: Bits of REQUEST_CONTROL.
ENABLE, LAUNCH_IDLE = 1, 2
#: Regions begin at multiples of this.
PAGE = 4096
#: Clocks beyond which a run is given up, as a multiple of what is expected.
PATIENCE = 20
#: Latest clock of arrival.
LATEST = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Scheduling:
    """Registers of the scheduler and of batching; None leaves the value after reset.

    Raises
    ------
    ValueError
        A policy or value that there is not.
    """

    policy: str = "priority"
    batch_timeout: int = 0
    launch_idle: bool = False
    spike_threshold: int = 0
    max_burst_beats: int | None = None
    read_credits: int | None = None
    read_credits_idle: int | None = None

    def __post_init__(self):
        if self.policy not in POLICIES:
            raise ValueError(f"policy must be one of {', '.join(POLICIES)}, not {self.policy!r}")
        for name, low, high in (("batch_timeout", 0, LATEST), ("spike_threshold", 0, MAX_REQUESTS),
                                ("max_burst_beats", 1, 256), ("read_credits", 0, 0xFFFF),
                                ("read_credits_idle", 0, 0xFFFF)):
            value = getattr(self, name)
            if value is not None and (int(value) != value or not low <= value <= high):
                raise ValueError(f"{name} must be an integer from {low} to {high}, not {value}")

    def registers(self) -> dict[str, int]:
        """Values by register."""
        values = {"POLICY": POLICIES.index(self.policy), "BATCH_TIMEOUT": self.batch_timeout,
                  "SPIKE_THRESHOLD": self.spike_threshold,
                  "MAX_BURST_BEATS": self.max_burst_beats, "READ_CREDITS": self.read_credits,
                  "READ_CREDITS_IDLE": self.read_credits_idle}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """A training program with its data; started again and again while requests remain.

    Attributes
    ----------
    plan : TrainingPlan
    memory : np.ndarray
        Its region before the first start.
    hyperparameters : Hyperparameters
    """

    plan: TrainingPlan
    memory: np.ndarray
    hyperparameters: Hyperparameters

    @classmethod
    def of(cls, plan: TrainingPlan, parameters: Parameters, x: np.ndarray, targets: np.ndarray,
           hyperparameters: Hyperparameters) -> "TrainingJob":
        """A job over the rows of `x` and `targets`, from `parameters` on."""
        memory = plan.image()
        for name, place in plan.places.items():
            if name in parameters or "momentum" in name:
                shape = place.rows, place.cols
                write(plan.cfg, memory, place,
                      np.reshape(parameters.get(name, np.zeros(shape)), shape))
        write_batches(plan.cfg, memory, plan.batches["x"], x)
        write_batches(plan.cfg, memory, plan.batches["targets"], targets)
        return cls(plan=plan, memory=memory, hyperparameters=hyperparameters)

    @property
    def steps(self) -> int:
        """Optimizer steps of one start."""
        return -(-self.plan.samples // self.plan.batch)

    def after(self, starts: int) -> np.ndarray:
        """Golden: the region after so many starts."""
        return run("golden", self.plan.cfg, self.memory, [self.plan.program] * starts,
                   hyperparameters=self.hyperparameters)[0]


@dataclass(frozen=True, kw_only=True)
class Served:
    """What became of the requests submitted, in their order. Clocks count from the run's start.

    Attributes
    ----------
    outputs : np.ndarray
        float32, requests x outputs.
    statuses : list of Status
    counters : dict
        Registers and counters by name at the end ("golden": counters of the inference context that
        do not depend on time).
    arrival, posted, completed : int arrays, or None on golden
        Clocks of a request's arrival, of its doorbell, and of the acknowledgement of its output.
    latency, service : int arrays, or None
        As the NPU has them in the completion.
    log : tb.job.HostLog or None
    training : np.ndarray or None
        Training's region at the end; it has been started `starts` times.
    starts : int
        Starts of training.
    clocks : int
        From the first arrival to the last completion.
    problems : list of str
        What the memory model found wrong on the bus.
    """

    outputs: np.ndarray
    statuses: list[Status]
    counters: dict[str, int]
    arrival: np.ndarray | None = None
    posted: np.ndarray | None = None
    completed: np.ndarray | None = None
    latency: np.ndarray | None = None
    service: np.ndarray | None = None
    log: object = None
    training: np.ndarray | None = None
    starts: int = 0
    clocks: int = 0
    problems: tuple[str, ...] = ()


@contextlib.contextmanager
def quiet():
    """The simulator's talk goes to standard error: it is no result.

    Threads share standard output; in others than the first nothing is changed, so whoever starts
    them does this around them.
    """
    first = threading.current_thread() is threading.main_thread()
    with contextlib.redirect_stdout(sys.stderr) if first else contextlib.nullcontext():
        yield


def together(*work) -> list:
    """Results of functions that run at once, each in a thread.

    The first one that fails, and whatever else ends this early, ends all simulations.
    """
    with quiet(), ThreadPoolExecutor(len(work)) as pool:
        futures = [pool.submit(function) for function in work]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            return [future.result() for future in futures]
        except BaseException:
            while wait(futures, timeout=0.1).not_done:
                if runner := sys.modules.get("tb.runner"):
                    runner.stop()
            raise


class Server:
    """A network served by one NPU.

    Parameters
    ----------
    cfg : Config
    network : Network
    batch_max : int
        Most requests of a batch.
    scheduling : Scheduling, optional
    training : TrainingJob, optional
        Runs beside; its plan's share must be `plan.rest`.
    backend : str
        "golden" or "rtl".
    timing : Timing, optional
        The simulated memory.

    Raises
    ------
    PlanError
        The network does not fit on chip.
    ValueError
        Unknown backend.
    """

    def __init__(self, cfg: Config, network: Network, *, batch_max: int,
                 scheduling: Scheduling | None = None, training: TrainingJob | None = None,
                 backend: str = "golden", timing: Timing | None = None):
        if backend not in BACKENDS:
            raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, not {backend!r}")
        self.cfg, self.network, self.backend = cfg, network, backend
        self.scheduling, self.training = scheduling or Scheduling(), training
        self.timing = timing or Timing()
        self.plan = ServingPlan(cfg, network, batch_max,
                                bus=Bus(self.timing.latency, self.timing.bytes_per_cycle))
        self._memory = self.plan.image()
        self._x: list[np.ndarray] = []
        self._clocks: list[np.ndarray] = []

    def load(self, parameters: Parameters):
        """Write the model's weights and biases; others (momenta) are ignored."""
        for name in self.plan.parameters:
            write(self.cfg, self._memory, self.plan.places[name], parameters[name])

    def submit(self, x: np.ndarray, clocks: np.ndarray | int = 0) -> range:
        """Let the rows of `x` arrive at `clocks`; returns their numbers in the results.

        Raises
        ------
        ValueError
            `x` of another shape, or clocks that go back or are no integers from 0 to `LATEST`.
        """
        x, clocks = np.asarray(x), np.asarray(clocks)
        if x.ndim != 2 or not len(x) or x.shape[1] != self.network.inputs:
            raise ValueError(f"x must have shape (requests, {self.network.inputs}), not {x.shape}")
        if clocks.shape not in ((), (len(x),)):
            raise ValueError(f"clocks must be one number or {len(x)}, not {clocks.shape}")
        if clocks.dtype.kind not in "iu" or clocks.min() < 0 or clocks.max() > LATEST:
            raise ValueError(f"clocks must be integers from 0 to {LATEST}")
        first = sum(map(len, self._x))
        clocks = np.broadcast_to(clocks.astype(np.int64), len(x))
        before = self._clocks[-1][-1:] if self._clocks else clocks[:0]
        if (np.diff(np.concatenate([before, clocks])) < 0).any():
            raise ValueError("clocks of arrival must not go back")
        self._x.append(x)
        self._clocks.append(clocks)
        return range(first, first + len(x))

    def wait(self, *, trace: int = 0, bucket: int = 0) -> Served:
        """Serve all that has been submitted since the last time.

        Parameters
        ----------
        trace, bucket : int
            As `tb.job.Host`.

        Raises
        ------
        RunError
            The simulation failed, ENABLE was refused or the machine stopped with an error.
        ValueError
            Nothing has been submitted.
        """
        if not self._x:
            raise ValueError("nothing has been submitted")
        x, clocks = np.concatenate(self._x), np.concatenate(self._clocks)
        self._x, self._clocks = [], []
        taken = input_bytes(self.cfg, self.network.inputs)
        given = output_bytes(self.cfg, self.network.outputs)
        # One more, for the warm-up; each has places of its own.
        inputs = self.plan.size + taken * np.arange(len(x) + 1)
        outputs = inputs[-1] + taken + given * np.arange(len(x) + 1)
        memory = np.full(outputs[-1] + given, 0xFF, np.uint8)
        memory[:self.plan.size] = self._memory
        images = encode_input(self.cfg, np.concatenate([x, x[:1]]))
        memory[inputs[0]:outputs[0]] = images.reshape(-1)
        if self.backend == "golden":
            return self._golden(memory, inputs[:-1], outputs[:-1], given)
        return self._rtl(memory, clocks, inputs, outputs, given, trace, bucket)

    def _golden(self, memory, inputs, outputs, given):
        share = self.plan.share
        machine = Machine(self.cfg, memory, spad_region=(share.spad[0], share.spad[-1]),
                          acc_region=(share.acc[0], share.acc[-1]))
        machine.run(self.plan.prepare)
        try:
            server = GoldenServer(machine, Service(*self.plan.service))
        except ValueError as error:
            raise RunError(str(error)) from None
        statuses = server.serve([Request(int(a), int(b), n)
                                 for n, (a, b) in enumerate(zip(inputs, outputs, strict=True))])
        return Served(outputs=self._outputs(memory, outputs, given), statuses=statuses,
                      counters=server.counters)

    def _outputs(self, memory, outputs, given):
        raw = memory[outputs[0]:outputs[-1] + given].reshape(-1, given)
        return decode_output(self.cfg, raw, self.network.outputs)

    # --- RTL ------------------------------------------------------------------------------

    def _registers(self, size: int, base: int) -> dict[str, int]:
        """Registers of both contexts and of the scheduler."""
        values = {**self.plan.registers, "INFERENCE_REGION_BASE_LO": base,
                  "INFERENCE_REGION_SIZE": size, **self.scheduling.registers()}
        if self.training:
            plan, share = self.training.plan, self.plan.rest
            values |= {
                "REGION_SIZE": len(self.training.memory), "PROGRAM_ADDR": plan.program,
                "SPAD_REGION": share.spad.start | share.spad.stop - 1 << 16,
                "ACC_REGION": share.acc.start | share.acc.stop - 1 << 16,
                **{name.upper(): bits
                   for name, bits in self.training.hyperparameters.bits().items()}}
        return values

    def _rtl(self, memory, clocks, inputs, outputs, given, trace, bucket):
        try:
            from tb.job import Host, Job
            from tb.runner import SimulationError, simulate
        except ImportError as error:
            raise RunError(f"simulation needs the package {error.name}") from None
        job = self.training
        below = job.memory if job else np.zeros(0, np.uint8)
        base = -(-len(below) // PAGE) * PAGE
        whole = np.zeros(base + len(memory), np.uint8)
        whole[:len(below)], whole[base:] = below, memory
        registers = self._registers(len(memory), base)
        # Until then the weights are on chip.
        warm = int(4 * self.plan.capacity) + 20_000 + self.scheduling.batch_timeout
        clear = [(warm, name, 1) for name in ("COUNTERS_CLEAR", "INFERENCE_COUNTERS_CLEAR",
                                              "SHARED_COUNTERS_CLEAR")]
        start = [(warm, "CONTROL", 1)] if job else []
        # The warm-up's request is the last of the places and the first to arrive.
        requests = [(0, int(inputs[-1]), int(outputs[-1]), len(clocks)),
                    *((warm + int(c), int(a), int(b), n) for n, (c, a, b) in
                      enumerate(zip(clocks, inputs[:-1], outputs[:-1], strict=True)))]
        last = warm + int(clocks[-1]) + self.scheduling.batch_timeout
        patience = max(self.timing.timeout_cycles, last + int(
            PATIENCE * (len(clocks) * self.plan.capacity + (job.plan.clocks if job else 0))))
        settings = {"latency": self.timing.latency, "stall": self.timing.stall,
                    "bytes_per_cycle": self.timing.bytes_per_cycle,
                    "seed": self.timing.stall_seed, "timeout_cycles": patience}
        prepare = {name: value for name, value in registers.items() if "INFERENCE" in name} | {
            "INFERENCE_PROGRAM_ADDR": self.plan.prepare}
        control = ENABLE | LAUNCH_IDLE * self.scheduling.launch_idle
        host = Host(writes=[*clear, *start], requests=requests, ring=base + self.plan.ring,
                    completions=base + self.plan.completions,
                    ring_log2=self.plan.registers["RING_LOG2"], epochs=1 << 30,
                    trace=warm + trace if trace else 0, bucket=bucket)
        try:
            with quiet():
                _, result = simulate(self.cfg, [
                    Job(memory=whole, prefix="INFERENCE_", registers=prepare, **settings),
                    Job(memory=None, host=host,
                        registers={**registers, "REQUEST_CONTROL": control}, **settings)])
        except (SimulationError, ValueError) as error:
            raise RunError(str(error)) from None
        return self._results(result, clocks, outputs[:-1], given, base, warm)

    def _results(self, result, clocks, outputs, given, base, warm):
        log, registers = result.log, result.registers
        for name in ("ERROR_CODE", "INFERENCE_ERROR_CODE"):
            if registers[name]:
                raise RunError(f"{name} is {Error(registers[name]).name}")
        if not registers["REQUEST_CONTROL"] & ENABLE:
            raise RunError("ENABLE is refused: a ring, a window or the size of a request does not "
                           "fit the inference context")
        tags, status, latency, service = log.completions[:, 1:].T
        if sorted(tags) != list(range(len(clocks) + 1)):
            raise RunError("requests were lost or completed twice")
        order = np.argsort(tags)[:-1]
        # Posting is in order: the doorbell that counts beyond the request is its own.
        posted = log.doorbells[np.searchsorted(log.doorbells[:, 1], np.arange(len(clocks)) + 1,
                                               "right"), 0] - warm
        ack = dict(zip((log.acks[:, 1] - base).tolist(), log.acks[:, 0].tolist(), strict=True))
        completed = np.array([ack.get(int(o), 0) for o in outputs]) - warm
        memory = result.memory
        log = replace(log, trace=_from(log.trace, warm), use=_from(log.use, warm))
        return Served(
            outputs=self._outputs(memory[base:], outputs, given),
            statuses=[Status(int(s)) for s in status[order]],
            counters={name: registers[name] for name in OFFSETS if name in registers},
            arrival=clocks, posted=posted, completed=completed, latency=latency[order],
            service=service[order], log=log,
            training=memory[:len(self.training.memory)] if self.training else None,
            starts=len(log.ended), clocks=int(log.served[0, 0]) - warm,
            problems=tuple(result.protocol_errors))


def _from(rows: np.ndarray, clock: int) -> np.ndarray:
    """Rows from `clock` on, with clocks counted from there."""
    rows = rows[rows[:, 0] >= clock].copy()
    rows[:, 0] -= clock
    return rows
