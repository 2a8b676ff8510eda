"""Any delimited table, with a header or without."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from vflbench.data.arrow_columns import labels_of
from vflbench.data.cache import Prepared
from vflbench.data.cleaning import Cleaning
from vflbench.data.csv_columns import TextLayout
from vflbench.data.csv_format import TypeOf, format_of
from vflbench.data.csv_party import identifiers, left_out_rows, read_table
from vflbench.data.delimiters import found_delimiter
from vflbench.data.encodings import UTF8, check_encoding
from vflbench.data.file_dataset import FileDataset
from vflbench.data.files import Part, find_parts, listed
from vflbench.data.labels import MISSING, Positive, StrayLabelError, classes_of
from vflbench.data.line_errors import names_error
from vflbench.data.party_files import PartyFiles
from vflbench.data.party_source import PartySource, check_labelled, join_problem, joined, of_party, refuse_label_column
from vflbench.data.readings import Mark, MissingAs
from vflbench.data.stray_labels import stray_label
from vflbench.data.table import LABEL_PARTY, RawTable
from vflbench.data.text import TextFormat
from vflbench.errors import UserError, shown
from vflbench.options import NonNegativeInt, options

_READING = 5
"""Version of what columns are taken for. Tables that were prepared by another are prepared again."""


@options
class Csv(PartyFiles, FileDataset):
    """Any table with a header, or without; the user names the label column and the columns of each party.

    A column is numeric if it holds numbers in every row, also such as `1.234,56`; dates become numbers (days since
    the first, month, weekday, hour); all others are categorical, unless `types` overrides it. A column that tells every row
    apart, such as a customer's number, is left out, and a line says so. A missing value (empty, NA, N/A, NaN, null, ?) is 0
    in a numeric column, beside which a column says where, and a category of its own in a categorical one. Classes are the
    label's values, sorted: numbers by value, texts by alphabet. With two classes, the second is positive; of yes and no in
    several languages, yes.

    label: the column that holds the labels. positive: the label's positive value, or a list of its spellings; all others
    are negative. null uses the sorted order. types: column -> numeric, categorical, date or ignore. delimiter: one
    character; null: found in the first lines, among comma, semicolon, tab and vertical bar. encoding: of the text; null:
    UTF-8. decimal: the mark before decimals; null: found by column. day_first: of dates such as 3/4/2020, whether this is
    April 3; null: found by column. header: whether the first line names the columns. columns: without a header, their names
    in order; null: c1, c2, ... missing: words that stand for a missing value, beside the empty one; null: those above.
    missing_as: whether each column of numbers or dates in which values are missing has an `indicator` beside it, 0 or 1, or
    missing values are 0 alone, `zero`; null: an indicator where more than 1 % are missing.
    trim: leave out blanks around values, and count several as one where the delimiter is a blank; a quoted value then ends
    with its line. skip_lines: leave out so many first lines of each file. comment: leave out lines that begin so.
    """

    path: str | list[str] | None = None  # type: ignore[assignment]
    label: str | None = None
    positive: Positive = None
    types: dict[str, TypeOf] | None = None
    delimiter: str | None = None
    encoding: str | None = None
    decimal: Mark | None = None
    day_first: bool | None = None
    header: bool = True
    columns: list[str] | None = None
    missing: list[str] | None = None
    missing_as: MissingAs | None = None
    trim: bool = False
    skip_lines: NonNegativeInt = 0
    comment: str | None = None

    def layout_options(self) -> dict[str, Any]:
        types = dict(sorted((self.types or {}).items()))
        names = ("label", "positive", "delimiter", "header", "columns", "missing", "trim", "skip_lines", "comment")
        more = ("id", "encoding", "decimal", "day_first", "missing_as")
        return {"types": types, "reading": _READING, **{name: getattr(self, name) for name in (*names, *more)}}

    def text_format(self, parts: list[Part]) -> TextFormat:
        """The header's columns, each with the narrowest kind that fits all rows."""
        layout = self._layout(parts[0], [self.label] if self.label else [])
        several = parts if len(parts) > 1 else []
        join_problem({part: self._layout(part, [str(self.label)]).names(part) for part in several}, self.id)
        shapes = layout.shapes(parts)
        self.check_named(list(shapes))
        return format_of(self, layout, parts, shapes, str(self.label))

    def prepare(self) -> Prepared:
        if self.path is None:
            self.check_path()
        self._check_layout()
        return super().prepare()

    def is_kept(self) -> bool:
        return self.party_files is None and (self.path is None or not self._is_joined)

    def described(self) -> list[str]:
        if not self.is_kept():
            return PartyFiles.described(self)
        prepared = self.prepare()
        left_out = self.left_out(prepared.table, prepared.facts.get("read_as", {}))
        return [prepared.line(left_out), *self.table_lines(prepared.table, prepared.facts)]

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        return super().read(rng) if self.is_kept() else joined(self, self._sources())

    def read_party(self, party: str) -> PartySource:
        file = self.file_of(party)
        with of_party(party):
            parts = find_parts(file, self.members)
            if len(parts) != 1:
                raise UserError("one file a party is expected", key="dataset.path", value=file)
            return self._source(party, parts[0], is_label=party == LABEL_PARTY)

    def classes(self, labels: Mapping[str, int], rows: int) -> tuple[list[str], np.ndarray]:
        names, class_of = classes_of(labels, self.positive)
        return names, np.array([class_of[label] for label in labels], dtype=np.int64)

    def _source(self, party: str, part: Part, *, is_label: bool) -> PartySource:
        """One file in memory, with its identifiers."""
        whole, file, identifier = replace(self, rows=None), str(part), str(self.id)
        own_label = str(self.label) if is_label else ""
        layout = whole._layout(part, [name for name in (self.id, own_label) if name])
        shapes = layout.shapes([part])
        names = list(shapes)
        self.check_label(names)
        for key, name in (("dataset.id", identifier), ("dataset.label", own_label)):
            if name and name not in names:
                problem = f"it has no column {shown(name, 60)}, which {key} names; its columns are {listed(names, 40)}"
                raise UserError(problem, key="dataset.path", value=file)
        if self.party_files is not None:
            refuse_label_column(party, file, str(self.label), names)
        form = format_of(whole, layout, [part], shapes, own_label, identified=True)
        table, bad, facts = read_table(part, form, skip=self.bad_rows == "skip")
        bad_facts, notes = left_out_rows(party, bad, len(table), self.max_bad_fraction)
        ids = identifiers(table, identifier, part, form)
        features = [name for name in table.column_names if name not in (identifier, own_label)]
        try:
            labels = labels_of(table[own_label], self.positive) if own_label else None
        except StrayLabelError as error:
            raise stray_label(error, [part], form) from error
        facts = {**facts, **bad_facts, **({"read_as": form.read_as} if form.read_as else {})}
        return PartySource.of(party, names, ids, table.select(features), labels, facts, notes)

    @cached_property
    def _parts(self) -> list[Part]:
        return find_parts(self.path or [], self.members)

    @cached_property
    def _is_joined(self) -> bool:
        """Whether `path` names several files of different columns, and `id` the column that they share."""
        if self.id is None or len(self._parts) < 2:
            return False
        return len({self._layout(part, [self.id]).names(part) for part in self._parts}) > 1

    def _sources(self) -> list[PartySource]:
        headers = {part: self._layout(part, [str(self.id)]).names(part) for part in self._parts}
        self.check_label([name for names in headers.values() for name in names])
        check_labelled(self, headers)
        return [self._source(part.file.name, part, is_label=self.label in headers[part]) for part in self._parts]

    def _layout(self, part: Part, wanted: Sequence[str]) -> TextLayout:
        """How to split a part. wanted: columns that it should have."""
        self._check_layout()
        layout = TextLayout(
            delimiter=self.delimiter or ",",
            header=self.header,
            columns=None if self.columns is None else tuple(self.columns),
            missing=MISSING if self.missing is None else tuple(dict.fromkeys(["", *self.missing])),
            cleaning=Cleaning(self.delimiter or ",", self.skip_lines, self.comment or "", self.trim),
            multiline=not self.trim,
            encoding=UTF8 if self.encoding is None else check_encoding(self.encoding),
        )
        if self.delimiter is not None:
            return layout
        plain = replace(layout, cleaning=replace(layout.cleaning, trim=False))
        found = found_delimiter(plain.start(part), header=self.header, wanted=wanted, columns=self.columns)
        return replace(layout, delimiter=found, cleaning=replace(layout.cleaning, delimiter=found))

    def _check_layout(self) -> None:
        mark = self.delimiter
        if mark is not None and (len(mark.encode()) != 1 or mark in '\0\r\n"'):
            problem = "it must be one character, and no quote or line end"
            raise UserError(problem, key="dataset.delimiter", value=mark)
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
