"""A folder of recorded messages that is being written: manifest, files, labels. The format: docs/reference/messages.md."""

import copy
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import TypeAdapter
from torch import Tensor

from vflbench.errors import UserError
from vflbench.messages.collected_labels import CollectedLabels
from vflbench.messages.message_batch import read_places
from vflbench.messages.recording_format import (
    FORMAT_PAGE,
    LABELS,
    MANIFEST,
    MESSAGES,
    PARTY,
    Manifest,
    checked,
    read_manifest,
    write_batch_file,
    write_manifest,
)
from vflbench.messages.tables import read_labels, write_rows

MOST_STEPS = 10**8  # of an epoch: a batch's file has the number epoch * MOST_STEPS + step
_MANIFEST = TypeAdapter(Manifest)


class RecordingFolder:
    """One party's part of a folder. Several parties write to the same folder, from one process or several."""

    def __init__(self, folder: Path | str, party: str):
        if not PARTY.fullmatch(party):
            raise UserError(
                "letters, digits, `_`, `-` and `.` make a party's name, 64 at most", key="party", value=party[:80]
            )
        self.folder, self.party = Path(folder), party
        self._labels_before = _identity(self.folder / LABELS)
        self._merged: dict[str, Any] = {}

    def files(self) -> list[Path]:
        """The shards of this party, by name."""
        found = (self.folder / MESSAGES).glob("*") if (self.folder / MESSAGES).is_dir() else ()
        return sorted(path for path in found if _party_of(path) == self.party)

    def open(self, *, overwrite: bool, go_on: bool) -> None:
        """Raises UserError where messages of this party are there already, unless they are to be replaced or continued."""
        if overwrite and go_on:
            raise UserError(
                "overwrite=True deletes what is there and go_on=True keeps it: give one", key="go_on", value=True
            )
        if (self.folder / "run.json").exists():
            raise UserError("vflbench train recorded a run here: take another folder", key="recording", value=self.folder)
        there = self.files()
        if there and not overwrite and not go_on:
            found = f"there are {len(there)} files of party {self.party} already"
            problem = f"{found}; go_on=True adds to them, overwrite=True deletes them"
            raise UserError(problem, key="recording", value=self.folder)
        if overwrite:
            self._delete(there)
        for path in (self.folder / MESSAGES).glob(f".{self.party}-*.tmp"):  # of a process that was killed
            if _party_of(Path(path.name[1:].rpartition(".tmp")[0].rpartition(".")[0])) == self.party:
                path.unlink()

    def _delete(self, there: Sequence[Path]) -> None:
        for path in there:
            path.unlink()
        if not (self.folder / MANIFEST).exists():
            return
        with self._lock():
            content = read_manifest(self.folder).plain()
            content["parties"].pop(self.party, None)
            if content["parties"]:
                self._write(content, {})
            else:
                (self.folder / MANIFEST).unlink()

    def next_steps(self) -> dict[int, int]:
        """Epoch -> one more than the last recorded step in it."""
        following: dict[int, int] = {}
        for epoch, step in self._batches(self.files()):
            following[epoch] = max(following.get(epoch, 0), step + 1)
        return following

    def widths(self) -> dict[str, int]:
        """Layer -> width, as the manifest has them of this party."""
        if not (self.folder / MANIFEST).exists():
            return {}
        of_party = read_manifest(self.folder).parties.get(self.party)
        return dict(of_party.layers) if of_party else {}

    def _batches(self, files: Sequence[Path]) -> set[tuple[int, int]]:
        """Epoch and step of each training batch in these shards. Raises UserError for one that can't be read."""
        if not files:
            return set()
        manifest, found = read_manifest(self.folder), set[tuple[int, int]]()
        for path in files:
            try:
                places = list(read_places(path, _party_of(path) or "", manifest))
            except Exception as error:  # whatever a library makes of a damaged file
                problem = f"{path.name} can't be read: {' '.join(str(error).split()) or type(error).__name__}"
                raise UserError(problem, key="recording", value=self.folder) from error
            found |= {(place.epoch, place.step) for place in places if place.phase == "train"}
        return found

    def merge(self, said: Mapping[str, Any], layers: Mapping[str, int], cut: Sequence[str] = ()) -> None:
        """Write this party and what is said of the recording into the manifest, beside what others have said.

        said: keys of the manifest; None says nothing. `model` is added to. layers: layer -> width, after those there.
        Where no party has a layer yet, nothing is written.
        Raises UserError where another party, or an earlier process, said otherwise.
        """
        said = {key: value for key, value in said.items() if value is not None}
        whole = {"said": said, "layers": dict(layers), "cut": list(cut)}
        if whole == self._merged:
            return
        with self._lock():
            before = read_manifest(self.folder).plain() if (self.folder / MANIFEST).exists() else {"parties": {}}
            content = copy.deepcopy(before) | said
            if "model" in said:
                content["model"] = before.get("model", {}) | said["model"]
            of_party = content["parties"].get(self.party, {"layers": {}, "cut": []})
            for layer, width in layers.items():
                if of_party["layers"].setdefault(layer, width) != width:
                    problem = f"it has {width} columns here, and {of_party['layers'][layer]} in {MANIFEST}"
                    raise UserError(problem, key="layer", value=layer)
            of_party["cut"] = list(cut) or of_party["cut"]
            if of_party["layers"]:
                parties = content["parties"] | {self.party: of_party}
                content["parties"] = dict(sorted(parties.items()))  # whoever came first
            if not content["parties"]:
                return
            self._write(content, before)
        self._merged = copy.deepcopy(whole)

    def require_manifest(self, said: Mapping[str, Any]) -> None:
        """Raises UserError where this can't stand in a manifest."""
        layers: dict[str, Any] = {"layers": {}, "cut": []}
        self._checked({key: value for key, value in said.items() if value is not None} | {"parties": {self.party: layers}})

    def _checked(self, content: Mapping[str, Any]) -> Manifest:
        try:
            return checked(_MANIFEST, {key: value for key, value in content.items() if key != "format"})
        except ValueError as error:
            raise UserError(str(error), key="recording", value=self.folder, see=FORMAT_PAGE) from error

    def _write(self, content: dict[str, Any], before: Mapping[str, Any]) -> None:
        """Raises UserError for content that is no manifest, or that denies what was said before."""
        manifest = self._checked(content)
        plain = manifest.plain()
        for key in ("classes", "labels", "class_shares", "claims"):
            if before.get(key) and plain.get(key) != before[key]:
                raise UserError(f"{MANIFEST} in this folder says {before[key]}", key=key, value=plain.get(key))
        if plain != before:
            write_manifest(self.folder, manifest)

    def _lock(self) -> FileLock:
        self.folder.mkdir(parents=True, exist_ok=True)
        return FileLock(self.folder / f".{MANIFEST}.lock")

    def path(self, epoch: int, step: int) -> Path:
        """Of the batch's file."""
        return self.folder / MESSAGES / f"{self.party}-{epoch * MOST_STEPS + step:08d}.safetensors"

    def write(self, ids: Tensor, tensors: Mapping[str, Tensor], *, epoch: int, step: int) -> Path:
        """A batch, as a file of its own, in place of an earlier one."""
        number = epoch * MOST_STEPS + step
        return write_batch_file(self.folder, self.party, number, ids, tensors, epoch=epoch, step=step)

    def write_labels(self, collected: CollectedLabels, *, replace: bool = False) -> None:
        """Add to labels.parquet. replace: in place of one that was there before this object was made."""
        with self._lock():
            path = self.folder / LABELS
            if path.exists() and not (replace and _identity(path) == self._labels_before):
                there = read_labels(path, collected.classes)
                if bool(there.canary.any()):
                    raise UserError("it names canaries, which can't be added to", key="recording", value=path)
                collected.add(there.ids, there.labels)
            ids, labels = collected.rows()
            write_rows(path, {"id": ids, "label": labels})

    def same_batches(self) -> bool:
        """Whether every party has the same batches, with no step left out of an epoch."""
        of_party: dict[str, list[Path]] = {}
        for path in (self.folder / MESSAGES).glob("*"):
            of_party.setdefault(_party_of(path) or "", []).append(path)
        batches = [self._batches(files) for party, files in of_party.items() if party]
        of_epoch = Counter(epoch for epoch, _ in batches[0]) if batches else {}
        whole = {(epoch, step) for epoch, steps in of_epoch.items() for step in range(steps)}
        return bool(whole) and all(of_one == whole for of_one in batches)


def _party_of(path: Path) -> str | None:
    """media of `media-000.safetensors`; None for a file of another kind."""
    party, dash, number = path.stem.rpartition("-")
    return party if dash and number.isdecimal() and path.suffix == ".safetensors" else None


def _identity(path: Path) -> tuple[int, int] | None:
    """Changes when the file is written again."""
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns
