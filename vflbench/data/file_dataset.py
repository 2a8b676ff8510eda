"""Datasets read from files through the cache of prepared tables: each is made once from its files, and found again by their
paths, sizes and times.

A table is made of blocks of rows, in bounded memory: once over the rows, and once over their codes.
"""

import hashlib
import json
import math
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from filelock import FileLock, Timeout
from tqdm import tqdm

from vflbench.data.base import Dataset
from vflbench.data.files import Part, find_parts, listed, open_parts
from vflbench.data.readings import listed_rows, with_remedy
from vflbench.data.table import RawTable
from vflbench.data.text import TextFormat, TextRows, parsed, texts
from vflbench.errors import UserError, shown
from vflbench.files import in_a_line, open_to_write, written_whole
from vflbench.options import Range, options

_VERSION = 9
"""Of what is accepted as a row, of what columns are taken for, and of a table's files. Others' tables are prepared again."""
_TABLE = re.compile(r"[0-9a-f]{32}(\.part)?")
_DAMAGED = (OSError, ValueError, KeyError, TypeError)
_OURS = __name__.partition(".")[0]
_LATER = {*vars(Dataset()), "path", "party_files", "members", "bad_rows", "max_bad_fraction", "test_day"}
"""Options that say which files and rows are read, or what is done with the prepared table."""


@options
class FileDataset(Dataset):
    """Rows of files, prepared once and kept in the cache.

    path: a file, a pattern such as 'day_*.gz', or several; plain, .gz, .zst, .bz2 or .xz.
    bad_rows: `error` stops at the first row that can't be read, `skip` leaves such rows out and counts them.
    max_bad_fraction: largest share of bad rows that `skip` accepts.

    A subclass overrides `text_format` and, where it differs, the rest.
    """

    path: str | list[str]
    bad_rows: Literal["error", "skip"] = "error"
    max_bad_fraction: Annotated[float, Range(1e-9, 1.0, zero=True)] = 0.01

    def find(self, path: str | Sequence[str]) -> list[Part]:
        """The files that a path names."""
        return find_parts(path, getattr(self, "members", None))

    def text_format(self, parts: list[Part]) -> TextFormat:
        """The layout of the files."""
        raise NotImplementedError

    def blocks(self, part: Part, stream: Any, form: TextFormat) -> Iterator[TextRows]:
        """The rows of a file, block by block."""
        return texts(part, stream, form)

    def classes(self, labels: Mapping[str, int], rows: int) -> tuple[list[str], np.ndarray]:
        """Names of the classes in order, and the class of each label. labels: each label and its rows, sorted as texts."""
        return ["0", "1"], np.array([int(text) for text in labels])

    def prepare(self) -> "Prepared":
        """The prepared table, from the cache or made now."""
        parts = self.find(self.path)
        return prepare_table(Request(self, parts, lambda: self.text_format(parts), self.rows))

    def table_options(self) -> dict[str, Any]:
        """All that a prepared table depends on beside its files and their rows."""
        read = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in _LATER}
        return {"dataset": type(self).__name__, **_foreign_code(type(self)), **read}

    def described(self) -> list[str]:
        """A line on the prepared table, which is made if it isn't there."""
        return [self.prepare().line()]

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        prepared = self.prepare()
        return prepared.table, {**prepared.facts, "notes": prepared.notes()}


def _foreign_code(cls: type) -> dict[str, str]:
    """A digest of the code of a class that isn't ours: a table that a former version of it prepared is not its table.

    The loader of a plug-in's module knows that of its folder; else it is that of the files of the class and its bases.
    """
    modules = {base.__module__: sys.modules.get(base.__module__) for base in cls.__mro__}
    foreign = [module for name, module in modules.items() if name.partition(".")[0] not in (_OURS, "builtins")]
    files = [Path(file) for module in foreign if (file := getattr(module, "__file__", None))]
    codes = [getattr(getattr(module, "__loader__", None), "code", "") for module in foreign]
    content = [*(code.encode() for code in codes), *(file.read_bytes() for file in files)]
    return {"code": hashlib.sha256(b" ".join(content)).hexdigest()} if foreign else {}


