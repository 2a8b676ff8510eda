"""Records what crosses the cut in a training loop of your own, in the format of docs/reference/messages.md: `Recording` for
torch, and `write_batch` for arrays of any framework.
"""

import atexit
import os
import re
import sys
import threading
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass
from functools import partial
from multiprocessing.util import Finalize
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import ArrayLike
from torch import Tensor

from vflbench.errors import UserError
from vflbench.files import in_a_line
from vflbench.messages import recording_format as files
from vflbench.messages.tables import read_labels, write_rows

MOST_COMPLETE = 4  # batches kept in memory although they have their gradients: another backward may add to them
_WAITING = 8  # labels are written again once an eighth as many wait


def row_ids(ids: Any, *, unique: bool = True) -> Tensor:
    """ids as (n,) int64 on the CPU, in memory of its own. Raises UserError for others, and where a row occurs twice."""
    made = np.asarray(ids.detach().cpu() if isinstance(ids, Tensor) else ids)
    if made.size and (made.dtype.kind not in "iu" or (made.dtype.kind == "u" and int(made.max()) >= 2**63)):
        problem = "row ids must be integers below 2^63; give text or larger ones a number each, the same in every batch"
        raise UserError(problem, key="ids", value=made.dtype)
    if made.ndim == 2 and 1 in made.shape:
        made = made.ravel()
    if made.ndim != 1 or not made.size:
        raise UserError("there must be one id a row, (n,), and a batch has at least one row", key="ids", value=made.shape)
    values, counts = np.unique(made, return_counts=True) if unique else (made, np.ones(1))
    if counts.max() > 1:
        problem = f"a row may occur once in a batch; id {values[counts.argmax()]} is there more than once"
        raise UserError(f"{problem} ({(counts > 1).sum()} such rows)", key="ids", value=f"{len(made)} rows")
    return torch.from_numpy(made.astype(np.int64))


def tensor_of(name: str, values: Any) -> Tensor:
    """A tensor, or an array of any framework, on the CPU, in memory of its own and in its own precision."""
    if isinstance(values, Tensor):
        dense = values.detach().to_dense() if values.layout is not torch.strided else values.detach()
        return dense.to("cpu", copy=True).contiguous()
    array = np.asarray(values)
    if array.dtype.name == "bfloat16":  # of ml_dtypes, as JAX has it
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    try:
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))
    except TypeError as error:
        problem = "values are float32, float16, float64 or bfloat16, and categories int32 or int64"
        raise UserError(problem, key=name, value=array.dtype) from error


def _argument(name: str) -> str:
    """Where `KIND/NAME` was given: embedding/cut in `embeddings`, columns/numeric in `numeric`."""
    return name.partition("/")[2] if name.startswith("columns/") else f"{name.partition('/')[0]}s"


def _flat(values: Tensor) -> Tensor:
    """(n, ...) as (n, d)."""
    return values[:, None] if values.ndim == 1 else values.flatten(1) if values.ndim > 2 else values


