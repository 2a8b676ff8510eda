"""Recordings: rounds on disk, which read back as they were. Files hold arrays and JSON, never code."""

import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflbench.errors import UserError
from vflbench.messages.fact import Fact
from vflbench.messages.facts import Embeddings, Gradients, OwnColumns, Predictions, Rules, SummedGradients, Updates
from vflbench.messages.round import PrivateBatch, Round
from vflbench.messages.threat import Seat

FORMAT = 1
HEAD, ROWS = "recording.json", "rows.npz"
RECORDABLE: Mapping[str, type[Fact]] = {
    fact.__name__: fact for fact in (Embeddings, Gradients, SummedGradients, OwnColumns, Predictions, Updates)
}
"""The facts that a recording can hold: values, not functions or networks that could be asked."""


@dataclass(frozen=True)
class RecordingHead:
    """What holds for all rounds of a recording.

    seats: parties by seat. cut_layers: party -> layers that cross. class_shares: of the K classes among the training rows.
    batch_size: rows of a batch. complete: whether every round is recorded, not only the audited ones. steps: rounds in each
    epoch, recorded or not. facts: names of the facts that rounds hold, by seat.
    """

    seats: Mapping[str, Sequence[str]]
    cut_layers: Mapping[str, Sequence[str]]
    class_shares: Sequence[float]
    batch_size: int
    complete: bool
    facts: Mapping[str, Sequence[str]]
    steps: Sequence[int] = field(default_factory=list)

    def offers(self, seat: Seat) -> frozenset[type[Fact]]:
        """The facts that an attacker of that seat finds in it."""
        return frozenset(RECORDABLE[name] for name in self.facts.get(str(seat), ()))


