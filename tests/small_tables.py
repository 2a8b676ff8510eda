"""Small text files in two made-up formats, and what is parsed from them."""

from typing import Any

import numpy as np
import pytest

from vflbench.data.cache import Prepared
from vflbench.data.file_dataset import FileDataset
from vflbench.data.readings import INTEGER
from vflbench.data.text import TextFormat
from vflbench.errors import UserError
from vflbench.options import options

TABS = TextFormat(
    "tabs (y, n, c)",
    ("y", "n", "c"),
    label="y",
    delimiter="\t",
    header=False,
    quotes=False,
    readings={"n": INTEGER},
)
COMMAS = TextFormat("commas (k, y, c)", ("k", "y", "c"), label="y", ignored=frozenset({"k"}))
GOOD = ["0\t-7\tpear", "1\t\tfig", "1\t12\t", "0\t3\tfig"]
GOOD_NUMBERS = [-7, None, 12, 3]
WAYS = [(end, compress) for end in ("\n", "\r\n") for compress in (False, True)]
"""Line ends, and whether the file is compressed."""


@options
class Small(FileDataset):
    """Files in a format of a test."""

    form: Any = TABS

    def text_format(self, parts):
        return self.form

    def layout_options(self):
        return {"test": self.form.name}


def prepare(path, form=TABS, **options) -> Prepared:
    return Small(path=path, form=form, **options).prepare()


def table_of(path) -> dict[str, list]:
    """The columns of a file of tabs, a category by its code; None where a number is missing."""
    table = prepare(path).table
    numbers = [None if np.isnan(value) else value for value in table.numeric[:, 0].tolist()]
    return {"y": table.labels.tolist(), "n": numbers, "c": table.categorical[:, 0].tolist()}


def problem_of(path, form=TABS, rows=None) -> str:
    """The problem that preparing the file reports, without key and value."""
    with pytest.raises(UserError) as error:
        prepare(path, form, rows=rows)
    assert error.value.key == "dataset.path"
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    return error.value.problem
