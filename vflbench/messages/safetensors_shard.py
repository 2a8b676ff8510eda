"""Reads the messages of one party from a safetensors file."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import torch
from pydantic import ConfigDict, Field, TypeAdapter
from safetensors import safe_open
from torch import Tensor

from vflbench.messages.manifest import Manifest, Phase, checked
from vflbench.messages.message_batch import Batch, check_shape

MOST_HEADER = 2**24  # bytes
MOST_STEPS = 10**9
_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
}


@dataclass(frozen=True)
class When:
    """When a batch was met."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    epoch: Annotated[int, Field(ge=0, lt=10**6)] = 0
    step: Annotated[int, Field(ge=0, lt=MOST_STEPS)] | None = None
    phase: Phase = "train"


_WHEN = TypeAdapter(When)


@dataclass(frozen=True)
class Place:
    """Where a batch is: epoch, step and phase, and what finds it in its file. kinds: of its messages. types: of them."""

    epoch: int
    step: int
    phase: Phase
    key: Any
    kinds: frozenset[str]
    types: frozenset[torch.dtype] = frozenset()


class SafetensorsShard:
    """A file with any number of batches of one party. Raises ValueError, or what safetensors raises, for another file."""

    def __init__(self, path: Path, party: str, manifest: Manifest):
        self.path, self._party, self._manifest = path, party, manifest

    def places(self) -> Iterator[Place]:
        """Its batches in the order of their names. Names, shapes and types of all tensors are checked."""
        with self.path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > MOST_HEADER:
                raise ValueError(f"its header claims to have {length:,} bytes, and {MOST_HEADER:,} are read at most")
            header = file.read(length)
        with safe_open(os.fspath(self.path), "pt"):
            """It is whole: the library has checked that the parts fill the file."""
        content = json.loads(header)
        metadata = content.pop("__metadata__", None) or {}
        batches: dict[str, dict[str, Part]] = {}
        for name, described in content.items():
            step, _, rest = name.partition("/")
            if not (step.isascii() and step.isdecimal() and len(step) < 12 and step == str(int(step)) and rest):
                raise ValueError(f"{name[:120]!r} is no `STEP/KIND/NAME`")
            if described["dtype"] not in _TYPES:
                raise ValueError(f"{name[:120]}: its type is {described['dtype']}, and only {', '.join(_TYPES)} are read")
            start, end = described["data_offsets"]
            part = Part(8 + length + start, end - start, tuple(described["shape"]), _TYPES[described["dtype"]])
            if part.bytes != math.prod(part.shape) * part.dtype.itemsize:
                raise ValueError(f"{name[:120]}: its shape doesn't fit its bytes")
            batches.setdefault(step, {})[rest] = part
        for step in sorted(batches, key=int):
            yield self._place(step, batches[step], metadata)

    def _place(self, step: str, parts: dict[str, "Part"], metadata: Mapping[str, str]) -> Place:
        ids = parts.get("ids")
        if ids is None or len(ids.shape) != 1 or ids.dtype is not torch.int64:
            raise ValueError(f"{step}/ids: there must be (n,) int64 ids of its rows")
        tensors = {name: part for name, part in parts.items() if name != "ids"}
        for name, part in tensors.items():
            check_shape(name, part.shape, part.dtype, ids.shape[0], self._party, self._manifest)
        try:
            when: When = checked(_WHEN, json.loads(metadata.get(step, "{}")))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"metadata of {step}: {' '.join(str(error).split()) or 'it is nested too deeply'}") from error
        kinds = frozenset(name.partition("/")[0] for name in tensors)
        types = frozenset(part.dtype for name, part in tensors.items() if name.startswith(("embedding/", "gradient/")))
        number = int(step) if when.step is None else when.step
        return Place(when.epoch, number, when.phase, parts, kinds, types)

    def read(self, place: Place) -> Batch:
        """Copies of its values: a file that is changed while it is read can't change them afterwards."""
        with self.path.open("rb", buffering=0) as file:
            values = {name: _read(file, part) for name, part in place.key.items()}
        return Batch(values.pop("ids"), values)

    def read_ids(self, place: Place) -> Tensor:
        with self.path.open("rb", buffering=0) as file:
            return _read(file, place.key["ids"])


@dataclass(frozen=True)
class Part:
    """Where a tensor stands in its file: the first byte, how many, and what they are."""

    start: int
    bytes: int
    shape: tuple[int, ...]
    dtype: torch.dtype


def _read(file: BinaryIO, part: Part) -> Tensor:
    values = torch.empty(part.shape, dtype=part.dtype)
    if part.bytes:
        view = memoryview(values.view(-1).view(torch.uint8).numpy())
        file.seek(part.start)
        while view:
            count = file.readinto(view)  # type: ignore[attr-defined]
            if not count:
                raise ValueError("the file ends too early")
            view = view[count:]
    return values