class Recording:
    """Rounds in a folder: `recording.json`, `rows.npz` (training rows by id, with labels) and `rounds/EPOCH_STEP.npz`.

    Labels are the truth that answers are graded against; no attacker sees them.
    """

    def __init__(self, folder: Path | str):
        """Raises UserError for a folder that holds no recording."""
        self.folder = Path(folder)
        head = self._read_json(HEAD)
        if head.pop("format", None) != FORMAT:
            raise UserError("this recording is of a format that this version doesn't read", key="recording", value=folder)
        try:
            self.head = RecordingHead(**head)
            unknown = {name for names in self.head.facts.values() for name in names} - set(RECORDABLE)
            if unknown:
                raise ValueError(f"unknown facts {', '.join(sorted(unknown))}")
        except (TypeError, ValueError, AttributeError) as error:
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

    def note_steps(self, steps: Sequence[int]) -> None:
        """Write the head, with the number of rounds of each epoch so far."""
        self.head = RecordingHead(**{**_shallow(self.head), "steps": list(steps)})
        temporary = self.folder / f".{HEAD}.tmp"
        temporary.write_text(json.dumps({"format": FORMAT, **_shallow(self.head)}, indent=2))
        temporary.replace(self.folder / HEAD)

    def add(self, round_: Round, labels: Tensor) -> None:
        """Write a round. labels: (n,) the truth about `round_.ids`."""
        arrays: dict[str, Any] = {}

        def keep(values: Tensor) -> str:
            arrays[f"a{len(arrays)}"] = values.detach().cpu().numpy()
            return f"a{len(arrays) - 1}"

        index: dict[str, Any] = {"ids": keep(round_.ids), "labels": keep(labels), "phase": round_.phase}
        index["facts"] = {
            party: {kind.__name__: _packed(fact, keep) for kind, fact in facts.items() if kind.__name__ in RECORDABLE}
            for party, facts in round_.facts.items()
        }
        if round_.private is not None:
            index["private"] = _packed(round_.private, keep)
        arrays["index"] = np.frombuffer(json.dumps(index).encode(), dtype=np.uint8)
        path = self._path(round_.epoch, round_.step)
        temporary = path.with_name(f".{path.name}.tmp")
        with temporary.open("wb") as file:
            np.savez(file, **arrays)
        temporary.replace(path)

    def rounds(self, epoch: int) -> Iterator[tuple[Round, Tensor]]:
        """The recorded rounds of an epoch in order, each with the labels of its rows."""
        for path in sorted((self.folder / "rounds").glob(f"{epoch:04d}_*.npz")):
            yield self._read_round(path, epoch, int(path.stem.split("_")[1]))

    def rows(self) -> dict[str, Tensor]:
        """ids, labels and canary (n,) of the training rows; of those in the rounds where the recording has no others."""
        rows = self._read_arrays(self.folder / ROWS)
        if {"ids", "labels", "canary"} <= set(rows) and len(rows["ids"]):
            return {name: torch.from_numpy(values) for name, values in rows.items()}
        parts = [(r.ids, labels) for epoch in range(len(self.head.steps)) for r, labels in self.rounds(epoch)]
        if not parts:
            raise UserError("this recording has no rounds", key="recording", value=self.folder)
        ids, first = np.unique(torch.cat([ids for ids, _ in parts]).numpy(), return_index=True)
        labels = torch.cat([labels for _, labels in parts])[torch.from_numpy(first)]
        return {"ids": torch.from_numpy(ids), "labels": labels, "canary": torch.zeros(len(ids), dtype=torch.bool)}

    @property
    def has_all_rows(self) -> bool:
        """Whether it knows every training row, not only those of recorded rounds."""
        return bool(len(self._read_arrays(self.folder / ROWS).get("ids", ())))

    def _path(self, epoch: int, step: int) -> Path:
        return self.folder / "rounds" / f"{epoch:04d}_{step:08d}.npz"

    def _read_round(self, path: Path, epoch: int, step: int) -> tuple[Round, Tensor]:
        arrays = self._read_arrays(path)
        try:
            index = json.loads(arrays.pop("index").tobytes())
            values = {name: torch.from_numpy(array) for name, array in arrays.items()}
            ids, labels = values[index["ids"]], values[index["labels"]]
            if ids.shape != labels.shape or ids.ndim != 1:
                raise ValueError(f"{tuple(ids.shape)} ids and {tuple(labels.shape)} labels")
            facts = {
                party: {RECORDABLE[name]: _unpacked(RECORDABLE[name], node, values) for name, node in known.items()}
                for party, known in index["facts"].items()
            }
            private = _unpacked(PrivateBatch, index["private"], values) if "private" in index else None
            return Round(epoch, step, ids, phase=index["phase"], facts=facts, private=private), labels
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._unreadable(f"rounds/{path.name}", error) from error

    def _read_arrays(self, path: Path) -> dict[str, np.ndarray]:
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise self._unreadable(str(path.relative_to(self.folder)), error) from error

    def _read_json(self, name: str) -> dict[str, Any]:
        try:
            content = json.loads((self.folder / name).read_text())
        except (OSError, ValueError) as error:
            raise self._unreadable(name, error) from error
        if not isinstance(content, dict):
            raise self._unreadable(name, "it holds no mapping")
        return content

    def _unreadable(self, name: str, reason: object) -> UserError:
        return UserError(f"{name} can't be read: {reason}", key="recording", value=self.folder)


def _shallow(head: RecordingHead) -> dict[str, Any]:
    return {part.name: getattr(head, part.name) for part in fields(head)}


def _packed(value: Any, keep: Callable[[Tensor], str]) -> Any:
    """Tensors become names of arrays; mappings and dataclasses of them likewise."""
    if isinstance(value, Tensor):
        return {"tensor": keep(value)}
    if isinstance(value, Rules):
        return {"rules": asdict(value)}
    if isinstance(value, Mapping):
        return {"mapping": {str(key): _packed(part, keep) for key, part in value.items()}}
    if isinstance(value, str):
        return {"text": value}
    return {part.name: _packed(getattr(value, part.name), keep) for part in fields(value)}


def _unpacked(kind: type[Any], node: Mapping[str, Any], values: Mapping[str, Tensor]) -> Any:
    """The inverse of `_packed`, for a dataclass of that kind."""

    def part(node: Mapping[str, Any]) -> Any:
        if "tensor" in node:
            return values[node["tensor"]]
        if "rules" in node:
            return Rules(**node["rules"])
        return node["text"] if "text" in node else {key: part(inner) for key, inner in node["mapping"].items()}

    return kind(**{name: part(inner) for name, inner in node.items()})
