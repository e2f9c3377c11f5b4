"""Requests on the inference context beside a training program, and what they must leave."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hw.config import Config
from hw.regs import UNITS
from sw.compiler.network import perceptron
from sw.compiler.serving import ServingPlan
from sw.golden.machine import COUNTERS, Machine
from sw.golden.serving import (
    Request,
    Server,
    Service,
    Status,
    encode_input,
    input_bytes,
    output_bytes,
)
from sw.nn.parameters import initial
from sw.runtime.tensors import write
from tb.colocation import PREFIXES, Solo, differences, outside_changed, over_bounds, place, unequal
from tb.job import Host, Job, Result
from tb.runner import simulate

#: Counters that a job's registers are compared in, and more that tests look at.
READS = [f"{prefix}{name}" for prefix in PREFIXES
         for name in (*COUNTERS, "STATUS", "ERROR_CODE", "ERROR_ADDR", "EXCEPTIONS")] + [
    *(f"{unit}_{what}" for unit, _ in UNITS for what in ("HOLD_MAX", "HOLD_BOUND")),
    "POLICY", "BATCHES", "SPIKE_CYCLES", "REQUEST_SPACE", "REQUEST_CONTROL", "COMPLETED",
    "REQUEST_QUEUE"]


#: Counters of the inference context that do not depend on the batches.
WHATEVER_BATCHES = ("NONFINITE_TILES", "READ_W", "READ_X", "READ_REQUEST", "WRITE_Y",
                    "WRITE_REQUEST")


class Serving:
    """A network in the inference region, requests for it, and what must be there after them.

    Parameters
    ----------
    cfg : Config
    sizes : tuple of int
        Of the network.
    batch_max, ring_log2 : int
    count : int
        Requests.
    nonfinite : set of int
        Requests whose inputs hold NaN and Inf.
    bad : set of int
        Requests with an output beyond the region.
    seed : int
        Of the parameters and inputs.
    """

    def __init__(self, cfg: Config, *, count: int, sizes: tuple[int, ...] = (8, 6),
                 batch_max: int = 4, ring_log2: int = 3, nonfinite=frozenset(), bad=frozenset(),
                 seed: int = 0):
        self.cfg, self.count = cfg, count
        network = perceptron(sizes)
        self.plan = plan = ServingPlan(cfg, network, batch_max, ring_log2=ring_log2)
        memory = plan.image()
        parameters = initial(network, seed)
        for name in plan.parameters:
            place_ = plan.places[name]
            write(cfg, memory, place_, parameters[name].reshape(place_.rows, place_.cols))
        x = np.random.default_rng(seed).standard_normal((count, sizes[0])).astype(np.float32)
        for n in nonfinite:
            x[n, ::2] = np.nan, np.inf, -np.inf, np.nan
        taken, self.given = input_bytes(cfg, sizes[0]), output_bytes(cfg, sizes[-1])
        inputs = plan.size + taken * np.arange(count)
        self.outputs = plan.size + taken * count + self.given * np.arange(count)
        self.memory = np.full(self.outputs[-1] + self.given, 0xFF, np.uint8)
        self.memory[:plan.size] = memory
        self.memory[plan.size:self.outputs[0]] = encode_input(cfg, x).reshape(-1)
        self.requests = [Request(int(a), len(self.memory) if n in bad else int(b), 0x1000 + n)
                         for n, (a, b) in enumerate(zip(inputs, self.outputs, strict=True))]
        machine = Machine(cfg, self.memory, inference=True)
        machine.run(plan.prepare)
        self.after = self.memory.copy()
        machine = Machine(cfg, self.after, inference=True)
        service = plan.service
        server = Server(machine, Service(plan.program, batch_max, service.inputs, service.outputs,
                                         service.input_window, service.output_window))
        self.statuses = server.serve(self.requests)
        self.counters = {name: server.counters[name] for name in WHATEVER_BATCHES}

    def host(self, clocks, base: int, first: int = 0, **fields) -> Host:
        """A host that posts request first + n at clocks[n]."""
        return Host(requests=[(int(clock), *request) for clock, request in
                              zip(clocks, self.requests[first:], strict=False)],
                    ring=base + self.plan.ring, completions=base + self.plan.completions,
                    ring_log2=self.plan.registers["RING_LOG2"], **fields)

    def registers(self, base: int, **more: int) -> dict[str, int]:
        """Registers of the context and of the request unit; ENABLE is the last."""
        return {"INFERENCE_REGION_BASE_LO": base, **self.plan.registers,
                "INFERENCE_REGION_SIZE": len(self.memory), **more, "REQUEST_CONTROL":
                more.get("REQUEST_CONTROL", 1)}

    def problems(self, result: Result, base: int, statuses: list[Status] | None = None,
                 first: int = 0) -> list[str]:
        """What is wrong with the region and with the completions.

        Parameters
        ----------
        result : Result
        base : int
            Address of the region.
        statuses : list of Status, optional
            Of the completed requests; golden's of all if not given.
        first : int
            Number of the first request of this host; those before were of one host before.
        """
        statuses = self.statuses if statuses is None else statuses
        found = [(int(tag), int(status)) for tag, status in result.log.completions[:, 1:3]]
        wanted = [(request.tag, int(status)) for request, status in
                  zip(self.requests[first:], statuses[first:], strict=False)]
        problems = [] if found == wanted else [
            f"completions (tag, status) are {found}, not {wanted}"]
        region = result.memory[base:base + len(self.memory)]
        expected = self.memory.copy()
        for n, (request, status) in enumerate(zip(self.requests, statuses, strict=False)):
            entry = (n if n < first else n - first) % self._entries * self.cfg.entry_bytes
            self._put(expected, self.plan.ring + entry, *request, 0)
            at = self.plan.completions + entry
            times = region[at + 8:at + 16].view(np.uint32)
            self._put(expected, at, request.tag, int(status), *times)
            at = slice(request.output, request.output + self.given)
            if status is Status.OK:
                expected[at] = self.after[at]
            elif status in (Status.ABORTED, Status.FAILED):  # it may have been written, in part
                expected[at] = np.where(region[at] == self.after[at], region[at], expected[at])
        known = np.ones(len(expected), bool)
        if len(statuses) < self.count:  # descriptors of requests that were refused
            known[self.plan.ring:self.plan.ring + self._entries * self.cfg.entry_bytes] = False
        return problems + [f"INFERENCE_memory: {text}" for text in differences(
            region[known], expected[known])]

    @property
    def _entries(self) -> int:
        return 1 << self.plan.registers["RING_LOG2"]

    def _put(self, memory: np.ndarray, at: int, *words: int):
        """Write an entry of a ring."""
        count = 4 * len(words)
        memory[at:at + count] = np.array(words, np.uint32).view(np.uint8)


@dataclass
class Case:
    """A job with a training program and requests, and what it must leave.

    Attributes
    ----------
    job : Job
    training : Solo or None
    serving : Serving
    bases : list of int
        Addresses of their regions.
    statuses : list of Status, optional
        Of all requests; golden's if not given.
    counters : bool
        Training's program runs once.
    first : int
        As of `Serving.problems`.
    """

    job: Job
    training: Solo | None
    serving: Serving
    bases: list[int]
    statuses: list[Status] | None = None
    counters: bool = True
    first: int = 0

    def check(self, result: Result) -> list[str]:
        """All that is wrong with the memory, the completions, training's counters, the bus."""
        problems = [f"bus: {text}" for text in result.protocol_errors]
        if result.outstanding:
            problems.append("a burst is still under way")
        if self.training:
            problems += self.training.problems(result, "", self.bases[0], self.counters)
        problems += self.serving.problems(result, self.bases[-1], self.statuses, self.first)
        sides = [*([self.training] if self.training else []), self.serving]
        problems += outside_changed(result, self.bases, [len(s.memory) for s in sides])
        if self.statuses is None:
            problems += unequal(result, {f"INFERENCE_{name}": value for name, value
                                         in self.serving.counters.items()})
        policies = {self.job.registers.get("POLICY", 0),
                    *(value for _, name, value in self.job.host.writes if name == "POLICY")}
        return problems + (over_bounds(result) if policies == {0} else [])


