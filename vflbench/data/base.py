"""Dataset: what every entry of configs/dataset builds."""

import math
from typing import Any, Literal

import numpy as np
import torch

from vflbench.data.encode import RawTable, encode
from vflbench.data.parties import Parties, assign_columns, left_out
from vflbench.data.table import TrainTest
from vflbench.errors import UserError
from vflbench.options import Count, Fraction, options


@options
class Dataset:
    """Rows with labels, split into training and test rows and between parties.

    parties: a number of non-label parties, or party -> columns (see `assign_columns`).
    rows: use the first so many rows only.
    test_fraction: share of the rows that is held out for testing.
    split: `random` draws them; `chronological` takes the last rows.
    fit_on: what vocabularies and min-max see, `all` rows (as published) or `train` rows alone.
    numeric_transform: `none` (as published) or `log`, x <- sign(x) log(1 + |x|) before min-max.
    min_count: categories seen less often share one id (1 as published: none do).

    A subclass overrides `read`.
    """

    parties: Parties = 1
    rows: Count | None = None
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
        is_test = self._choose_test_rows(len(raw), rng)
        self._check_classes(raw, ~is_test)
        names = [column.name for column in raw.columns]
        assignment = assign_columns(self.parties, names)
        fit = np.ones(len(raw), dtype=bool) if self.fit_on == "all" else ~is_test
        table = encode(raw, assignment, fit, min_count=self.min_count, numeric_transform=self.numeric_transform)
        unused = left_out(assignment, names)
        if unused:
            facts = {**facts, "columns_left_out": list(unused)}
        train, test = torch.from_numpy(~is_test).nonzero().ravel(), torch.from_numpy(is_test).nonzero().ravel()
        return TrainTest(table.rows(train), table.rows(test), facts)

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
