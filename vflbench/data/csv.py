"""Any delimited table, with a header or without."""

import csv as lines
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from vflbench.data.arrow_columns import check_source, identifiers, labels_of
from vflbench.data.cache import Prepared
from vflbench.data.file_dataset import FileDataset
from vflbench.data.files import Part, find_parts, open_parts
from vflbench.data.labels import MISSING, Positive, classes_of, is_real
from vflbench.data.party_files import PartyFiles
from vflbench.data.party_source import PartySource, check_labelled, join_problem, joined, of_party, refuse_label_column
from vflbench.data.readings import NUMBER, ColumnShape, Mark, MissingAs, TypeOf, described, has_indicator, readings_of
from vflbench.data.streaming import read_rows
from vflbench.data.table import LABEL_PARTY, RawTable
from vflbench.data.text import BadRow, TextFormat, first_text, names_error, names_of, texts
from vflbench.errors import UserError
from vflbench.options import NonNegativeInt, options

_READING = 6
"""Version of what columns are taken for. Tables that were prepared by another are prepared again."""
_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
_NUMBER = re.compile(r"\s*[-+]?[0-9]*[.,]?[0-9]+\s*")


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
    trim: leave out blanks around values, and count several as one where the delimiter is a blank.
    skip_lines: leave out so many first lines of each file. comment: leave out lines that begin so.
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
        join_problem({part: names_of(part, self._layout(part, [str(self.label)])) for part in several}, self.id)
        names = names_of(parts[0], layout)
        self.check_named(names)
        return self._format(layout, parts, names, str(self.label))

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

    def _format(
        self, layout: TextFormat, parts: Sequence[Part], names: Sequence[str], label: str, *, identified: bool = False
    ) -> TextFormat:
        """The layout of a file with these columns, after a look at all rows. label: empty for a file without labels.
        identified: whether the identifiers are read, as texts; else their column is left out.
        """
        shapes, types = {name: ColumnShape() for name in names}, self.types or {}
        look = replace(layout, columns=tuple(names), readings=dict.fromkeys(names, NUMBER), label="")
        for part, stream, _ in open_parts(parts):
            for rows in texts(part, stream, look):
                for name, shape in shapes.items():
                    for chunk in rows.table[name].chunks:
                        shape.add(chunk)
        others = (label, self.id)
        readings, doubts = readings_of(self, shapes, others)
        if layout.header and all(is_real(name) for name in names):
            problem = (
                "the first line, which names the columns, holds numbers alone; if it is a row, say dataset.header=false"
            )
            doubts.append(problem)
        ignored = {name for name in names if types.get(name) == "ignore" and name not in others}
        unread = {name for name in names if name == self.id != label and not identified}
        shown_as = described(readings, {name: shape.missing for name, shape in shapes.items()}, sorted(ignored), doubts)
        return replace(
            layout,
            name=f"the table of {len(names)} columns",
            columns=tuple(names),
            label=label,
            readings=readings,
            ignored=frozenset(ignored | unread),
            indicators=frozenset(n for n in readings if has_indicator(self.missing_as, shapes[n].missing, shapes[n].rows)),
            read_as={"delimiter": layout.delimiter, **shown_as},
        )

    def _source(self, party: str, part: Part, *, is_label: bool) -> PartySource:
        """One file in memory, with its identifiers."""
        file, identifier, own_label = str(part), str(self.id), str(self.label) if is_label else ""
        layout = self._layout(part, [name for name in (self.id, own_label) if name])
        names = names_of(part, layout)
        self.check_label(names)
        check_source(self, part, names, is_label=is_label)
        refuse_label_column(self, party, file, names)
        form = self._format(layout, [part], names, own_label, identified=True)
        tables, numbers, bad = [], [], []
        facts: dict[str, Any] = {"path": str(part.file.resolve()), "read_as": form.read_as}
        for _, stream, stored in open_parts([part]):
            for block in texts(part, stream, form):
                rows = read_rows(part, block, form, skip=self.bad_rows == "skip")
                tables.append(rows.table)
                numbers.append(rows.numbers)
                bad += rows.bad
            facts["file_sha256"] = stored.sha256()
        if not sum(map(len, tables)):
            raise part.error(f"the file holds no rows of {form.name}")
        table = pa.concat_tables(tables)
        bad_facts, notes = self._left_out_rows(party, bad, len(table))
        ids = identifiers(table[identifier].to_pylist(), identifier, part, np.concatenate(numbers))
        features = [name for name in table.column_names if name not in (identifier, own_label)]
        labels = labels_of(table[own_label], self.positive) if own_label else None
        return PartySource.of(party, names, ids, table.select(features), labels, facts | bad_facts, notes)

    def _left_out_rows(self, party: str, bad: Sequence[BadRow], rows: int) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Facts and a line on bad rows, beside so many good ones. Raises UserError where they are too many."""
        if not bad:
            return {}, ()
        first, share = [str(row) for row in bad[:5]], len(bad) / (rows + len(bad))
        if share > self.max_bad_fraction:
            problem = f"{share:.2%} of the rows of party {party} are bad, more than allowed; the first: {'; '.join(first)}"
            raise UserError(problem, key="dataset.max_bad_fraction", value=self.max_bad_fraction)
        note = f"bad rows of party {party} left out: {len(bad):,} ({'; '.join(first)}{'; ...' if len(bad) > 5 else ''})"
        return {"bad_rows": {"count": len(bad), "first": first}}, (note,)

    @cached_property
    def _parts(self) -> list[Part]:
        return find_parts(self.path or [], self.members)

    @cached_property
    def _is_joined(self) -> bool:
        """Whether `path` names several files of different columns, and `id` the column that they share."""
        if self.id is None or len(self._parts) < 2:
            return False
        return len({names_of(part, self._layout(part, [self.id])) for part in self._parts}) > 1

    def _sources(self) -> list[PartySource]:
        headers = {part: names_of(part, self._layout(part, [str(self.id)])) for part in self._parts}
        self.check_label([name for names in headers.values() for name in names])
        check_labelled(self, headers)
        return [self._source(part.file.name, part, is_label=self.label in headers[part]) for part in self._parts]

    def _layout(self, part: Part, wanted: Sequence[str]) -> TextFormat:
        """How to split a part. wanted: columns that it should have."""
        self._check_layout()
        layout = TextFormat(
            columns=tuple(self.columns or ()),
            delimiter=self.delimiter or ",",
            header=self.header,
            binary_label=False,
            missing=MISSING if self.missing is None else tuple(dict.fromkeys(["", *self.missing])),
            encoding=self.encoding or "utf-8",
            skip_lines=self.skip_lines,
            comment=self.comment or "",
            trim=self.trim,
        )
        return layout if self.delimiter else replace(layout, delimiter=_found_delimiter(part, layout, wanted))

    def _check_layout(self) -> None:
        mark = self.delimiter
        if mark is not None and (len(mark.encode()) != 1 or mark in '\0\r\n"'):
            problem = "it must be one character, and no quote or line end"
            raise UserError(problem, key="dataset.delimiter", value=mark)
        try:
            b"aaaa".decode(self.encoding or "utf-8", "ignore")
        except (LookupError, ValueError) as error:
            problem = "there is no such encoding; usual ones are utf-8, cp1252 (Western Windows), latin-1 and utf-16"
            raise UserError(problem, key="dataset.encoding", value=self.encoding) from error
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


def _found_delimiter(part: Part, layout: TextFormat, wanted: Sequence[str]) -> str:
    """The delimiter that splits the first lines best.

    It must split the first line. Those with which the header has one of the wanted names are preferred; where there are
    several, the one with which most lines have as many fields as the first, and then most fields are numbers. Raises
    UserError where two do equally well.
    """
    start = [line for line in first_text(part, layout).splitlines()[layout.skip_lines :] if line.strip()]
    start = [line for line in start if not (layout.comment and line.startswith(layout.comment))][:200]
    scores: dict[str, tuple[bool, float, float]] = {}
    for mark in _DELIMITERS:
        rows: list[list[str]] = []
        with suppress(lines.Error):  # of a line that is not split at this mark, and too long
            rows = [row for row in lines.reader(start, delimiter=mark) if row]
        if not rows or len(rows[0]) < 2:
            continue
        names = {name.strip() for name in rows[0]}
        named = bool(names & set(wanted)) if layout.header else len(rows[0]) == len(layout.columns)
        split = [row for row in rows if len(row) == len(rows[0])]
        values = [value for row in split[layout.header :] for value in row]
        plain = sum(not value or _NUMBER.fullmatch(value) is not None for value in values) / max(1, len(values))
        scores[mark] = (named, len(split) / len(rows), plain)
    chosen = [mark for mark, score in scores.items() if score == max(scores.values())]
    if len(chosen) > 1:
        which = " or ".join(f"{_DELIMITERS[mark]} ({mark!r})" for mark in chosen)
        raise part.error(f"the first lines can be split at {which}; say which with dataset.delimiter")
    return chosen[0] if chosen else ","
