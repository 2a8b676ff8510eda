"""Any comma-separated table with a header."""

from collections import Counter
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from vflbench.data.file_dataset import FileDataset
from vflbench.data.files import Block, Part, open_parts, read_blocks
from vflbench.data.text import TextFormat, complete_lines, first_names, without_mark
from vflbench.errors import UserError
from vflbench.options import options

Kind = Literal["numeric", "categorical", "ignore"]
_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")
_ORDER = ("null", "number", "text")
"""What a column can be read as: each kind takes what those before it take, and more."""


@options
class Csv(FileDataset):
    """Any table with a header: name the label column, and which party holds which others.

    Columns of numbers, throughout the file, are numeric, all others categorical; `types` says otherwise. Missing (empty,
    NA, N/A, NaN, null, ?) is 0 in a numeric column and one more category in a categorical one. Classes are the label's
    values in their order: numbers by size, texts by alphabet (so false before true); with two, the later one is positive.

    label: the column that holds the labels. positive: the label's value that is positive, all others being negative (null:
    the order decides). types: column -> numeric, categorical or ignore. delimiter: one character.
    """

    label: str
    positive: str | int | float | bool | None = None
    types: dict[str, Kind] | None = None
    delimiter: str = ","

    def layout_options(self) -> dict[str, Any]:
        types = dict(sorted((self.types or {}).items()))
        return {"label": self.label, "positive": self.positive, "types": types, "delimiter": self.delimiter}

    def text_format(self, parts: list[Part]) -> TextFormat:
        """The header's columns, with the kinds that all rows agree with."""
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
            chosen = [text for text in labels if _same(text, self.positive)]
            if not chosen:
                shown = ", ".join(values[:20])
                raise UserError(f"no row has this label; there are {shown}", key="dataset.positive", value=self.positive)
            is_positive = np.array([text in chosen for text in labels], dtype=np.int64)
            return [f"not {self.positive}", str(self.positive)], is_positive
        # Two spellings of one number, 1 and 1.0, are one class.
        numbers = {text: float(text) if _are_numbers(labels) else text for text in values}
        different = list(dict.fromkeys(numbers.values()))
        if len(different) > max(2, rows // 2):
            raise UserError(
                f"it has {len(different)} different values in {rows} rows; a label has classes, not measurements",
                key="dataset.label",
                value=self.label,
            )
        place = {value: number for number, value in enumerate(different)}
        names = [next(text for text in values if numbers[text] == value) for value in different]
        return names, np.array([place[numbers[text]] for text in labels])

    def _check_names(self, names: list[str]) -> None:
        for key, wanted in (("dataset.label", [self.label]), ("dataset.types", list(self.types or {}))):
            for name in wanted:
                if name not in names:
                    raise UserError(f"there is no such column; there are {', '.join(names)}", key=key, value=name)

    def _infer(self, parts: list[Part]) -> dict[str, str]:
        """Each column's kind, from a first reading of the rows."""
        kinds: dict[str, str] = {}
        for opened in open_parts(parts):
            names: tuple[str, ...] = ()
            for block in read_blocks(opened, quotes=True):
                if not names:
                    names, block = first_names(without_mark(block), self.delimiter)
                    repeated = [name for name, count in Counter(names).items() if count > 1]
                    if repeated:
                        problem = f"the header names {repeated[0]} twice"
                        raise UserError(problem, key="dataset.path", value=str(opened.part))
                    kinds = kinds or dict.fromkeys(names, "null")
                for name, kind in _kinds(block, names, self.delimiter).items():
                    kinds[name] = max(kinds.get(name, "null"), kind, key=_ORDER.index)
                if self.rows is not None:
                    break  # enough for a look; a row that disagrees is told
            if not names:
                problem = "the file is empty; a table with a header was expected"
                raise UserError(problem, key="dataset.path", value=str(opened.part))
        return kinds


def _kinds(block: Block, names: tuple[str, ...], delimiter: str) -> dict[str, str]:
    """What each column of a block can be read as, lines with too few or too many fields aside; nothing where the block
    can't be parsed: the second reading tells why."""
    for narrowed in (False, True):
        data = b"\n".join(complete_lines(block, delimiter, len(names))) if narrowed else block.data
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


def _kind(found: pa.DataType) -> str:
    if pa.types.is_null(found):
        return "null"
    return "number" if pa.types.is_integer(found) or pa.types.is_floating(found) else "text"


def _are_numbers(labels: list[str]) -> bool:
    try:
        return all(float(text) == float(text) for text in labels)
    except ValueError:
        return False


def _same(text: str, wanted: str | int | float | bool) -> bool:
    """Whether a label, as it is spelled in the file, is the value that the user names."""
    if isinstance(wanted, bool):
        return text.lower() == str(wanted).lower()
    return text == str(wanted) or (not isinstance(wanted, str) and _are_numbers([text]) and float(text) == wanted)
