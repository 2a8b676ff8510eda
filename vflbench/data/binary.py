"""Binary tables in libsvm or CSV text."""

import codecs
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from vflbench.data.file_dataset import FileDataset
from vflbench.data.files import Part, listed, read_whole
from vflbench.data.labels import classes_of, is_real
from vflbench.data.readings import NUMBER
from vflbench.data.table import RawNumeric, RawTable, Statistics, raw_table
from vflbench.data.text import Rows, TextFormat, names_of
from vflbench.errors import UserError, shown
from vflbench.numerics.system import refuse_too_large
from vflbench.options import Count, options

_LABELS = ("class", "label", "target", "y", "overall_diagnosis")
_ZERO, _ONE = r"(?i)^[ \t]*(?:n|no|false)?[ \t]*$", r"(?i)^[ \t]*(?:y|yes|true)[ \t]*$"


@options
class Binary(FileDataset):
    """A table of zeros and ones in libsvm text (`label index:1 index:1 ...`) or CSV with a header, plain or compressed.

    path: a file, or several (a list or a pattern).
    label: the label's column in CSV; null takes the column Class, label, target, y or OVERALL_DIAGNOSIS, else the first.
    positive: the label that becomes class 1, all others class 0; null keeps all classes, sorted by name, numbers by value.
    columns: how many columns to draw at random, or a list of names; null keeps all.
    Cells y, yes, true are 1; n, no, false and empty cells are 0. A column with other numbers is min-max normalised.

    Source: the format of libsvm, Chang and Lin, "LIBSVM: A library for support vector machines", 2011.
    """

    label: str | None = None
    positive: str | int | None = None
    columns: Count | list[str] | None = None

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        prepared = self.prepare()
        whole, facts = prepared.table, dict(prepared.facts)
        facts["classes_are"] = list(facts.pop("class_rows"))
        chosen, rows = self._chosen(whole.names, rng), slice(None, self.rows)
        x = np.nan_to_num(whole.numeric[rows][:, chosen])
        table = binary_table([whole.names[j] for j in chosen], x, whole.labels[rows], len(facts["classes_are"]))
        return table, {**facts, "notes": prepared.notes()}

    def prepare(self) -> Any:
        parts = self.find(self.path)
        return self.prepared(parts, lambda: self.text_format(parts), None)

    def layout_options(self) -> dict[str, Any]:
        return {"label": self.label, "positive": self.positive}

    def classes(self, labels: Mapping[str, int], rows: int) -> tuple[list[str], np.ndarray]:
        names, class_of = classes_of(labels, self.positive)
        return names, np.array([class_of[label] for label in labels])

    def text_format(self, parts: list[Part]) -> TextFormat:
        if _is_libsvm(parts[0]):
            several = [_libsvm(part, content)[0] for part, content in read_whole(parts)]
            width, first = max(x.shape[1] for x in several), int(not any(x[:, 0].nnz for x in several))
            if width == first:
                raise parts[0].error("no row has a feature")
            refuse_too_large(sum(x.shape[0] for x in several) * width, 8, "the rows and columns", "dataset.path")
            names = tuple(f"x{j}" for j in range(first, width))
            plain = dict.fromkeys(names, NUMBER)
            return TextFormat("the text", ("label", *names), "label", readings=plain, typed=True, binary_label=False)
        names = names_of(parts[0], TextFormat())
        for part in parts[1:]:
            if names_of(part, TextFormat()) != names:
                raise part.error(f"its header is not that of {shown(parts[0], 200)}")
        if len(names) < 2:
            raise parts[0].error("it has one column; it needs a label and at least one feature")
        if self.label is not None and self.label not in names:
            problem = f"there is no such column; the columns are {listed(names, 40)}"
            raise UserError(problem, key="dataset.label", value=self.label)
        label = self.label or next((name for name in names if name.strip().lower() in _LABELS), names[0])
        readings = {name: _Bits() for name in names if name != label}
        return TextFormat(columns=names, label=label, readings=readings, binary_label=False)

    def blocks(self, part: Part, stream: Any, form: TextFormat) -> Iterator[Rows]:
        if not form.typed:
            yield from super().blocks(part, stream, form)
            return
        matrix, labels = _libsvm(part, stream.read())
        x = np.zeros((len(labels), int(form.columns[-1][1:]) + 1))
        x[:, : matrix.shape[1]] = matrix.toarray()
        texts = [f"{label:.0f}" if label == int(label) else repr(label) for label in labels.tolist()]
        columns = {name: x[:, int(name[1:])] for name in form.columns[1:]}
        yield Rows(pa.table({"label": texts, **columns}), np.arange(1, len(x) + 1), [])

    def _chosen(self, names: Sequence[str], rng: torch.Generator) -> list[int]:
        if self.columns is None:
            return list(range(len(names)))
        if isinstance(self.columns, int):
            if not 1 <= self.columns <= len(names):
                problem = f"as a number it must be between 1 and {len(names)}"
                raise UserError(problem, key="dataset.columns", value=self.columns)
            return sorted(torch.randperm(len(names), generator=rng)[: self.columns].tolist())
        unknown = next((name for name in self.columns if name not in names), None)
        if unknown is not None:
            problem = f"there is no column {shown(unknown)}; the columns are {listed(names, 40)}"
            raise UserError(problem, key="dataset.columns", value=self.columns)
        return [names.index(name) for name in self.columns]


