"""Requests of the inference context: inputs gathered, programs launched, outputs scattered.

Written from docs/serving.md, "Requests". What depends on time (batches, latencies) is not here.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from hw.config import DIM_BITS, MAX_REQUESTS, Config
from hw.isa import Error
from sw.golden import arithmetic, images
from sw.golden.decode import acc_window_fits, inside, spad_window_fits
from sw.golden.machine import COUNTERS, Machine


class Status(IntEnum):
    """Status of a completion."""

    OK = 0
    BAD_DESCRIPTOR = 1
    ABORTED = 2
    FAILED = 3


class Request(NamedTuple):
    """A descriptor: offsets of input and output in the region, and a tag."""

    input: int
    output: int
    tag: int


class Service(NamedTuple):
    """What is served: the registers of these names; windows are base, h_log2 and w_log2."""

    program: int
    batch_max: int
    inputs: int
    outputs: int
    input_window: dict
    output_window: dict


def refusal(cfg: Config, service: Service,
            regions: tuple[tuple[int, int] | None, tuple[int, int] | None]) -> str | None:
    """Why ENABLE is refused, if not because of the rings; None if it is not.

    `regions` are first and last of the context's scratchpad and accumulator slots (None: all).
    """
    both = service.input_window | {"h_log2": service.input_window["h_log2"] + 1}
    for name, count, window, whole, exists, region in (
            ("INPUT", service.inputs, service.input_window, both, spad_window_fits, regions[0]),
            ("OUTPUT", service.outputs, service.output_window, service.output_window,
             acc_window_fits, regions[1])):
        if not exists(cfg, whole):
            return f"{name}_WINDOW has slots that do not exist"
        if not inside(whole, region):
            return f"{name}_WINDOW leaves the context's slots"
        if count >> DIM_BITS or images.tiles(cfg, count) > 1 << window["w_log2"]:
            return f"{name}_WINDOW is not as wide as REQUEST_{name}S"
    return None


def _image_rows(cfg: Config, size: int) -> list[int]:
    """Valid rows of each image of `size` numbers, T in a row."""
    rows, t = images.tiles(cfg, size), cfg.tile
    return [min(t, rows - top) for top in range(0, rows, t)]


def _bytes(cfg: Config, size: int, bfp: bool) -> int:
    rows = _image_rows(cfg, size)
    return (len(rows) - 1) * cfg.image_bytes(bfp) + cfg.image_beats(bfp, rows[-1]) * cfg.beat_bytes


def input_bytes(cfg: Config, count: int) -> int:
    """Bytes of a request's input of `count` numbers; what is left of the last image is no part."""
    return _bytes(cfg, count, True)


def output_bytes(cfg: Config, count: int) -> int:
    """Bytes of a request's output of `count` numbers, in the same way."""
    return _bytes(cfg, count, False)


def encode_input(cfg: Config, x: np.ndarray) -> np.ndarray:
    """Inputs of requests, float32 (n, K), -> their bytes, uint8 (n, `input_bytes`)."""
    t, (n, count) = cfg.tile, x.shape
    per_request = len(_image_rows(cfg, count)) * t
    rows = np.zeros((n, per_request * t), np.float32)
    rows[:, :count] = x
    q, exponents = arithmetic.quantise(rows.reshape(-1, t), cfg.mant_width, (1,))
    packed = images.pack_bfp(cfg, q, exponents).reshape(n, -1)
    return packed[:, :input_bytes(cfg, count)].copy()


def decode_output(cfg: Config, raw: np.ndarray, count: int) -> np.ndarray:
    """Bytes of requests' outputs, uint8 (n, `output_bytes`), -> float32 (n, `count`)."""
    n, per_request = len(raw), len(_image_rows(cfg, count))
    whole = np.zeros((n, per_request * cfg.fp32_bytes), np.uint8)
    whole[:, :raw.shape[1]] = raw
    grid = whole.reshape(n * per_request, 1, cfg.fp32_bytes)
    values = images.unpack_fp32(cfg, grid, n * per_request * cfg.tile, cfg.tile)
    return values.reshape(n, -1)[:, :count]