class _Party:
    """One party's part of a folder. Several parties write to the same folder, from one process or several.

    said: keys of the manifest, as this process says them; None says nothing. cut: the layers that cross, if said. widths:
    layer -> columns, where they are known.
    """

    def __init__(self, folder: Path | str, party: str, said: Mapping[str, Any], cut: Sequence[str]):
        self.folder, self.party, self.cut = Path(folder), party, [cut] if isinstance(cut, str) else list(cut)
        shares = said["class_shares"]
        self.said = {**said, "class_shares": None if shares is None else [float(share) for share in shares]}
        self.widths: dict[str, int] = {}
        self._merged: Any = None

    def checked(self, name: str, values: Any, rows: int) -> Tensor:
        """Values of `KIND/NAME` of a batch: (n, ...) of rows, flattened, or a summed gradient, whole. Raises UserError."""
        kind, _, rest = name.partition("/")
        made = tensor_of(_argument(name), values)
        made = made if kind == "summed_gradient" else _flat(made)
        if name == "columns/categorical" and not made.is_floating_point() and made.dtype is not torch.bool:
            made = made.long()
        new = {rest: made.shape[1] or 1} if name.startswith(files.OF_LAYERS) and made.ndim == 2 else {}
        try:
            files.check_shape(name, made.shape, str(made.dtype)[6:], rows, new | self.widths, self.said["classes"])
        except ValueError as error:
            raise UserError(str(error), key=_argument(name), value=tuple(made.shape)) from error
        self.widths = new | self.widths
        return made

    def batches(self) -> dict[str, dict[tuple[int, int], Path]]:
        """Party -> epoch and step of each of its batches, as files are numbered -> its file."""
        batches_of: dict[str, dict[tuple[int, int], Path]] = {}
        for path in (self.folder / files.MESSAGES).glob("*-*.safetensors"):
            party, _, number = path.stem.rpartition("-")
            if number.isdecimal():
                batches_of.setdefault(party, {})[divmod(int(number), files.MOST_STEPS)] = path
        return batches_of

    def has_all(self) -> bool:
        """Whether every party has the same batches, with no step left out of an epoch."""
        first, *others = map(set, self.batches().values() or [{}])
        last = dict(sorted(first))
        return sum(last.values()) + len(last) == len(first) and all(of_one == first for of_one in others)

    def open(self, *, overwrite: bool, go_on: bool) -> Iterable[tuple[int, int]]:
        """Epoch and step of each batch that stays. Raises UserError where messages of this party are there already, unless
        they are to be replaced or continued.
        """
        self.check({**self.said, "parties": {self.party: {"layers": {}}}})
        if overwrite and go_on:
            problem = "overwrite=True deletes what is there and go_on=True keeps it: give one"
            raise UserError(problem, key="go_on", value=True)
        if (self.folder / "run.json").exists():
            raise UserError("vflbench train recorded a run here: take another folder", key="recording", value=self.folder)
        there = self.batches().get(self.party, {})
        if there and not overwrite and not go_on:
            existing = f"there are {len(there)} files of party {self.party} already"
            problem = f"{existing}; go_on=True adds to them, overwrite=True deletes them"
            raise UserError(problem, key="recording", value=self.folder)
        left = re.compile(rf"\.{re.escape(self.party)}-\d+\.safetensors\..*\.tmp")  # by a process that was killed
        for path in [path for path in (self.folder / files.MESSAGES).glob(".*") if left.fullmatch(path.name)]:
            path.unlink()
        if overwrite and (self.folder / files.MANIFEST).exists():
            with self.locked():
                content = self.manifest()
                content["parties"].pop(self.party, None)
                if content["parties"]:
                    files.write_manifest(self.folder, self.check(content))
                else:
                    (self.folder / files.MANIFEST).unlink()
        for path in there.values() if overwrite else ():
            path.unlink()
        self.widths = self.manifest()["parties"].get(self.party, {"layers": {}})["layers"]
        return () if overwrite else there

    def manifest(self) -> dict[str, Any]:
        """As it is in the folder."""
        return files.manifest_in(self.folder).plain() if (self.folder / files.MANIFEST).exists() else {"parties": {}}

    def merge(self, tensors: Mapping[str, Tensor], rows: int = 0, **said: Any) -> bool:
        """Write this party and what is said of the recording into the manifest, beside what others have said.

        tensors: of a batch; their layers come after those there. rows: of this batch; those of the first batch are written.
        said: more keys. `model` is added to. Where no party has a layer yet, nothing is written.

        Returns whether there was no manifest before. Raises UserError where another party, or an earlier process, said
        otherwise.
        """
        said = {key: value for key, value in (self.said | said).items() if value is not None}
        layers = {name.partition("/")[2]: h.shape[1] for name, h in tensors.items() if name.startswith(files.OF_LAYERS)}
        if (whole := (said, layers)) == self._merged:
            return False
        with self.locked():
            before = self.manifest()
            entry = before["parties"].get(self.party, {"layers": {}, "cut": []})
            for layer, width in layers.items():
                if (there := entry["layers"].get(layer, width)) != width:
                    problem = f"it has {width} columns here, and {there} in {files.MANIFEST}"
                    raise UserError(problem, key="layer", value=layer)
            content = {"batch_size": rows or None} | before | said
            content["model"] = before.get("model", {}) | said.get("model", {})
            entry = {"layers": entry["layers"] | layers, "cut": self.cut or entry["cut"]}
            if entry["layers"]:
                content["parties"] = dict(sorted({**before["parties"], self.party: entry}.items()))  # whoever came first
            if not content["parties"]:
                return False
            plain = (manifest := self.check(content)).plain()
            for key in ("classes", "labels", "class_shares", "claims"):
                if before.get(key) and plain.get(key) != before[key]:
                    raise UserError(f"{files.MANIFEST} in this folder says {before[key]}", key=key, value=plain.get(key))
            if plain != before:
                files.write_manifest(self.folder, manifest)
        self._merged = whole
        return len(before) == 1

    def check(self, content: Mapping[str, Any]) -> files.RecordingManifest:
        """Raises UserError where this can't stand in a manifest."""
        try:
            return files.manifest_of({**content, "format": files.MESSAGES_FORMAT})
        except ValueError as error:
            raise UserError(str(error), key="recording", value=self.folder, see=files.FORMAT_PAGE) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Others wait."""
        with self.disk():
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / f".{files.MANIFEST}.lock"):
                yield

    @contextmanager
    def disk(self) -> Iterator[None]:
        """A full disk is one line."""
        try:
            yield
        except OSError as error:
            raise UserError(f"it can't be written: {in_a_line(error)}", key="recording", value=self.folder) from None

    def write(self, ids: Tensor, tensors: Mapping[str, Tensor], *, epoch: int, step: int, overwrite: bool = False) -> Path:
        """A batch, as a file of its own. Raises UserError where it is there, unless it is to be replaced."""
        if not overwrite and files.batch_path(self.folder, self.party, epoch, step).exists():
            problem = "this batch is there already: does another Recording write for this party?"
            problem += " write_batch(overwrite=True) replaces it"
            raise UserError(problem, key="step", value=f"{step} of epoch {epoch}")
        with self.disk():
            return files.write_batch_file(self.folder, self.party, ids, tensors, epoch=epoch, step=step)


class _Labels:
    """The labels of a folder, by row: those that this process was given, and those that others have written.

    replace: whether labels.parquet, as it is now, is to be replaced and not added to.
    """

    def __init__(self, party: _Party, *, replace: bool = False):
        self._party, self._path = party, party.folder / files.LABELS
        self._seen = self._identity() if replace else None  # the file as it was when it was read or written
        self._labels: dict[int, int] = {}
        self._written = 0  # how many of these the file has
        self._lock = threading.RLock()

    def _identity(self) -> tuple[int, int] | None:
        """Changes when the file is written again."""
        stat = self._path.stat() if self._path.exists() else None
        return stat and (stat.st_ino, stat.st_mtime_ns)

    def add(self, ids: Tensor, labels: np.ndarray) -> None:
        """Raises UserError for a row that has another label already.

        labels.parquet is written where an eighth as many labels wait as it has.
        """
        with self._lock:
            if not self._labels:
                self._read()
            self._take(ids.numpy(), labels)
            if _WAITING * (len(self._labels) - self._written) >= self._written:
                self.flush()

    def _read(self) -> None:
        """What another process, or party, has written since."""
        if (seen := self._identity()) not in (None, self._seen):
            there = read_labels(self._path, self._party.said["classes"])
            if bool(there.canary.any()):
                raise UserError("it names canaries, which can't be added to", key="recording", value=self._path)
            self._take(there.ids, there.labels)
            self._seen = seen

    def _take(self, ids: np.ndarray, labels: np.ndarray) -> None:
        new: dict[int, int] = {}
        for row, label in zip(ids.tolist(), labels.tolist(), strict=True):
            if (before := self._labels.get(row, new.setdefault(row, label))) != label:
                raise UserError(f"it has the labels {before} and {label}; a row has one label", key="id", value=row)
        self._labels |= new

    def flush(self) -> None:
        """Write those that wait."""
        with self._lock:
            if len(self._labels) == self._written:
                return
            with self._party.locked():
                self._read()
                ids, labels = (np.fromiter(of, np.int64, len(self._labels)) for of in (self._labels, self._labels.values()))
                order = ids.argsort()
                write_rows(self._path, {"id": ids[order], "label": labels[order]})
                self._written, self._seen = len(ids), self._identity()


def recorded_classes(labels: Any, rows: int, classes: int) -> np.ndarray:
    """(n,) int64. labels: (n,) or (n, 1). Raises UserError for what is no class."""
    given = tensor_of("labels", labels)
    if given.shape not in ((rows,), (rows, 1)):
        raise UserError(f"there must be one label a row, ({rows},)", key="labels", value=tuple(given.shape))
    whole = given.flatten().long()
    wrong = (whole != given.flatten()) | (whole < 0) | (whole >= classes)
    if bool(wrong.any()):
        problem = f"labels of {classes} `classes` are whole numbers from 0 to {classes - 1}, and none is missing"
        raise UserError(problem, key="labels", value=given.flatten()[wrong][0].item())
    return whole.numpy()


class _Graph:
    """Lives as long as a graph that may bring a gradient: only the hook holds it."""


class _Batch:
    """A batch that is being recorded: layers as they were sent, and the gradients that came back so far.

    given: ids as the user holds them. recorded: whether values are kept; else it only says where a batch begins and ends.
    parts: what has been given of it.
    """

    def __init__(self, party: _Party, given: Any, epoch: int, step: int, *, recorded: bool):
        self.epoch, self.step, self.recorded, self._party, self._given = epoch, step, recorded, party, given
        self.parts: set[str] = set()
        self.ids = row_ids(given, unique=recorded)
        self.tensors: dict[str, Tensor] = {}
        self._graphs: dict[str, weakref.ref[_Graph]] = {}  # of the layers that ask for a gradient
        self._closed = False

    def has_ids(self, ids: Any) -> bool:
        """Whether these are the batch's rows, in its order."""
        return ids is self._given or torch.equal(self.ids, row_ids(ids, unique=False))

    def put(self, name: str, values: Any) -> None:
        """`KIND/NAME` -> values (n, ...), one row an id."""
        self.tensors[name] = self._party.checked(name, values, len(self.ids))

    def watch(self, layer: str, h: Tensor) -> None:
        """h: (n, ...), one row an id."""
        if not self.recorded:
            return
        if not isinstance(h, Tensor):
            problem = "it takes one tensor; watch each tensor of a dict or tuple as a layer of its own"
            raise UserError(problem, key="watch", value=type(h).__name__)
        self.put(f"embedding/{layer}", h)
        if h.requires_grad:
            graph = _Graph()
            self._graphs[layer] = weakref.ref(graph)
            h.register_hook(partial(self._add, f"gradient/{layer}", graph))

    def _add(self, name: str, _alive: _Graph, gradient: Tensor) -> None:
        if not self._closed:
            made = _flat(tensor_of("gradients", gradient))
            self.tensors[name] = self.tensors[name] + made if name in self.tensors else made

    @property
    def _arrived(self) -> list[bool]:
        """Whether each layer that asks for a gradient has one; with one more, False, where no layer was sent."""
        sent = any(name.startswith("embedding/") for name in self.tensors)
        return [f"gradient/{layer}" in self.tensors for layer in self._graphs] + [False] * (not sent)

    @property
    def complete(self) -> bool:
        return all(self._arrived)

    @property
    def has_gradient(self) -> bool:
        """Whether a layer has a gradient, or none asks for one."""
        return any(self._arrived or [True])

    @property
    def finished(self) -> bool:
        """Whether no gradient can come any more, as the graphs are gone."""
        return all(graph() is None for graph in self._graphs.values())

    def close(self) -> dict[str, Tensor]:
        """Its values, for the file. Gradients that come later are left out; hooks may live longer."""
        self._closed, made, self.tensors = True, self.tensors, {}
        return made


