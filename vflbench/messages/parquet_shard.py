"""Reads the messages of one party from a Parquet file: a row for each row of a batch and each layer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from vflbench.messages.manifest import Manifest, Phase
from vflbench.messages.message_batch import Batch, check_shape
from vflbench.messages.safetensors_shard import MOST_STEPS, Place

_ROWS = 4096  # read at a time
_KINDS = ("embedding", "gradient", "prediction")
_COLUMNS = ("epoch", "step", "kind", "layer", "id", "values")


def open_parquet(path: Path) -> pq.ParquetFile:
    """A file whose footer may be hostile: nothing in it is allowed to claim much memory."""
    limits = {"thrift_string_size_limit": 2**24, "thrift_container_size_limit": 2**20}
    return pq.ParquetFile(path, memory_map=False, pre_buffer=False, buffer_size=2**16, **limits)


class ParquetShard:
    """Batches of one party in the order of epoch and step. Raises ValueError, or pyarrow's errors, for other files."""

    def __init__(self, path: Path, party: str, manifest: Manifest):
        self.path, self._party, self._manifest = path, party, manifest
        self._open: tuple[pq.ParquetFile, Iterator[pa.RecordBatch]] | None = None
        self._start, self._rest = 0, None  # the first row of what was read and not used yet
        self._group_starts: list[int] = []

    def places(self) -> Iterator[Place]:
        """Its batches in order; the columns of values are not read."""
        with open_parquet(self.path) as file:
            schema, self._group_starts = file.schema_arrow, [0]
            for number in range(file.num_row_groups):
                self._group_starts.append(self._group_starts[-1] + file.metadata.row_group(number).num_rows)
            self._check_columns(schema)
            phases = ["phase"] if "phase" in schema.names else []
            types = frozenset({_float_type(schema.field("values").type)})
            start, key, kinds, row = 0, None, set[str](), 0
            for part in file.iter_batches(_ROWS, columns=["epoch", "step", "kind", *phases]):
                epochs, steps = _integers(part, "epoch"), _integers(part, "step")
                names = _texts(part, "kind")
                of_phase = _texts(part, "phase") if phases else ["train"] * len(names)
                for one in zip(epochs.tolist(), steps.tolist(), of_phase, names, strict=True):
                    if one[:3] != key:
                        if key is not None:
                            yield self._place(key, start, row, kinds, types)
                        start, key, kinds = row, one[:3], set()
                    kinds.add(one[3])
                    row += 1
            if key is not None:
                yield self._place(key, start, row, kinds, types)

    def _check_columns(self, schema: pa.Schema) -> None:
        missing = [name for name in _COLUMNS if name not in schema.names]
        if missing:
            raise ValueError(f"it has no column {missing[0]}; there must be {', '.join(_COLUMNS)}")
        if len(set(schema.names)) != len(schema.names):
            raise ValueError("two of its columns have one name")
        for name in ("epoch", "step", "id"):
            if not pa.types.is_integer(schema.field(name).type):
                raise ValueError(f"column {name} must hold integers, not {schema.field(name).type}")
        _float_type(schema.field("values").type)

    def _place(self, key: Any, start: int, end: int, kinds: set[str], types: frozenset[torch.dtype]) -> Place:
        epoch, step, phase = key
        unknown = kinds - set(_KINDS)
        if unknown:
            raise ValueError(f"kind {min(unknown)[:80]!r}: it must be {', '.join(_KINDS)}")
        if phase not in ("train", "end") or not 0 <= epoch < 10**6 or not 0 <= step < MOST_STEPS:
            raise ValueError(
                f"epoch {epoch}, step {step}, phase {phase[:80]!r}: they must be numbers from 0, and train or end"
            )
        named: Phase = "end" if phase == "end" else "train"
        return Place(epoch, step, named, (start, end), frozenset(kinds), types)

    def read(self, place: Place) -> Batch:
        rows = pa.Table.from_batches(self._rows(*place.key))
        values: dict[str, Tensor] = {}
        ids: dict[str, Tensor] = {}
        kinds, layers = np.array(_texts(rows, "kind"), object), np.array(_texts(rows, "layer"), object)
        numbers, table = _integers(rows, "id"), rows.column("values").combine_chunks()
        for kind in dict.fromkeys(kinds.tolist()):
            for layer in dict.fromkeys(layers[kinds == kind].tolist()):
                places = ((kinds == kind) & (layers == layer)).nonzero()[0]
                name = f"{kind}/{layer}"
                ids[name] = torch.from_numpy(numbers[places])
                values[name] = _matrix(table.take(pa.array(places)), name)
                of = values[name]
                check_shape(name, tuple(of.shape), of.dtype, len(places), self._party, self._manifest)
        first = next(iter(ids.values()))
        return Batch(first, {name: _in_order(name, ids[name], first, h) for name, h in values.items()})

    def read_ids(self, place: Place) -> Tensor:
        rows = pa.Table.from_batches(self._rows(*place.key))
        numbers = torch.from_numpy(_integers(rows, "id"))
        values, first = np.unique(numbers.numpy(), return_index=True)
        del values
        return numbers[torch.from_numpy(np.sort(first))]

    def _rows(self, start: int, end: int) -> list[pa.RecordBatch]:
        """Record batches of these rows; reading goes on where it stopped, if they come in order."""
        if self._open is None or start < self._start:
            group = max(g for g, first in enumerate(self._group_starts[:-1]) if first <= start)
            file = open_parquet(self.path)
            names = [*_COLUMNS]
            self._open = file, file.iter_batches(_ROWS, row_groups=list(range(group, file.num_row_groups)), columns=names)
            self._start, self._rest = self._group_starts[group], None
        taken: list[pa.RecordBatch] = []
        while self._start < end:
            part = self._rest if self._rest is not None else next(self._open[1])
            skipped = max(0, start - self._start)
            stop = min(len(part), end - self._start)
            if stop > skipped:
                taken.append(part.slice(skipped, stop - skipped))
            self._rest = part.slice(stop) if stop < len(part) else None
            self._start += stop
        return taken


