"""Plain values and tensors as bytes and back, for messages between processes: nothing that could be executed.

    VFLB | length of the head, 8 bytes | head, JSON | padding | bytes of the tensors, each from a multiple of 64

The head holds the values, where a tensor is {"t": its number} and a dict {"d": {...}}, and type and shape of each tensor.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vflbench.messages.recording_format import no_name_twice

Content = Mapping[str, Any]
"""None, bool, int, float, str, Tensor, and lists and dicts of them."""

_MAGIC, _ALIGNED, _DEEPEST = b"VFLB", 64, 12  # as torch aligns: elsewhere in memory, some matrix products round otherwise
_LONGEST_HEAD, _MOST_DIMENSIONS, _LARGEST = 1 << 25, 8, 1 << 4096
_PLAIN = (type(None), bool, int, float, str)
_TYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}


def encode(content: Content) -> bytes:
    """Raises TypeError for anything that is no plain value, or that `decode` wouldn't take."""
    tensors: list[Tensor] = []
    values = _listed(content, tensors, 0)
    parts = [[str(t.dtype).removeprefix("torch."), list(t.shape)] for t in tensors]
    head = json.dumps({"values": values, "tensors": parts}, separators=(",", ":")).encode()
    pieces = [_MAGIC, len(head).to_bytes(8, "little"), head]
    place = len(_MAGIC) + 8 + len(head)
    for tensor in tensors:
        gap = -place % _ALIGNED
        data = memoryview(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        pieces += [bytes(gap), data]  # type: ignore[list-item]
        place += gap + len(data)
    return b"".join(pieces)


def decode(data: bytes, most: int = 1 << 32) -> dict[str, Any]:
    """What was encoded, in tensors of its own. Raises ValueError for anything else, and for more than so many bytes."""
    if len(data) > most:
        raise ValueError(f"a message of {len(data):,} bytes, and {most:,} are taken at most")
    start = len(_MAGIC) + 8
    length = int.from_bytes(data[len(_MAGIC) : start], "little")
    if data[: len(_MAGIC)] != _MAGIC or length > min(len(data) - start, _LONGEST_HEAD):
        raise ValueError("a message that begins like none of vflbench")
    try:
        head = json.loads(bytes(data[start : start + length]), object_pairs_hook=no_name_twice)
    except RecursionError as error:
        raise ValueError("a message of too many levels") from error
    if type(head) is not dict or set(head) != {"values", "tensors"} or type(head["tensors"]) is not list:
        raise ValueError("a message whose head holds no values and tensors")
    memory = torch.empty(len(data), dtype=torch.uint8).numpy()
    memory[:] = memoryview(data)
    place, tensors = start + length, []
    for part in head["tensors"]:
        dtype, shape = _part(part)
        place += -place % _ALIGNED
        count = math.prod(shape)
        end = place + count * dtype.itemsize
        if end > len(data):
            raise ValueError("a message that ends within a tensor")
        flat = torch.frombuffer(memory, dtype=dtype, count=count, offset=place) if count else torch.empty(0, dtype=dtype)
        tensors.append(_checked(flat).view(shape))
        place = end
    if place != len(data):
        raise ValueError("a message with bytes that belong to nothing")
    values = _taken(head["values"], tensors)
    if type(values) is not dict:
        raise ValueError("a message that holds no values by name")
    return values


def _listed(value: Any, tensors: list[Tensor], depth: int) -> Any:
    """The value as JSON has it; its tensors are added to the list."""
    if depth > _DEEPEST:
        raise TypeError("a message has too many levels")
    if isinstance(value, Tensor):
        if value.dtype not in _TYPES.values() or value.layout is not torch.strided or value.ndim > _MOST_DIMENSIONS:
            raise TypeError(f"a message can't hold a tensor of {value.ndim} dimensions of {value.dtype}, {value.layout}")
        tensors.append(value)
        return {"t": len(tensors) - 1}
    if isinstance(value, Mapping):
        if not all(type(name) is str for name in value):
            raise TypeError("a message has a name that is no text")
        return {"d": {name: _listed(part, tensors, depth + 1) for name, part in value.items()}}
    if isinstance(value, list | tuple):
        return [_listed(part, tensors, depth + 1) for part in value]
    if type(value) not in _PLAIN or (type(value) is int and abs(value) > _LARGEST):
        raise TypeError(f"a message can't hold {type(value).__name__}")
    return value


def _taken(value: Any, tensors: list[Tensor], depth: int = 0) -> Any:
    """The inverse of `_listed`."""
    if depth > _DEEPEST:
        raise ValueError("a message of too many levels")
    if type(value) is list:
        return [_taken(part, tensors, depth + 1) for part in value]
    if type(value) is not dict:
        return value
    match value:
        case {"t": int(number)} if len(value) == 1 and type(number) is int and 0 <= number < len(tensors):
            return tensors[number]
        case {"d": dict(parts)} if len(value) == 1:
            return {name: _taken(part, tensors, depth + 1) for name, part in parts.items()}
    raise ValueError("a message with a value of no known kind")


def _part(part: Any) -> tuple[torch.dtype, tuple[int, ...]]:
    if type(part) is not list or len(part) != 2 or type(part[0]) is not str or part[0] not in _TYPES:
        raise ValueError("a message with a tensor of no known type")
    shape = part[1]
    sizes = shape if type(shape) is list and len(shape) <= _MOST_DIMENSIONS else [-1]
    if not all(type(n) is int and n >= 0 for n in sizes) or math.prod(max(n, 1) for n in sizes) >= 2**48:
        raise ValueError("a message with a tensor of no possible shape")
    return _TYPES[part[0]], tuple(sizes)


def _checked(flat: Tensor) -> Tensor:
    """Bytes that are neither 0 nor 1 are no bool: torch computes with them as they are."""
    if flat.dtype is torch.bool and bool((flat.view(torch.uint8) > 1).any()):
        raise ValueError("a message with a truth value that is neither 0 nor 1")
    return flat
