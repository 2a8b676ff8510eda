"""Binary tables in libsvm or CSV text."""

import codecs
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from vflbench.data.base import Dataset
from vflbench.data.files import Part, find_parts, listed, open_parts, read_whole
from vflbench.data.readings import NUMBER, Plain, class_names, is_real
from vflbench.data.table import RawTable, raw_table
from vflbench.data.text import TextFormat, column_names, parsed, texts
from vflbench.errors import UserError, shown
from vflbench.numerics.system import refuse_too_large
from vflbench.options import Count, options

_LABELS = ("class", "label", "target", "y", "overall_diagnosis")
_ZERO, _ONE = r"(?i)^[ \t]*(?:n|no|false)?[ \t]*$", r"(?i)^[ \t]*(?:y|yes|true)[ \t]*$"


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

    path: str | list[str]
    label: str | None = None
    positive: str | int | None = None
    columns: Count | list[str] | None = None

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        parts = find_parts(self.path)
        names, x, labels = _libsvm(parts) if _is_libsvm(parts[0]) else _csv(parts, self.label)
        if not labels:
            raise UserError("it holds no rows", key="dataset.path", value=self.path)
        classes, class_of = class_names(Counter(labels), self.positive)
        chosen, rows = self._chosen(names, rng), slice(None, self.rows)
        numbers = np.array([class_of[label] for label in labels], dtype=np.int64)
        table = binary_table([names[j] for j in chosen], x[rows, chosen], numbers[rows], len(classes))
        return table, {"classes_are": classes}

    def _chosen(self, names: Sequence[str], rng: torch.Generator) -> list[int]:
        if self.columns is None:
            return list(range(len(names)))
        if isinstance(self.columns, int):
            if not 1 <= self.columns <= len(names):
                problem = f"as a number it must be between 1 and {len(names)}"
                raise UserError(problem, key="dataset.columns", value=self.columns)
            return sorted(torch.randperm(len(names), generator=rng)[: self.columns].tolist())
        place = {name: j for j, name in enumerate(names)}
        for name in self.columns:
            if name not in place:
                problem = f"there is no column {shown(name)}; the columns are {listed(names, 40)}"
                raise UserError(problem, key="dataset.columns", value=self.columns)
        return [place[name] for name in self.columns]


def binary_table(names: Sequence[str], x: np.ndarray, labels: np.ndarray, classes: int = 2) -> RawTable:
    """A table whose binary columns are not rescaled, even if they are constant. x: (n, d). labels: (n,)."""
    limits = np.where(((x == 0) | (x == 1)).all(axis=0), [[0.0], [1.0]], np.nan)
    return replace(raw_table(dict(zip(names, x.T, strict=True)), labels, classes), limits=(limits[0], limits[1]))


class _Bits(Plain):
    """A reading of cells: y, yes, true are 1; n, no, false and empty ones 0; others are numbers."""

    @property
    def words(self) -> str:
        return "0, 1, y, n or numbers"

    def numbers(self, values: pa.Array) -> list[np.ndarray]:
        digits = pc.if_else(pc.match_substring_regex(values, _ZERO), "0", values)
        return NUMBER.numbers(pc.if_else(pc.match_substring_regex(values, _ONE), "1", digits))


def _is_libsvm(part: Part) -> bool:
    """Whether the first line that is no comment is one of libsvm text, and not a header."""
    ((_, content),) = read_whole([part])
    for line in content.removeprefix(codecs.BOM_UTF8).splitlines():
        words = line.partition(b"#")[0].split()
        if words:
            return all(word.count(b":") == 1 for word in words[1:]) and is_real(words[0].decode("latin-1"))
    return False


def _libsvm(parts: Sequence[Part]) -> tuple[list[str], np.ndarray, list[str]]:
    """Names, values (n, d) and labels of libsvm texts. Raises UserError, with the line. Indices begin with 0 or 1."""
    from sklearn.datasets import load_svmlight_files  # late: it takes a second to import

    contents = [content.removeprefix(codecs.BOM_UTF8) for part in parts for _, content in read_whole([part])]
    try:
        read = load_svmlight_files(list(map(io.BytesIO, contents)), zero_based=True)
    except (ValueError, OverflowError) as error:
        raise _libsvm_error(parts, contents) or UserError(str(error), key="dataset.path", value=str(parts[0])) from error
    matrices, numbers = read[::2], np.concatenate(read[1::2])
    width = matrices[0].shape[1]
    refuse_too_large(len(numbers) * width, 8, "the rows and columns", "dataset.path")
    x = np.concatenate([matrix.toarray() for matrix in matrices])
    finite = np.isfinite(numbers) & np.isfinite(x).all(axis=1)
    if not finite.all():
        problem = f"row {finite.argmin() + 1:,} holds a value that isn't finite"
        raise UserError(problem, key="dataset.path", value=str(parts[0]))
    first = int(not any(matrix[:, 0].nnz for matrix in matrices))
    if width == first:
        raise UserError("no row has a feature", key="dataset.path", value=str(parts[0]))
    labels = [f"{number:.0f}" if number == int(number) else repr(number) for number in numbers.tolist()]
    return [f"x{j}" for j in range(first, width)], x[:, first:], labels


def _libsvm_error(parts: Sequence[Part], contents: Sequence[bytes]) -> UserError | None:
    """The first line that can't be read by itself."""
    from sklearn.datasets import load_svmlight_file  # late, as above

    for part, content in zip(parts, contents, strict=True):
        for number, line in enumerate(content.split(b"\n"), 1):
            try:
                load_svmlight_file(io.BytesIO(line), zero_based=True)
            except (ValueError, OverflowError) as error:
                return UserError(f"line {number}: {shown(str(error), 200)}", key="dataset.path", value=str(part))
    return None


def _csv(parts: Sequence[Part], label: str | None) -> tuple[list[str], np.ndarray, list[str]]:
    """Names, values (n, d) and labels of CSV texts, each with the same header."""
    names = column_names(parts[0], TextFormat())
    for part in parts[1:]:
        if column_names(part, TextFormat()) != names:
            raise part.error(f"its header is not that of {shown(parts[0], 200)}")
    if len(names) < 2:
        raise parts[0].error("it has one column; it needs a label and at least one feature")
    if label is not None and label not in names:
        problem = f"there is no such column; the columns are {listed(names, 40)}"
        raise UserError(problem, key="dataset.label", value=label)
    target = label or next((name for name in names if name.strip().lower() in _LABELS), names[0])
    features = [name for name in names if name != target]
    form = TextFormat(columns=names, label=target, readings=dict.fromkeys(features, _Bits()), binary_label=False)
    tables: list[pa.Table] = []
    for part, stream in open_parts(parts):
        for rows in (parsed(block, form) for block in texts(part, stream, form)):
            if rows.bad:
                raise part.error(str(rows.bad[0]))
            tables.append(rows.table)
    if not tables:
        return features, np.empty((0, len(features))), []
    table = pa.concat_tables(tables)
    labels = [text.strip() for text in table[target].to_pylist()]
    return features, np.nan_to_num(np.stack([table[name].to_numpy() for name in features], axis=1)), labels