@dataclass(frozen=True)
class Request:
    """What to prepare.

    dataset: says how its files are read. parts: the files, in the order of their rows. form: returns the layout; it may read
    the files for that. rows: limit on the number of good rows. options: what the table depends on beside those of `dataset`.
    """

    dataset: FileDataset
    parts: Sequence[Part]
    form: Callable[[], TextFormat]
    rows: int | None
    options: Mapping[str, Any] = field(default_factory=dict)

    def key(self) -> str:
        """A digest of the options and of the state of the files, which are not read."""
        states = [(str(part), str(part.file.resolve()), *_state(part.file)) for part in self.parts]
        skip = self.dataset.bad_rows == "skip"
        limits = [self.rows, skip, self.dataset.max_bad_fraction if skip else None]
        content = json.dumps(
            [_VERSION, states, {**self.dataset.table_options(), **self.options}, limits], sort_keys=True, default=str
        )
        return hashlib.sha256(content.encode()).hexdigest()[:32]


def _state(file: Path) -> tuple[int, ...]:
    """Its time of change can't be set back, as `cp -p` and `tar` do with that of modification."""
    state = file.stat()
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino


@dataclass(frozen=True)
class Prepared:
    """table: the rows, memory-mapped from `folder`. facts: for the manifest. made: whether this call made the table.
    ids: the identifiers of the rows, where they were asked for.
    """

    table: RawTable
    folder: Path
    facts: dict[str, Any]
    ids: list[str]
    made: bool

    def notes(self, owner: str = "") -> list[str]:
        """Lines to print: where a copy is kept, once, on the terminal; and rows that were left out. owner: of the file."""
        if self.made:
            note = f"an encoded copy of the table is kept in {self.folder}; vflbench prepare --clear deletes all copies"
            tqdm.write(note, file=sys.stderr)
        bad = self.facts.get("bad_rows", {"count": 0, "first": []})
        more = "; ..." if bad["count"] > len(bad["first"]) else ""
        return [f"bad rows{owner} left out: {bad['count']:,} ({'; '.join(bad['first'])}{more})"] if bad["count"] else []

    def line(self) -> str:
        """A summary to print."""
        size = sum(file.stat().st_size for file in self.folder.iterdir())
        bad, classes = self.facts.get("bad_rows", {"count": 0})["count"], listed_rows(self.facts["class_rows"])
        count = len(self.table.names)
        return (
            f"{'prepared' if self.made else 'already prepared'}: {len(self.table):,} rows, "
            f"{count} column{'' if count == 1 else 's'}, {sum(self.table.sizes):,} ids"
            f"{f', bad rows left out: {bad:,}' if bad else ''}; "
            f"{f'classes {classes}; ' if classes else ''}{size / 1e6:,.1f} MB in {self.folder}"
        )


def cache_folder() -> Path:
    """The folder in VFLBENCH_CACHE, by default the platform's folder for caches."""
    import platformdirs

    named = os.environ.get("VFLBENCH_CACHE") or platformdirs.user_cache_dir("vflbench", appauthor=False)
    return Path(os.path.expanduser(named))


def clear() -> int:
    """Delete all prepared tables, and nothing else. Returns how many bytes they took."""
    tables = [one for one in (cache_folder() / "prepared").glob("*") if _TABLE.fullmatch(one.name) and one.is_dir()]
    try:
        size = sum(file.lstat().st_size for table in tables for file in table.iterdir())
        for table in tables:
            shutil.rmtree(table)
    except OSError as error:
        raise _unwritable(error) from error
    return size


