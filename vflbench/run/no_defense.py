"""What no defense can do: new rows ranked by whoever has the embeddings and k labelled rows, beside the model itself."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from vflbench.attacks.completion import completed
from vflbench.attacks.directions import add_moments
from vflbench.data.rows import TrainTest
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.messages.facts import Gradients, LocalModel, PartyFeatures
from vflbench.numerics.auc import auc
from vflbench.numerics.directions import column_vectors, leading_components, logit_direction, without_loudness
from vflbench.run.experiment import Experiment
from vflbench.run.setup import build_run

COLUMNS_ONLY = "own columns"
MODEL, NO_LABEL = "the model", 0
_ROWS = 20_000

Readings = dict[tuple[str, str, int | str], float]
"""(row of the table, split, known rows or MODEL) -> AUC."""


@dataclass(frozen=True)
class TrainedNetwork:
    """A trained network as its non-label party has it. values: row of the table -> (n, d) of n rows, test rows first; tests:
    how many. scores: of the model, and of a reader without labels, (n,) each. share: of positives.
    """

    values: Mapping[str, Tensor]
    labels: Tensor
    tests: int
    scores: Mapping[int | str, Tensor]
    share: float

    def aucs(self, scores: Tensor, left_out: Tensor | None = None) -> dict[str, float]:
        kept = torch.ones(len(scores), dtype=torch.bool)
        if left_out is not None:
            kept[left_out] = False
        test, train = slice(0, self.tests), kept.nonzero()[self.tests :, 0]
        return {"test": auc(scores[test], self.labels[test]), "train": auc(scores[train], self.labels[train])}


def readings(experiment: Experiment, name: str, known: Sequence[int], draws: int) -> Readings:
    """Train the experiment's network, and read it. name: of the row; own columns are read where it is `none`."""
    generators = Generators(experiment.settings.seed)
    read = _trained(experiment, experiment.dataset.load(generators["data"]), generators)
    measured: Readings = {}
    for column, scores in read.scores.items():
        for split, value in read.aucs(scores).items():
            measured[name, split, column] = max(value, 1 - value) if column == NO_LABEL else value
    rows = {name: read.values["embeddings"], **({COLUMNS_ONLY: read.values[COLUMNS_ONLY]} if name == "none" else {})}
    for k in known:
        drawn = list(labelled(read, k, draws, generators["labelled rows"]))
        for row, values in rows.items():
            each = [read.aucs(head(values, read, places), places) for places in drawn]
            for split in ("test", "train"):
                measured[row, split, k] = sum(aucs[split] for aucs in each) / len(each)
    return measured


def _trained(experiment: Experiment, data: TrainTest, generators: Generators) -> TrainedNetwork:
    """What the first non-label party makes of rows after all epochs, and what the gradients of the last one say."""
    with tempfile.TemporaryDirectory() as folder:
        run = build_run(experiment, data, generators, Path(folder))
    session, size, epochs = run.session, run.auditor.group, run.epochs
    party, (cut, *_) = next(iter(session.cut_layers().items()))
    moments: dict[str, tuple[Tensor, Tensor]] = {}
    for epoch in range(epochs):
        watch = frozenset({Gradients}) if epoch + 1 == epochs else frozenset()
        for step, ids in enumerate(session.batches(data.train, size, generators["batches"], epoch)):
            facts = session.round(ids, epoch=epoch, step=step, watch=watch).facts
            if watch:
                add_moments(moments, cast(Gradients, facts[party][Gradients]).layers)
    new, sample = data.test.sample(_ROWS), data.train.sample(_ROWS)
    ids, labels = torch.cat([new.ids, sample.ids]), torch.cat([new.labels, sample.labels])
    known = session.facts(ids, frozenset({LocalModel, PartyFeatures}))[party]
    h, columns = cast(LocalModel, known[LocalModel]).embed(ids)[cut], cast(PartyFeatures, known[PartyFeatures])
    share = float(sample.labels.double().mean())
    u = logit_direction(*moments[cut], share)
    centred = h.double() - h.double().mean(dim=0)
    spreads, vectors = leading_components(centred, 2)
    scores: dict[int | str, Tensor] = {
        MODEL: torch.cat([session.predict(some) for some in ids.split(8192)])[:, 0],
        NO_LABEL: centred @ without_loudness(u.double(), spreads.double(), vectors.double()),
    }
    values = {"embeddings": h, COLUMNS_ONLY: column_vectors(columns.numeric, columns.categorical)}
    return TrainedNetwork(values, labels, len(new), scores, share)


def labelled(read: TrainedNetwork, k: int, draws: int, rng: torch.Generator) -> Iterator[Tensor]:
    """Places of k training rows, of which at least one is positive and one negative. Raises UserError if there are none."""
    if len(read.labels[read.tests :].unique()) != 2:
        raise UserError("it needs training rows of two classes", key="dataset")
    while draws:
        places = read.tests + torch.randperm(len(read.labels) - read.tests, generator=rng)[:k]
        if 0 < int(read.labels[places].sum()) < len(places):
            draws -= 1
            yield places


def head(values: Tensor, read: TrainedNetwork, places: Tensor) -> Tensor:
    """Log odds of all rows by the labels of some."""
    return completed([[values[places]]], read.labels[places], [[values]], (1 - read.share, read.share))