def _float_type(kind: pa.DataType) -> torch.dtype:
    """Of the values in a column of lists. Raises ValueError."""
    types = {pa.float32(): torch.float32, pa.float64(): torch.float64, pa.float16(): torch.float16}
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not lists or kind.value_type not in types:
        raise ValueError(f"column values must hold lists of float32, float16 or float64, not {kind}")
    return types[kind.value_type]


def _integers(rows: Any, name: str) -> Any:
    column = rows.column(name)
    if column.null_count:
        raise ValueError(f"column {name} has rows without a value")
    return (
        np.array(column.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)
        if isinstance(column, pa.Array)
        else column.cast(pa.int64()).to_numpy().copy()
    )


def _texts(rows: Any, name: str) -> list[str]:
    column = rows.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count or not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise ValueError(f"column {name} must hold text in every row")
    return column.to_pylist()


def _matrix(lists: pa.Array, name: str) -> Tensor:
    """(n, d) of lists of one length."""
    if lists.null_count or lists.flatten().null_count:
        raise ValueError(f"{name}: there are rows without values")
    numbers = lists.flatten().to_numpy(zero_copy_only=False)
    n = len(lists)
    if n == 0 or len(numbers) % n or not len(numbers):
        raise ValueError(f"{name}: its rows have lists of different lengths")
    if not pa.types.is_fixed_size_list(lists.type):
        lengths = np.diff(lists.offsets.to_numpy())
        if (lengths != lengths[0]).any():
            raise ValueError(f"{name}: its rows have lists of different lengths")
    return torch.from_numpy(np.array(numbers)).view(n, len(numbers) // n)


def _in_order(name: str, ids: Tensor, wanted: Tensor, values: Tensor) -> Tensor:
    """The rows of values in the order of the wanted ids."""
    if torch.equal(ids, wanted):
        return values
    by_id, order = ids.sort()
    place = torch.searchsorted(by_id, wanted).clamp_max(len(by_id) - 1)
    if len(ids) != len(wanted) or not torch.equal(by_id[place], wanted):
        raise ValueError(f"{name}: its ids are not those of the batch's other layers")
    return values[order[place]]