class Server:
    """The request unit from ENABLE on: serves requests on the inference context `machine`.

    `counters` are those of the machine, over all that has been served; `nonfinite` and `overflow`
    its flags. After an error of a program every further request gets FAILED.

    Parameters
    ----------
    machine : Machine
    service : Service

    Raises
    ------
    ValueError
        ENABLE is refused.
    """

    def __init__(self, machine: Machine, service: Service):
        reason = refusal(machine.cfg, service, machine.regions)
        if reason:
            raise ValueError(f"ENABLE is refused: {reason}")
        self.machine, self.service = machine, service
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.nonfinite = self.overflow = self.failed = False
        self._buffer = 0
        machine.enable()

    @property
    def full(self) -> int:
        """Most requests of a batch."""
        rows = self.machine.cfg.tile << self.service.input_window["h_log2"]
        return min(self.service.batch_max or 1, rows, MAX_REQUESTS)

    def serve(self, requests: list[Request], sizes: list[int] | None = None) -> list[Status]:
        """Serve `requests` in order, in batches of `sizes`; if not given, full ones and the rest.

        Raises
        ------
        ValueError
            Sizes that are no batches, or do not add up to the number of requests.
        """
        if sizes is None:
            sizes = [min(self.full, len(requests) - at)
                     for at in range(0, len(requests), self.full)]
        if sum(sizes) != len(requests) or not all(1 <= size <= self.full for size in sizes):
            raise ValueError(f"batches of 1..{self.full} must add up to {len(requests)} requests, "
                             f"not {sizes}")
        statuses, rest = [], list(requests)
        for size in sizes:
            statuses += self._batch(rest[:size])
            rest = rest[size:]
        entries = len(requests) * self.machine.cfg.entry_bytes
        self.counters["READ_REQUEST"] += entries
        self.counters["WRITE_REQUEST"] += entries
        return statuses

    def _batch(self, requests: list[Request]) -> list[Status]:
        statuses = [self._examined(request) for request in requests]
        good = [(row, request) for row, (request, status)
                in enumerate(zip(requests, statuses, strict=True)) if status is Status.OK]
        if not self.failed:
            for row, request in good:
                self._gather(row, request.input)
            self._launch(len(requests))
        if self.failed:
            return [Status.FAILED] * len(requests)
        for row, request in good:
            self._scatter(row, request.output)
        return statuses

    def _examined(self, request: Request) -> Status:
        cfg, service, size = self.machine.cfg, self.service, len(self.machine.memory)
        fits = request.input + input_bytes(cfg, service.inputs) <= size \
            and request.output + output_bytes(cfg, service.outputs) <= size
        aligned = not (request.input % cfg.beat_bytes or request.output % cfg.beat_bytes)
        return Status.OK if fits and aligned else Status.BAD_DESCRIPTOR

    def _launch(self, rows: int):
        """Run the program for the batch of which the inputs have been gathered."""
        result = self.machine.run(self.service.program, keep=True, rows=rows, buffer=self._buffer)
        self._buffer = 1 - self._buffer
        for name, count in result.counters.items():
            self.counters[name] += count
        self.nonfinite |= result.nonfinite
        self.overflow |= result.overflow
        self.failed = result.error is not Error.NONE

    def _gather(self, row: int, offset: int):
        """Read an input into row `row` of the batch."""
        cfg, inputs = self.machine.cfg, self.service.inputs
        count = input_bytes(cfg, inputs)
        whole = np.zeros(len(_image_rows(cfg, inputs)) * cfg.bfp_bytes, np.uint8)
        whole[:count] = self.machine.memory[offset:offset + count]
        cols = images.tiles(cfg, inputs)
        q, exponents = images.unpack_bfp(cfg, whole.reshape(-1, 1, cfg.bfp_bytes), cols, cfg.tile,
                                         row_exp=True)
        self.machine.chip.gather(self.service.input_window, self._buffer, row, q[:cols],
                                 exponents[:cols, 0])
        self.counters["READ_X"] += count

    def _scatter(self, row: int, offset: int):
        """Write row `row` of the batch's results as an output."""
        cfg, outputs = self.machine.cfg, self.service.outputs
        rows = _image_rows(cfg, outputs)
        values = np.zeros((len(rows) * cfg.tile, cfg.tile), np.float32)
        values[:sum(rows)] = self.machine.chip.scatter(self.service.output_window, row, outputs)
        finite = np.isfinite(values).reshape(len(rows), -1).all(1)
        self.counters["NONFINITE_TILES"] += int((~finite).sum())
        self.nonfinite |= not finite.all()
        count = output_bytes(cfg, outputs)
        self.machine.memory[offset:offset + count] = \
            images.pack_fp32(cfg, values).reshape(-1)[:count]
        self.counters["WRITE_Y"] += count
