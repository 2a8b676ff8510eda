"""Reads safetensors files that may be hostile.

The library maps a file into memory: a file that is cut off while it is read would end the process. Here it is read in the
ordinary way, and its header is checked as strictly as the library does.
"""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from vflbench.messages.manifest import no_name_twice, refuse_constant
from vflbench.plain_files import open_plain

MOST_HEADER = 2**24  # bytes
_TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32"}
_ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4}


@dataclass(frozen=True, slots=True)
class Part:
    """Where a tensor stands in its file: the first byte, how many, and what they are: the name of a type of torch's."""

    start: int
    bytes: int
    shape: tuple[int, ...]
    dtype: str


def read_header(path: Path) -> tuple[dict[str, str], dict[str, Part]]:
    """The metadata, and where each tensor is. Tensors fill the file without gaps, as the format wants it."""
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or 8 + length > size:
            raise ValueError("it is no safetensors file, or it is cut off: its header goes beyond its end")
        if length > MOST_HEADER:
            raise ValueError(f"its header claims to have {length:,} bytes, and {MOST_HEADER:,} are read at most")
        header = file.read(length)
    content = json.loads(header.decode(), object_pairs_hook=no_name_twice, parse_constant=refuse_constant)
    if not isinstance(content, dict):
        raise ValueError("its header holds no JSON object")
    metadata = content.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("its __metadata__ must be text by name")
    parts = {name: _part(name, described, 8 + length) for name, described in content.items()}
    place = 8 + length
    for part in sorted(parts.values(), key=lambda part: (part.start, part.bytes)):
        if part.start != place:
            raise ValueError("its tensors overlap, or there are gaps between them")
        place += part.bytes
    if place != size:
        raise ValueError(f"it has {size:,} bytes, and its header describes {place:,}: it is cut off or damaged")
    return metadata, parts


def _part(name: str, described: Any, begin: int) -> Part:
    """Where a tensor is, as the header describes it; bytes of tensors begin at that one."""
    if not isinstance(described, dict) or set(described) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name[:120]!r}: it must have dtype, shape and data_offsets")
    kind, shape, offsets = described["dtype"], described["shape"], described["data_offsets"]
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ValueError(f"{name[:120]!r}: its type is {str(kind)[:20]!r}, and only {', '.join(_TYPES)} are read")
    if not all(isinstance(some, list) and all(type(n) is int and 0 <= n < 2**62 for n in some) for some in (shape, offsets)):
        raise ValueError(f"{name[:120]!r}: its shape and its data_offsets must be lists of whole numbers from 0")
    if len(offsets) != 2 or len(shape) > 8 or offsets[1] - offsets[0] != math.prod(shape) * _ITEM_BYTES[kind]:
        raise ValueError(f"{name[:120]!r}: its shape doesn't fit its bytes")
    return Part(begin + offsets[0], offsets[1] - offsets[0], tuple(shape), _TYPES[kind])


def read_part(file: BinaryIO, part: Part) -> Tensor:
    """A copy of its values: a file that is changed while it is read can't change them afterwards."""
    values = torch.empty(part.shape, dtype=getattr(torch, part.dtype))
    if part.bytes:
        _read(file, part, memoryview(values.view(-1).view(torch.uint8).numpy()))
    return values


def read_integers(file: BinaryIO, part: Part) -> np.ndarray:
    """The same of int64 or int32, as an array."""
    values = np.empty(part.shape, part.dtype)
    if part.bytes:
        _read(file, part, memoryview(values.reshape(-1).view(np.uint8)))
    return values


def _read(file: BinaryIO, part: Part, view: memoryview) -> None:
    file.seek(part.start)
    while view:
        count = file.readinto(view)  # type: ignore[attr-defined]
        if not count:
            raise ValueError("the file ends too early")
        view = view[count:]
