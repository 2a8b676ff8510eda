"""Reads the messages of one party from a safetensors file."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter

from vflbench.messages.manifest import Manifest, Phase, checked, no_name_twice, refuse_constant
from vflbench.messages.message_batch import Batch, check_bytes, check_shape
from vflbench.messages.safetensors_file import Part, read_header, read_integers, read_part
from vflbench.plain_files import open_plain

MOST_STEPS = 10**9


@dataclass(frozen=True)
class When:
    """When a batch was met."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    epoch: Annotated[int, Field(ge=0, lt=10**6)] = 0
    step: Annotated[int, Field(ge=0, lt=MOST_STEPS)] | None = None
    phase: Phase = "train"


_WHEN = TypeAdapter(When)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a batch is: epoch, step and phase, and what finds it in its file. kinds: of its messages. types: of them."""

    epoch: int
    step: int
    phase: Phase
    key: Any
    kinds: frozenset[str]
    types: frozenset[str] = frozenset()


class SafetensorsShard:
    """A file with any number of batches of one party. Raises ValueError for another file."""

    def __init__(self, path: Path, party: str, manifest: Manifest):
        self.path, self._party, self._manifest = path, party, manifest

    def places(self) -> Iterator[Place]:
        """Its batches in the order of their names. Names, shapes and types of all tensors are checked."""
        metadata, tensors = read_header(self.path)
        batches: dict[str, dict[str, Part]] = {}
        for name, part in tensors.items():
            step, _, rest = name.partition("/")
            if not (step.isascii() and step.isdecimal() and len(step) < 12 and step == str(int(step)) and rest):
                raise ValueError(f"{name[:120]!r} is no `STEP/KIND/NAME`")
            batches.setdefault(step, {})[rest] = part
        for step in sorted(batches, key=int):
            check_bytes(sum(part.bytes for part in batches[step].values()), step)
            yield self._place(step, batches[step], metadata)

    def _place(self, step: str, parts: dict[str, Part], metadata: Mapping[str, str]) -> Place:
        ids = parts.get("ids")
        if ids is None or len(ids.shape) != 1 or ids.dtype != "int64":
            raise ValueError(f"{step}/ids: there must be (n,) int64 ids of its rows")
        if not ids.shape[0]:
            raise ValueError(f"{step}/ids: it is a batch of no rows")
        tensors = {name: part for name, part in parts.items() if name != "ids"}
        for name, part in tensors.items():
            check_shape(name, part.shape, part.dtype, ids.shape[0], self._party, self._manifest)
        try:
            text = metadata.get(step, "{}")
            when: When = checked(_WHEN, json.loads(text, object_pairs_hook=no_name_twice, parse_constant=refuse_constant))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"metadata of {step}: {' '.join(str(error).split()) or 'it is nested too deeply'}") from error
        kinds = frozenset(name.partition("/")[0] for name in tensors)
        types = frozenset(part.dtype for name, part in tensors.items() if name.startswith(("embedding/", "gradient/")))
        number = int(step) if when.step is None else when.step
        return Place(when.epoch, number, when.phase, parts, kinds, types)

    def read(self, place: Place) -> Batch:
        """Copies of its values: a file that is changed while it is read can't change them afterwards."""
        with open_plain(self.path) as file:
            values = {name: read_part(file, part) for name, part in place.key.items()}
        return Batch(values.pop("ids"), values)

    def read_ids(self, place: Place) -> np.ndarray:
        with open_plain(self.path) as file:
            return read_integers(file, place.key["ids"])
