"""Any comma-separated table with a header."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from vflbench.data.blocks import Block, open_parts, read_blocks
from vflbench.data.file_dataset import FileDataset
from vflbench.data.files import Part, listed
from vflbench.data.labels import MISSING, classes_of
from vflbench.data.line_errors import names_error
from vflbench.data.text import TextFormat, complete_records, first_names
from vflbench.errors import UserError
from vflbench.options import options

Kind = Literal["numeric", "categorical", "ignore"]
_ORDER = ("null", "number", "text")
"""Kinds of columns, from the narrowest to the widest: each includes those before it."""


@options
class Csv(FileDataset):
    """Any table with a header; the user names the label column and the columns of each party.

    A column is numeric if it holds numbers in every row, else categorical, unless `types` overrides it. A missing value
    (empty, NA, N/A, NaN, null, ?) is 0 in a numeric column and a category of its own in a categorical one. Classes are the
    label's values, sorted: numbers by value, texts by alphabet. With two classes, the second is positive.

    label: the column that holds the labels. positive: the label's positive value; all others are negative. null uses the
    sorted order. types: column -> numeric, categorical or ignore. delimiter: one character.
    """

    label: str
    positive: str | int | float | bool | None = None
    types: dict[str, Kind] | None = None
    delimiter: str = ","

    def layout_options(self) -> dict[str, Any]:
        types = dict(sorted((self.types or {}).items()))
        return {"label": self.label, "positive": self.positive, "types": types, "delimiter": self.delimiter}

    def text_format(self, parts: list[Part]) -> TextFormat:
        """The header's columns, each with the narrowest kind that fits all rows."""
        if len(self.delimiter.encode()) != 1 or self.delimiter in '\0\r\n"':
            problem = "it must be one character, and no quote or line end"
            raise UserError(problem, key="dataset.delimiter", value=self.delimiter)
        inferred = self._infer(parts)
        self._check_names(list(inferred))
        kinds = {name: "numeric" if kind != "text" else "categorical" for name, kind in inferred.items()}
        kinds |= self.types or {}
        numeric = {name for name, kind in kinds.items() if kind == "numeric" and name != self.label}
        return TextFormat(
            name=f"the table of {len(inferred)} columns",
            columns=tuple(inferred),
            label=self.label,
            delimiter=self.delimiter,
            header=True,
            reals=frozenset(numeric),
            ignored=frozenset(name for name, kind in kinds.items() if kind == "ignore" and name != self.label),
            binary_label=False,
            missing=MISSING,
            multiline=True,
        )

    def classes(self, labels: Mapping[str, int], rows: int) -> tuple[list[str], np.ndarray]:
        names, class_of = classes_of(labels, self.positive)
        return names, np.array([class_of[label] for label in labels], dtype=np.int64)

    def _check_names(self, names: list[str]) -> None:
        for key, wanted in (("dataset.label", [self.label]), ("dataset.types", list(self.types or {}))):
            for name in wanted:
                if name not in names:
                    problem = f"there is no such column; the columns are {listed(names, 40)}"
                    raise UserError(problem, key=key, value=name)

    def _infer(self, parts: list[Part]) -> dict[str, str]:
        """The kind of each column, from a first pass over the rows."""
        kinds: dict[str, str] = {}
        for opened in open_parts(parts):
            names: tuple[str, ...] = ()
            for block in read_blocks(opened, quotes=True):
                if not names:
                    names, block = first_names(block, self.delimiter)
                    problem = names_error(names)
                    if problem:
                        problem = f"line {block.first_line - 1}: {problem}"
                        raise UserError(problem, key="dataset.path", value=str(opened.part))
                    kinds = kinds or dict.fromkeys(names, "null")
                for name, kind in _kinds(block, names, self.delimiter).items():
                    kinds[name] = max(kinds.get(name, "null"), kind, key=_ORDER.index)
                if self.rows is not None:
                    break  # one block suffices; parsing reports a later row that disagrees
            if not names:
                problem = "the file is empty; a table with a header was expected"
                raise UserError(problem, key="dataset.path", value=str(opened.part))
        return kinds


def _kinds(block: Block, names: tuple[str, ...], delimiter: str) -> dict[str, str]:
    """The kind of each column in a block. Lines with too few or too many fields are ignored.

    Empty if the block can't be parsed; the second pass then reports the error.
    """
    for complete_only in (False, True):
        data = b"\n".join(complete_records(block, delimiter, len(names))) if complete_only else block.data
        if not data.strip(b"\r\n"):
            return {}
        with suppress(pa.ArrowException):
            table = arrow_csv.read_csv(
                pa.BufferReader(data),
                read_options=arrow_csv.ReadOptions(column_names=list(names), block_size=len(data) + 1),
                parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                convert_options=arrow_csv.ConvertOptions(null_values=list(MISSING), strings_can_be_null=True),
            )
            return {field.name: _kind(field.type) for field in table.schema}
    return {}


def _kind(arrow_type: pa.DataType) -> str:
    if pa.types.is_null(arrow_type):
        return "null"
    return "number" if pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type) else "text"
