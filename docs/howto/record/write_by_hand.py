"""Writes recorded messages with NumPy alone, for Python 3.6 and later: copy this file into your project."""

import hashlib
import json
import os

import numpy as np

TYPES = {"float16": "F16", "float32": "F32", "float64": "F64", "int64": "I64"}


def row_id(name):
    """A row's number, made of whatever text or bytes name it: the same for a row in every batch."""
    text = name if isinstance(name, bytes) else str(name).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def write_by_hand(folder, party, ids, embeddings, gradients, epoch, step, classes=2, labels="label"):
    """One batch as a file of its own, in a folder of this party alone.

    ids: (n,) integers. embeddings, gradients: layer -> (n, d) floats.
    """
    tensors = {"ids": np.asarray(ids, dtype=np.int64)}
    tensors.update(("embedding/" + layer, values) for layer, values in embeddings.items())
    tensors.update(("gradient/" + layer, values) for layer, values in gradients.items())
    place = json.dumps({"epoch": int(epoch), "step": int(step)})
    header, parts, start = {"__metadata__": {str(step): place}}, [], 0
    for name, values in tensors.items():
        part = np.ascontiguousarray(values).tobytes()
        described = {"dtype": TYPES[values.dtype.name], "shape": list(values.shape)}
        header[f"{step}/{name}"] = dict(described, data_offsets=[start, start + len(part)])
        parts, start = [*parts, part], start + len(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(os.path.join(folder, "messages"), exist_ok=True)
    name = f"{party}-{epoch:04d}{step:08d}.safetensors"
    temporary = os.path.join(folder, "messages", f".{name}.tmp")
    with open(temporary, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(parts))
    os.rename(temporary, os.path.join(folder, "messages", name))  # whole, or not there
    widths = {layer: int(values.shape[1]) for layer, values in {**gradients, **embeddings}.items()}
    manifest = {
        "format": "vflbench-messages/1",
        "classes": classes,
        "labels": labels,
        "parties": {party: {"layers": widths}},
    }
    with open(os.path.join(folder, "manifest.json"), "w") as file:
        json.dump(manifest, file)
