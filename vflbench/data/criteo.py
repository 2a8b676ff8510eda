"""Criteo Display Advertising Challenge (Kaggle 2014), raw format."""

from typing import Any

import torch

from vflbench.data.base import Dataset
from vflbench.data.encode import RawTable
from vflbench.data.text import TextFormat, file_facts, raw_table, read_text
from vflbench.options import options

INTEGERS = tuple(f"I{i}" for i in range(1, 14))
CATEGORIES = tuple(f"C{i}" for i in range(1, 27))

FORMAT = TextFormat(
    name="labelled Criteo data (label, 13 integers, 26 categories; tab-separated)",
    columns=("label", *INTEGERS, *CATEGORIES),
    label="label",
    delimiter="\t",
    header=False,
    integers=frozenset(INTEGERS),
)


@options
class Criteo(Dataset):
    """Criteo click logs, raw `train.txt`, plain or .gz: label, I1..I13, C1..C26, tab-separated, no header.

    A missing integer becomes 0, a missing category one more category; integers are scaled to [0, 1] by min-max. Rows
    without a label (the competition's `test.txt`, 39 fields) are refused.

    path: the file.

    Source: Criteo AI Lab, "Kaggle Display Advertising Challenge Dataset", 2014.
    """

    path: str

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        return raw_table(read_text(self.path, FORMAT, self.rows), FORMAT.label), file_facts(self.path)
