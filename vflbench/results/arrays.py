"""Reads reconstructions.npz, which others may have written: numbers alone."""

import io
from pathlib import Path

import numpy as np

from vflbench.results.untrusted import Unreadable, read_bytes


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Name -> array of numbers or booleans; nothing is unpickled. Raises FileNotFoundError and Unreadable."""
    content = read_bytes(path)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files if archive[name].dtype.kind in "biuf"}
    except Exception as error:  # zipfile, zlib and NumPy raise many kinds, tokenize.TokenError among them
        raise Unreadable(path, error) from error
