"""Avazu Click-Through Rate Prediction (Kaggle 2014), raw format."""

from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import torch

from vflbench.data.base import Dataset
from vflbench.data.encode import RawTable
from vflbench.data.text import TextFormat, file_facts, raw_table, read_text
from vflbench.options import options

FORMAT = TextFormat(
    name="labelled Avazu data (id, click and 22 columns; comma-separated, with a header)",
    columns=(
        *("id", "click", "hour", "C1", "banner_pos", "site_id", "site_domain", "site_category"),
        *("app_id", "app_domain", "app_category", "device_id", "device_ip", "device_model"),
        *("device_type", "device_conn_type", "C14", "C15", "C16", "C17", "C18", "C19", "C20", "C21"),
    ),
    label="click",
    delimiter=",",
    header=True,
    ignored=frozenset({"id"}),  # unique in each row, and up to 20 digits: it fits neither a float nor 64 signed bits
)


@options
class Avazu(Dataset):
    """Avazu click logs, raw `train.csv`, plain or .gz: a header, `id` dropped, `click` the label, 22 categorical columns.

    Every column is categorical; a missing value is the empty string, one more category.

    path: the file. hour: `raw`, a category for each hour of the ten days (as published); or `day_and_hour`, the columns
    `day` and `hour_of_day` in its place.

    Source: Avazu, "Click-Through Rate Prediction", Kaggle, 2014.
    """

    path: str
    hour: Literal["raw", "day_and_hour"] = "raw"

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        table = read_text(self.path, FORMAT, self.rows)
        if self.hour == "day_and_hour":
            table = _split_hour(table)
        return raw_table(table, FORMAT.label), file_facts(self.path)


def _split_hour(table: pa.Table) -> pa.Table:
    """`hour` (YYMMDDHH) -> `day` (YYMMDD) and `hour_of_day` (HH), in its place."""
    place, hour = table.column_names.index("hour"), table.column("hour").cast(pa.string())
    day, hour_of_day = pc.utf8_slice_codeunits(hour, 0, 6), pc.utf8_slice_codeunits(hour, 6)
    table = table.set_column(place, "day", day.dictionary_encode())
    return table.add_column(place + 1, "hour_of_day", hour_of_day.dictionary_encode()).unify_dictionaries()
