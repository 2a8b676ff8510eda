"""Rebuilt rows compared with the true ones, and with what anybody could have guessed."""

from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor

from vflbench.attacks.base import RebuiltRows
from vflbench.data.rows import EncodedRows
from vflbench.data.table import Columns, Features, VerticalTable, non_label_parties
from vflbench.messages.message import Kind
from vflbench.metrics.inversion import picture_figures, table_figures
from vflbench.metrics.recogniser import Recogniser
from vflbench.metrics.reconstruction import ReconstructionTable
from vflbench.numerics.pixels import Area, area_of, put_together

_ROWS = 10_000
"""Training rows, evenly spread, for the recognisers; as many held-out rows are the basis of guesses."""

_SHOWN = 20  # rows in the picture of a run

ALL = "all"
"""Stands for the party where the parts of several are put together."""

_Graded = tuple[str, dict[str, float], tuple[Tensor, Tensor] | None]


class Grader:
    """Figures of each party's columns and, of pictures, of the whole put together from all parties.

    Beside each answer, the same table has guesses that need no message (their message is `none`), under the layers `mean`
    (of the held-out rows; of categories the most frequent), `class_mean` (the same by class, which the label party knows),
    `random_row` (a held-out row, drawn at random), `nearest_row` (the held-out row nearest to the true one, the best that
    copying a held-out row could give; it takes the truth to choose it) and `true`.

    Two recognisers are each trained on half of the training rows. A row is recognised by the one that has not seen it.
    """

    def __init__(self, train: EncodedRows, held_out: EncodedRows, seed: int):
        self._train, self._held_out, self._seed = train, held_out, seed

    def grade(self, attack: str, rebuilt: RebuiltRows, rows: VerticalTable, number: int, table: ReconstructionTable) -> None:
        """Add what an attack rebuilt. rows: the truth. number: of the batch, by which guesses are drawn.

        Rows of the picture are chosen by class, a few of each.
        """
        drawn = torch.Generator().manual_seed(self._seed ^ number)
        answer = {
            party: Features(rows.features[party].columns, columns.numeric, columns.categorical)
            for party, columns in rebuilt.features.items()
        }
        shown = _by_class(rows.labels)
        for party, figures, example in self._figures(rows, answer, parts=True):
            pair = None if example is None else (example[0][shown], example[1][shown])
            table.add((attack, str(Kind.EMBEDDING), party, rebuilt.layer, True), figures, pair)
        for name, guess in self._guesses(rows, list(answer), drawn).items():
            for party, figures, _ in self._figures(rows, guess, parts=False):
                table.add((attack, "none", party, name, name != "true"), figures)

    def _figures(self, rows: VerticalTable, answer: Mapping[str, Features], *, parts: bool) -> list[_Graded]:
        """Party, its figures, and an example of truth and answer. parts: of whole pictures, each party's part as well."""
        graded: list[_Graded] = []
        parties = list(answer)
        whole, rebuilt = _whole(rows.features, parties), _whole(answer, parties)
        for party in parties:
            own, guess = rows.features[party], answer[party]
            if whole is None:
                names = (own.columns.numeric, own.columns.categorical)
                figures = table_figures((own.numeric, own.categorical), (guess.numeric, guess.categorical), names)
                graded.append((party, figures, (_numbers(own, own), _numbers(guess, own))))
            elif parts and len(parties) > 1:
                true_part, rebuilt_part = _whole(rows.features, [party]), _whole(answer, [party])
                if true_part is not None and rebuilt_part is not None:
                    graded.append((party, picture_figures(true_part, rebuilt_part), None))
        if whole is not None and rebuilt is not None:
            figures = picture_figures(whole, rebuilt)
            figures["recognised"] = self._recognised(rebuilt, rows)
            graded.append((parties[0] if len(parties) == 1 else ALL, figures, (whole, rebuilt)))
        return graded

    def _guesses(self, rows: VerticalTable, parties: list[str], rng: torch.Generator) -> dict[str, dict[str, Features]]:
        held_out, device = self._known, rows.ids.device
        drawn = torch.randint(len(held_out), (len(rows),), generator=rng).to(device)
        apart = torch.stack([_distances(rows.features[p], held_out.features[p]) for p in parties])  # (parties, n, m)
        nearest = apart.sum(dim=0).argmin(dim=1)
        means = {k: held_out.rows((held_out.labels == k).nonzero()[:, 0]) for k in rows.labels.unique().tolist()}
        means = {k: rows_of if len(rows_of) else held_out for k, rows_of in means.items()}
        return {
            "mean": {p: _means(held_out.features[p], len(rows)) for p in parties},
            "class_mean": {p: _by_label(p, means, rows.labels) for p in parties},
            "random_row": {p: held_out.features[p].rows(drawn) for p in parties},
            "nearest_row": {p: held_out.features[p].rows(nearest) for p in parties},
            "true": {p: rows.features[p] for p in parties},
        }

    @cached_property
    def _known(self) -> VerticalTable:
        return self._held_out.sample(_ROWS)

    def _recognised(self, pictures: Tensor, rows: VerticalTable) -> float:
        """The share of pictures whose class is recognised, by recognisers that have not seen the true ones."""
        halves, recognisers = self._recognisers
        is_first = torch.isin(rows.ids, halves[0])
        chosen = [(~is_first).nonzero()[:, 0], is_first.nonzero()[:, 0]]
        right = [
            recogniser.accuracy(pictures[places], rows.labels[places]) * len(places)
            for recogniser, places in zip(recognisers, chosen, strict=True)
            if len(places)
        ]
        return sum(right) / len(rows)

    @cached_property
    def _recognisers(self) -> tuple[tuple[Tensor, ...], tuple[Recogniser, ...]]:
        """Two halves of the training rows, as ids, and a recogniser trained on each."""
        rows = self._train.sample(_ROWS)
        pictures = _whole(rows.features, list(non_label_parties(rows.columns)))
        if pictures is None:
            raise ValueError("the columns of these parties are no pictures")
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(self._seed)).to(rows.ids.device)
        halves = order[: len(order) // 2], order[len(order) // 2 :]
        trained = (
            Recogniser(pictures[half], rows.labels[half], rows.classes, torch.Generator().manual_seed(self._seed))
            for half in halves
        )
        return tuple(rows.ids[half] for half in halves), tuple(trained)


def _whole(features: Mapping[str, Features], parties: list[str]) -> Tensor | None:
    """Pictures put together from these parties' columns; None if they are none."""
    parts: dict[Area, Tensor] = {}
    for party in parties:
        area = _area(features[party].columns)
        if area is None:
            return None
        parts[area] = features[party].numeric
    return put_together(parts)


def _area(columns: Columns) -> Area | None:
    return None if columns.categorical else area_of(columns.numeric)


def _numbers(block: Features, truth: Features) -> Tensor:
    """All columns as (n, columns) in [0, 1]: of a categorical one 0 where it is as in `truth`, else 1."""
    return torch.cat([block.numeric, (block.categorical != truth.categorical).to(block.numeric.dtype)], dim=1)


def _distances(block: Features, others: Features) -> Tensor:
    """(n, m) squared distance of each row from each other row; each category that differs counts as 1."""
    apart = torch.cdist(block.numeric.double(), others.numeric.double()).square()
    for own, other in zip(block.categorical.T, others.categorical.T, strict=True):
        apart = apart + (own[:, None] != other[None])
    return apart


def _means(block: Features, rows: int) -> Features:
    """The mean row, or the most frequent id, so many times."""
    categorical = block.categorical.mode(dim=0).values if len(block.columns.categorical) else block.categorical[0]
    return Features(block.columns, block.numeric.mean(dim=0).expand(rows, -1), categorical.expand(rows, -1))


def _by_label(party: str, means: Mapping[int, VerticalTable], labels: Tensor) -> Features:
    mean_of = {k: _means(rows.features[party], 1) for k, rows in means.items()}
    numeric = torch.cat([mean_of[k].numeric for k in labels.tolist()])
    categorical = torch.cat([mean_of[k].categorical for k in labels.tolist()])
    return Features(next(iter(mean_of.values())).columns, numeric, categorical)


def _by_class(labels: Tensor) -> Tensor:
    """Places of at most 20 rows, the first of each class, then the second of each, ..., put in the order of the classes."""
    turn = torch.stack([(labels[: i + 1] == labels[i]).sum() for i in range(len(labels))])
    chosen = (turn * (int(labels.max()) + 1) + labels).argsort()[:_SHOWN]
    return chosen[labels[chosen].argsort(stable=True)]