@dataclass(eq=False, repr=False)
class Recording:
    """What one party sends and receives, batch by batch, written to a folder that `vflbench audit` reads.

        with Recording("recorded", party="media") as rec:   # or rec.close() at the end
            for epoch in rec.epochs(5):
                for ids, x, y in batches:
                    h = rec.watch(bottom(x), ids=ids)
                    rec.label(ids, y)                       # where this process has them
                    loss_of(top(h), y).backward()

    A batch is written, as a file of its own, once nothing can add to its gradients any more. Values keep their precision.

    Args:
        folder: one for all parties.
        party: whose messages are recorded.
        labels: the party that holds the labels.
        classes: number of classes, at least 2.
        every: records one batch in this many, from 1, the first of each epoch among them.
        most: the most batches that this object records, from 1; None sets no limit.
        claims: what is promised about labels, as {"label_dp": {"eps": 1.0, "fresh": False}}.
        class_shares: share of each class among all training rows, where the attacker may know them; they add up to 1.
        cut: names of the layers that cross, where it isn't the last one that is watched.
        complete: whether every training batch of every recorded epoch will have been watched; which only you can know.
        go_on: adds to what the party has recorded here. Without this and without `overwrite`, it is refused.
        overwrite: deletes first what the party has recorded here.
        rank: with torch.distributed only the process of this rank writes; None: every process does, as where each is another
            party.
    """

    folder: Path | str
    party: str
    _: KW_ONLY
    labels: str = files.LABEL_HOLDER
    classes: int = 2
    every: int = 1
    most: int | None = None
    claims: Mapping[str, Any] | None = None
    class_shares: Sequence[float] | None = None
    cut: Sequence[str] = ()
    complete: bool = False
    go_on: bool = False
    overwrite: bool = False
    rank: int | None = 0

    def __post_init__(self) -> None:
        for key, value in {"every": self.every, "most": 1 if self.most is None else self.most}.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UserError("a number of batches is an integer from 1", key=key, value=value)
        if self.complete and (self.every > 1 or self.most is not None):
            raise UserError("a sample of the batches isn't complete", key="complete", value=True)
        self.epoch = self.written = self.dropped = 0  # written, dropped: batches
        self._watched = self._labelled = self._closed = self._damaged = False  # damaged: a training batch was left out
        said = {name: getattr(self, name) for name in ("classes", "labels", "claims", "class_shares")}
        said |= {"producer": f"vflbench.Recording, torch {torch.__version__}", "complete": False}
        self._steps: dict[int, int] = {}  # epoch -> batches begun
        self._pending: list[_Batch] = []
        self._current: _Batch | None = None
        self._process, self._party = os.getpid(), _Party(self.folder, self.party, said, self.cut)
        if self._writes():
            there = sorted(self._party.open(overwrite=self.overwrite, go_on=self.go_on))
            self._steps = {epoch: step + 1 for epoch, step in there}
            self._labels = _Labels(self._party, replace=self.overwrite)
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
        if epoch not in (None, self.epoch):
            self.begin_epoch(epoch)
        self._batch(ids, f"embedding/{layer}").watch(layer, h)
        return h

    def columns(self, ids: Any, numeric: Any = None, categorical: Any = None) -> None:
        """The party's own columns of a batch's rows. numeric: (n, k) floats. categorical: (n, c) integers from 0."""
        if torch.is_grad_enabled() and self._open():
            batch = self._batch(ids, "columns")
            for kind, values in {"numeric": numeric, "categorical": categorical}.items():
                if values is not None and batch.recorded:
                    batch.put(f"columns/{kind}", values)

    def label(self, ids: Any, labels: Any) -> None:
        """labels: (n,) or (n, 1) classes from 0. For who may see both sides: it goes to labels.parquet."""
        if self._open():
            self._labelled, rows = True, row_ids(ids, unique=False)
            self._labels.add(rows, recorded_classes(labels, len(rows), self.classes))

    def note(self, **figures: float) -> None:
        """Figures of the finished model to compare with, each from 0 to 1: test_auc=0.79, train_auc=0.83."""
        if self._open():
            model = self._party.said.get("model", {}) | {name: float(value) for name, value in figures.items()}
            said = self._party.said | {"model": model}
            self._party.check({**said, "parties": {self.party: {"layers": {}}}})
            self._party.said = said

    def begin_epoch(self, epoch: int | None = None) -> None:
        """Batches from here on belong to this epoch; to the next one, if left out. Without it all are of epoch 0."""
        epoch = self.epoch + 1 if epoch is None else epoch
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
            raise UserError("epochs are counted from 0", key="epoch", value=epoch)
        self.epoch, self._current = epoch, None

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
        noted = "model" in self._party.said
        if self.written or noted:
            complete = self.complete and not failed and not self._damaged and self._party.has_all()
            self._party.merge({}, complete=complete)
        self._labels.flush()
        if not self.written and not failed and (self._watched or not (self._labelled or noted)):
            warnings.warn(f"nothing was recorded in {self.folder}: no batch that `watch` saw got a gradient", stacklevel=3)

    def _open(self) -> bool:
        return not self._closed and os.getpid() == self._process and self._writes()

    def _writes(self) -> bool:
        """Whether this process is the one that writes."""
        if self.rank is None:
            return True
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank() == self.rank
        return int(os.environ.get("RANK", self.rank)) == self.rank  # as torchrun says before they have met

    def _batch(self, ids: Any, part: str) -> _Batch:
        """The batch that this part of it belongs to."""
        current = self._current
        if current is None or part in current.parts or not current.has_ids(ids):
            self._write_finished()
            step = self._steps.get(self.epoch, 0)
            recorded = step % self.every == 0 and (self.most is None or self.written + len(self._pending) < self.most)
            current = self._current = _Batch(self._party, ids, self.epoch, step, recorded=recorded)
            self._steps[self.epoch] = step + 1
            if recorded:
                self._pending.append(current)
        current.parts.add(part)
        return current

    def _write_finished(self) -> None:
        """Batches whose graph is gone, and the oldest of many that have their gradients."""
        complete = sum(batch.complete for batch in self._pending)
        for batch in list(self._pending):
            if batch.finished or (batch.complete and complete > MOST_COMPLETE):
                complete -= batch.complete
                self._pending.remove(batch)
                self._finish(batch)

    def _finish(self, batch: _Batch, *, drop: bool = False) -> None:
        """Write a batch, or drop one that isn't whole."""
        has_gradient, tensors = batch.has_gradient, batch.close()
        try:
            files.check_values(batch.ids, tensors)
        except ValueError as error:
            self._damaged = drop = True
            place = f"epoch {batch.epoch}, step {batch.step}, party {self.party}"
            warnings.warn(f"a batch isn't recorded: {error} ({place})", stacklevel=5)
        if drop or not has_gradient:
            self.dropped += 1
            return
        self._party.merge(tensors, len(batch.ids))
        self._party.write(batch.ids, tensors, epoch=batch.epoch, step=batch.step)
        self.written += 1


