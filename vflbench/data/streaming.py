"""Texts -> the arrays of a prepared table: one reading, in bounded memory, whatever the number of rows."""

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tqdm import tqdm

from vflbench.data import store
from vflbench.data.encode import MISSING_INTEGER
from vflbench.data.files import Block, Opened, Part, open_parts, read_blocks
from vflbench.data.text import BadRow, Parsed, TextFormat, header_of, parse, without_mark
from vflbench.data.vocabulary import GrowingVocabulary, unpack
from vflbench.errors import UserError

_WORKERS = min(4, os.cpu_count() or 1)
_BAD_ROWS_SHOWN = 5


@dataclass(frozen=True)
class Request:
    """What shall be prepared.

    parts: the texts, whose rows follow one another. form: makes the layout, looking at the texts if it has to.
    options: all that a prepared table depends on beside the texts' content. rows: only the first so many good ones.
    skip: leave bad rows out, as long as they are at most `max_bad_fraction` of all.
    """

    parts: Sequence[Part]
    form: Callable[[], TextFormat]
    classes: Callable[[list[str], int], tuple[list[str], np.ndarray]]
    options: Mapping[str, Any]
    rows: int | None = None
    skip: bool = False
    max_bad_fraction: float = 0.01

    def options_key(self) -> str:
        limits = [self.rows, self.skip, self.max_bad_fraction if self.skip else None]
        return json.dumps([store.VERSION, dict(self.options), limits], sort_keys=True, default=str)


@dataclass(frozen=True)
class _Codes:
    """One block as numbers. numeric: (m, k) int32 or float64; values, codes, counts: of each categorical column."""

    rows: int
    numeric: np.ndarray
    values: tuple[pa.Array, ...]
    codes: tuple[np.ndarray, ...]
    counts: tuple[np.ndarray, ...]
    names: tuple[tuple[str, bool], ...]  # each feature column, and whether it is numeric
    bad: tuple[BadRow, ...]


def _codes(parsed: Parsed, label: str) -> _Codes:
    """Runs in a worker thread."""
    table = parsed.table
    features = [name for name in table.column_names if name != label]
    is_numeric = {name: not pa.types.is_dictionary(table.schema.field(name).type) for name in features}
    texts = [*(n for n in features if not is_numeric[n]), label]
    values, codes, counts = zip(*(_dictionary_codes(table.column(name)) for name in texts), strict=True)
    return _Codes(
        rows=len(table),
        numeric=_numeric([table.column(n) for n in features if is_numeric[n]], len(table)),
        values=values,
        codes=codes,
        counts=counts,
        names=tuple((n, is_numeric[n]) for n in features),
        bad=parsed.bad,
    )


def _dictionary_codes(column: pa.ChunkedArray) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """Values that occur, each row's code, how often each value occurs. A missing value is the empty string."""
    if not len(column):
        return pa.array([], pa.string()), np.zeros(0, dtype=np.uint16), np.zeros(0, dtype=np.int64)
    array = column.combine_chunks()
    values, codes = array.dictionary, array.indices
    if codes.null_count:
        values, codes = pa.concat_arrays([values, pa.array([""], pa.string())]), codes.fill_null(len(values))
    codes = codes.to_numpy()
    counts = np.bincount(codes, minlength=len(values))
    occurs = counts > 0
    if not occurs.all():  # of a block that was cut at the limit
        values, codes, counts = values.filter(pa.array(occurs)), (np.cumsum(occurs) - 1)[codes], counts[occurs]
    return values, codes.astype(np.uint16 if len(values) <= 1 << 16 else np.int32), counts


def _numeric(columns: Sequence[pa.ChunkedArray], rows: int) -> np.ndarray:
    """(rows, k): int32 where every value fits, else float64."""
    integers = np.empty((rows, len(columns)), dtype=np.int32)
    for j, column in enumerate(columns):
        try:
            if not pa.types.is_integer(column.type):
                raise pa.ArrowInvalid("not integers")
            values = column.cast(pa.int32())
            integers[:, j] = values.fill_null(MISSING_INTEGER).to_numpy()
            if values.null_count != np.count_nonzero(integers[:, j] == MISSING_INTEGER):
                raise pa.ArrowInvalid("the least int32 is a value")
        except pa.ArrowInvalid:
            break
    else:
        return integers
    reals = np.empty((rows, len(columns)), dtype=np.float64)
    for j, column in enumerate(columns):
        reals[:, j] = column.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy()
    return reals


