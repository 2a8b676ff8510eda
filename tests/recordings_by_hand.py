"""Writes recorded messages after docs/reference/messages.md, with nothing of the package: struct, json and pyarrow alone."""

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DTYPES = {"<f4": "F32", "<f2": "F16", "<f8": "F64", "<i8": "I64", "<i4": "I32"}


@dataclass
class Told:
    """One party's messages about one batch. values: `KIND/LAYER` -> (n, d)."""

    epoch: int
    step: int
    ids: np.ndarray
    values: dict[str, Any]
    phase: str = "train"
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """A tensor as its bytes."""

    dtype: str
    shape: tuple[int, ...]
    content: bytes


def raw(values: Any) -> Raw:
    return values if isinstance(values, Raw) else Raw(DTYPES[values.dtype.str], values.shape, values.tobytes())


def safetensors_bytes(tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> bytes:
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    content = b""
    for name, values in tensors.items():
        part = raw(values)
        header[name] = {
            "dtype": part.dtype,
            "shape": list(part.shape),
            "data_offsets": [len(content), len(content) + len(part.content)],
        }
        content += part.content
    return framed(json.dumps(header).encode(), content)


def framed(header: bytes, content: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + content


def as_safetensors(batches: list[Told]) -> bytes:
    tensors: dict[str, Any] = {}
    metadata = {}
    for number, batch in enumerate(batches):
        tensors[f"{number}/ids"] = batch.ids
        tensors |= {f"{number}/{name}": values for name, values in batch.values.items()}
        metadata[str(number)] = json.dumps({"epoch": batch.epoch, "step": batch.step, "phase": batch.phase})
    return safetensors_bytes(tensors, metadata)


def as_parquet(
    batches: list[Told], rng: np.random.Generator | None = None, *, lists: str = "fixed", **options: Any
) -> bytes:
    """rng: shuffles the rows of each batch over its layers; None: layer after layer."""
    columns: dict[str, list[Any]] = {name: [] for name in ("epoch", "step", "kind", "layer", "id", "values", "phase")}
    for batch in sorted(batches, key=lambda batch: (batch.epoch, batch.phase == "end", batch.step)):
        rows = [
            (batch.epoch, batch.step, *name.split("/", 1), int(batch.ids[i]), h[i], batch.phase)
            for name, h in batch.values.items()
            for i in range(len(h))
        ]
        if rng is not None:
            first = next(iter(batch.values)).split("/", 1)
            order = rng.permutation(len(rows))
            own = [i for i, row in enumerate(rows) if list(row[2:4]) == first]
            rest = [i for i in order if i not in set(own)]
            turns = rng.permutation([True] * len(own) + [False] * len(rest))
            order = [own.pop(0) if turn else rest.pop(0) for turn in turns]
            rows = [rows[i] for i in order]
        for row in rows:
            for name, value in zip(columns, row, strict=True):
                columns[name].append(value)
    return table_bytes(
        {
            "epoch": pa.array(columns["epoch"], pa.int32()),
            "step": pa.array(columns["step"], pa.int64()),
            "kind": columns["kind"],
            "layer": pa.array(columns["layer"], pa.large_string()) if lists == "large" else columns["layer"],
            "id": pa.array(columns["id"], pa.int64()),
            "values": list_array(columns["values"], lists),
            "phase": columns["phase"],
        },
        **options,
    )


def list_array(rows: list[np.ndarray], lists: str) -> pa.Array:
    flat = pa.array(np.concatenate([np.zeros(0, rows[0].dtype), *rows]))
    if lists == "fixed" and len({len(row) for row in rows}) == 1:
        return pa.FixedSizeListArray.from_arrays(flat, len(rows[0]))
    offsets = np.cumsum([0, *map(len, rows)])
    if lists == "large":
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), flat)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)


def table_bytes(columns: dict[str, Any], **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, **options)
    return sink.getvalue().to_pybytes()


def manifest_of(parties: dict[str, dict[str, int]], **changes: Any) -> dict[str, Any]:
    return {
        "format": "vflbench-messages/1",
        "classes": 2,
        "parties": {party: {"layers": layers} for party, layers in parties.items()},
        **changes,
    }


def write(folder: Path, manifest: Any, shards: dict[str, bytes], tables: dict[str, bytes]) -> Path:
    """manifest: values of JSON. shards: file name -> content. tables: path -> content."""
    (folder / "messages").mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for name, content in shards.items():
        (folder / "messages" / name).write_bytes(content)
    for name, content in tables.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return folder
