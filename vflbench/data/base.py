"""Dataset: what every entry of configs/dataset builds."""

import math
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field

from vflbench.data.encode import RawTable, encode
from vflbench.data.parties import Parties, assign_columns, left_out
from vflbench.data.table import TrainTest
from vflbench.errors import UserError
from vflbench.options import Count, Fraction, options


@options
class Dataset:
    """Rows with labels, split into training and test rows and between parties.

    parties: a number of non-label parties, or party -> columns (see `assign_columns`).
    rows: use the first so many rows only. sample: then keep a random share of them.
    positive_ratio: then drop rows of the class that is too frequent, at random, until the other has this share; as
    published with 0.45, 0.49 and 0.50, by dropping negatives.
    test_fraction: share of the rows that is held out for testing.
    split: `random` draws them; `chronological` takes the last rows.
    fit_on: what vocabularies and min-max see, `all` rows (as published) or `train` rows alone.
    numeric_transform: `none` (as published) or `log`, x <- sign(x) log(1 + |x|) before min-max.
    min_count: categories seen less often share one id (1 as published: none do).

    A subclass overrides `read`.
    """

    parties: Parties = 1
    rows: Count | None = None
    sample: Annotated[float, Field(gt=0, le=1)] = 1.0
    positive_ratio: Fraction | None = None
    test_fraction: Fraction = 0.1
    split: Literal["random", "chronological"] = "random"
    fit_on: Literal["all", "train"] = "all"
    numeric_transform: Literal["none", "log"] = "none"
    min_count: Count = 1

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        """The raw columns, and facts about them for the run's manifest."""
        raise NotImplementedError

    def load(self, rng: torch.Generator) -> TrainTest:
        """Read, split, encode. The same generator state gives the same tables, bit for bit."""
        raw, facts = self.read(rng)
        kept = self._choose_rows(raw, rng)
        if len(kept) < len(raw):
            raw = raw.rows(kept)
        is_test = self._choose_test_rows(len(raw), rng)
        self._check_classes(raw, ~is_test)
        names = [column.name for column in raw.columns]
        assignment = assign_columns(self.parties, names)
        fit = np.ones(len(raw), dtype=bool) if self.fit_on == "all" else ~is_test
        table = encode(raw, assignment, fit, min_count=self.min_count, numeric_transform=self.numeric_transform)
        unused = left_out(assignment, names)
        if unused:
            facts = {**facts, "columns_left_out": list(unused)}
        table = replace(table, ids=torch.from_numpy(kept))
        train, test = torch.from_numpy(~is_test).nonzero().ravel(), torch.from_numpy(is_test).nonzero().ravel()
        return TrainTest(table.rows(train), table.rows(test), facts)

    def ratio_to_thin_to(self) -> float | None:
        """The positive ratio that rows are dropped for."""
        return self.positive_ratio

    def _choose_rows(self, raw: RawTable, rng: torch.Generator) -> np.ndarray:
        """Positions that `sample` and `positive_ratio` leave, in order; int64."""
        kept = np.arange(len(raw))
        if self.sample < 1:
            kept = _draw(kept, max(1, round(self.sample * len(kept))), rng)
        wanted = self.ratio_to_thin_to()
        if wanted is None:
            return kept
        if raw.classes > 2:
            problem = f"the labels have {raw.classes} classes; a positive ratio goes with two"
            raise UserError(problem, key="dataset.positive_ratio", value=wanted)
        positive = raw.labels[kept] != 0
        negatives, positives = kept[~positive], kept[positive]
        if not len(negatives) or not len(positives):
            return kept  # one class; `load` says so
        odds = wanted / (1 - wanted)
        if len(positives) < odds * len(negatives):
            negatives = _draw(negatives, round(len(positives) / odds), rng)
        else:
            positives = _draw(positives, round(len(negatives) * odds), rng)
        return np.sort(np.concatenate([negatives, positives]))

    def _choose_test_rows(self, rows: int, rng: torch.Generator) -> np.ndarray:
        count = max(1, math.floor(rows * self.test_fraction + 0.5))
        if rows - count < 1:
            raise UserError(
                f"{rows} rows leave no row to train on beside {count} test row(s); it needs more rows",
                key="dataset.test_fraction",
                value=self.test_fraction,
            )
        is_test = np.zeros(rows, dtype=bool)
        if self.split == "chronological":
            is_test[rows - count :] = True
        else:
            is_test[torch.randperm(rows, generator=rng)[:count].numpy()] = True
        return is_test

    @staticmethod
    def _check_classes(raw: RawTable, is_train: np.ndarray) -> None:
        seen = np.unique(raw.labels[is_train])
        if len(seen) < 2:
            raise UserError(
                f"every training row has the label {seen[0]}; a label leak needs at least two classes", key="dataset"
            )


def _draw(positions: np.ndarray, count: int, rng: torch.Generator) -> np.ndarray:
    """So many of the positions, without replacement, in order."""
    chosen = torch.randperm(len(positions), generator=rng)[:count].numpy()
    return positions[np.sort(chosen)]
