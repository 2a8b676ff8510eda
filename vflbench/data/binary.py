"""Binary tables in libsvm or CSV text."""

import csv
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from typing import Any

import numpy as np
import torch

from vflbench.data.base import Dataset
from vflbench.data.blocks import open_parts, read_blocks
from vflbench.data.files import find_parts
from vflbench.data.raw import RawNumeric, RawTable, Statistics, raw_table
from vflbench.errors import UserError
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
        text = self._text()
        names, x, texts = _libsvm(text) if _is_libsvm(text) else _csv(text, self.label)
        labels, classes = self._classes(texts)
        chosen = self._chosen(names, rng)
        rows = slice(None, self.rows)
        return binary_table([names[j] for j in chosen], x[rows, chosen], labels[rows], len(classes)), {"classes": classes}

    def _text(self) -> str:
        parts = find_parts(self._path())
        pieces = [block.data for opened in open_parts(parts) for block in read_blocks(opened, quotes=False)]
        try:
            text = b"".join(pieces).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UserError(f"it is not text ({error.reason})", key="dataset.path", value=self.path) from error
        if not text.strip():
            raise UserError("it holds no rows", key="dataset.path", value=self.path)
        return text

    def _path(self) -> str | list[str]:
        several = isinstance(self.path, list) and all(isinstance(word, str) for word in self.path)
        if not (several or isinstance(self.path, str)):
            raise UserError("it must be a file, a pattern or a list of them", key="dataset.path", value=self.path)
        return self.path

    def _classes(self, texts: list[str]) -> tuple[np.ndarray, list[str]]:
        """The class of each row, and the names of the classes. texts: the label of each row."""
        values = sorted(set(texts), key=_by_value)
        if self.positive is not None:
            chosen = [text for text in values if text == str(self.positive)]
            if not chosen:
                problem = f"no row has this label; the labels are {', '.join(values[:20])}"
                raise UserError(problem, key="dataset.positive", value=self.positive)
            return np.array([text in chosen for text in texts], dtype=np.int64), [f"not {chosen[0]}", chosen[0]]
        if len(values) > max(2, len(texts) // 2):
            problem = f"it has {len(values)} different values in {len(texts)} rows; a label is a class, not a measurement"
            raise UserError(problem, key="dataset.label", value=self.label)
        class_of = {text: number for number, text in enumerate(values)}
        return np.array([class_of[text] for text in texts], dtype=np.int64), values

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
        for name in self.columns:
            if name not in names:
                problem = f"there is no column {name}; the columns are {', '.join(names[:40])}"
                raise UserError(problem, key="dataset.columns", value=self.columns)
        return [list(names).index(name) for name in self.columns]


def binary_table(names: Sequence[str], x: np.ndarray, labels: np.ndarray, classes: int = 2) -> RawTable:
    """A table whose binary columns are not rescaled, even if they are constant. x: (n, d). labels: (n,)."""
    table = raw_table(tuple(RawNumeric(name, x[:, j]) for j, name in enumerate(names)), labels, classes)
    is_binary = ((x == 0) | (x == 1)).all(axis=0)
    low, high = x.min(axis=0), x.max(axis=0)
    return replace(table, statistics=Statistics(np.where(is_binary, 0.0, low), np.where(is_binary, 1.0, high), ()))


def _is_libsvm(text: str) -> bool:
    words = text.lstrip().split("\n", 1)[0].split()
    return len(words) > 1 and all(word.count(":") == 1 for word in words[1:]) and "," not in words[0]


def _libsvm(text: str) -> tuple[list[str], np.ndarray, list[str]]:
    """Names, values (n, d) and labels of libsvm text."""
    labels, indices, values = [], [], []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        try:
            pairs = [word.split(":") for word in words[1:]]
            columns = [int(index) for index, _ in pairs]
            entries = [float(value) for _, value in pairs]
        except ValueError:
            raise UserError(f"line {number} is not `label index:value ...`: {line[:80]!r}", key="dataset.path") from None
        if columns and min(columns) < 0:
            raise UserError(f"line {number} has the negative index {min(columns)}", key="dataset.path")
        labels.append(words[0])
        indices.append(columns)
        values.append(entries)
    first = min((min(columns) for columns in indices if columns), default=1)
    last = max((max(columns) for columns in indices if columns), default=0)
    if last < first:
        raise UserError("no row has a feature", key="dataset.path")
    first = min(first, 1)  # libsvm counts from 1, some files from 0
    x = np.zeros((len(labels), last - first + 1))
    for row, (columns, entries) in enumerate(zip(indices, values, strict=True)):
        x[row, np.array(columns, dtype=np.int64) - first] = entries
    return [f"x{j}" for j in range(first, last + 1)], x, labels


def _csv(text: str, label: str | None) -> tuple[list[str], np.ndarray, list[str]]:
    """Names, values (n, d) and labels of CSV text with a header."""
    rows = [row for row in csv.reader(StringIO(text)) if row]
    header, body = [name.strip() for name in rows[0]], rows[1:]
    if not body:
        raise UserError("it holds a header but no rows", key="dataset.path")
    if label is not None and label not in header:
        problem = f"there is no such column; the columns are {', '.join(header[:40])}"
        raise UserError(problem, key="dataset.label", value=label)
    named = [name for name in header if name.lower() in _LABELS]
    target = header.index(label if label is not None else named[0] if named else header[0])
    if len(header) < 2:
        raise UserError("it has one column; it needs a label and at least one feature", key="dataset.path")
    x, labels = np.empty((len(body), len(header) - 1)), []
    for number, row in enumerate(body, 2):
        if len(row) != len(header):
            raise UserError(f"row {number} has {len(row)} fields, the header has {len(header)}", key="dataset.path")
        labels.append(row[target].strip())
        for j, cell in enumerate(row[:target] + row[target + 1 :]):
            try:
                x[number - 2, j] = _number(cell)
            except ValueError:
                name = (header[:target] + header[target + 1 :])[j]
                problem = f"row {number}, column {name}: {cell!r} is not 0, 1, y, n or a number"
                raise UserError(problem, key="dataset.path") from None
    return header[:target] + header[target + 1 :], x, labels


def _number(cell: str) -> float:
    known = _VALUES.get(cell.strip().lower())
    value = float(cell) if known is None else known
    if not np.isfinite(value):
        raise ValueError(cell)
    return value


def _by_value(text: str) -> tuple[int, float, str]:
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text
