"""Criteo Display Advertising Challenge (Kaggle 2014), raw format."""

import numpy as np

from vflbench.data.days import DailyLog, equal_parts
from vflbench.data.files import Part
from vflbench.data.readings import INTEGER
from vflbench.data.table import RawTable
from vflbench.data.text import TextFormat
from vflbench.options import options

INTEGERS = tuple(f"I{i}" for i in range(1, 14))
DAYS = 7
CATEGORIES = tuple(f"C{i}" for i in range(1, 27))

FORMAT = TextFormat(
    name="labelled Criteo data (label, 13 integers, 26 categories; tab-separated)",
    columns=("label", *INTEGERS, *CATEGORIES),
    label="label",
    delimiter="\t",
    header=False,
    quotes=False,
    readings=dict.fromkeys(INTEGERS, INTEGER),
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
        return FORMAT

    def day_of_rows(self, raw: RawTable) -> np.ndarray:
        return equal_parts(len(raw), DAYS)
