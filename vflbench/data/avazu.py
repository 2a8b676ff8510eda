"""Avazu Click-Through Rate Prediction (Kaggle 2014), raw format."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vflbench.data.days import DailyLog
from vflbench.data.files import Part, listed
from vflbench.data.table import RawTable
from vflbench.data.text import TextFormat, names_of
from vflbench.errors import UserError
from vflbench.options import options

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = TextFormat(
    name="labelled Avazu data (id, click and 22 columns; comma-separated, with a header)",
    columns=(
        *("id", "click", "hour", "C1", "banner_pos", "site_id", "site_domain", "site_category"),
        *("app_id", "app_domain", "app_category", "device_id", "device_ip", "device_model"),
        *("device_type", "device_conn_type", "C14", "C15", "C16", "C17", "C18", "C19", "C20", "C21"),
    ),
    label="click",
    multiline=False,
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
            missing = set(FORMAT.columns) - set(names_of(part, TextFormat()))
            if missing:
                label = "; these rows carry no label, and training needs one" if "click" in missing else ""
                raise part.error(f"row 1: the header has no column {listed(sorted(missing))}{label}")
        return FORMAT if self.hour == "raw" else replace(FORMAT, finish=_split_hour)

    def layout_options(self) -> dict[str, Any]:
        return {"hour": self.hour}


def _split_hour(table: "pa.Table") -> "pa.Table":
    """Replace `hour` (YYMMDDHH) by `day` (YYMMDD) and `hour_of_day` (HH)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    position, hour = table.column_names.index("hour"), table.column("hour").cast(pa.string())
    day, hour_of_day = pc.utf8_slice_codeunits(hour, 0, 6), pc.utf8_slice_codeunits(hour, 6)
    table = table.set_column(position, "day", day.dictionary_encode())
    return table.add_column(position + 1, "hour_of_day", hour_of_day.dictionary_encode())