def case(serving: Serving, clocks, training: Solo | None = None, *, start: int | None = 0,
         writes=(), registers: dict[str, int] | None = None, host: dict | None = None,
         fresh: bool = True, statuses: list[Status] | None = None, counters: bool = True,
         first: int = 0, **settings) -> Case:
    """A job: START of training at clock `start`, requests at `clocks`, register writes between.

    `host` are more fields of `Host`, `settings` of `Job`; the others are those of `Case`.
    """
    memory, bases = place(*([training.memory] if training else []), serving.memory)
    writes = [*writes, *([(start, "CONTROL", 1)] if training and start is not None else [])]
    values = {"COUNTERS_CLEAR": 1, "INFERENCE_COUNTERS_CLEAR": 1, "SHARED_COUNTERS_CLEAR": 1,
              **(training.registers("", bases[0]) if training else {}),
              **serving.registers(bases[-1], **(registers or {}))}
    job = Job(memory=memory if fresh else None, registers=values,
              host=serving.host(clocks, bases[-1], first, writes=sorted(
                  writes, key=lambda write: write[0]), **(host or {})),
              **{"reads": READS, **settings})
    return Case(job, training, serving, bases, statuses, counters, first)


def run(cfg: Config, cases: list[Case], source: Path | None = None) -> list[Result]:
    """Simulate the cases; their results.

    Raises
    ------
    AssertionError
        Something is wrong with one of them.
    """
    results = simulate(cfg, [c.job for c in cases], source)
    problems = [f"case {n}: {text}" for n, (c, result) in
                enumerate(zip(cases, results, strict=True)) for text in c.check(result)]
    assert not problems, "\n".join(problems)
    return results
