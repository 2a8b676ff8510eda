"""Any delimited table, with a header or without."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from vflbench.data.arrow_columns import labels_of
from vflbench.data.blocks import Block, open_parts, read_blocks
from vflbench.data.cleaning import Cleaning
from vflbench.data.csv_party import identifiers, read_table
from vflbench.data.file_dataset import FileDataset
from vflbench.data.files import Part, find_parts, listed
from vflbench.data.labels import MISSING, Positive, StrayLabelError, classes_of
from vflbench.data.line_errors import names_error
from vflbench.data.parse import BadRow
from vflbench.data.party_files import PartyFiles, PartySource, of_party, refuse_label_column
from vflbench.data.prepare import Prepared
from vflbench.data.stray_labels import stray_label
from vflbench.data.table import LABEL_PARTY
from vflbench.data.text import TextFormat, complete_records, fields_of, first_names, numbered_lines
from vflbench.errors import UserError, shown
from vflbench.options import NonNegativeInt, options

Kind = Literal["numeric", "categorical", "ignore"]
_ORDER = ("null", "number", "text")
"""Kinds of columns, from the narrowest to the widest: each includes those before it."""


@options
class Csv(PartyFiles, FileDataset):
    """Any table with a header, or without; the user names the label column and the columns of each party.

    A column is numeric if it holds numbers in every row, else categorical, unless `types` overrides it. A missing value
    (empty, NA, N/A, NaN, null, ?) is 0 in a numeric column and a category of its own in a categorical one. Classes are the
    label's values, sorted: numbers by value, texts by alphabet. With two classes, the second is positive.

    label: the column that holds the labels. positive: the label's positive value, or a list of its spellings; all others
    are negative. null uses the sorted order. types: column -> numeric, categorical or ignore. delimiter: one character.
    header: whether the first line names the columns. columns: without a header, their names in order; null: c1, c2, ...
    missing: words that stand for a missing value, beside the empty one; null: those above.
    trim: leave out blanks around values, and count several as one where the delimiter is a blank; a quoted value then ends
    with its line. skip_lines: leave out so many first lines of each file. comment: leave out lines that begin so.
    """

    path: str | list[str] | None = None  # type: ignore[assignment]
    label: str
    positive: Positive = None
    types: dict[str, Kind] | None = None
    delimiter: str = ","
    header: bool = True
    columns: list[str] | None = None
    missing: list[str] | None = None
    trim: bool = False
    skip_lines: NonNegativeInt = 0
    comment: str | None = None

    def layout_options(self) -> dict[str, Any]:
        types = dict(sorted((self.types or {}).items()))
        names = ("label", "positive", "delimiter", "header", "columns", "missing", "trim", "skip_lines", "comment")
        return {"types": types, **{name: getattr(self, name) for name in names}}

    def text_format(self, parts: list[Part]) -> TextFormat:
        """The header's columns, each with the narrowest kind that fits all rows."""
        self._check_layout()
        inferred = self._infer(parts)
        self._check_names(list(inferred))
        return self._format(inferred, self.label)

    def prepare(self) -> Prepared:
        if self.party_files is not None and self.path is None:
            problem = "the files of several parties are read into memory by each run, and nothing is prepared"
            raise UserError(problem, key="dataset.party_files", value=self.party_files)
        if self.path is None:
            self.check_path()
        return super().prepare()

    def read_party(self, party: str) -> PartySource:
        file, whole = self.file_of(party), replace(self, rows=None)
        self._check_layout()
        with of_party(party):
            parts = find_parts(file, self.members)
            if len(parts) != 1:
                raise UserError("one file a party is expected", key="dataset.path", value=file)
            inferred = whole._infer(parts)
            names, own_label = list(inferred), self.label if party == LABEL_PARTY else ""
            for key, name in (("dataset.id", self.id), ("dataset.label", own_label)):
                if name and name not in names:
                    problem = f"it has no column {shown(name, 60)}, which {key} names; its columns are {listed(names, 40)}"
                    raise UserError(problem, key="dataset.path", value=file)
            refuse_label_column(party, file, self.label, names)
            form = whole._format({**inferred, str(self.id): "text"}, own_label)
            table, bad, facts = read_table(parts[0], form, skip=self.bad_rows == "skip")
            bad_rows, notes = self._left_out(party, bad, len(table))
            ids = identifiers(table, str(self.id), parts[0], form)
            features = [name for name in form.features if name != self.id]
            try:
                labels = labels_of(table[own_label], self.positive) if own_label else None
            except StrayLabelError as error:
                raise stray_label(error, parts, form) from error
        return PartySource.of(party, names, ids, table.select(features), labels, {**facts, **bad_rows}, notes)

    def _left_out(self, party: str, bad: list[BadRow], rows: int) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Facts and a line on bad rows. Raises UserError where they are too many."""
        if not bad:
            return {}, ()
        first, share = [str(row) for row in bad[:5]], len(bad) / (rows + len(bad))
        if share > self.max_bad_fraction:
            problem = f"{share:.2%} of the rows of party {party} are bad, more than allowed; the first: {'; '.join(first)}"
            raise UserError(problem, key="dataset.max_bad_fraction", value=self.max_bad_fraction)
        note = f"bad rows of party {party} left out: {len(bad):,} ({'; '.join(first)}{'; ...' if len(bad) > 5 else ''})"
        return {"bad_rows": {"count": len(bad), "first": first}}, (note,)

    def _format(self, inferred: Mapping[str, str], label: str) -> TextFormat:
        """The layout of a file with these columns. label: empty for a file without labels."""
        kinds = {name: "numeric" if kind != "text" else "categorical" for name, kind in inferred.items()}
        kinds |= {name: kind for name, kind in (self.types or {}).items() if name in kinds}
        numeric = {name for name, kind in kinds.items() if kind == "numeric" and name not in (label, self.id)}
        return TextFormat(
            name=f"the table of {len(inferred)} columns",
            columns=tuple(inferred),
            label=label,
            delimiter=self.delimiter,
            header=self.header,
            reals=frozenset(numeric),
            ignored=frozenset(name for name, kind in kinds.items() if kind == "ignore" and name not in (label, self.id)),
            binary_label=False,
            missing=self._missing(),
            multiline=not self.trim,
            quotes=True,
            clean=self._cleaning(),
        )

    def classes(self, labels: Mapping[str, int], rows: int) -> tuple[list[str], np.ndarray]:
        names, class_of = classes_of(labels, self.positive)
        return names, np.array([class_of[label] for label in labels], dtype=np.int64)

    def _check_layout(self) -> None:
        if len(self.delimiter.encode()) != 1 or self.delimiter in '\0\r\n"':
            problem = "it must be one character, and no quote or line end"
            raise UserError(problem, key="dataset.delimiter", value=self.delimiter)
        if self.comment is not None and not (0 < len(self.comment) <= 8 and self.comment.isprintable()):
            raise UserError("it must be 1 to 8 printable characters", key="dataset.comment", value=self.comment)
        if self.columns is None:
            return
        if self.header:
            problem = "the header names the columns; to name them here, set dataset.header=false"
            raise UserError(problem, key="dataset.columns", value=self.columns)
        wrong = names_error(self.columns) if self.columns else "there is none"
        if wrong:
            raise UserError(wrong.replace("the header names", "it names"), key="dataset.columns", value=self.columns)

    def _missing(self) -> tuple[str, ...]:
        return MISSING if self.missing is None else tuple(dict.fromkeys(["", *self.missing]))

    def _cleaning(self) -> Cleaning:
        return Cleaning(self.delimiter, self.skip_lines, self.comment or "", self.trim)

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
            for block in map(self._cleaning(), read_blocks(opened, quotes=not self.trim)):
                if not names:
                    names, block = self._names(block)
                    kinds = kinds or dict.fromkeys(names, "null")
                for name, kind in _kinds(block, names, self.delimiter, self._missing()).items():
                    kinds[name] = max(kinds.get(name, "null"), kind, key=_ORDER.index)
                if self.rows is not None:
                    break  # one block suffices; parsing reports a later row that disagrees
            if not names:
                problem = f"the file is empty; a table with{'' if self.header else 'out'} a header was expected"
                raise UserError(problem, key="dataset.path", value=str(opened.part))
        return kinds

    def _names(self, block: Block) -> tuple[tuple[str, ...], Block]:
        """The names of the columns, and the rows of a part's first block; no names if every line is empty."""
        if not self.header:
            if self.columns is not None:
                return tuple(self.columns), block
            _, line, _ = next(numbered_lines(block, self.delimiter, multiline=not self.trim), (0, b"", b""))
            fields = fields_of(line, self.delimiter, quotes=True) if line else []
            return tuple(f"c{number}" for number, _ in enumerate(fields or [], 1)), block
        names, rest = first_names(block, self.delimiter)
        problem = names_error(names)
        if problem:
            raise UserError(f"line {rest.first_line - 1}: {problem}", key="dataset.path", value=str(block.part))
        return names, rest


def _kinds(block: Block, names: tuple[str, ...], delimiter: str, missing: tuple[str, ...]) -> dict[str, str]:
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
                convert_options=arrow_csv.ConvertOptions(null_values=list(missing), strings_can_be_null=True),
            )
            return {field.name: _kind(field.type) for field in table.schema}
    return {}


def _kind(arrow_type: pa.DataType) -> str:
    if pa.types.is_null(arrow_type):
        return "null"
    return "number" if pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type) else "text"
