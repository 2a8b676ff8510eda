"""Reads reconstructions.npz, which others may have written: numbers alone, and no more of them than fit into memory."""

import io
import math
import zipfile
from pathlib import Path

import numpy as np

from vflbench.results.untrusted import MEGA, Unreadable, read_bytes, shown

_MOST_FILE, _MOST_UNPACKED, _MOST_ARRAYS = 256 * MEGA, 512 * MEGA, 10_000
_HEAD = 10_000  # bytes of an array's header
_END = ".npy"


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Name -> array of numbers or booleans. Raises FileNotFoundError and Unreadable.

    Nothing is unpickled. What the headers claim is checked before anything is unpacked.
    """
    content = read_bytes(path, _MOST_FILE)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            if len(members) > _MOST_ARRAYS:
                raise ValueError(f"it has {len(members):,} arrays")
            if sum(member.file_size for member in members) > _MOST_UNPACKED:
                raise ValueError(f"it has more than {_MOST_UNPACKED:,} bytes when it is unpacked")
            return {member.filename.removesuffix(_END): _array(archive, member) for member in members}
    except Exception as error:  # zipfile, zlib and NumPy raise many kinds, tokenize.TokenError among them
        raise Unreadable(path, error) from error


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{shown(member.filename, 80)} is of version {version}")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, is_fortran, kind = read(file, max_header_size=_HEAD)
        size = math.prod(shape) * kind.itemsize
        if kind.kind not in "biuf" or any(side < 0 for side in shape) or size > member.file_size:
            raise ValueError(f"{shown(member.filename, 80)} holds no numbers, or not as many as it says")
        data = file.read(size)
    if len(data) < size:
        raise ValueError(f"{shown(member.filename, 80)} ends too early")
    values = np.frombuffer(data, kind).reshape(shape, order="F" if is_fortran else "C")
    return np.array(values, copy=True)
