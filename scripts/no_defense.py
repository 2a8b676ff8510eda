"""What no defense can do: new rows ranked by whoever has the embeddings and k labelled rows, beside the model itself.

    python scripts/no_defense.py dataset=criteo dataset.path=train.txt.gz --picture no_defense.png
    python scripts/no_defense.py --seeds 0 --draws 3           # quickly, on synthetic rows

The label party has no columns of its own. For each defense and seed it trains one network; the others are options of
`vflbench train`. Then it takes k training rows at random, of both classes, fits the head of `completion` to their labels and
to what the non-label party's own network makes of them, and ranks the test rows, on which nobody trained, and training
rows, up to 20,000 each. k = 0 is `directions`: no label, but the gradients of the last epoch, two-sided. "Own columns" is
the same head on the party's raw columns, which takes no label party at all.

Prints two Markdown tables, of test rows and of training rows: AUC, means over the seeds with Student's 95 % intervals of
means over --draws draws of labelled rows. With --picture it also draws a PNG or SVG of the first.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from hydra import compose, initialize_config_dir
from torch import Tensor

import vflbench.cli.resolvers  # noqa: F401  (that configs use)
from vflbench.attacks.completion import completed
from vflbench.attacks.logit_directions import LogitDirections
from vflbench.cli.build import build
from vflbench.data.rows import TrainTest
from vflbench.generators import Generators
from vflbench.messages.facts import Gradients, OwnColumns, OwnModel
from vflbench.numerics.auc import auc
from vflbench.numerics.eigen import leading_components
from vflbench.numerics.interval import UNIT, Interval, interval_text, over_runs
from vflbench.numerics.logit_direction import without_loudness
from vflbench.places import config_folder
from vflbench.protocols.base import Session
from vflbench.results.report.chart import Chart, Level, Point, Series, exact
from vflbench.results.report.raster import write_png
from vflbench.results.report.svg import svg
from vflbench.run.experiment import Experiment
from vflbench.run.machine import set_threads
from vflbench.run.setup import seat
from vflbench.run.supply import as_vectors

DEFENSES = {
    "none": (),
    "dcor, alpha_d 0.02": ("defense=dcor", "defense.dcor.alpha_d=0.02"),
    "label_gdp, mu 0.661": ("defense=label_gdp", "defense.label_gdp.mu=0.661"),
    "zero_sum, eps 0.753": ("defense=label_dp", "defense.label_dp.mechanism=zero_sum", "defense.label_dp.eps=0.753"),
    "label_dp, eps 0.753": ("defense=label_dp", "defense.label_dp.eps=0.753"),
}
OWN = "own columns"
KNOWN = (5, 10, 20, 50, 100, 200, 400, 1000)
ROWS = 20_000
SPLITS = ("test", "train")
MODEL, NO_LABEL = "the model", 0

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("options", nargs="*", help="of vflbench train, as dataset=criteo epochs=2")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--draws", type=int, default=10, help="of labelled rows, for each number of them")
    parser.add_argument("--known", type=int, nargs="+", default=list(KNOWN))
    parser.add_argument("--picture", type=Path, help="the file to draw: .png or .svg")
    options = parser.parse_args()
    runs = []
    for seed in options.seeds:
        found: Readings = {}
        for name, overrides in DEFENSES.items():
            experiment = configured(*options.options, *overrides, f"seed={seed}")
            found |= readings(experiment, name, options.known, options.draws)
            print(f"seed {seed}, {name}: test AUC {found[name, 'test', MODEL]:.4f}", file=sys.stderr, flush=True)
        runs.append(found)
    means = {key: over_runs((run[key] for run in runs), UNIT) for key in runs[0]}
    for split in SPLITS:
        print(f"\n{split} rows\n\n{markdown(means, split, options.known)}")
    if options.picture:
        picture = chart(means, options.known)
        if options.picture.suffix == ".svg":
            options.picture.write_text(svg(picture, standalone=True))
        else:
            write_png(picture, options.picture)
        print(f"\n{options.picture}")


def configured(*overrides: str) -> Experiment:
    """Without attacks, and on all labels as they are."""
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        config = compose("train", ["attack=none", "audit.canaries=0", "name=no_defense", *overrides])
    return build(config)


def readings(experiment: Experiment, name: str, known: Sequence[int], draws: int) -> Readings:
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
            for split in SPLITS:
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
                rising.add(facts[party][Gradients].layers)
    return session, rising


def as_seen(session: Session, data: TrainTest, rising: LogitDirections) -> Read:
    party, (cut, *_) = next(iter(session.cut_layers().items()))
    new, sample = data.test.sample(ROWS), data.train.sample(ROWS)
    ids, labels = torch.cat([new.ids, sample.ids]), torch.cat([new.labels, sample.labels])
    facts = session.facts(ids, frozenset({OwnModel, OwnColumns}))[party]
    h, columns = facts[OwnModel].embed(ids)[cut], as_vectors(facts[OwnColumns])
    share = float(sample.labels.double().mean())
    u = rising.of(cut, share)
    assert u is not None, "no gradient was sent in the last epoch"
    centred = h.double() - h.double().mean(dim=0)
    spreads, vectors = leading_components(centred, 2)
    scores = centred @ without_loudness(u.double(), spreads.double(), vectors.double())
    return Read({"embeddings": h, OWN: columns}, ids, labels, len(new), scores, share)


def labelled(read: Read, k: int, draws: int, rng: torch.Generator) -> Iterator[Tensor]:
    """Places of k training rows, of which at least one is positive and one negative."""
    while draws:
        places = read.tests + torch.randperm(len(read.ids) - read.tests, generator=rng)[:k]
        if 0 < int(read.labels[places].sum()) < len(places):
            draws -= 1
            yield places


def head(values: Tensor, read: Read, places: Tensor) -> Tensor:
    """Log odds of all rows by the labels of some."""
    return completed([[values[places]]], read.labels[places], [[values]], (1 - read.share, read.share))


def markdown(means: Mapping[tuple[str, str, int | str], Interval], split: str, known: Sequence[int]) -> str:
    columns = [MODEL, NO_LABEL, *known]
    header = ["defense", MODEL, *(f"{k} labels" for k in columns[1:])]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for name in (*DEFENSES, OWN):
        cells = [interval_text(means[name, split, column]) if (name, split, column) in means else "" for column in columns]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines)


def chart(means: Mapping[tuple[str, str, int | str], Interval], known: Sequence[int]) -> Chart:
    """A line for each defense along the labels; at the right, each by itself, what gradients tell and the model."""
    apart: dict[int | str, str] = {NO_LABEL: "gradients", MODEL: MODEL}
    places: dict[int | str, float] = {column: float(i) for i, column in enumerate([*known, *apart])}
    series = []
    for look, name in enumerate((*DEFENSES, OWN)):
        along = tuple(Point(exact(places[k]), means[name, "test", k]) for k in known)
        grey = name == OWN
        series.append(Series(name, along, look=-1 if grey else look, line="dashed" if grey else "solid"))
        for column in apart:
            if (name, "test", column) in means:
                point = Point(exact(places[column]), means[name, "test", column])
                series.append(Series("", (point,), look=look, line="none", hollow=column == NO_LABEL))
    ticks = tuple((place, apart.get(column, str(column))) for column, place in places.items())
    axes = "labelled rows of whoever has the embeddings", "AUC on new rows"
    return Chart("no_defense", "A head on embeddings of new rows, and the model", *axes, tuple(series), _COIN, ticks)


_COIN = (Level(0.5, "0.5, a coin"),)


if __name__ == "__main__":
    main()
