"""Who compares rebuilt rows with the true ones: of pictures, two recognisers that haven't seen them; of tables, columns."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor

from vflbench.data.rows import EncodedRows
from vflbench.data.table import Columns, Features, VerticalTable
from vflbench.metrics.inversion import Compared, TableColumns, compare_pictures, compare_tables
from vflbench.metrics.line_up import LineUp
from vflbench.metrics.recogniser import Recogniser
from vflbench.metrics.reconstruction import CHANCE
from vflbench.numerics.pixels import Area, area_of, put_together

ROWS = 10_000
"""Training rows, evenly spread, for recognisers and line-ups; as many held-out rows are the basis of guesses."""


class PictureJudge:
    """Two recognisers, each trained on half of the training rows. A row is judged by the one that has not seen it.

    Beside the figures of `compare_pictures`, an answer gets `recognised`, the share whose class is recognised;
    `feature_distance`, how far apart a recogniser sees the rebuilt and the true picture; and `identified`, the share of
    pictures that are nearer by that distance to their own true picture than to others of the class (`metrics.line_up`).
    """

    def __init__(self, train: EncodedRows, parties: Sequence[str], seed: int):
        self._train, self._parties, self._seed = train, parties, seed

    def bench(self, rows: VerticalTable, truth: Tensor, rng: torch.Generator) -> "PictureBench":
        """Ready to compare answers about these rows. truth: their pictures."""
        pool, pictures = self._pool
        first, recognisers = self._recognisers
        is_first = torch.isin(pool.ids, first)
        unseen = torch.stack([~is_first, is_first])  # by each recogniser, of the pool
        judge_of = torch.isin(rows.ids, first).long()  # the first one judges rows that aren't in the first half
        line_up = LineUp((rows.ids, rows.labels), (pool.ids, pool.labels), rng, unseen[judge_of])
        return PictureBench(rows.labels, truth, pictures, recognisers, judge_of, line_up)

    @cached_property
    def _pool(self) -> tuple[VerticalTable, Tensor]:
        rows = self._train.sample(ROWS)
        pictures = whole(rows.features, self._parties)
        if pictures is None:
            raise ValueError("the columns of these parties are no pictures")
        return rows, pictures

    @cached_property
    def _recognisers(self) -> tuple[Tensor, tuple[Recogniser, ...]]:
        """Ids of the first half of the pool, and recognisers trained on the first and on the second half."""
        rows, pictures = self._pool
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(self._seed)).to(rows.ids.device)
        halves = order[: len(order) // 2], order[len(order) // 2 :]
        trained = (
            Recogniser(pictures[half], rows.labels[half], rows.classes, torch.Generator().manual_seed(self._seed))
            for half in halves
        )
        return rows.ids[halves[0]], tuple(trained)


class PictureBench:
    """Compares answers about one batch with the true pictures. judge_of: (n,) which recogniser has not seen a row."""

    def __init__(
        self,
        labels: Tensor,
        truth: Tensor,
        pool: Tensor,
        recognisers: tuple[Recogniser, ...],
        judge_of: Tensor,
        line_up: LineUp,
    ):
        self._labels, self._truth, self._recognisers, self._line_up = labels, truth, recognisers, line_up
        self._places = [(judge_of == judge).nonzero()[:, 0] for judge in range(len(recognisers))]
        self._true_features = self._features(truth)
        self._others = [
            recognisers[judge].features(pool[places]) if len(places) else torch.empty(0)
            for judge, places in zip(judge_of.tolist(), line_up.others, strict=True)
        ]

    def compare(self, answer: Tensor) -> Compared:
        compared = compare_pictures(self._truth, answer)
        features, recognised = self._features(answer), torch.zeros(len(answer), dtype=torch.float64)
        for recogniser, places in zip(self._recognisers, self._places, strict=True):
            if len(places):
                recognised[places.cpu()] = recogniser.hits(answer[places], self._labels[places])
        apart = (features - self._true_features).square().sum(dim=1)

        def distances(row: int) -> Tensor:
            return torch.cat([apart[row : row + 1], (self._others[row] - features[row]).square().sum(dim=1)])

        rows = {"recognised": recognised, "identified": self._line_up.identified(distances), "feature_distance": apart}
        return with_rows(compared, rows, self._line_up)

    def _features(self, pictures: Tensor) -> Tensor:
        """(n, d), of each picture by the recogniser that has not seen the row."""
        found = [judge.features(pictures[places]) for judge, places in zip(self._recognisers, self._places, strict=True)]
        order = torch.cat(self._places).argsort().cpu()
        return torch.cat([part for part in found if len(part)])[order]


class TableJudge:
    """Figures of `compare_tables` and `identified`, among training rows of the class, by a party's columns.

    d(x, x') = sum over numeric columns of (x - x')^2 / variance + the number of ids that differ
    """

    def __init__(self, train: EncodedRows, held_out: VerticalTable):
        self._train, self._held_out = train, held_out

    @cached_property
    def _pool(self) -> VerticalTable:
        return self._train.sample(ROWS)

    def line_up(self, rows: VerticalTable, rng: torch.Generator) -> LineUp:
        return LineUp((rows.ids, rows.labels), (self._pool.ids, self._pool.labels), rng)

    def compare(self, party: str, truth: Features, answer: Features, line_up: LineUp) -> Compared:
        numbers = self._held_out.features[party].numeric.double()
        spread = (numbers - numbers.mean(dim=0)).square().mean(dim=0).sqrt()  # torch's own warns where there is no column
        columns = TableColumns(truth.columns.numeric, truth.columns.categorical, spread)
        pairs = ((truth.numeric, truth.categorical), (answer.numeric, answer.categorical))
        pool = self._pool.features[party]

        def distances(row: int) -> Tensor:
            others = pool.rows(line_up.others[row])
            numeric, ids = (
                torch.cat([a[row : row + 1], b])
                for a, b in ((truth.numeric, others.numeric), (truth.categorical, others.categorical))
            )
            off = columns.scaled(numeric) - columns.scaled(answer.numeric[row : row + 1])
            return off.square().sum(dim=1) + (ids != answer.categorical[row]).sum(dim=1)

        return with_rows(compare_tables(*pairs, columns), {"identified": line_up.identified(distances)}, line_up)


def with_rows(compared: Compared, rows: Mapping[str, Tensor], line_up: LineUp) -> Compared:
    """These as well, before figures of single columns."""
    means = {name: values.nanmean().item() for name, values in rows.items()}
    whole_table = {name: value for name, value in compared.figures.items() if ":" not in name}
    by_column = {name: value for name, value in compared.figures.items() if ":" in name}
    return Compared(whole_table | means | by_column, {**compared.rows, **rows, CHANCE: line_up.chance}, compared.error)


def whole(features: Mapping[str, Features], parties: Sequence[str]) -> Tensor | None:
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
