"""docs/serving.md, "Requests", word by word: batches on the literal machine. No errors."""

import math

import numpy as np
from literal import to_bits
from literal_machine import ArrayInstruction, Chip

from hw.isa import Kind
from sw.compiler.assembler import instruction
from sw.golden.decode import decode


def image_rows(cfg, count):
    """(image, row of it, number of the T elements) for `count` numbers."""
    t = cfg.tile
    for number in range(math.ceil(count / t)):
        yield number // t, number % t, number


def size(cfg, count, bits, head, pitch):
    """Bytes of the images of `count` numbers: the last one to the beat of its last row."""
    image, row, _ = list(image_rows(cfg, count))[-1]
    beats = head + math.ceil((row + 1) * cfg.tile * bits / cfg.axi_width)
    return image * pitch + beats * cfg.axi_width // 8


class LiteralServer:
    """Serves batches; `instructions` are those that ran, `bytes` those of requests."""

    def __init__(self, cfg, memory, service, layers, seed):
        self.cfg, self.memory, self.service, self.seed = cfg, memory, service, seed
        self.layers = [decode(np.frombuffer(instruction(cfg, **f), np.uint8)) for f in layers]
        self.chip, self.buffer, self.instructions = Chip(), 0, []
        self.bytes = {"READ_X": 0, "WRITE_Y": 0, "NONFINITE_TILES": 0}
        self.input = size(cfg, service.inputs, cfg.container, cfg.exp_beats, cfg.bfp_bytes)
        self.output = size(cfg, service.outputs, 32, 0, cfg.fp32_bytes)

    def slot(self, window, row, column):
        h, w = 2 ** window["h_log2"], 2 ** window["w_log2"]
        return window["base"] + (row // self.cfg.tile % h) * w + column % w

    def batch(self, requests):
        """Serve one batch; whether each descriptor is good."""
        good = [r.input % self.cfg.beat_bytes == r.output % self.cfg.beat_bytes == 0
                and r.input + self.input <= len(self.memory)
                and r.output + self.output <= len(self.memory) for r in requests]
        for row, request in enumerate(requests):
            if good[row]:
                self.gather(row, request.input)
        for fields in self.layers:
            self.instructions.append(ArrayInstruction(
                self.cfg, self.memory, fields, self.seed, self.chip, len(requests),
                self.buffer).run())
        self.buffer = 1 - self.buffer
        for row, request in enumerate(requests):
            if good[row]:
                self.scatter(row, request.output)
        return good

    def gather(self, row, offset):
        cfg, t, w = self.cfg, self.cfg.tile, self.service.input_window
        self.bytes["READ_X"] += self.input
        for image, r, number in image_rows(cfg, self.service.inputs):
            start = offset + image * cfg.bfp_bytes
            exponent = int(self.memory[start + r])
            body = self.memory[start + cfg.exp_beats * cfg.beat_bytes:]
            code = int.from_bytes(body[:t * t * 2].tobytes(), "little")
            q = []
            for e in range(r * t, r * t + t):
                value = code >> e * cfg.container & (1 << cfg.mant_width) - 1
                value -= (value >> cfg.mant_width - 1) << cfg.mant_width
                q.append(max(value, -cfg.q_max) if exponent else 0)
            slot = self.slot(w, row, number) + (self.buffer << w["h_log2"] + w["w_log2"])
            self.chip.spad[slot, row % t] = exponent, q

    def scatter(self, row, offset):
        cfg, t = self.cfg, self.cfg.tile
        self.bytes["WRITE_Y"] += self.output
        self.memory[offset:offset + self.output] = 0  # padding of images and of the last beat
        bad = set()
        for image, r, number in image_rows(cfg, self.service.outputs):
            values = self.chip.acc[self.slot(self.service.output_window, row, number), row % t]
            words = np.array([to_bits(v) for v in values], "<u4")
            bad |= {image for word in words if word >> 23 & 255 == 255}
            start = offset + image * cfg.fp32_bytes + r * t * 4
            self.memory[start:start + 4 * t] = words.view(np.uint8)
        self.bytes["NONFINITE_TILES"] += len(bad)

    def total(self, name):
        """Bytes under a counter's name."""
        way, kind = name.split("_")
        return self.bytes.get(name, 0) + sum(
            i.bytes[way == "WRITE", Kind[kind]] for i in self.instructions)
