"""Any comma-separated table with a header."""

from collections import Counter
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from vflbench.data.blocks import Block, open_parts, read_blocks
from vflbench.data.file_dataset import FileDataset
from vflbench.data.files import Part
from vflbench.data.text import TextFormat, complete_records, first_names, without_byte_order_mark
from vflbench.errors import UserError
from vflbench.options import options

Kind = Literal["numeric", "categorical", "ignore"]
_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")
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
        if len(self.delimiter.encode()) != 1:
            raise UserError("it must be one character", key="dataset.delimiter", value=self.delimiter)
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
            missing=_MISSING,
            multiline=True,
        )

    def classes(self, labels: list[str], rows: int) -> tuple[list[str], np.ndarray]:
        values = sorted(labels, key=float) if _are_numbers(labels) else labels
        if self.positive is not None:
            chosen = [text for text in labels if _is_same(text, self.positive)]
            if not chosen:
                problem = f"no row has this label; the labels are {', '.join(values[:20])}"
                raise UserError(problem, key="dataset.positive", value=self.positive)
            is_positive = np.array([text in chosen for text in labels], dtype=np.int64)
            return [f"not {self.positive}", str(self.positive)], is_positive
        # 1 and 1.0 are spellings of one number and make one class.
        value_of = {text: float(text) if _are_numbers(labels) else text for text in values}
        distinct = list(dict.fromkeys(value_of.values()))
        if len(distinct) > max(2, rows // 2):
            raise UserError(
                f"it has {len(distinct)} different values in {rows} rows; a label is a class, not a measurement",
                key="dataset.label",
                value=self.label,
            )
        class_of = {value: number for number, value in enumerate(distinct)}
        names = [next(text for text in values if value_of[text] == value) for value in distinct]
        return names, np.array([class_of[value_of[text]] for text in labels])

    def _check_names(self, names: list[str]) -> None:
        for key, wanted in (("dataset.label", [self.label]), ("dataset.types", list(self.types or {}))):
            for name in wanted:
                if name not in names:
                    problem = f"there is no such column; the columns are {', '.join(names)}"
                    raise UserError(problem, key=key, value=name)

    def _infer(self, parts: list[Part]) -> dict[str, str]:
        """The kind of each column, from a first pass over the rows."""
        kinds: dict[str, str] = {}
        for opened in open_parts(parts):
            names: tuple[str, ...] = ()
            for block in read_blocks(opened, quotes=True):
                if not names:
                    names, block = first_names(without_byte_order_mark(block), self.delimiter)
                    repeated = [name for name, count in Counter(names).items() if count > 1]
                    if repeated:
                        problem = f"the header names {repeated[0]} twice"
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
                convert_options=arrow_csv.ConvertOptions(null_values=list(_MISSING), strings_can_be_null=True),
            )
            return {field.name: _kind(field.type) for field in table.schema}
    return {}


def _kind(arrow_type: pa.DataType) -> str:
    if pa.types.is_null(arrow_type):
        return "null"
    return "number" if pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type) else "text"


def _are_numbers(labels: list[str]) -> bool:
    try:
        return all(float(text) == float(text) for text in labels)
    except ValueError:
        return False


def _is_same(text: str, value: str | int | float | bool) -> bool:
    """Whether a label, as spelled in the file, equals the value that the user gave."""
    if isinstance(value, bool):
        return text.lower() == str(value).lower()
    return text == str(value) or (not isinstance(value, str) and _are_numbers([text]) and float(text) == value)
