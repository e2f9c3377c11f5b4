"""Matrices between numpy and a region of DRAM."""

import numpy as np

from hw.config import Config
from sw.compiler.layout import Batches, Matrix
from sw.golden import arithmetic, images


def _grid(cfg: Config, memory: np.ndarray, place: Matrix | Batches, tile_rows: int) -> np.ndarray:
    return images.grid(memory, place.addr, place.pitch, (tile_rows, place.pitch),
                       cfg.image_bytes(place.bfp))


def _pack(cfg: Config, values: np.ndarray, bfp: bool, row_exp: bool) -> np.ndarray:
    """Images of `values`, whole tiles with zeros beyond the matrix."""
    if not bfp:
        return images.pack_fp32(cfg, values)
    t = cfg.tile
    tiled = arithmetic.canonical(values).reshape(len(values) // t, t, -1, t)
    q, exponents = arithmetic.quantise(tiled, cfg.mant_width, (3,) if row_exp else (1, 3))
    exponents = np.broadcast_to(exponents[..., 0], tiled.shape[:3]).reshape(len(values), -1)
    return images.pack_bfp(cfg, q.reshape(values.shape), exponents)


def write(cfg: Config, memory: np.ndarray, place: Matrix, values: np.ndarray):
    """Write `values` as FP32, or quantised to BFP (square exponents, nearest even)."""
    t = cfg.tile
    padded = np.zeros((images.tiles(cfg, place.rows) * t, place.pitch * t), np.float32)
    padded[:place.rows, :place.cols] = values
    grid = _grid(cfg, memory, place, len(padded) // t)
    grid[...] = _pack(cfg, padded, place.bfp, False)


def read(cfg: Config, memory: np.ndarray, place: Matrix) -> np.ndarray:
    """The float32 values of an FP32 matrix."""
    grid = _grid(cfg, memory, place, images.tiles(cfg, place.rows))
    return images.unpack_fp32(cfg, grid, place.rows, place.cols)[:place.rows, :place.cols]


def _tile_rows(cfg: Config, place: Batches) -> np.ndarray:
    """Row of the stacked tiles in which each sample lies."""
    batch, row = np.divmod(np.arange(place.samples), place.batch)
    return batch * images.tiles(cfg, place.batch) * cfg.tile + row


def write_batches(cfg: Config, memory: np.ndarray, place: Batches, values: np.ndarray,
                  row_exp: bool = False):
    """Write the samples `values` as FP32, or quantised to BFP (nearest even)."""
    t, rows = cfg.tile, _tile_rows(cfg, place)
    padded = np.zeros((images.tiles(cfg, int(rows[-1]) + 1) * t, place.pitch * t), np.float32)
    padded[rows, :place.cols] = values
    grid = _grid(cfg, memory, place, len(padded) // t)
    grid[...] = _pack(cfg, padded, place.bfp, row_exp)


def read_batches(cfg: Config, memory: np.ndarray, place: Batches) -> np.ndarray:
    """The float32 values of FP32 samples."""
    rows = _tile_rows(cfg, place)
    count = images.tiles(cfg, int(rows[-1]) + 1)
    grid = _grid(cfg, memory, place, count)
    return images.unpack_fp32(cfg, grid, count * cfg.tile, place.cols)[rows, :place.cols]
