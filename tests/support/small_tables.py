"""Small text files in two made-up formats, and what is parsed from them."""

import pyarrow as pa
import pytest

from vflbench.data.file_dataset import FileDataset, Request, prepare_table
from vflbench.data.files import find_parts, open_parts
from vflbench.data.readings import NUMBER
from vflbench.data.text import TextFormat, parsed, texts
from vflbench.errors import UserError

TABS = TextFormat(("y", "n", "c"), label="y", delimiter="\t", header=False, quotes=False, readings={"n": NUMBER})
GOOD = ["0\t-7\tpear", "1\t\tfig", "1\t12\t", "0\t3\tfig"]
GOOD_NUMBERS = [-7, None, 12, 3]


def request(path, form=TABS, rows=None, **options) -> Request:
    return Request(FileDataset(path=str(path), **options), find_parts(path), lambda: form, rows, {"test": form.delimiter})


def table_of(path, form=TABS) -> dict[str, list]:
    """The parsed columns, with labels as in the file; None where a number is missing."""
    tables = [
        parsed(rows, form).table for part, stream in open_parts(find_parts(path)) for rows in texts(part, stream, form)
    ]
    columns = pa.concat_tables(tables).to_pydict()
    return {name: [None if value != value else value for value in values] for name, values in columns.items()}


def problem_of(path, form=TABS, rows=None) -> str:
    """The problem that preparing the file reports, without key and value."""
    with pytest.raises(UserError) as error:
        prepare_table(request(path, form, rows))
    assert error.value.key == "dataset.path"
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    return error.value.problem
