"""Recorded messages: batches in a folder, which read as the rounds of training that they come from."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from vflbench.errors import UserError
from vflbench.messages.fact import Fact, Facts, PrivateBatch, Round
from vflbench.messages.facts import Embeddings, Gradients, OwnColumns, SummedGradients
from vflbench.messages.message_batch import (
    FACTS,
    Batch,
    Place,
    check_bytes,
    check_values,
    facts_of,
    in_order_of,
    read_batch,
    read_part,
    read_parts,
    read_places,
)
from vflbench.messages.recording_format import MESSAGES, Phase, read_manifest
from vflbench.messages.threat import Seat
from vflbench.plain_files import in_a_line, is_there, replaced

_NAME = re.compile(r"(\w[\w.-]{0,63})-[0-9]{1,18}\.safetensors")
MOST_BATCHES = 10**6


@dataclass
class Coverage:
    """What the batches of one party hold. batches: how many in training. kinds: of how many each. types: of the values."""

    batches: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    types: set[str] = field(default_factory=set)


class RecordedMessages:
    """Messages in a folder of the format vflbench-messages/1, described in docs/reference/messages.md.

    manifest: what holds for all of them. coverage: party -> what its batches hold. Opening it reads and checks the names,
    shapes and types of all files; values are read a batch at a time. Whatever is wrong with a file raises UserError.
    """

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise UserError("there is no such folder", key="recording", value=folder)
        self.manifest = read_manifest(self.folder)
        self.coverage: dict[str, Coverage] = {}
        self._places: dict[tuple[Phase, int, int], dict[str, Place]] = {}
        for path, party in self._files():
            self._index(path, party)
        if not any(phase == "train" for phase, _, _ in self._places):
            raise UserError("there are no messages of training in its folder messages", key="recording", value=folder)
        self._refuse_absent_parties()

    def _refuse_absent_parties(self) -> None:
        """A party that is silent in some rounds would be audited less than it seems."""
        expected = {party for party in self.coverage if self._has(party)}
        for (phase, epoch, step), parties in self._places.items():
            absent = expected - set(parties)
            if phase == "train" and absent:
                problem = f"party {min(absent)} has no messages of epoch {epoch}, step {step}, and {min(parties)} has"
                raise UserError(problem, key="recording", value=self.folder)

    def know_shares(self, shares: Sequence[float]) -> None:
        """Shares of the classes that attackers know, in place of those in manifest.json. Raises UserError."""
        try:
            if not all(0 <= share <= 1 for share in shares):
                raise ValueError("they must be numbers from 0 to 1")
            self.manifest = replace(self.manifest, class_shares=tuple(shares))
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
    def seats(self) -> dict[Seat, tuple[str, ...]]:
        """Parties of which there are messages, by seat."""
        there = tuple(party for party in self.manifest.parties if self._has(party))
        if self.manifest.rules is not None:
            return {Seat.PARTICIPANT: there}
        non_label = tuple(party for party in there if party != self.manifest.labels)
        return {Seat.NON_LABEL: non_label, Seat.LABEL: tuple(party for party in there if party == self.manifest.labels)}

    def _has(self, party: str) -> bool:
        return party in self.coverage and self.coverage[party].batches > 0

    def offers(self, seat: Seat) -> frozenset[type[Fact]]:
        """The facts that attackers at that seat have. Own columns count if they are there in every batch of every party."""
        parties = [self.coverage[party] for party in self.seats.get(seat, ()) if party in self.coverage]
        kinds = {kind for party in parties for kind in party.kinds}
        if any(party.kinds["columns"] < party.batches for party in parties):
            kinds.discard("columns")
        if seat is not Seat.PARTICIPANT:
            kinds.discard("update")
        if "received" in kinds:
            kinds.add("embedding")
        return frozenset(FACTS[kind] for kind in kinds if kind in FACTS)

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
            yield self._ids(next(iter(self._places["train", epoch, step].values()))).numpy()

    def _ids(self, place: Place) -> Tensor:
        with self._explained(place.path):
            return read_batch(place, ids_alone=True).ids

    def _batch(self, place: Place) -> Batch:
        """What one party has of a batch, checked."""
        with self._explained(place.path):
            batch = read_batch(place)
            check_values(batch)
            return batch

    def _round(self, phase: Phase, epoch: int, step: int) -> Round:
        facts: dict[str, Facts] = {}
        batches = {party: self._batch(place) for party, place in self._places[phase, epoch, step].items()}
        ids = next(iter(batches.values())).ids
        for party, batch in batches.items():
            if not torch.equal(ids, batch.ids):
                if not torch.equal(ids.sort().values, batch.ids.sort().values):
                    problem = f"in epoch {epoch}, step {step} party {party} has other ids than the other parties"
                    raise UserError(problem, key="recording", value=self.folder)
                batch = in_order_of(ids, batch)
            facts[party] = self._facts(party, batch)
        private = read_private(self.folder, epoch, step) if phase == "train" else None
        return Round(epoch, step, ids, facts=facts, private=private)

    def _facts(self, party: str, batch: Batch) -> dict[type[Fact], Fact]:
        """A kind of message that other batches or parties have, and this one has not, was withheld: it has no layers."""
        layers = self.manifest.parties[party].layers
        order = {layer: place for place, layer in enumerate(layers)}
        made = facts_of(batch, order, self.manifest.rules)
        kinds = {kind for coverage in self.coverage.values() for kind in coverage.kinds}
        empty = {"embedding": Embeddings({}), "gradient": Gradients({}), "summed_gradient": SummedGradients({})}
        for kind, fact in empty.items():
            if kind in kinds and type(fact) not in made:
                made[type(fact)] = fact
        if OwnColumns in made and self.coverage[party].kinds["columns"] < self.coverage[party].batches:
            del made[OwnColumns]
        return made

    def _files(self) -> Iterator[tuple[Path, str]]:
        """Shards by name. Raises UserError for anything else where messages are expected."""
        folder = self.folder / MESSAGES
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
            for place in read_places(path, party, self.manifest):
                parties = self._places.setdefault((place.phase, place.epoch, place.step), {})
                if party in parties:
                    raise ValueError(f"epoch {place.epoch}, step {place.step} of party {party} is there twice")
                parties[party] = place
                if place.phase == "train":
                    coverage.batches += 1
                    coverage.kinds.update(place.kinds)
                coverage.types |= place.types
                if len(self._places) > MOST_BATCHES:
                    raise ValueError(f"there are more than {MOST_BATCHES:,} batches")

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


PRIVATE = "private"


def write_private(folder: Path, epoch: int, step: int, batch: PrivateBatch) -> None:
    """Write the private batch of a round, in place of an earlier one."""
    path = _path(folder, epoch, step)
    path.parent.mkdir(exist_ok=True)
    tensors = {"x": batch.x, "y": batch.y, "steps": batch.steps}
    plain = {name: values.detach().cpu().clone().contiguous() for name, values in tensors.items()}
    with replaced(path) as temporary:
        save_file(plain, os.fspath(temporary), metadata={"owner": batch.owner})


def read_private(folder: Path, epoch: int, step: int) -> PrivateBatch | None:
    """The private batch of a round; None if there is none. Raises UserError for a file that holds something else."""
    path = _path(folder, epoch, step)
    if not is_there(path):
        return None
    try:
        metadata, parts = read_parts(path)
        check_bytes(sum(part.bytes for part in parts.values()), path.name)
        with path.open("rb") as file:
            x, y, steps = (read_part(file, parts[name]) for name in ("x", "y", "steps"))
        if x.ndim != 2 or y.ndim != 1 or steps.ndim != 1 or not len(x) == len(y) == len(steps):
            raise ValueError("x must be (m, d), y and steps (m,)")
        if not bool(x.double().isfinite().all()) or not bool(y.abs().eq(1).all()) or steps.dtype.is_floating_point:
            raise ValueError("x must be finite, y -1 or 1, steps whole numbers")
    except Exception as error:  # whatever comes of content that no recorder has written
        problem = f"{path.relative_to(folder)} can't be read: {in_a_line(error)}"
        raise UserError(problem, key="recording", value=folder) from error
    return PrivateBatch(metadata.get("owner", "")[:200], x, y, steps.to(torch.int64))


def _path(folder: Path, epoch: int, step: int) -> Path:
    return folder / PRIVATE / f"{epoch:04d}_{step:08d}.safetensors"
