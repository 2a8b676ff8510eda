"""Writes recorded messages after docs/reference/messages.md, with nothing of the package: struct, json and pyarrow alone."""

import json
import struct
from dataclasses import dataclass, field
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


def safetensors_bytes(tensors, metadata=None):
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    content = b""
    for name, values in tensors.items():
        place = [len(content), len(content) + values.nbytes]
        header[name] = {"dtype": DTYPES[values.dtype.str], "shape": list(values.shape), "data_offsets": place}
        content += values.tobytes()
    return framed(json.dumps(header).encode(), content)


def framed(header, content=b""):
    return struct.pack("<Q", len(header)) + header + content


def as_safetensors(batches):
    tensors: dict[str, Any] = {}
    metadata = {}
    for number, batch in enumerate(batches):
        tensors[f"{number}/ids"] = batch.ids
        tensors |= {f"{number}/{name}": values for name, values in batch.values.items()}
        metadata[str(number)] = json.dumps({"epoch": batch.epoch, "step": batch.step, "phase": batch.phase})
    return safetensors_bytes(tensors, metadata)


def table_bytes(columns, **options):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, **options)
    return sink.getvalue().to_pybytes()


def manifest_of(parties, **changes):
    known = {party: {"layers": layers} for party, layers in parties.items()}
    return {"format": "vflbench-messages/1", "classes": 2, "parties": known, **changes}


def write(folder, manifest, shards, tables):
    """manifest: values of JSON. shards: file name -> content. tables: path -> content."""
    (folder / "messages").mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for name, content in shards.items():
        (folder / "messages" / name).write_bytes(content)
    for name, content in tables.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return folder