def _in_backward() -> bool:
    """Whether autograd is running a forward again, as checkpointing does."""
    current = getattr(torch._C, "_current_graph_task_id", None)
    return current is not None and current() != -1


_UNWRITTEN: dict[Path, _Labels] = {}  # of write_batch, by folder


def flush_labels() -> None:
    """Write the labels that `write_batch` was given and that wait: before another process reads labels.parquet while this
    one goes on. Raises UserError where one can't be written, or a row has another label by now; all others are written.
    """
    with ExitStack() as every:
        for labels in _UNWRITTEN.values():
            every.callback(labels.flush)


def _flush_at_the_end() -> None:
    try:
        flush_labels()
    except UserError as error:
        print(f"vflbench: labels of a recording were not written: {error}", file=sys.stderr)


if hasattr(os, "register_at_fork"):  # in a process that was forked, what waits is its parent's, which writes it
    os.register_at_fork(after_in_child=_UNWRITTEN.clear)


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
    labels: str = files.LABEL_HOLDER,
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
    for key, number in {"epoch": epoch, "step": step}.items():
        if number is not None and not (isinstance(number, (int, np.integer)) and 0 <= number < files.MOST_STEPS):
            raise UserError(f"it is counted from 0, to {files.MOST_STEPS - 1:,}", key=key, value=number)
    said = {"classes": classes, "labels": labels, "claims": claims, "class_shares": class_shares, "model": model}
    said |= {"producer": "vflbench.write_batch", "complete": complete}
    place = _Party(Path(folder).resolve(), party, said, cut)  # the process may go to another folder
    rows, epoch = row_ids(ids), int(epoch)
    of_kinds = {"embedding": embeddings, "gradient": gradients, "summed_gradient": summed_gradients}
    given = {f"{kind}/{name}": values for kind, of_kind in of_kinds.items() for name, values in (of_kind or {}).items()}
    if not given:
        raise UserError("a batch has embeddings, gradients or summed_gradients", key="embeddings", value=embeddings)
    columns = {"columns/numeric": numeric, "columns/categorical": categorical}
    given |= {name: values for name, values in columns.items() if values is not None}
    tensors = {name: place.checked(name, values, len(rows)) for name, values in given.items()}
    if step is None:
        step = max((at + 1 for of, at in place.batches().get(party, ()) if of == epoch), default=0)
    try:
        files.check_values(rows, tensors)
    except ValueError as error:
        raise UserError(f"{error}; leave the batch out, step {step}", key=_argument(str(error).partition(":")[0])) from error
    of_rows = None if y is None else recorded_classes(y, len(rows), classes)
    if place.merge(tensors, len(rows)):
        _UNWRITTEN.pop(place.folder, None)  # of a recording that was deleted
    if of_rows is not None:
        if place.folder not in _UNWRITTEN:
            Finalize(None, _flush_at_the_end, exitpriority=10)  # at the end of a worker of multiprocessing as well
        _UNWRITTEN.setdefault(place.folder, _Labels(place)).add(rows, of_rows)
    return place.write(rows, tensors, epoch=epoch, step=int(step), overwrite=overwrite)
