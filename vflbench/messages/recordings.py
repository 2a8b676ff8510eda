"""Recorded messages: batches in a folder, which read as the rounds of training that they come from."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass as validated
from pydantic_core import from_json
from safetensors import safe_open
from torch import Tensor

from vflbench.errors import UserError
from vflbench.files import check_plain, in_a_line, is_there, replaced
from vflbench.messages import recording_format as files
from vflbench.messages.facts import Fact
from vflbench.messages.serialize import saved
from vflbench.messages.threat import Facts, PrivateBatch, Role, Round

_NAME = re.compile(r"(\w[\w.-]{0,63})-[0-9]{1,18}\.safetensors")
_STEP = re.compile(r"0|[1-9][0-9]{0,10}")
_TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32"}
"""Types of safetensors that are read, and torch's names for them."""
_MOST_BYTES = 2**31
"""Of one party's messages about one batch; a batch is the part of a recording that must fit memory."""
_MOST_BATCHES = 10**6


@validated(config=ConfigDict(extra="forbid"))
class When:
    """When a batch was met."""

    epoch: Annotated[int, Field(ge=0, lt=10**6)] = 0
    step: Annotated[int, Field(ge=0, lt=10**9)] | None = None
    phase: files.Phase = "train"


_WHEN = TypeAdapter(When)


_Part = tuple[int, tuple[int, ...], str]
"""A tensor in a file: its first byte, its shape, and the name of its type in torch."""
_Place = tuple[Path, Mapping[str, _Part]]
"""A file, and where it has `ids` and `KIND/NAME` of a batch."""


@dataclass
class Coverage:
    """What the batches of one party hold. batches: how many in training. kinds: of how many each. types: of the values."""

    batches: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    types: set[str] = field(default_factory=set)


