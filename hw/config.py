"""Configuration of the generated NPU: parameters, limits, derived sizes, presets.

The only place where a size is computed. Hardware, golden model, compiler and testbench all take
their widths and layouts from `Config`.
"""

import hashlib
import json
import tomllib
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path

#: Version of the hardware/software contract (tile image, instructions, registers); hashed.
CONTRACT = 3
#: Bits of a matrix dimension in elements: M, N and K are 1 .. 2**DIM_BITS - 1.
DIM_BITS = 20
#: Most requests in a batch, and most entries of the request ring.
MAX_REQUESTS = 128
#: Bits of a byte offset inside a context's DRAM region.
OFFSET_BITS = 32

PRESETS = Path(__file__).parent / "configs"


class ConfigError(ValueError):
    """A parameter value that the generator does not support, and the nearest one that it does."""


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def clog2(n: int) -> int:
    """Bits that count `n` values 0 .. n-1 (0 for a single value)."""
    return (n - 1).bit_length()


def _param(default, doc):
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """All parameters of one NPU. Raises `ConfigError` for a value that is not supported."""

    tile: int = _param(16, "T: exponent tile and systolic array are T x T, 2..256")
    mant_width: int = _param(8, "bits of a BFP mantissa with its sign, 4..16")
    dot_width: int = _param(1, "w: products summed inside one PE; divides tile")
    spad_kib: int = _param(256, "scratchpad capacity in KiB of BFP mantissas")
    spad_banks: int = _param(4, "scratchpad banks, power of two, 1..16")
    acc_kib: int = _param(64, "accumulator capacity in KiB of FP32")
    acc_banks: int = _param(4, "accumulator banks, power of two, 2..8")
    axi_width: int = _param(128, "AXI4 data bus in bits, power of two, 32..1024")
    addr_width: int = _param(40, "AXI4 address bits, 32..64")
    outstanding: int = _param(16, "AXI4 read (and write) bursts in flight, 1..64")
    queue_depth: int = _param(32, "entries of the load, execute and store queues, 2..64")
    vector_lanes: int = _param(8, "most FP32 elements per clock of the vector unit, power of two, "
                                   "1..64; no more than tile are used")
    write_buffer: int = _param(64, "beats that the DMA buffers before it issues a write, 4..512")

    def __post_init__(self):
        for f in fields(self):
            value = getattr(self, f.name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConfigError(f"{f.name} must be an integer, not {value!r}")
        self._range("tile", 2, 256)
        self._range("mant_width", 4, 16)
        if self.dot_width < 1 or self.tile % self.dot_width:
            near = min((d for d in range(1, self.tile + 1) if self.tile % d == 0),
                       key=lambda d: abs(d - self.dot_width))
            raise ConfigError(f"dot_width must divide tile ({self.tile}), not {self.dot_width}; "
                              f"nearest is {near}")
        self._power("spad_banks", 1, 16)
        self._power("acc_banks", 2, 8)
        self._power("axi_width", 32, 1024)
        self._range("addr_width", 32, 64)
        self._range("outstanding", 1, 64)
        self._range("queue_depth", 2, 64)
        self._power("vector_lanes", 1, 64)
        self._power("write_buffer", 4, 512)
        self._capacity("spad_kib", self.spad_slots, self.spad_banks * max(1, 4 // self.spad_banks),
                       self.tile * self.tile * self.container / 8)
        self._capacity("acc_kib", self.acc_slots, self.acc_banks, self.tile * self.tile * 4)

    def _range(self, name, low, high):
        value = getattr(self, name)
        if not low <= value <= high:
            raise ConfigError(f"{name} must be {low}..{high}, not {value}; "
                              f"nearest is {min(max(value, low), high)}")

    def _power(self, name, low, high):
        value = getattr(self, name)
        if not low <= value <= high or value & (value - 1):
            legal = [1 << i for i in range(16) if low <= 1 << i <= high]
            near = min(legal, key=lambda p: abs(p - value))
            raise ConfigError(f"{name} must be a power of two in {low}..{high}, not {value}; "
                              f"nearest is {near}")

    def _capacity(self, name, slots, least, tile_bytes):
        value = getattr(self, name)
        if slots < least:
            raise ConfigError(f"{name} must hold at least {least} tiles of {tile_bytes:g} bytes, "
                              f"not {value}; nearest is {_ceil_div(int(least * tile_bytes), 1024)}")
        if slots > 1 << 16:
            raise ConfigError(f"{name} must hold at most 65536 tiles, not {value}; "
                              f"nearest is {int(tile_bytes * 65536) // 1024}")

    # --- numerics -------------------------------------------------------------------------

    @property
    def q_max(self) -> int:
        """Largest mantissa magnitude Q; mantissas are -Q .. Q."""
        return (1 << (self.mant_width - 1)) - 1

    @property
    def mag_width(self) -> int:
        """Bits of a mantissa's magnitude; on chip a mantissa is {sign, magnitude}."""
        return self.mant_width - 1

    @property
    def sum_width(self) -> int:
        """Bits that hold a signed full-tile dot product exactly."""
        return 2 * self.mant_width - 1 + clog2(self.tile)

    @property
    def container(self) -> int:
        """Bits of a mantissa in DRAM: 4, 8 or 16."""
        return 4 if self.mant_width == 4 else 8 if self.mant_width <= 8 else 16

    # --- array ----------------------------------------------------------------------------

    @property
    def pe_rows(self) -> int:
        """Rows of PEs: tile / dot_width."""
        return self.tile // self.dot_width

    # --- vector unit ----------------------------------------------------------------------

    @property
    def lanes(self) -> int:
        """FP32 lanes of the vector unit: vector_lanes, at most the largest power of two in tile."""
        return min(self.vector_lanes, 1 << self.tile.bit_length() - 1)

    @property
    def chunks(self) -> int:
        """Groups of `lanes` columns in a row; the last may be partly used."""
        return _ceil_div(self.tile, self.lanes)

    # --- on-chip memory -------------------------------------------------------------------

    @property
    def bank_slots(self) -> int:
        """Tile slots in one scratchpad bank."""
        total = self.spad_kib * 1024 * 8 // (self.tile * self.tile * self.container)
        return total // self.spad_banks

    @property
    def spad_slots(self) -> int:
        """Tile slots in the whole scratchpad."""
        return self.bank_slots * self.spad_banks

    @property
    def slot_index_bits(self) -> int:
        """Bits of a slot's index inside its scratchpad bank."""
        return clog2(self.bank_slots)

    @property
    def spad_slot_bits(self) -> int:
        """Bits of a scratchpad slot number: {bank, index}."""
        return clog2(self.spad_banks) + self.slot_index_bits

    @property
    def acc_slots(self) -> int:
        """FP32 tile slots in the accumulator memory."""
        total = self.acc_kib * 1024 // (self.tile * self.tile * 4)
        return total // self.acc_banks * self.acc_banks

    @property
    def acc_slot_bits(self) -> int:
        """Bits of an accumulator slot number."""
        return clog2(self.acc_slots)

    @property
    def row_bits(self) -> int:
        """Bits of a row number inside a tile."""
        return clog2(self.tile)

    @property
    def count_bits(self) -> int:
        """Bits of a count of rows or columns, 0 .. tile."""
        return self.tile.bit_length()

    @property
    def index_bits(self) -> int:
        """Bits of a tile's row or column number in the tile grid of a matrix."""
        return clog2(_ceil_div((1 << DIM_BITS) - 1, self.tile))

    # --- tile images in DRAM --------------------------------------------------------------

    @property
    def beat_bytes(self) -> int:
        """Bytes of one AXI beat."""
        return self.axi_width // 8

    @property
    def read_buffer(self) -> int:
        """Beats that a load unit has room for; it asks for no more, so read data never wait."""
        return 16 * self.outstanding

    @property
    def exp_beats(self) -> int:
        """Beats of a BFP tile image's exponent bytes."""
        return _ceil_div(self.tile * 8, self.axi_width)

    @property
    def mant_beats(self) -> int:
        """Beats of a BFP tile image's mantissas."""
        return _ceil_div(self.tile * self.tile * self.container, self.axi_width)

    @property
    def bfp_beats(self) -> int:
        """Beats of a BFP tile image: exponents, then mantissas."""
        return self.exp_beats + self.mant_beats

    @property
    def fp32_beats(self) -> int:
        """Beats of an FP32 tile image."""
        return _ceil_div(self.tile * self.tile * 32, self.axi_width)

    @property
    def bfp_bytes(self) -> int:
        """Bytes of a BFP tile image, its pitch in DRAM."""
        return self.bfp_beats * self.beat_bytes

    @property
    def fp32_bytes(self) -> int:
        """Bytes of an FP32 tile image, its pitch in DRAM."""
        return self.fp32_beats * self.beat_bytes

    def image_bytes(self, bfp: bool) -> int:
        """Bytes of a BFP or FP32 tile image."""
        return self.bfp_bytes if bfp else self.fp32_bytes

    @property
    def entry_bytes(self) -> int:
        """Bytes of an entry of the request and completion rings: 16, or a beat if that is more."""
        return max(16, self.beat_bytes)

    def image_beats(self, bfp: bool, rows: int) -> int:
        """Beats of a tile image that are transferred if its first `rows` rows are valid."""
        row_bits = self.tile * (self.container if bfp else 32)
        return self.exp_beats * bfp + _ceil_div(rows * row_bits, self.axi_width)

    @property
    def hash(self) -> int:
        """32-bit identity of configuration and contract; in a register and every program."""
        text = json.dumps({"contract": CONTRACT, **asdict(self)}, sort_keys=True)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def presets() -> dict[str, str]:
    """Names of the presets with their descriptions."""
    return {p.stem: tomllib.loads(p.read_text())["description"]
            for p in sorted(PRESETS.glob("*.toml"))}


def parameters() -> list[tuple[str, int, str]]:
    """(key, default, documentation) of every parameter."""
    return [(f.name, f.default, f.metadata["doc"]) for f in fields(Config)
            if f.default is not MISSING]


def load(name: str, overrides: list[str] | tuple[str, ...] = ()) -> Config:
    """Preset `name` with `KEY=VALUE` overrides applied.

    Raises
    ------
    ConfigError
        Unknown preset or key, a value that is no integer, or one that is not supported.
    """
    known = presets()
    if name not in known:
        raise ConfigError(f"unknown configuration {name!r}; known are {', '.join(known)}")
    values = tomllib.loads((PRESETS / f"{name}.toml").read_text())
    del values["description"]
    keys = [k for k, _, _ in parameters()]
    for item in overrides:
        key, equals, text = item.partition("=")
        if not equals or key not in keys:
            raise ConfigError(f"--set takes KEY=VALUE with KEY one of {', '.join(keys)}, "
                              f"not {item!r}")
        try:
            values[key] = int(text, 0)
        except ValueError:
            raise ConfigError(f"{key} must be an integer, not {text!r}") from None
    return Config(**values)
