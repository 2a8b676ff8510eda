"""Small text files in two made-up formats, and what is parsed from them."""

import numpy as np
import pyarrow as pa
import pytest

from vflbench.data.blocks import open_parts, read_blocks
from vflbench.data.cache import Request, prepare
from vflbench.data.files import find_parts
from vflbench.data.parse import parse, read_header
from vflbench.data.text import TextFormat
from vflbench.errors import UserError

TABS = TextFormat("tabs (y, n, c)", ("y", "n", "c"), label="y", delimiter="\t", header=False, integers=frozenset({"n"}))
COMMAS = TextFormat("commas (k, y, c)", ("k", "y", "c"), label="y", delimiter=",", header=True, ignored=frozenset({"k"}))
GOOD = ["0\t-7\tpear", "1\t\tfig", "1\t12\t", "0\t3\tfig"]
GOOD_NUMBERS = [-7, None, 12, 3]
WAYS = [(end, compress) for end in ("\n", "\r\n") for compress in (False, True)]
"""Line ends, and whether the file is compressed."""


def request(path, form=TABS, rows=None, **options) -> Request:
    def classes(labels, _rows):
        return ["0", "1"], np.array([int(text) for text in labels])

    return Request(find_parts(path), lambda: form, classes, {"test": form.name}, rows=rows, **options)


def table_of(path, form=TABS, rows=None) -> dict[str, list]:
    """The parsed columns, with labels as in the file."""
    tables, columns = [], form.columns
    for opened in open_parts(find_parts(path)):
        for number, block in enumerate(read_blocks(opened, quotes=form.multiline)):
            if not number:
                columns, block = read_header(block, form) if form.header else (columns, block)
            left = None if rows is None else rows - sum(map(len, tables))
            parsed = parse(block, form, columns, left)
            assert not parsed.bad
            tables.append(parsed.table)
    return pa.concat_tables(tables).to_pydict()


def problem_of(path, form=TABS, rows=None) -> str:
    """The problem that preparing the file reports, without key and value."""
    with pytest.raises(UserError) as error:
        prepare(request(path, form, rows))
    assert error.value.key == "dataset.path"
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    return error.value.problem