def binary_table(names: Sequence[str], x: np.ndarray, labels: np.ndarray, classes: int = 2) -> RawTable:
    """A table whose binary columns are not rescaled, even if they are constant. x: (n, d). labels: (n,)."""
    table = raw_table(tuple(RawNumeric(name, x[:, j]) for j, name in enumerate(names)), labels, classes)
    is_binary = ((x == 0) | (x == 1)).all(axis=0)
    low, high = x.min(axis=0), x.max(axis=0)
    return replace(table, statistics=Statistics(np.where(is_binary, 0.0, low), np.where(is_binary, 1.0, high), ()))


class _Bits:
    """A reading of cells: y, yes, true are 1; n, no, false and empty ones 0; others are numbers."""

    words = "0, 1, y, n or numbers"

    def made(self, values: pa.Array, name: str = "") -> dict[str, np.ndarray]:
        digits = pc.if_else(pc.match_substring_regex(values, _ZERO), "0", values)
        return NUMBER.made(pc.if_else(pc.match_substring_regex(values, _ONE), "1", digits), name)


def _is_libsvm(part: Part) -> bool:
    """Whether the first line that is no comment is one of libsvm text, and not a header."""
    ((_, content),) = read_whole([part])
    for line in content.removeprefix(codecs.BOM_UTF8).splitlines():
        words = line.partition(b"#")[0].split()
        if words:
            return all(word.count(b":") == 1 for word in words[1:]) and is_real(words[0].decode("latin-1"))
    return False


def _libsvm(part: Part, content: bytes) -> tuple[Any, np.ndarray]:
    """Values, a sparse matrix (n, d), and labels (n,) of a libsvm text. Raises UserError, with the line."""
    from sklearn.datasets import load_svmlight_file  # late: it takes a second to import

    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        x, labels = load_svmlight_file(io.BytesIO(content), zero_based=True)
    except (ValueError, OverflowError) as problem:
        for number, line in enumerate(content.split(b"\n"), 1):
            try:
                load_svmlight_file(io.BytesIO(line), zero_based=True)
            except (ValueError, OverflowError) as error:
                raise part.error(f"line {number}: {shown(str(error), 200)}") from error
        raise part.error(str(problem)) from problem
    finite = np.isfinite(labels)
    finite[np.searchsorted(x.indptr, np.flatnonzero(~np.isfinite(x.data)), "right") - 1] = False
    if not finite.all():
        raise part.error(f"row {finite.argmin() + 1:,} holds a value that isn't finite")
    return x, labels
