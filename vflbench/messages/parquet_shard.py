"""Reads the messages of one party from a Parquet file: a row for each row of a batch and each layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from vflbench.messages.manifest import Manifest, Phase
from vflbench.messages.message_batch import Batch, check_bytes, check_shape, type_name
from vflbench.messages.parquet_columns import Lists, codes_of, float_type, integers
from vflbench.messages.parquet_pages import Group, open_parquet, row_groups
from vflbench.messages.safetensors_shard import MOST_STEPS, Place
from vflbench.plain_files import check_plain

_ROWS = 4096  # read at a time, of usual widths
_BYTES = 2**25  # read at a time, of great ones
_FREE = 2**26  # bytes that any file may unpack to
_MOST_ROWS = 2 * 10**8
_KINDS = ("embedding", "gradient", "prediction")
_PHASES: tuple[Phase, ...] = ("train", "end")
_COLUMNS = ("epoch", "step", "kind", "layer", "id", "values")

Key = tuple[int, int, int]
"""Phase by its number, epoch and step."""


class ParquetShard:
    """Batches of one party in the order of epoch and step. Raises ValueError, or pyarrow's errors, for other files."""

    def __init__(self, path: Path, party: str, manifest: Manifest):
        self.path, self._party, self._manifest = path, party, manifest
        self._widest = max([*manifest.parties[party].layers.values(), manifest.classes])
        self._with_values = _Cursor(path, _COLUMNS[2:], max(1, min(_ROWS, _BYTES // (8 * self._widest))))
        self._without = _Cursor(path, _COLUMNS[2:5], 2**16)

    def places(self) -> Iterator[Place]:
        """Its batches in order; the columns of values are not read."""
        check_plain(self.path)
        state = _state(self.path)
        groups = row_groups(self.path, _FREE)
        for cursor in (self._with_values, self._without):
            cursor.note_groups(state, [group.rows for group in groups])
        with open_parquet(self.path, None) as file:
            schema, metadata = file.schema_arrow, file.metadata
            self._check_columns(schema)
            self._check_claims(metadata, groups)
            types = frozenset({float_type(schema.field("values").type)})
            last: dict[int, Key] = {}
            for key, start, end, kinds in _runs(file):
                if last.get(key[0], (-1, -1, -1)) >= key:
                    raise ValueError(
                        f"epoch {key[1]}, step {key[2]} is there twice or comes too late: the rows of a batch must stand "
                        "together, and batches in the order of epoch and step"
                    )
                last[key[0]] = key
                phase, epoch, step = key
                if not 0 <= epoch < 10**6 or not 0 <= step < MOST_STEPS:
                    raise ValueError(f"epoch {epoch}, step {step}: they must be numbers from 0, below 10^6 and 10^9")
                check_bytes((end - start) * self._widest * 4, f"epoch {epoch}, step {step}")
                yield Place(epoch, step, _PHASES[phase], (start, end), kinds, types)

    def _check_columns(self, schema: pa.Schema) -> None:
        missing = [name for name in _COLUMNS if name not in schema.names]
        if missing:
            raise ValueError(f"it has no column {missing[0]}; there must be {', '.join(_COLUMNS)}")
        if len(set(schema.names)) != len(schema.names):
            raise ValueError("two of its columns have one name")
        for name in ("epoch", "step", "id"):
            if not pa.types.is_integer(schema.field(name).type):
                raise ValueError(f"column {name} must hold integers, not {schema.field(name).type}")
        float_type(schema.field("values").type)

    def _check_claims(self, metadata: pq.FileMetaData, groups: Sequence[Group]) -> None:
        rows = sum(group.rows for group in groups)
        if rows > _MOST_ROWS:
            raise ValueError(f"it has {rows:,} rows, and {_MOST_ROWS:,} are read at most; make several files")
        columns = [metadata.schema.column(place).path.split(".")[0] for place in range(metadata.num_columns)]
        for group in groups:
            if len(group.values) != len(columns):
                raise ValueError(f"its schema has {len(columns)} columns, and a row group {len(group.values)}")
            for name, values in zip(columns, group.values, strict=True):
                if values > group.rows * (self._widest if name == "values" else 1):
                    raise ValueError(f"column {name[:80]}: {values:,} values are too many for {group.rows:,} rows")

    def read(self, place: Place) -> Batch:
        values: dict[str, Tensor] = {}
        ids: dict[str, Tensor] = {}
        rows, names, codes, numbers = self._named(self._with_values, place)
        lists = Lists(rows.column("values").combine_chunks())
        for code, name in enumerate(names):
            places = (codes == code).nonzero()[0]
            ids[name] = torch.from_numpy(numbers[places])
            values[name] = torch.from_numpy(lists.matrix(places, name))
            check_shape(name, tuple(values[name].shape), type_name(values[name]), len(places), self._party, self._manifest)
        first = next(iter(ids.values()))
        return Batch(first, {name: _in_order(name, ids[name], first, h) for name, h in values.items()})

    def read_ids(self, place: Place) -> np.ndarray:
        _, _, codes, numbers = self._named(self._without, place)
        return numbers[codes == 0]

    def _named(self, cursor: _Cursor, place: Place) -> tuple[pa.Table, list[str], np.ndarray, np.ndarray]:
        """Rows of a batch, the `KIND/LAYER` in it, that of each row by its number, and each row's id."""
        rows = pa.Table.from_batches(cursor.rows(*place.key))
        known: dict[str, int] = {}
        kinds = codes_of(rows.column("kind"), "kind", {kind: code for code, kind in enumerate(_KINDS)}, are_all=True)
        layers = codes_of(rows.column("layer"), "layer", known)
        both, first, codes = np.unique(kinds * len(known) + layers, return_index=True, return_inverse=True)
        order = np.argsort(first)
        of_code = list(known)
        names = [f"{_KINDS[both[i] // len(known)]}/{of_code[both[i] % len(known)]}" for i in order]
        return rows, names, np.argsort(order)[codes], integers(rows.column("id"), "id")


class _Cursor:
    """Rows of some columns of a file; reading goes on where it stopped."""

    def __init__(self, path: Path, columns: tuple[str, ...], at_a_time: int):
        self._path, self._columns, self._at_a_time = path, columns, at_a_time
        self._file: pq.ParquetFile | None = None
        self._starts: list[int] = []
        self._state: tuple[int, int] | None = None
        self._at, self._group, self._end, self._rest = 0, 0, 0, None
        self._parts: Iterator[pa.RecordBatch] = iter(())

    def note_groups(self, state: tuple[int, int], rows: Sequence[int]) -> None:
        """Its pages are checked as they are now. rows: of each row group."""
        self._state, self._starts = state, np.cumsum([0, *rows])[:-1].tolist()

    def rows(self, start: int, end: int) -> list[pa.RecordBatch]:
        """Record batches of these rows."""
        file = self._open()
        group = int(np.searchsorted(self._starts, start, side="right")) - 1
        if start < self._at or self._starts[group] > self._end:
            self._parts = file.iter_batches(
                self._at_a_time, row_groups=list(range(group, file.num_row_groups)), columns=list(self._columns)
            )
            self._at, self._rest = self._starts[group], None
        taken: list[pa.RecordBatch] = []
        while self._at < end:
            part = self._rest if self._rest is not None else next(self._parts, None)
            if part is None or not len(part):
                raise ValueError("it ends too early, or was changed while it was read")
            if self._rest is None:
                part.validate(full=True)
            skipped = max(0, start - self._at)
            stop = min(len(part), end - self._at)
            if stop > skipped:
                taken.append(part.slice(skipped, stop - skipped))
            self._rest = part.slice(stop) if stop < len(part) else None
            self._at += stop
        self._end = self._at
        if end == file.metadata.num_rows:
            self._close()
        return taken

    def _open(self) -> pq.ParquetFile:
        if self._file is None:
            if self._state != _state(self._path):
                raise ValueError("it was changed while it was read")
            self._file = open_parquet(self._path, None)
            self._at, self._end, self._rest = 2**62, -1, None
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._parts, self._rest = None, iter(()), None


def _state(path: Path) -> tuple[int, int]:
    """Its size, and when it was changed."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _runs(file: pq.ParquetFile) -> Iterator[tuple[Key, int, int, frozenset[str]]]:
    """Rows that stand together and have one phase, epoch and step: these, the first row, the last and one, and the kinds."""
    has_phase = "phase" in file.schema_arrow.names
    key, start, row, kinds = None, 0, 0, set[int]()
    of_kind, of_phase = ({name: code for code, name in enumerate(names)} for names in (_KINDS, _PHASES))
    for part in file.iter_batches(2**16, columns=["epoch", "step", "kind", *(["phase"] if has_phase else [])]):
        part.validate(full=True)
        codes = codes_of(part.column("kind"), "kind", of_kind, are_all=True)
        phases = codes_of(part.column("phase"), "phase", of_phase, are_all=True) if has_phase else np.zeros_like(codes)
        keys = np.stack([phases, integers(part.column("epoch"), "epoch"), integers(part.column("step"), "step")])
        cuts = (keys[:, 1:] != keys[:, :-1]).any(0).nonzero()[0] + 1
        for begin, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(part)], strict=True):
            phase, epoch, step = keys[:, begin].tolist() if begin < stop else (0, 0, 0)
            if (phase, epoch, step) != key and begin < stop:
                if key is not None:
                    yield key, start, row, frozenset(_KINDS[kind] for kind in kinds)
                key, start, kinds = (phase, epoch, step), row, set()
            kinds.update(np.unique(codes[begin:stop]).tolist())
            row += stop - begin
    if row != file.metadata.num_rows:
        raise ValueError(f"it has {row:,} rows, and claims to have {file.metadata.num_rows:,}")
    if key is not None:
        yield key, start, row, frozenset(_KINDS[kind] for kind in kinds)


def _in_order(name: str, ids: Tensor, wanted: Tensor, values: Tensor) -> Tensor:
    """The rows of values in the order of the wanted ids."""
    if torch.equal(ids, wanted):
        return values
    by_id, order = ids.sort()
    place = torch.searchsorted(by_id, wanted).clamp_max(len(by_id) - 1)
    if len(ids) != len(wanted) or not torch.equal(by_id[place], wanted):
        raise ValueError(f"{name}: its ids are not those of the batch's other layers")
    return values[order[place]]
