"""What no defense can do: new rows ranked by whoever has the embeddings and k labelled rows, beside the model itself."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from vflbench.attacks.completion import completed
from vflbench.attacks.logit_directions import LogitDirections
from vflbench.data.rows import TrainTest
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.messages.facts import Gradients, OwnColumns, OwnModel
from vflbench.numerics.auc import auc
from vflbench.numerics.column_vectors import column_vectors
from vflbench.numerics.eigen import leading_components
from vflbench.numerics.logit_direction import without_loudness
from vflbench.protocols.base import Session
from vflbench.run.experiment import Experiment
from vflbench.run.settings import set_threads
from vflbench.run.setup import seat

OWN = "own columns"
MODEL, NO_LABEL = "the model", 0
_ROWS = 20_000
_SPLITS = ("test", "train")

Readings = dict[tuple[str, str, int | str], float]
"""(row of the table, split, known rows or MODEL) -> AUC."""


@dataclass(frozen=True)
class Read:
    """A trained network as its non-label party has it. values: (n, d) of `ids`, test rows first; tests: how many."""

    values: Mapping[str, Tensor]
    ids: Tensor
    labels: Tensor
    tests: int
    without_labels: Tensor
    share: float

    def aucs(self, scores: Tensor, left_out: Tensor | None = None) -> dict[str, float]:
        kept = torch.ones(len(scores), dtype=torch.bool)
        if left_out is not None:
            kept[left_out] = False
        test, train = slice(0, self.tests), kept.clone()
        train[: self.tests] = False
        return {"test": auc(scores[test], self.labels[test]), "train": auc(scores[train], self.labels[train])}


def readings(experiment: Experiment, name: str, known: Sequence[int], draws: int) -> Readings:
    """Train the experiment's network, and read it. name: of the row; own columns are read where it is `none`."""
    generators = Generators(experiment.settings.seed)
    data = experiment.dataset.load(generators["data"])
    session, rising = trained(experiment, data, generators)
    read = as_seen(session, data, rising)
    found: Readings = {}
    for split, value in read.aucs(torch.cat([session.predict(ids) for ids in read.ids.split(8192)])[:, 0]).items():
        found[name, split, MODEL] = value
    for split, value in read.aucs(read.without_labels).items():
        found[name, split, NO_LABEL] = max(value, 1 - value)
    rows = {name: read.values["embeddings"], **({OWN: read.values[OWN]} if name == "none" else {})}
    for k in known:
        drawn = list(labelled(read, k, draws, generators["labelled rows"]))
        for row, values in rows.items():
            each = [read.aucs(head(values, read, places), places) for places in drawn]
            for split in _SPLITS:
                found[row, split, k] = sum(aucs[split] for aucs in each) / len(each)
    return found


def trained(experiment: Experiment, data: TrainTest, generators: Generators) -> tuple[Session, LogitDirections]:
    """The session after all epochs, and what the gradients of the last one say at the cut."""
    settings = experiment.settings
    size = experiment.protocol.round_size(settings.batch_size, data)
    epochs = experiment.protocol.choose_epochs(settings.epochs, data)
    set_threads(size, experiment.model.width)
    with tempfile.TemporaryDirectory() as folder:
        session = seat(experiment, data, generators, size, epochs, Path(folder)).session
    party, rising = next(iter(session.cut_layers())), LogitDirections()
    for epoch in range(epochs):
        watch = frozenset({Gradients}) if epoch + 1 == epochs else frozenset()
        for step, ids in enumerate(session.batches(data.train, size, generators["batches"], epoch)):
            facts = session.round(ids, epoch=epoch, step=step, watch=watch).facts
            if watch:
                gradients = facts[party][Gradients]
                assert isinstance(gradients, Gradients)  # nosec B101
                rising.add(gradients.layers)
    return session, rising


def as_seen(session: Session, data: TrainTest, rising: LogitDirections) -> Read:
    """What the first non-label party makes of rows. Raises ValueError if no gradient reached it in the last epoch."""
    party, (cut, *_) = next(iter(session.cut_layers().items()))
    new, sample = data.test.sample(_ROWS), data.train.sample(_ROWS)
    ids, labels = torch.cat([new.ids, sample.ids]), torch.cat([new.labels, sample.labels])
    facts = session.facts(ids, frozenset({OwnModel, OwnColumns}))[party]
    model, columns = facts[OwnModel], facts[OwnColumns]
    assert isinstance(model, OwnModel)  # nosec B101
    assert isinstance(columns, OwnColumns)  # nosec B101
    h = model.embed(ids)[cut]
    share = float(sample.labels.double().mean())
    u = rising.of(cut, share)
    if u is None:
        raise ValueError("no gradient was sent in the last epoch")
    centred = h.double() - h.double().mean(dim=0)
    spreads, vectors = leading_components(centred, 2)
    scores = centred @ without_loudness(u.double(), spreads.double(), vectors.double())
    return Read(
        {"embeddings": h, OWN: column_vectors(columns.numeric, columns.categorical)}, ids, labels, len(new), scores, share
    )


def labelled(read: Read, k: int, draws: int, rng: torch.Generator) -> Iterator[Tensor]:
    """Places of k training rows, of which at least one is positive and one negative. Raises UserError if there are none."""
    if len(read.labels[read.tests :].unique()) != 2:
        raise UserError("it needs training rows of two classes", key="dataset")
    while draws:
        places = read.tests + torch.randperm(len(read.ids) - read.tests, generator=rng)[:k]
        if 0 < int(read.labels[places].sum()) < len(places):
            draws -= 1
            yield places


def head(values: Tensor, read: Read, places: Tensor) -> Tensor:
    """Log odds of all rows by the labels of some."""
    return completed([[values[places]]], read.labels[places], [[values]], (1 - read.share, read.share))