def prepare_table(request: Request) -> Prepared:
    """Return the prepared table of these files, from the cache or made now.

    A damaged table is made again. If another process is making the table, wait for it. Folders are for their owner alone.
    A table that is there whole needs no lock, and no right to write: it was brought to its place in one step.
    """
    folder = cache_folder() / "prepared" / request.key()
    with suppress(*_DAMAGED):
        return _prepared(request, folder, made=False)
    try:
        for parent in (cache_folder(), folder.parent, cache_folder() / "locks"):
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(cache_folder() / "locks" / folder.name, mode=0o600)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            tqdm.write("another process is preparing this data; waiting for it")
            lock.acquire()
        try:
            if os.path.lexists(folder):
                try:
                    return _prepared(request, folder, made=False)
                except _DAMAGED as error:
                    reason = in_a_line(error, 200)
                    tqdm.write(f"the prepared data in {folder} is damaged ({reason}) and will be prepared again")
                    shutil.rmtree(folder)
            _make(folder, request)
            return _prepared(request, folder, made=True)
        finally:
            lock.release()
    except OSError as error:
        raise _unwritable(error) from error


def _make(folder: Path, request: Request) -> None:
    building = folder.with_suffix(".part")
    shutil.rmtree(building, ignore_errors=True)  # of a process that was killed
    building.mkdir(mode=0o700)
    before = [_state(part.file) for part in request.parts]
    try:
        Preparation(request, building).run()
        if before != [_state(part.file) for part in request.parts]:
            raise UserError("a file changed while it was read", key="dataset.path", value=str(request.parts[0].file))
        building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _prepared(request: Request, folder: Path, *, made: bool) -> Prepared:
    """The rows, memory-mapped, so that only rows that are read take memory; and facts."""
    schema, arrays = read_arrays(folder)
    columns: dict[str, Any] = {key: tuple(schema[key]) for key in ("names", "numeric_names", "categorical_names", "sizes")}
    content = json.dumps([columns, schema["classes"], schema["arrays"]])
    table = RawTable(
        **columns,
        **arrays,
        classes=schema["classes"],
        fingerprint=hashlib.sha256(content.encode()).hexdigest(),
        folder=folder,
    )
    paths = [str(part.file.resolve()) + (f"::{part.member}" if part.member else "") for part in request.parts]
    files = {"path": paths, "file_sha256": schema["facts"].pop("file_sha256")}
    facts = {key: several[0] if len(several) == 1 else several for key, several in files.items()}
    return Prepared(table, folder, {**facts, **schema["facts"]}, schema["ids"], made)


def write_arrays(folder: Path, arrays: Mapping[str, tuple[str, tuple[int, ...]]], schema: Mapping[str, Any]) -> None:
    """Describe files of numbers in a folder: name -> type and shape."""
    described = {}
    for name, (dtype, shape) in arrays.items():
        described[name] = (dtype, shape, _digest(folder / name))
    text = json.dumps({**schema, "arrays": described}, indent=1)
    with written_whole(folder / "schema.json", "w", private=True) as file:
        file.write(f"{text}\n{hashlib.sha256(text.encode()).hexdigest()}")


