"""Small picture files in the upstream formats."""

import gzip
import struct
from pathlib import Path

import numpy as np


def write_idx(path: Path, values: np.ndarray, *, kind: int = 8, compress: bool = False) -> str:
    head = struct.pack(f">BBBB{values.ndim}I", 0, 0, kind, values.ndim, *values.shape)
    content = head + values.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if compress else content)
    return str(path)


def write_mnist(folder: Path, rows: int = 60, side: int = 10, *, part: str = "t10k", compress: bool = False, seed: int = 0):
    """Noisy pictures in which the row of the class is bright. Returns pixels and labels."""
    draw = np.random.default_rng(seed)
    labels = np.arange(rows) % min(side, 10)
    pixels = draw.integers(0, 60, (rows, side, side))
    pixels[np.arange(rows), labels] = draw.integers(180, 256, (rows, side))
    folder.mkdir(parents=True, exist_ok=True)
    end = ".gz" if compress else ""
    write_idx(folder / f"{part}-images-idx3-ubyte{end}", pixels, compress=compress)
    write_idx(folder / f"{part}-labels-idx1-ubyte{end}", labels, compress=compress)
    return pixels, labels
