"""Tile images in DRAM: matrices to bytes and back.

Matrices are padded to whole tiles: `tm` x `tn` tiles are an array of tm*T rows and tn*T columns.
Images are uint8 arrays of shape (tm, tn, bytes of an image).
"""

import numpy as np

from hw.config import Config
from sw.golden.arithmetic import canonical, dequantise


def tiles(cfg: Config, size: int) -> int:
    """Tiles along `size` rows or columns."""
    return -(-size // cfg.tile)


def grid(memory: np.ndarray, addr: int, pitch: int, shape: tuple[int, int],
         image_bytes: int) -> np.ndarray:
    """Writeable view of a matrix's images inside `memory`.

    Raises
    ------
    ValueError
        If an image lies outside `memory`.
    """
    last = addr + ((shape[0] - 1) * pitch + shape[1]) * image_bytes
    if addr < 0 or last > len(memory):
        raise ValueError(f"images up to {last:#x} must lie inside {len(memory):#x} bytes")
    return np.lib.stride_tricks.as_strided(
        memory[addr:], (*shape, image_bytes), (pitch * image_bytes, image_bytes, 1))


def store(cfg: Config, grid: np.ndarray, packed: np.ndarray, rows: int, bfp: bool,
          where: np.ndarray | None = None):
    """Write the images `packed` of a matrix of `rows` rows, or those `where` it is true.

    Of the last tile row only the beats that hold exponents and valid rows are written.
    """
    rest = rows - (len(grid) - 1) * cfg.tile
    count = cfg.image_beats(bfp, rest) * cfg.beat_bytes
    if where is None:
        grid[:-1], grid[-1, :, :count] = packed[:-1], packed[-1, :, :count]
    else:
        grid[:-1][where[:-1]] = packed[:-1][where[:-1]]
        grid[-1][where[-1], :count] = packed[-1][where[-1], :count]


def mask(values: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """`values` with zeros beyond the valid rows and columns, in place."""
    values[rows:] = 0
    values[:, cols:] = 0
    return values


def join(tiled: np.ndarray, dtype) -> np.ndarray:
    """(tm, tn, T, T) -> (tm*T, tn*T)."""
    tm, tn, t, _ = tiled.shape
    flat = np.empty((tm, t, tn, t), dtype)
    flat[...] = tiled.transpose(0, 2, 1, 3)
    return flat.reshape(tm * t, tn * t)


def split(flat: np.ndarray, t: int) -> np.ndarray:
    """(tm*T, tn*T) -> (tm, tn, T, T), a view."""
    return flat.reshape(flat.shape[0] // t, t, flat.shape[1] // t, t).transpose(0, 2, 1, 3)


def unpack_fp32(cfg: Config, images: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """FP32 images -> float32 matrix, canonical and zero beyond `rows` and `cols`."""
    t = cfg.tile
    words = images[..., :4 * t * t].view("<f4").reshape(*images.shape[:2], t, t)
    return mask(canonical(join(words, np.float32)), rows, cols)


def pack_fp32(cfg: Config, values: np.ndarray) -> np.ndarray:
    """float32 matrix -> FP32 images."""
    t = cfg.tile
    tiled = split(values, t)
    images = np.zeros((*tiled.shape[:2], cfg.fp32_bytes), np.uint8)
    images[..., :4 * t * t].view("<f4").reshape(tiled.shape)[...] = tiled
    return images


def unpack_bfp(cfg: Config, images: np.ndarray, rows: int, cols: int,
               row_exp: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """BFP images -> mantissas (float32, zero beyond `rows` and `cols`) and exponent bytes.

    The exponents have one row per row of the matrix and one column per tile; beyond `rows` they
    are 0. Mantissas under an exponent byte 0 are 0. A container's low `mant_width` bits count.
    """
    t, start = cfg.tile, cfg.exp_beats * cfg.beat_bytes
    tm, tn = images.shape[:2]
    if row_exp:
        exponents = images[..., :t].transpose(0, 2, 1).reshape(tm * t, tn).copy()
    else:
        exponents = np.repeat(images[..., 0], t, axis=0)
    exponents[rows:] = 0
    if cfg.container == 4:
        pairs = images[..., start:start + (t * t + 1) // 2]
        codes = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(tm, tn, -1)[..., :t * t]
    else:
        size = cfg.container // 8
        codes = images[..., start:start + t * t * size].view(f"<u{size}")
    unused = codes.dtype.itemsize * 8 - cfg.mant_width
    signed = (codes << unused).view(f"<i{codes.dtype.itemsize}") >> unused
    q = join(signed.reshape(tm, tn, t, t), np.float32)
    np.maximum(q, np.float32(-cfg.q_max), out=q)
    if not exponents[:rows].all():
        q.reshape(tm * t, tn, t)[exponents == 0] = 0
    return mask(q, rows, cols), exponents


def pack_bfp(cfg: Config, q: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Mantissas and exponent bytes (one row per row of the matrix) -> BFP images."""
    t, start = cfg.tile, cfg.exp_beats * cfg.beat_bytes
    tiled = split(q, t)
    tm, tn = tiled.shape[:2]
    images = np.zeros((tm, tn, cfg.bfp_bytes), np.uint8)
    images[..., :t] = exponents.reshape(tm, t, tn).transpose(0, 2, 1)
    if cfg.container == 4:
        nibbles = np.zeros((tm, tn, t * t + t * t % 2), np.uint8)
        nibbles[..., :t * t] = tiled.astype(np.int8).reshape(tm, tn, -1).view(np.uint8) & 15
        pairs = nibbles[..., ::2] | nibbles[..., 1::2] << 4
        images[..., start:start + pairs.shape[2]] = pairs
    else:
        target = images[..., start:start + t * t * cfg.container // 8]
        target.view(f"<i{cfg.container // 8}").reshape(tiled.shape)[...] = tiled
    return images


def decode(cfg: Config, q: np.ndarray, exponents: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """Mantissas and exponent bytes as `unpack_bfp` gives them -> float32 matrix."""
    tiled = q.reshape(len(q), -1, cfg.tile)
    values = dequantise(tiled, exponents[:, :, None], cfg.mant_width).reshape(q.shape)
    return mask(values, rows, cols)
