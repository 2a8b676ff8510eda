"""Click logs of several days: tested on one day, trained on those before it."""

from typing import Annotated

import numpy as np
import torch

from vflbench.data.base import TEST, TRAIN
from vflbench.data.file_dataset import FileDataset
from vflbench.data.table import RawTable
from vflbench.errors import UserError
from vflbench.options import Count, Range, options


@options
class DailyLog(FileDataset):
    """Rows in the order of time, over several days.

    members: for a .zip or .tar archive, the files in it to read, patterns allowed; null if it holds just one.
    test_day: the day, from 2 on, whose rows are the test rows; all rows before it are for training (and validation), those
    after it are left out. In place of `split` and `test_fraction`. null: no day is held out as such.

    A subclass overrides `day_of_rows`.
    """

    members: list[str] | None = None
    test_day: Annotated[Count, Range(2, 10**9)] | None = None

    def day_of_rows(self, raw: RawTable) -> np.ndarray:
        """(n,) days of the rows, whole numbers from 1 on in the order of time."""
        raise NotImplementedError

    def _choose_rows(self, raw: RawTable, rng: torch.Generator) -> np.ndarray:
        kept = super()._choose_rows(raw, rng)
        if self.test_day is None:
            return kept
        day = self.day_of_rows(raw)
        if self.test_day > int(day.max()):
            problem = f"these rows are of {int(day.max())} days"
            raise UserError(problem, key="dataset.test_day", value=self.test_day)
        return kept & (day <= self.test_day)

    def _test_rows(self, raw: RawTable, kept: np.ndarray, rng: torch.Generator) -> np.ndarray:
        if self.test_day is None:
            return super()._test_rows(raw, kept, rng)
        role = kept.astype(np.uint8)
        role[kept & (self.day_of_rows(raw) == self.test_day)] = TEST
        for wanted, days in ((TRAIN, f"the days before day {self.test_day}"), (TEST, f"day {self.test_day}")):
            if not (role == wanted).any():
                raise UserError(f"no row of {days} is left", key="dataset.test_day", value=self.test_day)
        return role


def equal_parts(rows: int, parts: int) -> np.ndarray:
    """(n,) which of `parts` parts of equal size, to a row, each of the rows lies in, from 1 on."""
    return np.arange(rows, dtype=np.int64) * parts // max(1, rows) + 1
