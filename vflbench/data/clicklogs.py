"""Click logs of several days: Criteo and Avazu, tested on one day, trained on those before it."""

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from vflbench.data.base import TEST, TRAIN
from vflbench.data.file_dataset import FileDataset
from vflbench.data.files import Part, listed
from vflbench.data.readings import NUMBER
from vflbench.data.table import RawTable
from vflbench.data.text import TextFormat, column_names
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


INTEGERS = tuple(f"I{i}" for i in range(1, 14))
DAYS = 7
CATEGORIES = tuple(f"C{i}" for i in range(1, 27))

CRITEO = TextFormat(
    columns=("label", *INTEGERS, *CATEGORIES),
    label="label",
    delimiter="\t",
    header=False,
    quotes=False,
    readings=dict.fromkeys(INTEGERS, NUMBER),
)


@options
class Criteo(DailyLog):
    """Criteo click logs, raw `train.txt` or `day_*`: label, I1..I13, C1..C26, tab-separated, no header.

    A missing integer becomes 0, a missing category a category of its own. Integers are scaled to [0, 1] by min-max. Rows
    without a label (the competition's `test.txt`, 39 fields) raise an error.

    Rows have no time stamp, but are in the order of time over 7 days: for `test_day` a day is a seventh of the rows used.

    Source: Criteo AI Lab, "Kaggle Display Advertising Challenge Dataset", 2014.
    """

    def text_format(self, parts: list[Part]) -> TextFormat:
        return CRITEO

    def day_of_rows(self, raw: RawTable) -> np.ndarray:
        return equal_parts(len(raw), DAYS)


AVAZU = TextFormat(
    columns=(
        *("id", "click", "hour", "C1", "banner_pos", "site_id", "site_domain", "site_category"),
        *("app_id", "app_domain", "app_category", "device_id", "device_ip", "device_model"),
        *("device_type", "device_conn_type", "C14", "C15", "C16", "C17", "C18", "C19", "C20", "C21"),
    ),
    label="click",
    ignored=frozenset({"id"}),  # unique in each row; its 20 digits fit neither a float nor 64 signed bits
)


@options
class Avazu(DailyLog):
    """Avazu click logs, raw `train.csv`: a header, label `click`, 22 categorical columns; `id` is dropped.

    A missing value is the empty string, a category of its own.

    hour: `raw` makes each hour of the ten days a category (as published); `day_and_hour` replaces the column by `day` and
    `hour_of_day`, which `test_day` needs: no hour of the test day is met in training.

    Source: Avazu, "Click-Through Rate Prediction", Kaggle, 2014.
    """

    hour: Literal["raw", "day_and_hour"] = "raw"

    def __post_init__(self) -> None:
        if self.test_day is not None and self.hour == "raw":
            problem = "it needs hour=day_and_hour: as `raw`, no hour of the test day is met in training"
            raise UserError(problem, key="test_day", value=self.test_day)

    def day_of_rows(self, raw: RawTable) -> np.ndarray:
        codes = np.asarray(raw.categorical[:, raw.categorical_names.index("day")])
        return np.unique(codes, return_inverse=True)[1] + 1  # codes are in the order of the days' names

    def text_format(self, parts: list[Part]) -> TextFormat:
        for part in parts:
            missing = set(AVAZU.columns) - set(column_names(part, TextFormat()))
            if missing:
                label = "; these rows carry no label, and training needs one" if "click" in missing else ""
                raise part.error(f"row 1: the header has no column {listed(sorted(missing))}{label}")
        return AVAZU if self.hour == "raw" else replace(AVAZU, finish=_split_hour)


def _split_hour(table: pa.Table) -> pa.Table:
    """Replace `hour` (YYMMDDHH) by `day` (YYMMDD) and `hour_of_day` (HH)."""
    position, hour = table.column_names.index("hour"), table.column("hour").cast(pa.string())
    day, hour_of_day = pc.utf8_slice_codeunits(hour, 0, 6), pc.utf8_slice_codeunits(hour, 6)
    table = table.set_column(position, "day", day.dictionary_encode())
    return table.add_column(position + 1, "hour_of_day", hour_of_day.dictionary_encode())
