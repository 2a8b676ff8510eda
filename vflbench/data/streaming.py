"""Files -> the arrays of a prepared table, in bounded memory: once over the rows, and some times over their codes.

Every column is read as codes of the different values of a block. What it is, what is made of it, and which rows don't fit is
decided by the values alone, when all are known.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tqdm import tqdm

from vflbench.data.cache import write_arrays
from vflbench.data.encode import to_float
from vflbench.data.files import Part, listed, open_parts
from vflbench.data.labels import with_remedy
from vflbench.data.readings import MISSING_PART
from vflbench.data.text import TextFormat, problem_of, wrong_values
from vflbench.errors import UserError, shown
from vflbench.plain_files import open_to_write

if TYPE_CHECKING:
    from vflbench.data.file_dataset import FileDataset

_BAD_ROWS_SHOWN = 5


class Preparation:
    """Prepares a table in a folder.

    dataset: how its files are read. form: of the files. most: rows to use, the first ones; None: all.
    """

    def __init__(self, dataset: "FileDataset", parts: Sequence[Part], form: TextFormat, most: int | None, folder: Path):
        self.dataset, self.parts, self.form, self.most, self.folder = dataset, parts, form, most, folder
        self.rows, self.share = 0, dataset.max_bad_fraction if dataset.bad_rows == "skip" else 0.0
        self.bad: list[tuple[int, int, str]] = []  # file, row, and what is wrong with it
        self.bad_count = 0
        self.numbers: list[tuple[int, Any]] = []  # of each block: its file, and the numbers of its rows
        self.ends, self.hashes = [0], list[str | None]()
        self.values: dict[str, pa.Array] = {}  # of each column: all that are different, null among them
        self.places: list[list[np.ndarray]] = []  # of each column and block: where the block's values are among all

    def run(self) -> None:
        """Prepare the table."""
        pieces: list[list[pa.Array]] = []
        with open_to_write(self.folder / "codes", "wb", private=True) as file:
            for table in self._blocks():
                codes, values = coded(table)
                file.write(codes.tobytes())
                pieces.append(values)
                self.values = dict.fromkeys(table.column_names)
        for name, several in zip(self.values, zip(*pieces, strict=True), strict=False):
            self.values[name], places = unify(several)
            self.places.append(places)
        if self.rows and self.form.undecided:
            missing = {
                name: int(count[_is_null(values)].sum()) for name, values, count in self._counted(np.ones(self.rows, bool))
            }
            self.form = self.dataset.decided(self.form, self.values, missing, self.rows)
        self._write(self._used())
        (self.folder / "codes").unlink()

    def _blocks(self) -> Iterator[pa.Table]:
        """The blocks of rows. It ends where no later row matters."""
        size = None if self.parts[0].member else sum(part.file.stat().st_size for part in self.parts)
        name, most = shown(self.parts[0].file.name) + (" ..." if len(self.parts) > 1 else ""), self.most or np.inf
        enough = np.inf if self.share == 1 or self.form.undecided else most / (1 - self.share)
        with tqdm(total=size, desc=f"preparing {name}", unit="B", unit_scale=True, disable=None, leave=False) as bar:
            for number, (part, stream, stored) in enumerate(open_parts(self.parts, bar)):
                for rows in self.dataset.blocks(part, stream, self.form):
                    self.bad += [(number, *one) for one in rows.bad]
                    if len(rows.table):
                        every = range(int(rows.numbers[0]), int(rows.numbers[-1]) + 1)
                        self.numbers.append((number, every if len(every) == len(rows.table) else rows.numbers))
                        self.rows += len(rows.table)
                        self.ends.append(self.rows)
                        yield rows.table
                    if self.rows + len(self.bad) >= enough or (rows.bad and not self.share and self.rows < most):
                        self.hashes += [None] * (len(self.parts) - number)
                        return
                self.hashes.append(stored.sha256())

    def _codes(self) -> Iterator[tuple[int, slice, np.ndarray]]:
        """Each block, its rows, and their codes (m, columns)."""
        with open(self.folder / "codes", "rb") as file:
            for k, (start, end) in enumerate(pairwise(self.ends)):
                codes = np.fromfile(file, np.int32, (end - start) * len(self.values))
                yield k, slice(start, end), codes.reshape(end - start, -1)

    def _counted(self, used: np.ndarray) -> Iterator[tuple[str, pa.Array, np.ndarray]]:
        """Each column, its values, and how often each occurs in these rows. used: (n,) bool."""
        counts = [np.zeros(len(values), np.int64) for values in self.values.values()]
        for k, rows, codes in self._codes():
            codes = codes if used[rows].all() else codes[used[rows]]
            for j, count in enumerate(counts):
                places = self.places[j][k]
                count[places] += np.bincount(codes[:, j], minlength=len(places))
        return zip(self.values, self.values.values(), counts, strict=True)

    def _used(self) -> np.ndarray:
        """(n,) bool: the rows that fit the format, up to the last that is wanted. Raises UserError where one may not be left
        out, too many are bad, or none is good.
        """
        good, bad = np.ones(self.rows, dtype=bool), dict[int, str]()
        for j, (name, values) in enumerate(self.values.items()):
            wrong = wrong_values(values, name, self.form)
            for k, rows, codes in self._codes() if wrong.any() else ():
                is_wrong = wrong[self.places[j][k]][codes[:, j]]
                good[rows] &= ~is_wrong
                for row in np.flatnonzero(is_wrong)[:_BAD_ROWS_SHOWN]:
                    value = values[int(self.places[j][k][codes[row, j]])].as_py()
                    bad.setdefault(rows.start + int(row), f"column {shown(name)}: {problem_of(value, name, self.form)}")
        wanted = np.flatnonzero(good)[: self.most]
        if len(wanted) == self.most:
            good[wanted[-1] + 1 :], self.rows = False, int(wanted[-1]) + 1
            self.bad = [one for one in self.bad if one[:2] < self._number(self.rows - 1)]
        first = [(*self._number(row), problem) for row, problem in bad.items() if row < self.rows]
        self.bad_count, self.bad = len(self.bad) + self.rows - len(wanted), sorted([*self.bad, *first])[:_BAD_ROWS_SHOWN]
        self.rows = len(wanted)
        self._check_rows()
        return good

    def _number(self, row: int) -> tuple[int, int]:
        """The file of a row that was read, and its number there."""
        k = int(np.searchsorted(self.ends, row, "right")) - 1
        file, numbers = self.numbers[k]
        return file, int(numbers[row - self.ends[k]])

    def _where(self, file: int) -> str:
        return f" ({shown(self.parts[file], 200)})" if len(self.parts) > 1 else ""

    def _check_rows(self) -> None:
        """Raises UserError where one is bad that may not be left out, too many are, or there is none."""
        rows, parts = self.rows + self.bad_count, [str(part) for part in self.parts]
        if self.bad and self.dataset.bad_rows == "error":
            file, row, problem = self.bad[0]
            raise self.parts[file].error(with_remedy(f"row {row:,}: {problem}"))
        first = f"; the first: {'; '.join(self.bad_shown)}"
        if not self.rows:
            what = f"all {rows:,} rows are bad{first}" if rows else f"the file is empty or holds no rows of {self.form.name}"
            raise UserError(what, key="dataset.path", value=parts[0] if len(parts) == 1 else parts)
        if self.bad_count > self.share * rows:
            what = f"{self.bad_count:,} of {rows:,} rows are bad ({self.bad_count / rows:.2%}), more than allowed"
            raise UserError(what + first, key="dataset.max_bad_fraction", value=self.share)

    @property
    def bad_shown(self) -> list[str]:
        """The first bad rows, in words."""
        return [f"row {row:,}: {problem}{self._where(file)}" for file, row, problem in self.bad]

    def _write(self, used: np.ndarray) -> None:
        """The rows that are used, as numbers and as codes of the values that they have."""
        form, facts = self.form, self._facts()
        # Of each array, column -> the one it is made of, and what stands for each of its values.
        arrays: dict[str, dict[str, tuple[int, np.ndarray]]] = {"numeric": {}, "categorical": {}, "labels": {}}
        counts: dict[str, np.ndarray] = {}
        for j, (name, values, count) in enumerate(self._counted(used)):
            if name == (form.label or None):
                texts, places, rows_of = ranked(values, count)
                classes, class_of = self.dataset.classes(
                    dict(zip(texts.to_pylist(), rows_of.tolist(), strict=True)), self.rows
                )
                arrays["labels"][name] = j, np.append(class_of, 0)[places]
                rows = np.bincount(class_of, rows_of, len(classes)).astype(int).tolist()
                facts |= {"class_rows": dict(zip(classes, rows, strict=True))}
                facts |= {} if classes == ["0", "1"] else {"classes_are": classes}
            elif name != (form.id or None):
                reading = form.readings.get(name)
                made = reading.made(values, name) if reading else {name: values}
                if name in form.indicators:
                    made[name + MISSING_PART] = _is_null(values) * 1.0
                for one in [one for one in made if one == name or one not in self.values]:
                    if isinstance(made[one], np.ndarray):
                        arrays["numeric"][one] = j, made[one]
                    else:
                        _, places, counts[one] = ranked(made[one], count)
                        arrays["categorical"][one] = j, places
        of_source = {one: j for columns in (arrays["numeric"], arrays["categorical"]) for one, (j, _) in columns.items()}
        shapes = {
            "numeric": ("float64", (self.rows, len(arrays["numeric"]))),
            "categorical": ("int32", (self.rows, len(counts))),
            "labels": ("int32", (self.rows,)),
            "counts": ("int64", (sum(map(len, counts.values())),)),
        }
        low, high = [], []
        with ExitStack() as stack:
            files = {n: stack.enter_context(open_to_write(self.folder / n, "wb", private=True)) for n in shapes}
            files["counts"].write(b"".join(count.tobytes() for count in counts.values()))
            for k, rows_of_block, codes in self._codes():
                codes = codes[used[rows_of_block]]
                for name, columns in arrays.items():
                    block = np.zeros((len(codes), 1 if name == "labels" else len(columns)), shapes[name][0])
                    for target, (j, column) in enumerate(columns.values()):
                        block[:, target] = column[self.places[j][k]][codes[:, j]]
                    files[name].write(block.tobytes())
                    if name == "numeric" and len(block):
                        low.append(to_float(block).min(axis=0))  # missing counts as 0
                        high.append(to_float(block).max(axis=0))
        schema = {
            "names": sorted(of_source, key=of_source.__getitem__),
            "numeric_names": list(arrays["numeric"]),
            "categorical_names": list(counts),
            "sizes": [len(count) for count in counts.values()],
            "classes": max(2, len(facts["class_rows"])),
            "low": np.min(low, axis=0).tolist(),
            "high": np.max(high, axis=0).tolist(),
            "ids": self._ids(used) if form.id else [],
            "facts": facts,
        }
        write_arrays(self.folder, shapes, schema)

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"file_sha256": self.hashes, "class_rows": {}}
        if self.form.read_as:
            facts["read_as"] = dict(self.form.read_as)
        if self.bad_count:
            facts["bad_rows"] = {"count": self.bad_count, "first": self.bad_shown}
        return facts

    def _ids(self, used: np.ndarray) -> list[str]:
        """The identifiers of the rows. Raises UserError, naming the rows, where one is missing or stands there twice."""
        j = list(self.values).index(self.form.id)
        places = [self.places[j][k][codes[used[rows], j]] for k, rows, codes in self._codes()]
        ids = pc.fill_null(self.values[self.form.id], "").take(pa.array(np.concatenate(places))).to_pylist()
        wrong = next((text for text, count in Counter(ids).items() if not text or count > 1), None)
        if wrong is not None:
            same = [int(row) for row, text in zip(np.flatnonzero(used), ids, strict=True) if text == wrong]
            rows = listed([f"{number}{self._where(file)}" for file, number in map(self._number, same[:4])], 3)
            what = f"the identifier {shown(wrong, 60)!r} more than once" if wrong else "no identifier"
            raise self.parts[0].error(f"row{'s' if ',' in rows else ''} {rows}: column {shown(self.form.id, 60)} has {what}")
        return ids


def _is_null(values: pa.Array) -> np.ndarray:
    return values.is_null().to_numpy(zero_copy_only=False)


def coded(table: pa.Table) -> tuple[np.ndarray, list[pa.Array]]:
    """Codes (m, columns) int32, and of each column the values that these stand for, the last of which is null."""
    columns = [column.combine_chunks() for column in table.columns]
    columns = [one if pa.types.is_dictionary(one.type) else one.dictionary_encode() for one in columns]
    codes = [one.indices.fill_null(len(one.dictionary)).to_numpy(zero_copy_only=False) for one in columns]
    values = [pa.concat_arrays([one.dictionary, pa.nulls(1, one.dictionary.type)]) for one in columns]
    return np.stack(codes, axis=1, dtype=np.int32, casting="unsafe"), values


def unify(pieces: Sequence[pa.Array]) -> tuple[pa.Array, list[np.ndarray]]:
    """All values of the pieces, null among them, in the order in which they come; the places of each piece's."""
    kind = pa.float64() if all(pa.types.is_floating(piece.type) for piece in pieces) else pa.large_string()
    joined = pa.concat_arrays([piece.cast(kind) for piece in pieces]).dictionary_encode(null_encoding="encode")
    places = joined.indices.to_numpy(zero_copy_only=False)
    return joined.dictionary, np.split(places, np.cumsum([len(piece) for piece in pieces])[:-1])


def ranked(values: pa.Array, counts: np.ndarray) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """The texts that occur, sorted by their bytes; the position among them of each value; how often each occurs.

    values: (n,) texts, of which some may be alike; a missing one is the empty text. counts: (n,) how often each occurs.
    """
    coded = pc.fill_null(values, "").dictionary_encode()
    places = coded.indices.to_numpy()
    total = np.bincount(places, counts, len(coded.dictionary)).astype(np.int64)
    order = pc.sort_indices(coded.dictionary).to_numpy()
    order = order[total[order] > 0]
    rank = np.full(len(total), -1, np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return coded.dictionary.take(pa.array(order)), rank[places], total[order]
