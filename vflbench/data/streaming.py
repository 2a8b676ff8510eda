"""Blocks of rows -> the files of a prepared table, in bounded memory: once over the rows, and once over their codes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from vflbench.data.cache import Request, write_arrays
from vflbench.data.encode import to_float
from vflbench.data.files import Part, listed, open_parts
from vflbench.data.labels import with_remedy
from vflbench.data.text import Rows, TextFormat, parsed
from vflbench.errors import UserError, shown
from vflbench.plain_files import open_to_write

_BAD_ROWS_SHOWN = 5


class Preparation:
    """Prepares a table in a folder. The first pass writes the codes of each block's own values, which are in memory; the
    second puts those of all values in their place.
    """

    def __init__(self, request: Request, folder: Path):
        self.request, self.folder, self.form = request, folder, request.form()
        self.rows = self.bad_count = 0
        self.bad_shown: list[str] = []
        self.where = ""  # the rows are that come next, if there are several files
        self.hashes: list[str | None] = []

    def run(self) -> None:
        """Prepare the table."""
        form, ids, id_rows = self.form, [], []
        ends, values, counts, low, high = [0], [], [], [], []  # of each block, and of each of its columns
        with ExitStack() as stack:
            files = [
                stack.enter_context(open_to_write(self.folder / name, "wb", private=True))
                for name in ("numeric", "categorical", "labels", "counts")
            ]
            for rows in self._blocks():
                names, numbers, codes, values_of_block = encoded(rows.table, form)
                for file, array in zip(files, (numbers, codes[:, :-1], codes[:, -1]), strict=False):
                    file.write(array.tobytes())
                low.append(to_float(numbers).min(axis=0))  # missing counts as 0
                high.append(to_float(numbers).max(axis=0))
                values.append(values_of_block)
                counts.append([np.bincount(codes[:, j], minlength=len(known)) for j, known in enumerate(values_of_block)])
                ends.append(self.rows)
                if form.id:
                    ids += pc.fill_null(rows.table[form.id].cast(pa.string()), "").to_pylist()
                    id_rows.append((rows.numbers, self.where))
            self._check_rows()
            named = (f"{number}{where}" for numbers, where in id_rows for number in numbers.tolist())
            check_identifiers(ids, form.id, self.request.parts[0], named)
            columns = [unify(*one) for one in zip(zip(*values, strict=True), zip(*counts, strict=True), strict=True)]
            for _, count, _ in columns[:-1]:
                files[-1].write(count.tobytes())
        labels = dict(zip(columns[-1][0].to_pylist(), columns[-1][1].tolist(), strict=True))
        classes, class_of = self.request.classes(labels, self.rows) if form.label else ([], np.zeros(1, np.int64))
        sizes = [len(count) for _, count, _ in columns[:-1]]
        numeric, categorical = (
            [name for name, is_number in names.items() if is_number is wanted] for wanted in (True, False)
        )
        arrays = {
            "numeric": ("float64", (self.rows, len(numeric))),
            "categorical": ("int32", (self.rows, len(categorical))),
            "labels": ("int32", (self.rows,)),
            "counts": ("int64", (sum(sizes),)),
        }
        final = [ids_of_block for _, _, ids_of_block in columns]
        final[-1] = [class_of[of_block] for of_block in final[-1]]
        for name, of_columns in (("categorical", final[:-1]), ("labels", final[-1:])):
            if of_columns:
                codes = np.memmap(self.folder / name, np.int32, "r+", shape=(self.rows, len(of_columns)))
                for k, (start, end) in enumerate(pairwise(ends)):
                    for j, of_column in enumerate(of_columns):
                        codes[start:end, j] = of_column[k][codes[start:end, j]]
                codes.flush()
        rows_of_class = np.bincount(class_of, columns[-1][1], len(classes)).astype(int).tolist()
        schema = {
            "names": list(names),
            "numeric_names": numeric,
            "categorical_names": categorical,
            "sizes": sizes,
            "classes": max(2, len(classes)),
            "low": np.min(low, axis=0).tolist(),
            "high": np.max(high, axis=0).tolist(),
            "ids": ids,
            "facts": self._facts(classes, rows_of_class),
        }
        write_arrays(self.folder, arrays, schema)

    def _blocks(self) -> Iterator[Rows]:
        """All blocks with rows, in order. With a limit, nothing after the last row matters."""
        parts, most = self.request.parts, self.request.rows
        size = None if parts[0].member else sum(part.file.stat().st_size for part in parts)
        name = shown(parts[0].file.name) + (" ..." if len(parts) > 1 else "")
        with tqdm(total=size, desc=f"preparing {name}", unit="B", unit_scale=True, disable=None, leave=False) as bar:
            for part, stream, stored in open_parts(parts, bar):
                for block in self.request.blocks(part, stream, self.form):
                    rows = parsed(block, self.form).first(None if most is None else most - self.rows)
                    if rows.bad and not self.request.skip:
                        raise part.error(with_remedy(str(rows.bad[0])))
                    self.where = f" ({shown(part, 200)})" if len(parts) > 1 else ""
                    self.bad_shown += [f"{one}{self.where}" for one in rows.bad[: _BAD_ROWS_SHOWN - len(self.bad_shown)]]
                    self.bad_count += len(rows.bad)
                    self.rows += len(rows.table)
                    if len(rows.table):
                        yield rows
                    if self.rows == most:
                        self.hashes += [None] * (len(parts) - len(self.hashes))
                        return
                self.hashes.append(stored.sha256())

    def _check_rows(self) -> None:
        """Raises UserError where there is none, or too many are bad."""
        rows, allowed = self.rows + self.bad_count, self.request.max_bad_fraction
        first = f"; the first: {'; '.join(self.bad_shown)}"
        if not self.rows:
            where = [str(part) for part in self.request.parts]
            what = f"all {rows:,} rows are bad{first}" if rows else f"the file is empty or holds no rows of {self.form.name}"
            raise UserError(what, key="dataset.path", value=where[0] if len(where) == 1 else where)
        if self.bad_count > allowed * rows:
            what = f"{self.bad_count:,} of {rows:,} rows are bad ({self.bad_count / rows:.2%}), more than allowed"
            raise UserError(what + first, key="dataset.max_bad_fraction", value=allowed)

    def _facts(self, classes: list[str], rows: list[int]) -> dict[str, Any]:
        facts: dict[str, Any] = {"file_sha256": self.hashes, "class_rows": dict(zip(classes, rows, strict=False))}
        if classes not in ([], ["0", "1"]):
            facts["classes_are"] = classes
        if self.form.read_as:
            facts["read_as"] = dict(self.form.read_as)
        if self.bad_count:
            facts["bad_rows"] = {"count": self.bad_count, "first": self.bad_shown}
        return facts


def encoded(table: pa.Table, form: TextFormat) -> tuple[dict[str, bool], np.ndarray, np.ndarray, list[pa.Array]]:
    """Parsed rows as numbers: each feature column, and whether it is numeric; (m, k) float64; and of each categorical column
    and, last, of the label, codes (m, c + 1) int32 and the values that these stand for. A missing value is the empty text.
    """
    others = {form.label, form.id} - {""}  # a column may have the empty name
    names = {n: pa.types.is_floating(table[n].type) for n in table.column_names if n not in others}
    texts = [table[name] for name, is_number in names.items() if not is_number]
    texts.append(table[form.label] if form.label else pa.chunked_array([pa.repeat("", len(table))]))
    coded = [pc.fill_null(text.cast(pa.string()), "").combine_chunks().dictionary_encode() for text in texts]
    codes = np.stack([column.indices.to_numpy() for column in coded], axis=1)
    numbers = [table[name].to_numpy() for name, is_number in names.items() if is_number]
    return names, np.stack(numbers, axis=1) if numbers else np.empty((len(table), 0)), codes, [c.dictionary for c in coded]


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


def check_identifiers(ids: Sequence[str], name: str, part: Part, named: Iterable[str]) -> None:
    """Raise UserError, naming the rows, where one is missing or stands there twice. named: (n,) each row in words."""
    wrong = next((text for text, count in Counter(ids).items() if not text or count > 1), None)
    if wrong is not None:
        rows = listed([number for number, text in zip(named, ids, strict=True) if text == wrong], 3)
        what = f"the identifier {shown(wrong, 60)!r} more than once" if wrong else "no identifier"
        raise part.error(f"row{'s' if ',' in rows else ''} {rows}: column {shown(name, 60)} has {what}")