class Preparation:
    """Reads the texts once: codes of each block go to a spool on disk, its values to growing vocabularies; then, with every
    vocabulary known and in order, the spool becomes the table."""

    def __init__(self, request: Request, folder: Path):
        self.request, self.folder = request, folder
        self.spooled: list[tuple[int, np.dtype, list[tuple[np.dtype, int]]]] = []  # rows, numeric, (codes, values)
        self.bad_count, self.bad_shown = 0, []
        self.rows, self.names = 0, ()
        self.hashes: list[str | None] = []
        self.text_digest = hashlib.sha256()
        self.vocabularies: list[GrowingVocabulary] = []
        self.writers: dict[str, store.ArrayWriter] = {}

    def run(self) -> dict[str, Any]:
        form = self.request.form()
        try:
            with (self.folder / "spool").open("wb") as spool:
                for codes in self._blocks(form):
                    self._spool(codes, spool)
            if not self.rows:
                raise self._no_rows(form)
            self._judge_bad_rows()
            return self._assemble()
        finally:
            for vocabulary in self.vocabularies:
                vocabulary.close()
            for writer in self.writers.values():
                writer.abandon()
            (self.folder / "spool").unlink()

    def _blocks(self, form: TextFormat) -> Iterator[_Codes]:
        """All blocks as numbers, in order; worked on a few at a time."""
        size = sum({part.file: part.file.stat().st_size for part in self.request.parts}.values())
        name = self.request.parts[0].file.name + (" ..." if len(self.request.parts) > 1 else "")
        before, seen = 0, None
        with (
            ThreadPoolExecutor(_WORKERS) as pool,
            tqdm(total=size, desc=f"preparing {name}", unit="B", unit_scale=True, disable=None, leave=False) as bar,
        ):
            for opened in open_parts(self.request.parts):
                if seen is not None and opened.part.file != seen:
                    before += seen.stat().st_size
                seen = opened.part.file
                complete = yield from self._part(opened, form, pool, lambda p, b=before: bar.update(b + p - bar.n))
                self.hashes.append(opened.raw.hexdigest() if complete else None)
                if not complete:
                    return

    def _part(
        self, opened: Opened, form: TextFormat, pool: ThreadPoolExecutor, show: Callable[[int], None]
    ) -> Iterator[_Codes]:
        """One part's blocks; returns whether all of it was read."""
        columns, first, waiting = form.columns, True, deque()
        for block in read_blocks(opened, quotes=form.multiline):
            show(opened.position())
            if first:
                block = without_mark(block)
                if form.header:
                    columns, block = header_of(block, form)
                first = not columns
                if first or not block.data:
                    continue
            if self.request.rows is not None:  # a limit: nothing beyond it may be looked at
                codes = self._parse(block, form, columns, self.request.rows - self.rows)
                self.text_digest.update(block.data)
                yield codes
                if self.rows >= self.request.rows:
                    return False
                continue
            waiting.append(pool.submit(self._parse, block, form, columns, None))
            if len(waiting) > _WORKERS + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
        return True

    def _parse(self, block: Block, form: TextFormat, columns: Sequence[str], limit: int | None) -> _Codes:
        parsed = parse(block, form, columns, limit)
        if parsed.bad and not self.request.skip:
            raise UserError(str(parsed.bad[0]), key="dataset.path", value=str(block.part))
        several = len(self.request.parts) > 1
        shown = tuple(BadRow(b.line, b.problem + (f" ({block.part})" if several else "")) for b in parsed.bad)
        return _codes(Parsed(parsed.table, shown), form.label)

    def _spool(self, codes: _Codes, spool: Any) -> None:
        self.bad_count += len(codes.bad)
        self.bad_shown += map(str, codes.bad[: _BAD_ROWS_SHOWN - len(self.bad_shown)])
        if not codes.rows:
            return
        if not self.vocabularies:
            self.names = codes.names
            texts = [name for name, is_numeric in codes.names if not is_numeric]
            self.vocabularies = [GrowingVocabulary(self.folder, f"{j}") for j in range(len(texts) + 1)]
        for vocabulary, values, counts in zip(self.vocabularies, codes.values, codes.counts, strict=True):
            vocabulary.add(values, counts)
        spool.write(memoryview(codes.numeric).cast("B") if codes.numeric.size else b"")
        for column in codes.codes:
            spool.write(memoryview(column).cast("B"))
        sizes = [(column.dtype, len(values)) for column, values in zip(codes.codes, codes.values, strict=True)]
        self.spooled.append((codes.rows, codes.numeric.dtype, sizes))
        self.rows += codes.rows

    def _judge_bad_rows(self) -> None:
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
        elif len(self.request.parts) == 1 and not next(read_first(self.request.parts), b""):
            problem = f"the file is empty; {form.name} was expected"
        else:
            problem = f"the file holds no rows of {form.name}"
        return UserError(problem, key="dataset.path", value=where)

    def _assemble(self) -> dict[str, Any]:
        """The second half: spool -> table."""
        unified = [vocabulary.unify() for vocabulary in self.vocabularies]
        *counts, label_counts = [count for count, _ in unified]
        label_values = unified[-1][1]
        texts = (unpack(label_values) if isinstance(label_values, np.ndarray) else label_values).to_pylist()
        del unified
        classes, class_of = self.request.classes(texts, int(label_counts.sum()))
        numeric = [name for name, is_numeric in self.names if is_numeric]
        categorical = [name for name, is_numeric in self.names if not is_numeric]
        kind = np.int32 if all(dtype == np.int32 for _, dtype, _ in self.spooled) else np.float64
        writers = self.writers = {
            "numeric": store.ArrayWriter(self.folder / "numeric", kind, len(numeric)),
            "categorical": store.ArrayWriter(self.folder / "categorical", np.int32, len(categorical)),
            "labels": store.ArrayWriter(self.folder / "labels", np.uint8 if len(classes) <= 256 else np.int32, None),
        }
        low, high = np.full(len(numeric), np.inf), np.full(len(numeric), -np.inf)
        with (
            (self.folder / "spool").open("rb") as spool,
            tqdm(total=self.rows, desc="encoding", unit="row", unit_scale=True, disable=None, leave=False) as bar,
        ):
            for rows, dtype, sizes in self.spooled:
                numbers = np.fromfile(spool, dtype, rows * len(numeric)).reshape(rows, len(numeric))
                missing = numbers == MISSING_INTEGER if dtype == np.int32 else np.isnan(numbers)
                if len(numeric):
                    known = np.where(missing, 0, numbers)
                    low, high = np.minimum(low, known.min(axis=0)), np.maximum(high, known.max(axis=0))
                writers["numeric"].write(numbers if dtype == kind else np.where(missing, np.nan, numbers))
                ids = np.empty((rows, len(categorical)), dtype=np.int32)
                for j, ((code_type, size), vocabulary) in enumerate(zip(sizes, self.vocabularies, strict=True)):
                    found = vocabulary.next_ids(size)[np.fromfile(spool, code_type, rows)]
                    if j < len(categorical):
                        ids[:, j] = found
                    else:
                        writers["labels"].write(class_of[found])
                writers["categorical"].write(ids)
                bar.update(rows)
        schema = {
            "rows": self.rows,
            "names": [name for name, _ in self.names],
            "numeric_names": numeric,
            "categorical_names": categorical,
            "sizes": [len(count) for count in counts],
            "classes": max(2, len(classes)),
            "low": low.tolist(),
            "high": high.tolist(),
            "options": self.request.options_key(),
            "raw_bytes": sum(part.file.stat().st_size for part in self.request.parts),
            "facts": self._facts(classes),
        }
        values = [schema[key] for key in ("names", "numeric_names", "sizes", "classes")]
        values += [writer.digest.hexdigest() for writer in writers.values()]
        schema["fingerprint"] = hashlib.sha256(json.dumps(values).encode()).hexdigest()
        content = self.hashes if None not in self.hashes else [self.text_digest.hexdigest()]
        schema["key"] = hashlib.sha256(json.dumps([content, schema["options"]]).encode()).hexdigest()[:32]
        joined = np.concatenate(counts) if counts else np.zeros(0, np.int64)
        store.write_schema(self.folder, writers, joined, schema)
        return schema

    def _facts(self, classes: list[str]) -> dict[str, Any]:
        facts: dict[str, Any] = {"file_sha256": self.hashes}
        if classes != ["0", "1"]:
            facts["classes_are"] = classes
        if self.bad_count:
            facts["bad_rows"] = {"count": self.bad_count, "first": self.bad_shown}
        return facts


def read_first(parts: Sequence[Part]) -> Iterator[bytes]:
    """The first byte of each part, or none."""
    for opened in open_parts(parts):
        yield opened.text.read(1)
