"""Avazu Click-Through Rate Prediction (Kaggle 2014), raw format."""

from typing import Any

import torch

from vflbench.data.base import Dataset
from vflbench.data.encode import RawTable
from vflbench.data.text import TextFormat, file_facts, read_text
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

    path: the file.

    Source: Avazu, "Click-Through Rate Prediction", Kaggle, 2014.
    """

    path: str

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        return read_text(self.path, FORMAT, self.rows), file_facts(self.path)
