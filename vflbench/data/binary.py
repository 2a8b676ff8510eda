"""Binary tables in libsvm or CSV text."""

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import torch

from vflbench.data.base import Dataset
from vflbench.data.files import Part, find_parts, listed
from vflbench.data.labels import StrayLabelError, classes_of, label_problem
from vflbench.data.libsvm import MOST_NUMBERS, is_libsvm, read_libsvm
from vflbench.data.line_errors import names_error
from vflbench.data.lines import Line, read_lines
from vflbench.data.numerals import is_real
from vflbench.data.table import RawNumeric, RawTable, Statistics, raw_table
from vflbench.data.text import fields_of
from vflbench.errors import UserError, shown
from vflbench.options import options

_LABELS = ("class", "label", "target", "y", "overall_diagnosis")
_VALUES = {"": 0.0, "0": 0.0, "n": 0.0, "no": 0.0, "false": 0.0, "1": 1.0, "y": 1.0, "yes": 1.0, "true": 1.0}


@options
class Binary(Dataset):
    """A table of zeros and ones in libsvm text (`label index:1 index:1 ...`) or CSV with a header, plain or compressed.

    path: a file, or several (a list or a pattern).
    label: the label's column in CSV; null takes the column Class, label, target, y or OVERALL_DIAGNOSIS, else the first.
    positive: the label that becomes class 1, all others class 0; null keeps all classes, sorted by name, numbers by value.
    columns: how many columns to draw at random, or a list of names; null keeps all.
    Cells y, yes, true are 1; n, no, false and empty cells are 0. A column with other numbers is min-max normalised.

    Source: the format of libsvm, Chang and Lin, "LIBSVM: A library for support vector machines", 2011.
    """

    path: Any
    label: str | None = None
    positive: str | int | None = None
    columns: Any = None

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        lines = read_lines(find_parts(self._path()))
        start: list[Line] = []
        for line in lines:
            start.append(line)
            if not line.text.lstrip().startswith("#"):  # a comment of libsvm, or else the header's first name
                break
        if not start:
            raise UserError("it holds no rows", key="dataset.path", value=self.path)
        texts = chain(start, lines)
        names, x, labels, places = read_libsvm(texts) if is_libsvm(start[-1].text) else _csv(texts, self.label)
        if not places:
            raise UserError("it holds a header but no rows", key="dataset.path", value=self.path)
        classes, class_of = self._classes(labels, places)
        chosen, rows = self._chosen(names, rng), slice(None, self.rows)
        numbers = np.array([class_of[label] for label in labels], dtype=np.int64)
        table = binary_table([names[j] for j in chosen], x[rows, chosen], numbers[rows], len(classes))
        return table, {"classes_are": classes}

    def _classes(self, labels: list[str], places: list[Line]) -> tuple[list[str], dict[str, int]]:
        try:
            return classes_of(Counter(labels), self.positive)
        except StrayLabelError as error:
            raise places[labels.index(error.label)].error(str(error)) from error

    def _path(self) -> str | list[str]:
        several = isinstance(self.path, list) and all(isinstance(word, str) for word in self.path)
        if not (several or isinstance(self.path, str)):
            raise UserError("it must be a file, a pattern or a list of them", key="dataset.path", value=self.path)
        return self.path

    def _chosen(self, names: Sequence[str], rng: torch.Generator) -> list[int]:
        if self.columns is None:
            return list(range(len(names)))
        if isinstance(self.columns, int) and not isinstance(self.columns, bool):
            if not 1 <= self.columns <= len(names):
                problem = f"as a number it must be between 1 and {len(names)}"
                raise UserError(problem, key="dataset.columns", value=self.columns)
            return sorted(torch.randperm(len(names), generator=rng)[: self.columns].tolist())
        if not isinstance(self.columns, list) or not self.columns:
            raise UserError("it must be a number of columns or a list of names", key="dataset.columns", value=self.columns)
        place = {name: j for j, name in enumerate(names)}
        for name in self.columns:
            if name not in place:
                problem = f"there is no column {shown(name)}; the columns are {listed(names, 40)}"
                raise UserError(problem, key="dataset.columns", value=self.columns)
        return [place[name] for name in self.columns]


def binary_table(names: Sequence[str], x: np.ndarray, labels: np.ndarray, classes: int = 2) -> RawTable:
    """A table whose binary columns are not rescaled, even if they are constant. x: (n, d). labels: (n,)."""
    table = raw_table(tuple(RawNumeric(name, x[:, j]) for j, name in enumerate(names)), labels, classes)
    is_binary = ((x == 0) | (x == 1)).all(axis=0)
    low, high = x.min(axis=0), x.max(axis=0)
    return replace(table, statistics=Statistics(np.where(is_binary, 0.0, low), np.where(is_binary, 1.0, high), ()))


class _Rows:
    """The rows of CSV text as they are read."""

    def __init__(self, label: str | None):
        self.label, self.target = label, -1
        self.header: tuple[str, ...] = ()
        self.values: array[float] = array("d")
        self.labels: list[str] = []
        self.places: list[Line] = []

    def head(self, line: Line) -> None:
        """The first line of a part."""
        header = tuple(name.strip() for name in _fields(line))
        problem = names_error(header)
        if problem:
            raise line.error(problem)
        if self.header and header != self.header:
            raise line.error(
                f"its header is not that of {shown(self.places[0].part if self.places else 'the first file', 200)}"
            )
        if len(header) < 2:
            raise line.error("it has one column; it needs a label and at least one feature", of_line=False)
        if self.label is not None and self.label not in header:
            problem = f"there is no such column; the columns are {listed(header, 40)}"
            raise UserError(problem, key="dataset.label", value=self.label)
        named = [name for name in header if name.lower() in _LABELS]
        self.header = header
        self.target = header.index(self.label if self.label is not None else named[0] if named else header[0])

    def add(self, line: Line) -> None:
        row = _fields(line)
        if len(row) != len(self.header):
            raise line.error(f"{len(row)} fields, and the header has {len(self.header)}")
        label = row.pop(self.target).strip()
        problem = label_problem(label)
        if problem:
            raise line.error(f"column {shown(self.header[self.target])}: {problem}")
        for j, cell in enumerate(row):
            try:
                self.values.append(_number(cell))
            except ValueError:
                name = shown(self.header[j + (j >= self.target)])
                raise line.error(f"column {name}: {line.quoted(cell)} is not 0, 1, y, n or a finite number") from None
        if len(self.values) > MOST_NUMBERS:
            raise line.error(f"up to here the table has {len(self.values):,} numbers, too many for memory")
        self.labels.append(label)
        self.places.append(line)


def _csv(lines: Iterable[Line], label: str | None) -> tuple[list[str], np.ndarray, list[str], list[Line]]:
    """Names, values (n, d), labels and lines of CSV texts, each with the same header."""
    rows = _Rows(label)
    part: Part | None = None
    for line in lines:
        if line.part != part:
            part = line.part
            rows.head(line)
        else:
            rows.add(line)
    names = [name for j, name in enumerate(rows.header) if j != rows.target]
    return names, np.array(rows.values).reshape(len(rows.places), len(names)), rows.labels, rows.places


def _fields(line: Line) -> list[str]:
    fields = fields_of(line.text.encode(), ",", quotes=True)
    if fields is None:
        raise line.error("a quote is misplaced; quotes go around a whole value, on one line")
    return [field.decode() for field in fields]


def _number(cell: str) -> float:
    known = _VALUES.get(cell.strip(" \t").lower())
    if known is None and not is_real(cell):
        raise ValueError(cell)
    return float(cell) if known is None else known
