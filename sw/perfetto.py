"""Traces for Perfetto and Chrome (https://ui.perfetto.dev): units by context over time."""

import json
from pathlib import Path

import numpy as np

from hw.regs import UNITS
from sw.files import replacing
from sw.runtime.server import Served

CONTEXTS = ("training", "inference")


def intervals(trace: np.ndarray, bit: int, end: int) -> list[tuple[int, int]]:
    """Clocks [begin, end) in which a bit of the activity is set."""
    values = trace[:, 1] >> bit & 1
    edges = np.flatnonzero(np.diff(np.concatenate([[0], values, [0]])))
    clocks = np.append(trace[:, 0], end)
    return [(int(clocks[a]), int(clocks[b]))
            for a, b in zip(edges[::2], edges[1::2], strict=True)]


def write_trace(path: Path, served: Served) -> None:
    """Write one track per unit and context, and one per request; a clock is a microsecond."""
    trace = served.log.trace
    end = int(trace[-1, 0]) + 1 if len(trace) else 0
    events = []
    for process, context in enumerate(CONTEXTS):
        events.append({"ph": "M", "name": "process_name", "pid": process,
                       "args": {"name": context}})
        for number, (unit, _) in enumerate(UNITS):
            events.append({"ph": "M", "name": "thread_name", "pid": process, "tid": number,
                           "args": {"name": unit.lower()}})
            events += [{"ph": "X", "name": unit.lower(), "pid": process, "tid": number, "ts": a,
                        "dur": b - a}
                       for a, b in intervals(trace, 2 * number + process, end)]
    events.append({"ph": "M", "name": "process_name", "pid": 2, "args": {"name": "requests"}})
    for number, (posted, latency, service) in enumerate(zip(
            served.posted.tolist(), served.latency.tolist(), served.service.tolist(),
            strict=True)):
        if posted < end:
            events += [
                {"ph": "b", "cat": "request", "id": number, "name": f"request {number}", "pid": 2,
                 "tid": 0, "ts": posted},
                {"ph": "n", "cat": "request", "id": number, "name": "launch", "pid": 2, "tid": 0,
                 "ts": posted + latency - service},
                {"ph": "e", "cat": "request", "id": number, "name": f"request {number}", "pid": 2,
                 "tid": 0, "ts": posted + latency}]
    with replacing(path) as file:
        file.write(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}).encode())
