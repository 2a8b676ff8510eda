"""Recordings: rounds on disk, which read back as they were. Files hold arrays and JSON, never code."""

import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflbench.errors import UserError
from vflbench.messages.recorded import RECORDABLE, fact_from, packed, private_from
from vflbench.messages.recording_head import RecordingHead
from vflbench.messages.round import Round

FORMAT = 1
HEAD, ROWS = "recording.json", "rows.npz"
_ROUND = re.compile(r"(\d{4})_(\d{8})\.npz")


class Recording:
    """Rounds in a folder: `recording.json`, `rows.npz` (training rows by id, with labels) and `rounds/EPOCH_STEP.npz`.

    Labels are the truth that answers are graded against; no attacker sees them. Files are taken for what they hold, not for
    what wrote them: one that is damaged, or that doesn't belong into a recording, raises UserError.
    """

    def __init__(self, folder: Path | str):
        """Raises UserError for a folder that holds no recording."""
        self.folder = Path(folder)
        try:
            content = json.loads((self.folder / HEAD).read_text())
            if not isinstance(content, dict):
                raise ValueError("it holds no mapping")
            if content.pop("format", None) != FORMAT:
                raise ValueError("it is of a format that this version doesn't read")
            self.head = RecordingHead.read(content)
        except (OSError, ValueError, RecursionError) as error:
            raise self._unreadable(HEAD, error) from error

    @classmethod
    def create(cls, folder: Path, head: RecordingHead, rows: Mapping[str, Tensor]) -> "Recording":
        """A new recording, or the one that a resumed run goes on with. rows: ids, labels and canary (n,) of training rows;
        empty where there are too many to keep.
        """
        (folder / "rounds").mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Any] = {name: values.cpu().numpy() for name, values in rows.items()}
        np.savez_compressed(folder / ROWS, **arrays)
        recording = cls.__new__(cls)
        recording.folder, recording.head = folder, head
        recording.note_steps(head.steps)
        return recording

    def note_steps(self, steps: Sequence[int], recorded: Sequence[Sequence[int]] = ()) -> None:
        """Write the head, with the number of rounds of each epoch so far. recorded: their steps, where not all are."""
        self.head = replace(self.head, steps=list(steps), recorded=[list(of_epoch) for of_epoch in recorded])
        temporary = self.folder / f".{HEAD}.tmp"
        temporary.write_text(json.dumps({"format": FORMAT, **self.head.plain()}, indent=2))
        temporary.replace(self.folder / HEAD)

    def add(self, round_: Round, labels: Tensor, canary: Tensor | None = None) -> None:
        """Write a round, in place of an earlier one of this epoch and step. labels: (n,) the truth about `round_.ids`.
        canary: (n,) bool, rows whose label is a coin; none if left out.
        """
        arrays: dict[str, Any] = {}

        def keep(values: Tensor) -> str:
            arrays[f"a{len(arrays)}"] = values.detach().cpu().numpy()
            return f"a{len(arrays) - 1}"

        index: dict[str, Any] = {"ids": keep(round_.ids), "labels": keep(labels), "phase": round_.phase}
        if canary is not None:
            index["canary"] = keep(canary)
        index["facts"] = {
            party: {kind.__name__: packed(fact, keep) for kind, fact in facts.items() if kind.__name__ in RECORDABLE}
            for party, facts in round_.facts.items()
        }
        if round_.private is not None:
            index["private"] = packed(round_.private, keep)
        arrays["index"] = np.frombuffer(json.dumps(index).encode(), dtype=np.uint8)
        path = self.folder / "rounds" / f"{round_.epoch:04d}_{round_.step:08d}.npz"
        temporary = path.with_name(f".{path.name}.tmp")
        with temporary.open("wb") as file:
            np.savez(file, **arrays)
        temporary.replace(path)

    def rounds(self, epoch: int) -> Iterator[tuple[Round, Tensor]]:
        """The recorded rounds of an epoch in order, each with the labels of its rows."""
        for path, step in self._files(epoch):
            yield self._read_round(path, epoch, step)[:2]

    def require_rounds(self, epoch: int) -> None:
        """Raises UserError if a round that the head lists is missing."""
        there = {step for _, step in self._files(epoch)}
        listed: Sequence[int] = range(self.head.steps[epoch])
        if not self.head.complete:
            listed = self.head.recorded[epoch] if epoch < len(self.head.recorded) else ()
        first = next((step for step in listed if step not in there), None)
        if first is not None:
            problem = f"rounds of epoch {epoch} are missing, the first at step {first}"
            raise UserError(problem, key="recording", value=self.folder)

    def _files(self, epoch: int) -> list[tuple[Path, int]]:
        """The files of an epoch's rounds in order, and their steps."""
        files = []
        for path in sorted((self.folder / "rounds").glob(f"{epoch:04d}_*.npz")):
            name = _ROUND.fullmatch(path.name)
            if name is None:
                raise self._unreadable(f"rounds/{path.name}", "its name must be EPOCH_STEP.npz, with 4 and 8 digits")
            files.append((path, int(name[2])))
        return files

    def rows(self) -> dict[str, Tensor]:
        """ids, labels and canary (n,) of the training rows; of those in the rounds where the recording has no others."""
        rows = self._read_rows()
        if rows:
            return rows
        files = [(epoch, *file) for epoch in range(len(self.head.steps)) for file in self._files(epoch)]
        if not files:
            raise UserError("this recording has no rounds", key="recording", value=self.folder)
        read = [self._read_round(path, epoch, step) for epoch, path, step in files]
        ids, first = np.unique(torch.cat([round_.ids for round_, _, _ in read]).numpy(), return_index=True)
        places = torch.from_numpy(first)
        labels = torch.cat([labels for _, labels, _ in read])[places]
        canary = torch.cat([canary for _, _, canary in read])[places]
        return {"ids": torch.from_numpy(ids), "labels": labels, "canary": canary}

    @property
    def has_all_rows(self) -> bool:
        """Whether it knows every training row, not only those of recorded rounds."""
        return bool(self._read_rows())

    def _read_rows(self) -> dict[str, Tensor]:
        """What `rows.npz` holds; nothing where there were too many rows to keep."""
        rows = self._read_arrays(self.folder / ROWS)
        if not len(rows.get("ids", ())):
            return {}
        try:
            self._require_labels(rows["ids"], rows["labels"])
            if rows["canary"].dtype is not torch.bool or rows["canary"].shape != rows["ids"].shape:
                raise ValueError("canary must be a truth value for each row")
        except (KeyError, ValueError) as error:
            raise self._unreadable(ROWS, error) from error
        return {name: rows[name] for name in ("ids", "labels", "canary")}

    def _require_labels(self, ids: Tensor, labels: Tensor) -> None:
        if ids.ndim != 1 or ids.shape != labels.shape or {ids.dtype, labels.dtype} != {torch.int64}:
            shapes = f"{tuple(ids.shape)} {ids.dtype} and {tuple(labels.shape)} {labels.dtype}"
            raise ValueError(f"ids and labels must be (n,) int64 each, not {shapes}")
        classes = len(self.head.class_shares)
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
            raise ValueError(f"labels must be classes from 0 to {classes - 1}")

    def _read_round(self, path: Path, epoch: int, step: int) -> tuple[Round, Tensor, Tensor]:
        """The round, and labels and canary (n,) of its rows."""
        arrays = self._read_arrays(path)
        try:
            index = json.loads(arrays.pop("index").numpy().tobytes())
            ids, labels = arrays[index["ids"]], arrays[index["labels"]]
            self._require_labels(ids, labels)
            if len(ids.unique()) != len(ids):
                raise ValueError("a row occurs twice")
            canary = arrays[index["canary"]] if "canary" in index else torch.zeros(len(ids), dtype=torch.bool)
            if canary.dtype is not torch.bool or canary.shape != ids.shape:
                raise ValueError("canary must be a truth value for each row")
            facts = {}
            for party, known in index["facts"].items():
                unpacked = (fact_from(name, node, arrays, len(ids)) for name, node in known.items())
                facts[party] = {type(fact): fact for fact in unpacked}
            private = private_from(index["private"], arrays) if "private" in index else None
        except Exception as error:  # whatever comes of content that no recorder has written
            raise self._unreadable(f"rounds/{path.name}", error) from error
        return Round(epoch, step, ids, phase=str(index.get("phase")), facts=facts, private=private), labels, canary

    def _read_arrays(self, path: Path) -> dict[str, Tensor]:
        try:
            with path.open("rb") as file:
                if not zipfile.is_zipfile(file):
                    raise ValueError("it is no archive of arrays")
                file.seek(0)
                with np.load(file, allow_pickle=False) as arrays:
                    return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        except Exception as error:  # whatever NumPy and zipfile make of a file that is damaged, or that is no archive
            raise self._unreadable(str(path.relative_to(self.folder)), error) from error

    def _unreadable(self, name: str, reason: object) -> UserError:
        text = f"there is no {reason}" if isinstance(reason, KeyError) else " ".join(str(reason).split())
        return UserError(f"{name} can't be read: {text or type(reason).__name__}", key="recording", value=self.folder)
