"""Records what crosses the cut in a training loop of your own, in the format of docs/reference/messages.md."""

import atexit
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from vflbench.errors import UserError
from vflbench.messages.collected_labels import CollectedLabels
from vflbench.messages.recording_folder import RecordingFolder
from vflbench.messages.recording_format import LABEL_PARTY
from vflbench.messages.repeated_rows import AGAIN, RepeatedRows
from vflbench.messages.watched_batch import WatchedBatch

MOST_COMPLETE = 4  # batches kept in memory although they have their gradients: another backward may add to them


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
        self._pending: list[WatchedBatch] = []
        self._repeated: RepeatedRows | None = RepeatedRows()  # until an epoch is begun
        self._current: WatchedBatch | None = None
        self._widths: dict[str, int] = {}  # of layers
        self._closed = False
        self._folder = RecordingFolder(folder, party)
        if self._writes():
            self._folder.require_manifest(self._said)
            self._folder.open(overwrite=overwrite, go_on=go_on)
            if go_on:
                self._steps, self._widths = self._folder.next_steps(), self._folder.widths()
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
            self._repeated = None
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
                batch.add_columns(numeric, categorical)

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
        self.epoch, self._current, self._repeated = epoch, None, None

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
        if self._labels:
            self._folder.write_labels(self._labels, replace=self._replace_labels)
        if not self.written and not failed and (self._watched or not (self._labels or "model" in self._said)):
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

    def _batch(self, ids: Any, part: tuple[str, str]) -> WatchedBatch:
        """The batch that this part of it belongs to."""
        current = self._current
        if current is None or part in current.parts or not current.has_ids(ids):
            self._write_finished()
            step = self._steps.get(self.epoch, 0)
            recorded = step % self._every == 0 and (self._most is None or self.written + len(self._pending) < self._most)
            current = self._current = WatchedBatch(ids, self.epoch, step, recorded)
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

    def _finish(self, batch: WatchedBatch, *, drop: bool = False) -> None:
        """Write a batch, or drop one that isn't whole."""
        problem = batch.problem()
        if problem:
            self._damaged = True
            place = f"epoch {batch.epoch}, step {batch.step}"
            warnings.warn(f"a batch isn't recorded: {problem} ({place}, party {self._folder.party})", stacklevel=5)
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
        if self._repeated is not None and self._repeated.add(batch.ids):
            self._repeated = None
            warnings.warn(f"{AGAIN} (step {batch.step}, party {self._folder.party})", stacklevel=5)


def _in_backward() -> bool:
    """Whether autograd is running a forward again, as checkpointing does."""
    current = getattr(torch._C, "_current_graph_task_id", None)
    return current is not None and current() != -1