def _digest(file: Path) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_arrays(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The description, and the arrays, mapped from their files. Every byte is checked: damage is an OSError or a ValueError
    that names the file.
    """
    text, _, digest = (folder / "schema.json").read_bytes().rpartition(b"\n")
    if hashlib.sha256(text).hexdigest() != digest.decode("ascii", "replace"):
        raise ValueError("schema.json differs from its digest")
    schema, arrays = json.loads(text), {}
    for name, (dtype, shape, digest) in schema["arrays"].items():
        try:
            if _digest(folder / name) != digest:
                raise ValueError("its content differs from its digest")
        except (OSError, ValueError) as error:
            raise ValueError(f"{name}: {in_a_line(error, 200)}") from error
        arrays[name] = (
            np.asarray(np.memmap(folder / name, dtype, "r", shape=tuple(shape)))
            if math.prod(shape)
            else np.empty(shape, dtype)
        )
    return schema, arrays


def _unwritable(error: OSError) -> UserError:
    problem = f"prepared data, of about the size of the text, can't be stored there: {error.strerror or error}"
    return UserError(f"{problem}; set VFLBENCH_CACHE to another folder", key="VFLBENCH_CACHE", value=cache_folder())


_BAD_ROWS_SHOWN = 5
_WAITING = 1 << 22
"""So many values of blocks wait before they join, at least."""
_REPLACED_ROWS = 1 << 16


class Preparation:
    """Prepares a table in a folder. The first pass writes the codes of each block's own values. These wait in memory until
    they are more than those of all blocks before; then they join them, and their codes are replaced. So memory grows with
    the different values, not with the rows. The second pass puts the codes in the order of the values.
    """

    def __init__(self, request: Request, folder: Path):
        self.request, self.folder, self.form = request, folder, request.form()
        self.rows = self.bad_count = 0
        self.bad_shown: list[str] = []
        self.where = ""  # the rows are that come next, if there are several files
        self.whole = 0  # parts that were read to their end
        self.blocks: list[list[pa.Array]] = []  # of each column its values
        self.ends: list[int] = []  # the first block is of all that have joined

    def run(self) -> None:
        """Prepare the table."""
        form, ids, id_rows = self.form, [], []
        with ExitStack() as stack:
            files = [
                stack.enter_context(open_to_write(self.folder / name, "wb", private=True))
                for name in ("numeric", "categorical", "labels")
            ]
            for rows in self._blocks():
                names, numbers, codes, values_of_block = encoded(rows.table, form)
                for file, array in zip(files, (numbers, codes[:, :-1], codes[:, -1]), strict=True):
                    file.write(array.tobytes())
                    file.flush()
                self.blocks.append(values_of_block)
                self.ends.append(self.rows)
                joined, *waiting = (sum(map(len, values)) for values in self.blocks)
                if sum(waiting) > max(_WAITING, joined):
                    self._join()
                if form.id:
                    ids += pc.fill_null(rows.table[form.id].cast(pa.string()), "").to_pylist()
                    id_rows.append((rows.numbers, self.where))
        self._check_rows()
        named = (f"{number}{where}" for numbers, where in id_rows for number in numbers.tolist())
        check_identifiers(ids, form.id, self.request.parts[0], named)
        self._join()
        ((*values, label_values),) = self.blocks
        ranks = [np.argsort(pc.sort_indices(of_column)).astype(np.int32) for of_column in (*values, label_values)]
        rows_of_label = np.bincount(np.memmap(self.folder / "labels", np.int32, "r"), minlength=len(label_values))
        labels = dict(sorted(zip(label_values.to_pylist(), rows_of_label.tolist(), strict=True)))
        classes, class_of = self.request.dataset.classes(labels, self.rows) if form.label else ([], np.zeros(1, np.int64))
        numeric, categorical = (
            [name for name, is_number in names.items() if is_number is wanted] for wanted in (True, False)
        )
        arrays = {
            "numeric": ("float64", (self.rows, len(numeric))),
            "categorical": ("int32", (self.rows, len(categorical))),
            "labels": ("int32", (self.rows,)),
        }
        ranks[-1] = class_of[ranks[-1]]
        self._replace([repeat(rank) for rank in ranks], [*range(0, self.rows, _REPLACED_ROWS), self.rows])
        rows_of_class = np.bincount(class_of, [*labels.values()], len(classes)).astype(int).tolist()
        schema = {
            "names": list(names),
            "numeric_names": numeric,
            "categorical_names": categorical,
            "sizes": [len(of_column) for of_column in values],
            "classes": max(2, len(classes)),
            "ids": ids,
            "facts": self._facts(classes, rows_of_class),
        }
        write_arrays(self.folder, arrays, schema)

    def _join(self) -> None:
        """Make one block of all. The codes of the first stay as they are."""
        values, maps = [], []
        for of_blocks in zip(*self.blocks, strict=True):
            pieces = [piece.cast(pa.large_string()) for piece in of_blocks]
            joined = pa.concat_arrays(pieces).dictionary_encode()
            values.append(joined.dictionary)
            maps.append(np.split(joined.indices.to_numpy(), np.cumsum([len(piece) for piece in pieces])[:-1])[1:])
        self._replace(maps, self.ends)
        self.blocks, self.ends = [values], self.ends[-1:]

    def _replace(self, maps: Sequence[Iterable[np.ndarray]], ends: Sequence[int]) -> None:
        """Other codes on disk: one map a column for the rows from each end to the next, which alone are in memory."""
        for name, of_columns in (("categorical", maps[:-1]), ("labels", maps[-1:])):
            for (start, end), *of_rows in zip(pairwise(ends), *of_columns, strict=False) if of_columns else ():
                offset, shape = 4 * len(of_columns) * start, (end - start, len(of_columns))
                codes = np.memmap(self.folder / name, np.int32, "r+", offset, shape)
                for j, codes_of in enumerate(of_rows):
                    codes[:, j] = codes_of[codes[:, j]]

    def _blocks(self) -> Iterator[TextRows]:
        """All blocks with rows, in order. With a limit, nothing after the last row matters."""
        parts, most = self.request.parts, self.request.rows
        size = None if parts[0].member else sum(part.file.stat().st_size for part in parts)
        name = shown(parts[0].file.name) + (" ..." if len(parts) > 1 else "")
        with tqdm(total=size, desc=f"preparing {name}", unit="B", unit_scale=True, disable=None, leave=False) as bar:
            for part, stream in open_parts(parts, bar.update):
                for block in self.request.dataset.blocks(part, stream, self.form):
                    rows = parsed(block, self.form).first(None if most is None else most - self.rows)
                    if rows.bad and self.request.dataset.bad_rows == "error":
                        raise part.error(with_remedy(str(rows.bad[0])))
                    self.where = f" ({shown(part, 200)})" if len(parts) > 1 else ""
                    self.bad_shown += [f"{one}{self.where}" for one in rows.bad[: _BAD_ROWS_SHOWN - len(self.bad_shown)]]
                    self.bad_count += len(rows.bad)
                    self.rows += len(rows.table)
                    if len(rows.table):
                        yield rows
                    if self.rows == most:
                        return
                self.whole += 1

    def _check_rows(self) -> None:
        """Raises UserError where there is none, or too many are bad."""
        rows, allowed = self.rows + self.bad_count, self.request.dataset.max_bad_fraction
        first = f"; the first: {'; '.join(self.bad_shown)}"
        if not self.rows:
            where = [str(part) for part in self.request.parts]
            what = f"all {rows:,} rows are bad{first}" if rows else "the file is empty or holds no rows"
            raise UserError(what, key="dataset.path", value=where[0] if len(where) == 1 else where)
        if self.bad_count > allowed * rows:
            what = f"{self.bad_count:,} of {rows:,} rows are bad ({self.bad_count / rows:.2%}), more than allowed"
            raise UserError(what + first, key="dataset.max_bad_fraction", value=allowed)

    def _facts(self, classes: list[str], rows: list[int]) -> dict[str, Any]:
        files = [part.file for part in self.request.parts]
        of_file = {file: _digest(file) for file in dict.fromkeys(files[: self.whole])}
        hashes = [of_file[file] if place < self.whole else None for place, file in enumerate(files)]
        facts: dict[str, Any] = {"file_sha256": hashes, "class_rows": dict(zip(classes, rows, strict=False))}
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


def check_identifiers(ids: Sequence[str], name: str, part: Part, named: Iterable[str]) -> None:
    """Raise UserError, naming the rows, where one is missing or stands there twice. named: (n,) each row in words."""
    wrong = next((text for text, count in Counter(ids).items() if not text or count > 1), None)
    if wrong is not None:
        rows = listed([number for number, text in zip(named, ids, strict=True) if text == wrong], 3)
        what = f"the identifier {shown(wrong, 60)!r} more than once" if wrong else "no identifier"
        raise part.error(f"row{'s' if ',' in rows else ''} {rows}: column {shown(name, 60)} has {what}")
