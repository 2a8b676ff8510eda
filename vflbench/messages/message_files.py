"""Writes recorded messages, in the format of docs/reference/messages.md: a file a batch, whole or not at all."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from vflbench.errors import UserError
from vflbench.messages.manifest import LAYER, MANIFEST, MESSAGES, PARTY, Manifest, Phase
from vflbench.numerics.auc import array_of
from vflbench.plain_files import replaced


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write manifest.json, and make the folder."""
    (folder / MESSAGES).mkdir(parents=True, exist_ok=True)
    write_json(folder / MANIFEST, manifest.plain())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """In place of an earlier file, whole or not at all."""
    with replaced(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False), encoding="utf-8")


def write_batch_file(
    folder: Path,
    party: str,
    number: int,
    ids: Tensor,
    tensors: Mapping[str, Tensor],
    *,
    epoch: int,
    step: int,
    phase: Phase = "train",
) -> Path:
    """Write the messages of one party about one batch, in place of an earlier file of this number. Returns its path.

    ids: (n,) int64, no row twice. tensors: `KIND/NAME` -> values, as `embedding/f1` -> (n, d). number: of the file; batches
    are read in the order of epoch and step, whatever their files' numbers.
    """
    from safetensors.torch import save  # late: it loads torch

    if not PARTY.fullmatch(party):
        raise UserError("letters, digits, `_`, `-` and `.` make a party's name, 64 at most", key="party", value=party)
    for name in tensors:
        if not LAYER.fullmatch(name.partition("/")[2]):
            raise UserError(
                "a layer's name has 1 to 200 characters, none of them control", key="layer", value=repr(name)[:80]
            )
    content = {f"{step}/ids": ids, **{f"{step}/{name}": values for name, values in tensors.items()}}
    plain = {name: values.detach().cpu().contiguous() for name, values in content.items()}
    place = json.dumps({"epoch": epoch, "step": step, "phase": phase})
    path = folder / MESSAGES / f"{party}-{number:08d}.safetensors"
    with replaced(path) as temporary:
        temporary.write_bytes(save(_own_memory(plain), {str(step): place}))
    return path


def _own_memory(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same without two tensors in the same memory, which the format doesn't have."""
    seen: set[int] = set()
    made = {}
    for name, values in tensors.items():
        place = values.untyped_storage().data_ptr()
        made[name] = values.clone() if values.numel() and place in seen else values
        seen.add(place)
    return made


def write_rows(path: Path, columns: Mapping[str, Tensor | np.ndarray | Sequence[Any]], rows: bytes = b"") -> None:
    """Write a Parquet table, as labels.parquet, whole or not at all. columns: name -> (n,) values. rows: their digest."""
    import pyarrow as pa  # late: most runs write no table
    import pyarrow.parquet as pq

    arrays = {name: pa.array(v if isinstance(v, Sequence) else array_of(v)) for name, v in columns.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path) as temporary:
        pq.write_table(pa.table(arrays, metadata={"rows": rows}), temporary, compression="zstd")
