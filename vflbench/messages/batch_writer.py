"""Writes recorded messages that are NumPy arrays, from a loop in any framework. The format: docs/reference/messages.md."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from vflbench.errors import UserError
from vflbench.messages.collected_labels import CollectedLabels
from vflbench.messages.message_batch import FLOATS, type_name
from vflbench.messages.recording_folder import MOST_STEPS, RecordingFolder
from vflbench.messages.recording_format import LABEL_PARTY
from vflbench.messages.row_ids import row_ids


def write_batch(
    folder: Path | str,
    *,
    party: str,
    ids: ArrayLike,
    embeddings: Mapping[str, ArrayLike] | None = None,
    gradients: Mapping[str, ArrayLike] | None = None,
    summed_gradients: Mapping[str, ArrayLike] | None = None,
    numeric: ArrayLike | None = None,
    categorical: ArrayLike | None = None,
    epoch: int = 0,
    step: int | None = None,
    y: ArrayLike | None = None,
    labels: str = LABEL_PARTY,
    classes: int = 2,
    claims: Mapping[str, Any] | None = None,
    class_shares: Sequence[float] | None = None,
    model: Mapping[str, float] | None = None,
    cut: Sequence[str] = (),
    complete: bool | None = None,
    overwrite: bool = False,
) -> Path:
    """Write one batch of one party as a file of its own, and the party into manifest.json. Returns the file's path.

    ids: (n,) integers. embeddings, gradients: layer -> (n, d), or (n,), or (n, ...), which is flattened; float32, float16,
    float64 or bfloat16 (of ml_dtypes), kept as they are. summed_gradients: parameter -> its gradient, summed over the batch.
    numeric: (n, k) floats and categorical: (n, c) integers, the party's own columns. step: within the epoch; the next one,
    if left out. y: (n,) classes from 0, where this process may know them: labels.parquet is written anew each time, so for
    thousands of batches write it once instead. labels: name of the party that holds them. complete: whether all training
    batches of all recorded epochs will be there. overwrite: replaces the batch if it is there; otherwise that raises
    UserError, as does what the format doesn't take.
    """
    place = RecordingFolder(folder, party)
    for key, number in {"epoch": epoch, "step": step}.items():
        if number is not None and not (isinstance(number, (int, np.integer)) and 0 <= number < MOST_STEPS):
            raise UserError(f"it is counted from 0, to {MOST_STEPS - 1:,}", key=key, value=number)
    step = place.next_steps().get(epoch, 0) if step is None else int(step)
    made = row_ids(ids)
    tensors = {f"embedding/{layer}": _rows(layer, h, len(made)) for layer, h in (embeddings or {}).items()}
    tensors |= {f"gradient/{layer}": _rows(layer, g, len(made)) for layer, g in (gradients or {}).items()}
    tensors |= {f"summed_gradient/{name}": _floats(name, g) for name, g in (summed_gradients or {}).items()}
    if not tensors:
        raise UserError("a batch has embeddings, gradients or summed_gradients", key="embeddings", value=embeddings)
    layers = {name.partition("/")[2]: values.shape[1] for name, values in tensors.items() if not name.startswith("summed")}
    for layer, width in layers.items():
        other = tensors.get(f"embedding/{layer}")
        if other is not None and other.shape[1] != width:
            raise UserError(
                f"its embedding has {other.shape[1]} columns, and its gradient {width}", key="layer", value=layer
            )
    if numeric is not None:
        tensors["columns/numeric"] = _rows("numeric", numeric, len(made))
    if categorical is not None:
        tensors["columns/categorical"] = _integers(categorical, len(made))
    path = place.path(int(epoch), step)
    if path.exists() and not overwrite:
        raise UserError(
            "this batch is there already; overwrite=True replaces it", key="step", value=f"{step} of epoch {epoch}"
        )
    collected = CollectedLabels(classes)
    if y is not None:
        collected.add(made, np.asarray(y))
    said = {"producer": "vflbench.write_batch", "classes": classes, "labels": labels, "claims": claims, "model": model}
    said |= {
        "class_shares": None if class_shares is None else [float(share) for share in class_shares],
        "complete": complete,
    }
    place.merge(
        said | {"batch_size": None if place.files() else len(made)}, layers, [cut] if isinstance(cut, str) else list(cut)
    )
    place.write(made, tensors, epoch=int(epoch), step=step)
    if collected:
        place.write_labels(collected)
    return path


def _rows(name: str, values: ArrayLike, rows: int) -> Tensor:
    """(n, ...) as (n, d)."""
    made = _floats(name, values)
    if made.ndim < 1 or len(made) != rows or not made.numel():
        raise UserError(f"it must have a row for each of the {rows} ids, batch first", key=name, value=tuple(made.shape))
    return made.reshape(rows, -1)


def _floats(name: str, values: ArrayLike) -> Tensor:
    """In its own precision. Raises UserError for NaN and infinite values, which no attack can read."""
    array = np.asarray(values)
    if array.dtype.name == "bfloat16":  # of ml_dtypes, as JAX has it, which torch.from_numpy doesn't know
        made = torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16)
    elif array.dtype.kind == "f" and array.dtype.itemsize <= 8:
        made = torch.from_numpy(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")))
    else:
        raise UserError("values are float32, float16, float64 or bfloat16", key=name, value=array.dtype)
    assert type_name(made) in FLOATS
    if not bool(made.isfinite().all()):
        raise UserError("NaN or infinite values can't be recorded; leave the batch out", key=name, value=tuple(array.shape))
    return made


def _integers(values: ArrayLike, rows: int) -> Tensor:
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or array.ndim != 2 or len(array) != rows or (array.size and array.min() < 0):
        problem = f"categorical columns are ({rows}, any number) of integers from 0, not {array.dtype}"
        raise UserError(problem, key="categorical", value=array.shape)
    return torch.from_numpy(array.astype(np.int64))
