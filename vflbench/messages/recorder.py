"""Records what crosses the cut in a training loop of your own, in the format of docs/reference/messages.md: `Recording` for
torch, and `write_batch` for arrays of any framework.
"""

import atexit
import copy
import os
import sys
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.util import Finalize
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import ArrayLike
from pydantic import TypeAdapter
from torch import Tensor

from vflbench.errors import UserError
from vflbench.messages.message_batch import FLOATS, read_places, type_name
from vflbench.messages.recording_format import (
    FORMAT_PAGE,
    LABEL_PARTY,
    LABELS,
    LAYER,
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
from vflbench.plain_files import in_a_line

MOST_COMPLETE = 4  # batches kept in memory although they have their gradients: another backward may add to them
MOST_STEPS = 10**8  # of an epoch: a batch's file has the number epoch * MOST_STEPS + step
AGAIN = (
    "rows come again, and all is recorded as epoch 0: where a new epoch begins, say so by `for epoch in rec.epochs(5):` or "
    "rec.begin_epoch()"
)
_LOOKED_FOR = 1024  # rows of the first batch, in later ones
_WAITING = 8  # labels are written again once an eighth as many wait
_MANIFEST: TypeAdapter[Manifest] = TypeAdapter(Manifest)


def row_ids(ids: Any, *, unique: bool = True) -> Tensor:
    """ids as (n,) int64 on the CPU, in memory of its own. Raises UserError for others, and where a row occurs twice."""
    try:
        made = torch.as_tensor(ids).detach()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        problem = "row ids must be integers below 2^63; give text or larger ones a number each, the same in every batch"
        raise UserError(f"{problem} ({error})", key="ids", value=type(ids).__name__) from error
    if not made.numel():
        raise UserError("a batch has at least one row", key="ids", value="[]")
    if made.dtype.is_floating_point or made.dtype.is_complex or made.dtype is torch.bool:
        raise UserError("row ids must be integers", key="ids", value=made.dtype)
    if made.ndim == 2 and 1 in made.shape:
        made = made.flatten()
    if made.ndim != 1:
        raise UserError("there must be one id a row, (n,)", key="ids", value=tuple(made.shape))
    if made.dtype is torch.uint64 and int(made.cpu().view(torch.int64).min()) < 0:
        raise UserError("row ids must be integers below 2^63", key="ids", value=made.dtype)
    made = made.to("cpu", torch.int64, copy=True)
    ordered = made.sort().values
    if unique and bool((twice := ordered[1:] == ordered[:-1]).any()):
        problem = f"a row may occur once in a batch; id {int(ordered[1:][twice][0])} is there more than once"
        raise UserError(f"{problem} ({int(twice.sum())} such rows)", key="ids", value=f"{len(made)} rows")
    return made


def _values(name: str, values: Any, rows: int) -> Tensor:
    """(n, ...) as (n, d), on the CPU, in memory of its own and in its own precision. Raises UserError for other values."""
    made = _tensor(name, values)
    if type_name(made) not in FLOATS:
        raise UserError("values are float32, float16, float64 or bfloat16", key=name, value=made.dtype)
    if made.ndim < 1 or len(made) != rows or not made.numel():
        raise UserError(f"it must have a row for each of the {rows} ids, batch first", key=name, value=tuple(made.shape))
    return _flat(made)


def _tensor(name: str, values: Any) -> Tensor:
    """A tensor, or an array of any framework. (torch.from_numpy knows neither foreign byte orders nor ml_dtypes.)"""
    if isinstance(values, Tensor):
        return values.detach()
    array = np.asarray(values)
    if array.dtype.name == "bfloat16":  # of ml_dtypes, as JAX has it
        return torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16)
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise UserError("values are float32, float16, float64 or bfloat16", key=name, value=array.dtype)
    return torch.from_numpy(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")))


def _flat(values: Tensor) -> Tensor:
    values = values.detach()
    values = values.to_dense() if values.layout is not torch.strided else values
    return values.to("cpu", copy=True).reshape(len(values), -1).contiguous()


def _columns(numeric: Any, categorical: Any, rows: int) -> dict[str, Tensor]:
    """`columns/KIND` -> a party's own columns. numeric: (n, k) floats, categorical: (n, c) integers; either may be None."""
    made = {} if numeric is None else {"columns/numeric": _values("numeric", numeric, rows)}
    if categorical is not None:
        ids = _tensor("categorical", categorical).to("cpu", copy=True)
        of_whole = not (ids.is_floating_point() or ids.is_complex() or ids.dtype is torch.bool)
        if ids.ndim != 2 or len(ids) != rows or not of_whole or (ids.numel() and int(ids.min()) < 0):
            problem = f"categorical columns are ({rows}, any number) of integers from 0, not {ids.dtype}"
            raise UserError(problem, key="categorical", value=tuple(ids.shape))
        made["columns/categorical"] = ids.to(torch.int64)
    return made


def _not_finite(tensors: Mapping[str, Tensor]) -> str:
    """The first that has NaN or infinite values, `KIND NAME`; empty if none has."""
    for name, values in tensors.items():
        if values.is_floating_point() and not bool(values.isfinite().all()):
            return name.replace("/", " ", 1)
    return ""


class CollectedLabels:
    """Labels of rows, batch by batch. Memory: each row once, and as many again."""

    def __init__(self, classes: int):
        self.classes, self._parts, self.rows, self._merged = classes, list[tuple[Tensor, Tensor]](), 0, 0

    def add(self, ids: Any, labels: Any) -> None:
        """ids, labels: (n,), or labels (n, 1). Raises UserError for what is no class, and for an id with two labels."""
        of_rows = torch.as_tensor(labels).detach()
        made = row_ids(ids, unique=False)
        if of_rows.shape not in ((len(made),), (len(made), 1)):
            raise UserError(f"there must be one label a row, ({len(made)},)", key="labels", value=tuple(of_rows.shape))
        of_rows = of_rows.flatten().clone()  # what is on another device stays there: a copy would wait for it
        self._parts.append((made, self._classes(of_rows) if of_rows.is_cpu else of_rows))
        self.rows += len(made)
        if self.rows >= 2 * self._merged:
            self.merged()

    def merged(self) -> tuple[Tensor, Tensor]:
        """ids (n,), each once and in order, and their labels (n,); int64. Of two labels of a row the first one is kept."""
        ids = np.concatenate([ids.numpy() for ids, _ in self._parts])
        labels = np.concatenate([self._classes(labels).numpy() for _, labels in self._parts])
        unique, first, place = np.unique(ids, return_index=True, return_inverse=True)
        self._parts = [(torch.from_numpy(unique), torch.from_numpy(labels[first]))]
        self.rows = self._merged = len(unique)
        differ = np.flatnonzero(labels != labels[first][place])
        if len(differ):
            row = differ[0]
            problem = f"it has the labels {labels[first][place][row]} and {labels[row]}; a row has one label"
            raise UserError(problem, key="id", value=int(ids[row]))
        return self._parts[0]

    def _classes(self, labels: Tensor) -> Tensor:
        labels = labels.cpu()
        whole = labels.to(torch.int64)
        wrong = (whole != labels) | (whole < 0) | (whole >= self.classes)
        if bool(wrong.any()):
            problem = f"labels are classes from 0 to {self.classes - 1}; `classes=` says how many there are"
            raise UserError(problem, key="label", value=labels[wrong][0].item())
        return whole


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
        """The files of this party, by name."""
        return sorted(path for path in (self.folder / MESSAGES).glob(f"{self.party}-*") if _party_of(path) == self.party)

    def has_files(self) -> bool:
        if not (self.folder / MESSAGES).exists():
            return False
        with os.scandir(self.folder / MESSAGES) as entries:
            return any(_party_of(Path(entry.name)) == self.party for entry in entries)

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

    def next_step(self, epoch: int) -> int:
        """One more than the last step of this epoch among the files."""
        numbers = [int(path.stem.rpartition("-")[2]) for path in self.files()]
        return max((number % MOST_STEPS + 1 for number in numbers if number // MOST_STEPS == epoch), default=0)

    def widths(self) -> dict[str, int]:
        """Layer -> width, as the manifest has them of this party."""
        if not (self.folder / MANIFEST).exists():
            return {}
        of_party = read_manifest(self.folder).parties.get(self.party)
        return dict(of_party.layers) if of_party else {}

    def batches(self, files: Sequence[Path]) -> set[tuple[int, int]]:
        """Epoch and step of each training batch in these files. Raises UserError for one that can't be read."""
        if not files:
            return set()
        manifest, found = read_manifest(self.folder), set[tuple[int, int]]()
        for path in files:
            try:
                places = list(read_places(path, _party_of(path) or "", manifest))
            except Exception as error:  # whatever a library makes of a damaged file
                raise UserError(
                    f"{path.name} can't be read: {in_a_line(error)}", key="recording", value=self.folder
                ) from error
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
            made: Manifest = checked(_MANIFEST, {key: value for key, value in content.items() if key != "format"})
        except ValueError as error:
            raise UserError(str(error), key="recording", value=self.folder, see=FORMAT_PAGE) from error
        return made

    def _write(self, content: dict[str, Any], before: Mapping[str, Any]) -> None:
        """Raises UserError for content that is no manifest, or that denies what was said before."""
        manifest = self._checked(content)
        plain = manifest.plain()
        for key in ("classes", "labels", "class_shares", "claims"):
            if before.get(key) and plain.get(key) != before[key]:
                raise UserError(f"{MANIFEST} in this folder says {before[key]}", key=key, value=plain.get(key))
        if plain != before:
            with self._disk():
                write_manifest(self.folder, manifest)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with self._disk():
            self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / f".{MANIFEST}.lock"):
            yield

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """A full disk is one line."""
        try:
            yield
        except OSError as error:
            raise UserError(f"it can't be written: {in_a_line(error)}", key="recording", value=self.folder) from None

    def path(self, epoch: int, step: int) -> Path:
        """Of the batch's file."""
        return self.folder / MESSAGES / f"{self.party}-{epoch * MOST_STEPS + step:08d}.safetensors"

    def write(self, ids: Tensor, tensors: Mapping[str, Tensor], *, epoch: int, step: int) -> Path:
        """A batch, as a file of its own, in place of an earlier one."""
        number = epoch * MOST_STEPS + step
        with self._disk():
            return write_batch_file(self.folder, self.party, number, ids, tensors, epoch=epoch, step=step)

    def write_labels(self, collected: CollectedLabels, *, replace: bool = False) -> int:
        """Add to labels.parquet; returns how many it then has. replace: one that was there before this object was made."""
        with self._lock():
            path = self.folder / LABELS
            if path.exists() and not (replace and _identity(path) == self._labels_before):
                there = read_labels(path, collected.classes)
                if bool(there.canary.any()):
                    raise UserError("it names canaries, which can't be added to", key="recording", value=path)
                collected.add(there.ids, there.labels)
            ids, labels = collected.merged()
            with self._disk():
                write_rows(path, {"id": ids, "label": labels})
        return len(ids)

    def same_batches(self) -> bool:
        """Whether every party has the same batches, with no step left out of an epoch."""
        of_party: dict[str, list[Path]] = {}
        for path in (self.folder / MESSAGES).glob("*"):
            of_party.setdefault(_party_of(path) or "", []).append(path)
        batches = [self.batches(files) for party, files in of_party.items() if party]
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


class _Graph:
    """Lives as long as a graph that may bring a gradient: only the hook holds it."""


class _Batch:
    """A batch that is being recorded: layers as they were sent, and the gradients that came back so far.

    given: ids as the user holds them. recorded: whether values are kept; else it only says where a batch begins and ends.
    parts: what has been given of it. tensors: `KIND/NAME` -> values.
    """

    def __init__(self, given: Any, epoch: int, step: int, recorded: bool):
        self.epoch, self.step, self.recorded, self._given = epoch, step, recorded, given
        self.parts: set[tuple[str, str]] = set()
        self._ids = row_ids(given) if recorded else None
        self.tensors: dict[str, Tensor] = {}
        self._graphs: dict[str, weakref.ref[_Graph]] = {}
        self._closed = False

    @property
    def ids(self) -> Tensor:
        """(n,) int64."""
        if self._ids is None:
            self._ids = row_ids(self._given, unique=False)
        return self._ids

    @property
    def widths(self) -> dict[str, int]:
        """Layer -> columns."""
        return {name.partition("/")[2]: h.shape[1] for name, h in self.tensors.items() if name.startswith("embedding/")}

    def has_ids(self, ids: Any) -> bool:
        """Whether these are the batch's rows, in its order."""
        return ids is self._given or torch.equal(self.ids, row_ids(ids, unique=False))

    def watch(self, layer: str, h: Tensor, widths: dict[str, int]) -> None:
        """h: (n, ...), one row an id. widths: layer -> numbers in a row, of every batch so far; this layer's is added."""
        if not isinstance(h, Tensor):
            problem = "it takes one tensor; watch each tensor of a dict or tuple as a layer of its own"
            raise UserError(problem, key="watch", value=type(h).__name__)
        if not LAYER.fullmatch(layer):
            raise UserError(
                "a layer's name has 1 to 200 characters, none of them control", key="layer", value=repr(layer)[:80]
            )
        made = _values(f"layer {layer}", h, len(self.ids))
        width = made.shape[1]
        if widths.setdefault(layer, width) != width:
            problem = f"a row has {width} numbers here, and had {widths[layer]} before; pad it, or send one length"
            raise UserError(problem, key="layer", value=layer)
        self.tensors[f"embedding/{layer}"] = made
        if h.requires_grad:
            graph = _Graph()
            self._graphs[layer] = weakref.ref(graph)
            h.register_hook(self._hook(f"gradient/{layer}", graph))

    def _hook(self, name: str, graph: _Graph) -> Callable[[Tensor], None]:
        def add(gradient: Tensor, _alive: _Graph = graph) -> None:
            if not self._closed:
                made = _flat(gradient)
                self.tensors[name] = self.tensors[name] + made if name in self.tensors else made

        return add

    @property
    def complete(self) -> bool:
        """Whether each layer that asks for a gradient has one."""
        return bool(self.widths) and all(f"gradient/{layer}" in self.tensors for layer in self._graphs)

    @property
    def finished(self) -> bool:
        """Whether no gradient can come any more, as the graphs are gone."""
        return all(graph() is None for graph in self._graphs.values())

    @property
    def has_gradient(self) -> bool:
        """Whether a layer has a gradient, or none asks for one."""
        return bool(self.widths) and (not self._graphs or any(f"gradient/{layer}" in self.tensors for layer in self._graphs))

    def close(self) -> dict[str, Tensor]:
        """Its values, for the file. Gradients that come later are left out; hooks may live longer."""
        self._closed, made, self.tensors = True, self.tensors, {}
        return made


class Recording:
    """What one party sends and receives, batch by batch, written to a folder that `vflbench audit` reads.

        with Recording("recorded", party="media") as rec:   # or rec.close() at the end
            for epoch in rec.epochs(5):
                for ids, x, y in batches:
                    h = rec.watch(bottom(x), ids=ids)
                    rec.label(ids, y)                       # where this process has them
                    loss_of(top(h), y).backward()

    folder: one for all parties. labels: the party that holds the labels. classes: how many there are.
    every: records one batch in this many, the first of each epoch among them. most: batches at most, of this object.
    claims: what is promised about labels, as {"label_dp": {"eps": 1.0, "fresh": False}}. class_shares: of all training rows,
    where the attacker may know them. cut: the layers that cross, where it isn't the last one that is watched.
    complete: whether every training batch of every recorded epoch will have been watched; which only you can know.
    go_on: adds to what the party has recorded here. overwrite: deletes that first. Without either it is refused.
    rank: with torch.distributed only this process writes; None: every process does, as where each is another party.

    A batch is written, as a file of its own, once nothing can add to its gradients any more. Values keep their precision.
    """

    def __init__(
        self,
        folder: Path | str,
        party: str,
        *,
        labels: str = LABEL_PARTY,
        classes: int = 2,
        every: int = 1,
        most: int | None = None,
        claims: Mapping[str, Any] | None = None,
        class_shares: Sequence[float] | None = None,
        cut: Sequence[str] = (),
        complete: bool = False,
        go_on: bool = False,
        overwrite: bool = False,
        rank: int | None = 0,
    ):
        for key, value in {"every": every, "most": 1 if most is None else most}.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UserError("a number of batches is an integer from 1", key=key, value=value)
        if complete and (every > 1 or most is not None):
            raise UserError("a sample of the batches isn't complete", key="complete", value=True)
        self.epoch = 0
        self.written = self.dropped = 0  # batches
        self._watched = False
        self._damaged = False  # whether a training batch had to be left out
        self._every, self._most, self._rank, self._process = every, most, rank, os.getpid()
        self._complete = complete
        self._cut = [cut] if isinstance(cut, str) else list(cut)
        self._said: dict[str, Any] = {
            "producer": f"vflbench.Recording, torch {torch.__version__}",
            "classes": classes,
            "labels": labels,
        }
        self._said |= {"claims": claims, "class_shares": None if class_shares is None else [float(s) for s in class_shares]}
        self._labels, self._replace_labels = CollectedLabels(classes), overwrite
        self._steps: dict[int, int] = {}  # epoch -> batches begun
        self._pending: list[_Batch] = []
        self._looks_for_rows = True  # until an epoch is begun
        self._first: Tensor | None = None  # ids of the first batch, and of the last one
        self._last: Tensor | None = None
        self._current: _Batch | None = None
        self._widths: dict[str, int] = {}  # of layers
        self._closed = False
        self._folder = RecordingFolder(folder, party)
        if self._writes():
            self._folder.require_manifest(self._said)
            self._folder.open(overwrite=overwrite, go_on=go_on)
            if go_on:
                self._widths = self._folder.widths()
                for of, step in self._folder.batches(self._folder.files()):
                    self._steps[of] = max(self._steps.get(of, 0), step + 1)
            atexit.register(self.close)

    def watch(self, h: Tensor, *, ids: Any, layer: str = "cut", epoch: int | None = None) -> Tensor:
        """Returns h itself. Keeps its values as they are now, and each gradient of the loss by it that a backward brings.

        h: (n, d), or (n,), or (n, ...), which is flattened to a row's values. ids: (n,) integers, the same for a row in
        every epoch and at every party. epoch: begins it, as `begin_epoch` does. A batch begins with a layer that the one
        before has already, or with other ids. Under torch.no_grad, and after `close`, nothing is recorded. A batch that gets
        no gradient is dropped, as in an evaluation that forgets no_grad; where h asks for none (a frozen bottom model) its
        embedding is recorded alone.
        """
        dynamo = sys.modules.get("torch._dynamo")  # there only where something is compiled, of which this is no part
        return (dynamo.disable(self._watch) if dynamo else self._watch)(h, ids, layer, epoch)

    def _watch(self, h: Tensor, ids: Any, layer: str, epoch: int | None) -> Tensor:
        self._watched = True
        if not torch.is_grad_enabled() or _in_backward() or not self._open():
            return h
        if epoch is not None:
            self._looks_for_rows = False
            if epoch != self.epoch:
                self.begin_epoch(epoch)
        batch = self._batch(ids, ("layer", layer))
        if batch.recorded:
            batch.watch(layer, h, self._widths)
        return h

    def columns(self, ids: Any, numeric: Any = None, categorical: Any = None) -> None:
        """The party's own columns of a batch's rows. numeric: (n, k) floats. categorical: (n, c) integers from 0."""
        if torch.is_grad_enabled() and self._open():
            batch = self._batch(ids, ("columns", ""))
            if batch.recorded:
                batch.tensors.update(_columns(numeric, categorical, len(batch.ids)))

    def label(self, ids: Any, labels: Any) -> None:
        """labels: (n,) or (n, 1) classes from 0. For who may see both sides: `close` writes labels.parquet."""
        if self._open():
            self._labels.add(ids, labels)

    def note(self, **figures: float) -> None:
        """Figures of the finished model to compare with, each from 0 to 1: test_auc=0.79, train_auc=0.83."""
        if self._open():
            said = self._said | {
                "model": self._said.get("model", {}) | {name: float(value) for name, value in figures.items()}
            }
            self._folder.require_manifest(said)
            self._said = said

    def begin_epoch(self, epoch: int | None = None) -> None:
        """Batches from here on belong to this epoch; to the next one, if left out. Without it all are of epoch 0."""
        epoch = self.epoch + 1 if epoch is None else epoch
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
            raise UserError("epochs are counted from 0", key="epoch", value=epoch)
        self.epoch, self._current, self._looks_for_rows = epoch, None, False

    def epochs(self, epochs: int | Iterable[int]) -> Iterator[int]:
        """As range(epochs), or as given, each begun: `for epoch in rec.epochs(5):`."""
        for epoch in range(epochs) if isinstance(epochs, int) else epochs:
            self.begin_epoch(epoch)
            yield epoch

    def close(self) -> None:
        """Write what is left. A batch without any gradient is dropped."""
        self._close(failed=False)

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """As close. After an exception only batches that have all of their gradients are written."""
        self._close(failed=kind is not None)

    def _close(self, *, failed: bool) -> None:
        if not self._open():
            return
        self._closed = True
        atexit.unregister(self.close)
        pending, self._pending, self._current = self._pending, [], None
        for batch in pending:
            self._finish(batch, drop=failed and not batch.complete)
        if self.written or "model" in self._said:
            complete = self._complete and not failed and not self._damaged and self._folder.same_batches()
            self._folder.merge(self._said | {"complete": complete}, {}, self._cut)
        if self._labels.rows:
            self._folder.write_labels(self._labels, replace=self._replace_labels)
        if not self.written and not failed and (self._watched or not (self._labels.rows or "model" in self._said)):
            warnings.warn(
                f"nothing was recorded in {self._folder.folder}: no batch that `watch` saw got a gradient", stacklevel=3
            )

    def _open(self) -> bool:
        return not self._closed and os.getpid() == self._process and self._writes()

    def _writes(self) -> bool:
        """Whether this process is the one that writes."""
        if self._rank is None:
            return True
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank() == self._rank
        return int(os.environ.get("RANK", self._rank)) == self._rank  # as torchrun says before they have met

    def _batch(self, ids: Any, part: tuple[str, str]) -> _Batch:
        """The batch that this part of it belongs to."""
        current = self._current
        if current is None or part in current.parts or not current.has_ids(ids):
            self._write_finished()
            step = self._steps.get(self.epoch, 0)
            recorded = step % self._every == 0 and (self._most is None or self.written + len(self._pending) < self._most)
            current = self._current = _Batch(ids, self.epoch, step, recorded)
            self._steps[self.epoch] = step + 1
            if recorded:
                self._pending.append(current)
        current.parts.add(part)
        return current

    def _write_finished(self) -> None:
        """Batches whose graph is gone, and the oldest of many that have their gradients."""
        complete = sum(batch.complete for batch in self._pending)
        kept = []
        for batch in self._pending:
            if batch.finished or (batch.complete and complete > MOST_COMPLETE):
                self._finish(batch)
                complete -= batch.complete
            else:
                kept.append(batch)
        self._pending = kept

    def _finish(self, batch: _Batch, *, drop: bool = False) -> None:
        """Write a batch, or drop one that isn't whole."""
        problem = _not_finite(batch.tensors)
        if problem:
            self._damaged = True
            place = f"epoch {batch.epoch}, step {batch.step}"
            warnings.warn(
                f"a batch isn't recorded: NaN or infinite values in the {problem} ({place}, party {self._folder.party})",
                stacklevel=5,
            )
        has_gradient, widths, tensors = batch.has_gradient, batch.widths, batch.close()
        if drop or problem or not has_gradient:
            self.dropped += 1
            return
        said = self._said | {"batch_size": len(batch.ids) if not self.written else None, "complete": False}
        self._folder.merge(said, widths, self._cut)
        if self._folder.path(batch.epoch, batch.step).exists():
            problem = "this batch is there already: does another Recording write for this party?"
            raise UserError(problem, key="step", value=f"{batch.step} of epoch {batch.epoch}")
        self._folder.write(batch.ids, tensors, epoch=batch.epoch, step=batch.step)
        self.written += 1
        if self._looks_for_rows and self._comes_again(batch.ids):
            self._looks_for_rows = False
            warnings.warn(f"{AGAIN} (step {batch.step}, party {self._folder.party})", stacklevel=5)

    def _comes_again(self, ids: Tensor) -> bool:
        """Whether a row of the first batch comes again, as where a loop doesn't say when an epoch begins. The same batch
        twice in a row counts once. (Only who trains knows: with rows drawn with replacement, it is no new epoch.)
        """
        last, self._last = self._last, ids
        if self._first is None:
            self._first = ids[:_LOOKED_FOR].clone()
            return False
        return last is not None and not torch.equal(ids, last) and bool(torch.isin(self._first, ids).any())


def _in_backward() -> bool:
    """Whether autograd is running a forward again, as checkpointing does."""
    current = getattr(torch._C, "_current_graph_task_id", None)
    return current is not None and current() != -1


@dataclass
class _Unwritten:
    """Labels of a folder that wait to be written. waiting: id -> label. ids, labels: of labels.parquet, (n,), by id, as it
    was when it had this identity.
    """

    place: RecordingFolder
    classes: int
    waiting: dict[int, int] = field(default_factory=dict)
    ids: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    labels: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    identity: tuple[int, int] | None = None

    def refuse_others(self, ids: np.ndarray, labels: np.ndarray) -> None:
        """Raises UserError for a row that has another label already."""
        path = self.place.folder / LABELS
        if (identity := _identity(path)) != self.identity:
            there = read_labels(path, self.classes) if identity else None
            self.ids, self.labels = (np.asarray(there.ids), np.asarray(there.labels)) if there else (ids[:0], labels[:0])
            order = self.ids.argsort()
            self.ids, self.labels, self.identity = self.ids[order], self.labels[order], identity
        at, written = self._places(ids)
        before = np.where(written, self.labels[at], labels) if len(self.ids) else labels
        if self.waiting:
            rows = zip(ids.tolist(), before.tolist(), strict=True)
            before = np.array([self.waiting.get(row, label) for row, label in rows])
        if len(differ := np.flatnonzero(before != labels)):
            problem = f"it has the labels {before[differ[0]]} and {labels[differ[0]]}; a row has one label"
            raise UserError(problem, key="id", value=int(ids[differ[0]]))

    def add(self, ids: np.ndarray, labels: np.ndarray) -> None:
        new = ~self._places(ids)[1]
        self.waiting.update(zip(ids[new].tolist(), labels[new].tolist(), strict=True))
        if _WAITING * len(self.waiting) >= len(self.ids):
            self.flush()

    def _places(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(n,) where each stands in labels.parquet, and whether it does."""
        at = np.searchsorted(self.ids, ids)
        inside = at < len(self.ids)
        at[~inside] = 0
        return at, inside & (self.ids[at] == ids if len(self.ids) else False)

    def flush(self) -> None:
        if self.waiting:
            collected = CollectedLabels(self.classes)
            collected.add(list(self.waiting), list(self.waiting.values()))
            self.place.write_labels(collected)
            self.waiting = {}


_UNWRITTEN: dict[Path, _Unwritten] = {}
_ONE_AT_A_TIME = threading.RLock()


def flush_labels() -> None:
    """Write the labels that `write_batch` was given and that wait: before another process reads labels.parquet while this
    one goes on. Raises UserError where one can't be written, or a row has another label by now; all others are written.
    """
    problems = []
    with _ONE_AT_A_TIME:
        for waiting in _UNWRITTEN.values():
            try:
                waiting.flush()
            except UserError as error:
                problems.append(error)
    if problems:
        raise problems[0]


def _flush_at_the_end() -> None:
    try:
        flush_labels()
    except UserError as error:
        print(f"vflbench: labels of a recording were not written: {error}", file=sys.stderr)


def _forget() -> None:
    """In a process that was forked: what waits is its parent's, which writes it."""
    global _ONE_AT_A_TIME
    _ONE_AT_A_TIME = threading.RLock()
    _UNWRITTEN.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _of_batch(
    rows: int, embeddings: Mapping[str, Any], gradients: Mapping[str, Any], summed: Mapping[str, Any]
) -> tuple[dict[str, Tensor], dict[str, int]]:
    """`KIND/NAME` -> tensor, and layer -> width. Raises UserError where there is none, or one has not the rows or width."""
    tensors = {f"embedding/{layer}": _values(layer, h, rows) for layer, h in embeddings.items()}
    tensors |= {f"gradient/{layer}": _values(layer, g, rows) for layer, g in gradients.items()}
    layers: dict[str, int] = {}
    for name, values in tensors.items():
        layer, width = name.partition("/")[2], values.shape[1]
        if (before := layers.setdefault(layer, width)) != width:
            raise UserError(f"its embedding has {before} columns, and its gradient {width}", key="layer", value=layer)
    for name, g in summed.items():
        tensors[f"summed_gradient/{name}"] = _values(name, _tensor(name, g)[None], 1).reshape(np.shape(g))
    if not tensors:
        raise UserError("a batch has embeddings, gradients or summed_gradients", key="embeddings", value=embeddings)
    return tensors, layers


def write_batch(
    folder: Path | str,
    *,
    party: str,
    ids: ArrayLike,
    embeddings: Mapping[str, ArrayLike] | None = None,
    gradients: Mapping[str, ArrayLike] | None = None,
    summed_gradients: Mapping[str, ArrayLike] | None = None,
    numeric: ArrayLike | None = None,
    categorical: ArrayLike | None = None,
    epoch: int = 0,
    step: int | None = None,
    y: ArrayLike | None = None,
    labels: str = LABEL_PARTY,
    classes: int = 2,
    claims: Mapping[str, Any] | None = None,
    class_shares: Sequence[float] | None = None,
    model: Mapping[str, float] | None = None,
    cut: Sequence[str] = (),
    complete: bool | None = None,
    overwrite: bool = False,
) -> Path:
    """Write one batch of one party as a file of its own, and the party into manifest.json. Returns the file's path.

    ids: (n,) integers. embeddings, gradients: layer -> (n, d), or (n,), or (n, ...), which is flattened; float32, float16,
    float64 or bfloat16 (of ml_dtypes), kept as they are. summed_gradients: parameter -> its gradient, summed over the batch.
    numeric: (n, k) floats and categorical: (n, c) integers, the party's own columns. step: within the epoch; the one after
    the files that are there, if left out. labels: name of the party that holds the labels. complete: whether all training
    batches of all recorded epochs will be there. overwrite: replaces the batch if it is there; otherwise that raises
    UserError, as does what the format doesn't take.

    y: (n,) classes from 0, where this process may know them: labels.parquet is written when an eighth as many rows wait as
    it has, by `flush_labels`, by `vflbench.audit`, and when the process ends; who kills the process loses what waits.
    """
    place = RecordingFolder(folder, party)
    for key, number in {"epoch": epoch, "step": step}.items():
        if number is not None and not (isinstance(number, (int, np.integer)) and 0 <= number < MOST_STEPS):
            raise UserError(f"it is counted from 0, to {MOST_STEPS - 1:,}", key=key, value=number)
    step = place.next_step(int(epoch)) if step is None else int(step)
    made = row_ids(ids)
    tensors, layers = _of_batch(len(made), embeddings or {}, gradients or {}, summed_gradients or {})
    tensors |= _columns(numeric, categorical, len(made))
    if problem := _not_finite(tensors):
        raise UserError(f"NaN or infinite values can't be recorded ({problem}); leave the batch out", key="step", value=step)
    path = place.path(int(epoch), step)
    if path.exists() and not overwrite:
        raise UserError(
            "this batch is there already; overwrite=True replaces it", key="step", value=f"{step} of epoch {epoch}"
        )
    collected = CollectedLabels(classes)
    if y is not None:
        collected.add(made, np.asarray(y))
    with _ONE_AT_A_TIME:
        if not (place.folder / MANIFEST).exists():  # a new recording, perhaps in the place of one that was deleted
            _UNWRITTEN.pop(place.folder.resolve(), None)
        if collected.rows:
            whole = place.folder.resolve()  # the process may go to another folder
            if whole not in _UNWRITTEN:
                Finalize(None, _flush_at_the_end, exitpriority=10)  # at the end of a worker of multiprocessing as well
            waiting = _UNWRITTEN.setdefault(whole, _Unwritten(RecordingFolder(whole, party), classes))
            of_rows = [part.numpy() for part in collected.merged()]
            waiting.refuse_others(*of_rows)
    said = {"producer": "vflbench.write_batch", "classes": classes, "labels": labels, "claims": claims, "model": model}
    said |= {
        "class_shares": None if class_shares is None else [float(share) for share in class_shares],
        "complete": complete,
    }
    place.merge(
        said | {"batch_size": None if place.has_files() else len(made)}, layers, [cut] if isinstance(cut, str) else list(cut)
    )
    place.write(made, tensors, epoch=int(epoch), step=step)
    if collected.rows:
        with _ONE_AT_A_TIME:
            waiting.add(*of_rows)
    return path
