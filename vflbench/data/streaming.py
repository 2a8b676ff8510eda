"""Texts -> the arrays of a prepared table, in bounded memory: once over the texts, and once over what was parsed of them."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from vflbench.data.cache import ArrayWriter, Request, write_schema
from vflbench.data.encode import to_float
from vflbench.data.files import Part, open_parts
from vflbench.data.labels import with_remedy
from vflbench.data.table import MISSING_INTEGER
from vflbench.data.text import Rows, TextFormat, parsed, texts
from vflbench.errors import UserError, shown
from vflbench.plain_files import open_to_write

_BAD_ROWS_SHOWN = 5


@dataclass(frozen=True)
class Encoded:
    """One parsed block as numbers.

    numeric: (m, k) int32 or float64. names: each feature column, and whether it is numeric. Of each categorical column and,
    last, of the label: codes, (c + 1, m) int32; values, those that occur; counts, how often each does.
    """

    rows: int
    numeric: np.ndarray
    codes: np.ndarray
    values: list[pa.Array]
    counts: list[np.ndarray]
    names: list[tuple[str, bool]]


class Preparation:
    """Prepares a table in a folder. Between the passes each block is a file of its own; values are in memory."""

    def __init__(self, request: Request, folder: Path):
        self.request, self.folder = request, folder
        self.rows = 0
        self.bad_count = 0
        self.bad_shown: list[str] = []
        self.hashes: list[str | None] = []

    def run(self) -> None:
        """Prepare the table."""
        form = self.request.form()
        blocks: list[Encoded] = []  # without what is on disk
        dtype = np.dtype(np.int32)
        for part, rows in self._blocks(form):
            several = f" ({shown(part, 200)})" if len(self.request.parts) > 1 else ""
            self.bad_shown += [f"{one}{several}" for one in rows.bad[: _BAD_ROWS_SHOWN - len(self.bad_shown)]]
            self.bad_count += len(rows.bad)
            self.rows += len(rows.table)
            if len(rows.table):
                block = encoded(rows.table, form)
                with open_to_write(self._file(len(blocks)), "wb", private=True) as file:
                    np.savez(file, numeric=block.numeric, codes=block.codes)
                dtype = np.promote_types(dtype, block.numeric.dtype)
                blocks.append(replace(block, numeric=np.empty(0), codes=np.empty(0)))
        if not self.rows:
            raise self._no_rows(form)
        self._check_bad_rows()
        self._assemble(blocks, dtype, form)

    def _file(self, block: int) -> Path:
        return self.folder / f"{block}.npz"

    def _blocks(self, form: TextFormat) -> Iterator[tuple[Part, Rows]]:
        """All blocks, in order. With a limit, nothing after the last row matters."""
        parts, most = self.request.parts, self.request.rows
        size = None if parts[0].member else sum(part.file.stat().st_size for part in parts)
        name = shown(parts[0].file.name) + (" ..." if len(parts) > 1 else "")
        with tqdm(total=size, desc=f"preparing {name}", unit="B", unit_scale=True, disable=None, leave=False) as bar:
            for part, stream, stored in open_parts(parts, bar):
                for rows in texts(part, stream, form):
                    yield (
                        part,
                        read_rows(part, rows, form, None if most is None else most - self.rows, skip=self.request.skip),
                    )
                    if self.rows == most:
                        self.hashes += [None] * (len(parts) - len(self.hashes))
                        return
                self.hashes.append(stored.sha256())

    def _check_bad_rows(self) -> None:
        allowed = self.request.max_bad_fraction
        if self.bad_count > allowed * (self.rows + self.bad_count):
            share = self.bad_count / (self.rows + self.bad_count)
            problem = (
                f"{self.bad_count:,} of {self.rows + self.bad_count:,} rows are bad ({share:.2%}), more than allowed; "
                f"the first: {'; '.join(self.bad_shown)}"
            )
            raise UserError(problem, key="dataset.max_bad_fraction", value=allowed)

    def _no_rows(self, form: TextFormat) -> UserError:
        where = str(self.request.parts[0]) if len(self.request.parts) == 1 else [str(p) for p in self.request.parts]
        if self.bad_count:
            problem = f"all {self.bad_count:,} rows are bad; the first: {'; '.join(self.bad_shown)}"
        else:
            problem = f"the file is empty or holds no rows of {form.name}"
        return UserError(problem, key="dataset.path", value=where)

    def _assemble(self, blocks: Sequence[Encoded], dtype: np.dtype, form: TextFormat) -> None:
        """The second pass: blocks -> table."""
        names = blocks[0].names
        numeric, categorical = ([name for name, number in names if number is wanted] for wanted in (True, False))
        columns = [unify([b.values[j] for b in blocks], [b.counts[j] for b in blocks]) for j in range(len(categorical) + 1)]
        texts, counts, ids = zip(*columns, strict=True)
        labels = dict(zip(texts[-1].to_pylist(), counts[-1].tolist(), strict=True))
        classes, class_of = self.request.classes(labels, self.rows)
        label_type = np.dtype(np.uint8 if len(classes) <= 256 else np.int32)
        writers = {
            "numeric": ArrayWriter(self.folder / "numeric", dtype, len(numeric)),
            "categorical": ArrayWriter(self.folder / "categorical", np.dtype(np.int32), len(categorical)),
            "labels": ArrayWriter(self.folder / "labels", label_type, None),
        }
        low, high = np.full(len(numeric), np.inf), np.full(len(numeric), -np.inf)
        try:
            for k, block in enumerate(blocks):
                with np.load(self._file(k)) as saved:
                    numbers, codes = saved["numeric"], saved["codes"]
                self._file(k).unlink()
                if numbers.dtype != dtype:
                    numbers = np.where(numbers == MISSING_INTEGER, np.nan, numbers)
                if numeric:
                    x = to_float(numbers)  # missing counts as 0
                    low, high = np.minimum(low, x.min(axis=0)), np.maximum(high, x.max(axis=0))
                encoded_codes = np.empty((block.rows, len(categorical)), np.int32)
                for j in range(len(categorical)):
                    encoded_codes[:, j] = ids[j][k][codes[j]]
                writers["numeric"].write(numbers)
                writers["categorical"].write(encoded_codes)
                writers["labels"].write(class_of[ids[-1][k][codes[-1]]])
            schema = {
                "rows": self.rows,
                "names": [name for name, _ in names],
                "numeric_names": numeric,
                "categorical_names": categorical,
                "sizes": [len(count) for count in counts[:-1]],
                "classes": max(2, len(classes)),
                "low": low.tolist(),
                "high": high.tolist(),
                "facts": self._facts(form, classes, np.bincount(class_of, counts[-1], len(classes)).astype(int).tolist()),
            }
            values = [schema[key] for key in ("names", "numeric_names", "sizes", "classes")]
            values += [writer.digest.hexdigest() for writer in writers.values()]
            schema["fingerprint"] = hashlib.sha256(json.dumps(values).encode()).hexdigest()
            writers["counts"] = ArrayWriter(self.folder / "counts", np.dtype(np.int64), None)
            for count in counts[:-1]:
                writers["counts"].write(count)
            write_schema(self.folder, writers, schema)
        finally:
            for writer in writers.values():
                writer.abandon()

    def _facts(self, form: TextFormat, classes: list[str], rows: list[int]) -> dict[str, Any]:
        facts: dict[str, Any] = {"file_sha256": self.hashes, "class_rows": dict(zip(classes, rows, strict=False))}
        if classes != ["0", "1"]:
            facts["classes_are"] = classes
        if form.read_as:
            facts["read_as"] = dict(form.read_as)
        if self.bad_count:
            facts["bad_rows"] = {"count": self.bad_count, "first": self.bad_shown}
        return facts


def read_rows(part: Part, rows: Rows, form: TextFormat, most: int | None = None, *, skip: bool) -> Rows:
    """At most so many rows, parsed. Raises UserError at the first that is bad, unless these are skipped."""
    read = parsed(rows, form).first(most)
    if read.bad and not skip:
        raise part.error(with_remedy(str(read.bad[0])))
    return read


def encoded(table: pa.Table, form: TextFormat) -> Encoded:
    """One parsed block as numbers."""
    names = [(n, not pa.types.is_dictionary(table[n].type)) for n in table.column_names if n != form.label]
    codes, values, counts = [], [], []
    for name in [*(name for name, number in names if not number), form.label]:
        code, occurring, count = _codes(table[name].combine_chunks())
        codes.append(code)
        values.append(occurring)
        counts.append(count)
    numbers = np.empty((len(table), len(names) - len(codes) + 1))
    for j, name in enumerate(name for name, number in names if number):
        numbers[:, j] = table[name].to_numpy()
    if form.whole and not (np.abs(numbers) >= 2**31).any():
        numbers = np.where(np.isnan(numbers), MISSING_INTEGER, numbers).astype(np.int32)
    return Encoded(len(table), numbers, np.stack(codes), values, counts, names)


def unify(pieces: Sequence[pa.Array], counts: Sequence[np.ndarray]) -> tuple[pa.Array, np.ndarray, list[np.ndarray]]:
    """All values of the pieces, sorted by their bytes; how often each occurs; the position of each value of each piece.

    pieces: values that are all different within a piece. counts: how often each occurs.
    """
    joined = pa.concat_arrays([piece.cast(pa.large_string()) for piece in pieces]).dictionary_encode()
    order = pc.sort_indices(joined.dictionary).to_numpy()
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    places = rank[joined.indices.to_numpy()]
    total = np.bincount(places, np.concatenate(counts), len(order)).astype(np.int64)
    return joined.dictionary.take(pa.array(order)), total, np.split(places, np.cumsum([len(piece) for piece in pieces])[:-1])


def _codes(array: pa.DictionaryArray) -> tuple[np.ndarray, pa.Array, np.ndarray]:
    """The code of each row, the values that occur, the count of each. A missing value is the empty string."""
    values, codes = array.dictionary, array.indices
    if codes.null_count:
        values, codes = pa.concat_arrays([values, pa.array([""], pa.string())]), codes.fill_null(len(values))
    codes = codes.to_numpy()
    counts = np.bincount(codes, minlength=len(values))
    occurs = counts > 0
    if occurs.all():
        return codes, values, counts
    return (
        (np.cumsum(occurs, dtype=np.int32) - 1)[codes],
        values.filter(pa.array(occurs)),
        counts[occurs],
    )  # of a block that was cut