class RecordedMessages:
    """Messages in a folder of the format vflbench-messages/1, described in docs/reference/messages.md.

    Opening it reads and checks the names, shapes and types of all files; values are read a batch at a time. Whatever is
    wrong with a file raises UserError.

    Args:
        folder: that holds manifest.json and the folder messages.

    Attributes:
        folder: the same, as a path.
        manifest: what holds for all messages.
        coverage: party -> what its batches hold.
    """

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise UserError("there is no such folder", key="recording", value=folder)
        self.manifest = files.manifest_in(self.folder)
        self.coverage: dict[str, Coverage] = {}
        self._places: dict[tuple[files.Phase, int, int], dict[str, _Place]] = {}
        for path, party in self._files():
            self._index(path, party)
        if not self.epochs:
            raise UserError("there are no messages of training in its folder messages", key="recording", value=folder)
        expected = {party for party in self.coverage if self._has(party)}
        for (phase, epoch, step), parties in self._places.items():
            absent = expected - set(parties)
            if phase == "train" and absent:  # a party that is silent in some rounds would be audited less than it seems
                problem = f"party {min(absent)} has no messages of epoch {epoch}, step {step}, and {min(parties)} has"
                raise UserError(problem, key="recording", value=self.folder)

    def know_shares(self, shares: Sequence[float]) -> None:
        """Shares of the classes that attackers know, in place of those in manifest.json. Raises UserError."""
        try:
            self.manifest = files.manifest_of(self.manifest.plain() | {"class_shares": list(shares)})
        except ValueError as error:
            problem = str(error).removeprefix("class_shares: ")
            raise UserError(problem, key="--class-shares", value=",".join(map(str, shares))) from error

    @cached_property
    def epochs(self) -> dict[int, list[int]]:
        """Epoch -> its recorded steps, in order."""
        steps: dict[int, list[int]] = {}
        for phase, epoch, step in sorted(self._places):
            if phase == "train":
                steps.setdefault(epoch, []).append(step)
        return steps

    @property
    def roles(self) -> dict[Role, tuple[str, ...]]:
        """Parties of which there are messages, by role."""
        there = tuple(party for party in self.manifest.parties if self._has(party))
        if self.manifest.rules is not None:
            return {Role.PARTICIPANT: there}
        non_label = tuple(party for party in there if party != self.manifest.labels)
        return {Role.NON_LABEL: non_label, Role.LABEL: tuple(party for party in there if party == self.manifest.labels)}

    def _has(self, party: str) -> bool:
        return party in self.coverage and self.coverage[party].batches > 0

    def offers(self, role: Role) -> frozenset[type[Fact]]:
        """The facts that attackers in that role have. Own columns count if they are there in every batch of every party."""
        parties = [self.coverage[party] for party in self.roles.get(role, ()) if party in self.coverage]
        kinds = {kind for party in parties for kind in party.kinds}
        if any(party.kinds["columns"] < party.batches for party in parties):
            kinds.discard("columns")
        if role is not Role.PARTICIPANT:
            kinds.discard("update")
        return frozenset(files.FACTS[kind] for kind in kinds if kind in files.FACTS)

    def rounds(self, epoch: int) -> Iterator[Round]:
        """The recorded rounds of an epoch in order, a batch in memory at a time."""
        for step in self.epochs.get(epoch, ()):
            yield self._round("train", epoch, step)

    def end_of_epoch(self, epoch: int) -> Round | None:
        """What parties' networks made of rows at the end of an epoch, if that is recorded."""
        return self._round("end", epoch, 0) if ("end", epoch, 0) in self._places else None

    def ids(self, epoch: int) -> Iterator[np.ndarray]:
        """The ids of each recorded round of an epoch."""
        for step in self.epochs.get(epoch, ()):
            path, parts = next(iter(self._places["train", epoch, step].values()))
            with self._explained(path):
                yield _values(path, *parts["ids"]).numpy()

    def _round(self, phase: files.Phase, epoch: int, step: int) -> Round:
        ids = torch.empty(0)
        facts: dict[str, Facts] = {}
        kinds = {kind for coverage in self.coverage.values() for kind in coverage.kinds}
        withheld = sorted(kinds & {"embedding", "gradient", "summed_gradient"})  # of this party or batch, where it has none
        for party, place in self._places[phase, epoch, step].items():
            coverage, tensors = self.coverage[party], self._tensors(place)
            its_ids = tensors.pop("ids")
            ids = ids if facts else its_ids
            if not torch.equal(ids, its_ids):
                if not torch.equal(ids.sort().values, its_ids.sort().values):
                    problem = f"in epoch {epoch}, step {step} party {party} has other ids than the other parties"
                    raise UserError(problem, key="recording", value=self.folder)
                order = its_ids.argsort()[ids.argsort().argsort()]
                tensors = {name: v[order] if name.partition("/")[0] in files.PER_ROW else v for name, v in tensors.items()}
            if coverage.kinds["columns"] < coverage.batches:
                tensors = {name: values for name, values in tensors.items() if not name.startswith("columns/")}
            layers = list(self.manifest.parties[party].layers)
            facts[party] = files.facts_of(tensors, len(ids), layers, self.manifest.rules, withheld)
        path = _private(self.folder, epoch, step)
        if phase == "end" or not is_there(path):
            return Round(epoch, step, ids, facts=facts)
        with self._explained(path):
            return Round(epoch, step, ids, facts=facts, private=read_private(path))

    def _tensors(self, place: _Place) -> dict[str, Tensor]:
        """`ids`, and `KIND/NAME` -> values, checked."""
        path, parts = place
        with self._explained(path):
            tensors = {name: _values(path, *part) for name, part in parts.items()}
            files.check_values(tensors["ids"], {name: values for name, values in tensors.items() if name != "ids"})
            return tensors

    def _files(self) -> Iterator[tuple[Path, str]]:
        """Shards by name. Raises UserError for anything else where messages are expected."""
        folder = self.folder / files.MESSAGES
        if not folder.is_dir() or folder.is_symlink():
            raise UserError("there is no folder messages in it", key="recording", value=self.folder)
        for path in sorted(folder.iterdir()):
            if path.name.startswith(".") and path.name.endswith(".tmp"):
                continue  # of a recorder that was stopped
            name = _NAME.fullmatch(path.name)
            if name is None or path.is_symlink() or not path.is_file():
                raise self._unreadable(path, "only files PARTY-NNN.safetensors belong there")
            if name[1] not in self.manifest.parties:
                raise self._unreadable(path, f"manifest.json has no party {name[1]}")
            yield path, name[1]

    def _index(self, path: Path, party: str) -> None:
        coverage = self.coverage.setdefault(party, Coverage())
        with self._explained(path):
            metadata, parts = _header(path)
            batches: dict[str, dict[str, _Part]] = {}
            for name, part in parts.items():
                number, _, rest = name.partition("/")
                if not _STEP.fullmatch(number) or not rest:
                    raise ValueError(f"{name[:120]!r} is no `STEP/KIND/NAME`")
                batches.setdefault(number, {})[rest] = part
            for number, of_batch in sorted(batches.items()):
                try:
                    when: When = files.validated(_WHEN, from_json(metadata.get(number, "{}"), allow_inf_nan=False))
                except ValueError as error:
                    raise ValueError(f"metadata of {number}: {error}") from error
                when.step = int(number) if when.step is None else when.step
                parties = self._places.setdefault((when.phase, when.epoch, when.step), {})
                if party in parties:
                    raise ValueError(f"epoch {when.epoch}, step {when.step} of party {party} is there twice")
                parties[party] = path, of_batch
                self._check(of_batch, party, number)
                if when.phase == "train":
                    coverage.batches += 1
                    coverage.kinds.update({name.partition("/")[0] for name in of_batch} - {"ids"})
                coverage.types |= {part[2] for name, part in of_batch.items() if name.startswith(files.OF_LAYERS)}
                if len(self._places) > _MOST_BATCHES:
                    raise ValueError(f"there are more than {_MOST_BATCHES:,} batches")

    def _check(self, parts: Mapping[str, _Part], party: str, number: str) -> None:
        """Raises ValueError for a batch that can't be read, or doesn't fit memory."""
        if (size := sum(_size(shape, dtype) for _, shape, dtype in parts.values())) > _MOST_BYTES:
            problem = f"the batch has {size:,} bytes, and {_MOST_BYTES:,} are read at most; record smaller ones"
            raise ValueError(f"{number}: {problem}")
        _, (rows, *more), kind = parts.get("ids", (0, (0,), ""))
        if more or not rows or kind != "int64":
            raise ValueError(f"{number}/ids: there must be (n,) int64 ids of its rows, one at least")
        for name, (_, shape, dtype) in parts.items():
            if name != "ids":
                files.check_shape(name, shape, dtype, rows, self.manifest.parties[party].layers, self.manifest.classes)

    @contextmanager
    def _explained(self, path: Path) -> Iterator[None]:
        """Whatever a library raises about a file's content becomes one paragraph."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            raise self._unreadable(path, error) from error

    def _unreadable(self, path: Path, reason: object) -> UserError:
        name = in_a_line(path.relative_to(self.folder), 200)
        return UserError(f"{name} can't be read: {in_a_line(reason)}", key="recording", value=self.folder)


def _header(path: Path) -> tuple[dict[str, str], dict[str, _Part]]:
    """The metadata of a safetensors file, and where each tensor is. Raises ValueError, or what the library raises."""
    with safe_open(path, framework="np"):  # refuses what is cut off, or whose tensors overlap
        pass
    with path.open("rb") as raw:
        length = int.from_bytes(raw.read(8), "little")
        described = from_json(raw.read(length))
    metadata = described.pop("__metadata__", {})
    for name, one in described.items():
        if one["dtype"] not in _TYPES:
            raise ValueError(f"{name[:120]!r}: its type is {one['dtype']!r}, and only {', '.join(_TYPES)} are read")
        described[name] = 8 + length + one["data_offsets"][0], tuple(one["shape"]), _TYPES[one["dtype"]]
    return metadata, described


def _size(shape: Sequence[int], dtype: str) -> int:
    return math.prod(shape) * getattr(torch, dtype).itemsize


def _values(path: Path, start: int, shape: Sequence[int], dtype: str) -> Tensor:
    """A tensor of a file, in memory of torch: elsewhere, some matrix products round otherwise."""
    values = torch.empty(shape, dtype=getattr(torch, dtype))
    values.view(-1).view(torch.uint8).numpy()[:] = np.fromfile(path, np.uint8, _size(shape, dtype), offset=start)
    return values


def write_private(folder: Path, epoch: int, step: int, batch: PrivateBatch) -> None:
    """Write the private batch of a round, in place of an earlier one."""
    path = _private(folder, epoch, step)
    path.parent.mkdir(exist_ok=True)
    with replaced(path) as temporary:
        temporary.write_bytes(saved({"x": batch.x, "y": batch.y, "steps": batch.steps}, {"owner": batch.owner}))


def read_private(path: Path) -> PrivateBatch:
    """The private batch of a round. Raises ValueError, or what the library raises, for a file that holds something else."""
    check_plain(path)
    with safe_open(path, framework="pt") as file:
        x, y, steps = (file.get_tensor(name).clone() for name in ("x", "y", "steps"))
        owner = (file.metadata() or {}).get("owner", "")[:200]
    if x.ndim != 2 or y.ndim != 1 or steps.ndim != 1 or not len(x) == len(y) == len(steps):
        raise ValueError("x must be (m, d), y and steps (m,)")
    if not bool(x.double().isfinite().all()) or not bool(y.abs().eq(1).all()) or steps.dtype.is_floating_point:
        raise ValueError("x must be finite, y -1 or 1, steps whole numbers")
    return PrivateBatch(owner, x, y, steps.to(torch.int64))


def _private(folder: Path, epoch: int, step: int) -> Path:
    return folder / "private" / f"{epoch:04d}_{step:08d}.safetensors"
