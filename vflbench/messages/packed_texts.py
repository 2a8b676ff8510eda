"""Many texts, such as identifiers of rows, as two tensors: their bytes one after the other, and how many each has."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def packed_texts(texts: Sequence[str]) -> dict[str, Tensor]:
    """Raises UnicodeEncodeError for what UTF-8 can't hold."""
    parts = [text.encode() for text in texts]
    data = torch.from_numpy(np.frombuffer(b"".join(parts), np.uint8).copy())
    return {"bytes": data, "lengths": torch.tensor([len(part) for part in parts], dtype=torch.int64)}


def unpacked_texts(content: Any) -> list[str]:
    """The inverse. Raises ValueError for what is none."""
    if not isinstance(content, Mapping) or set(content) != {"bytes", "lengths"}:
        raise ValueError("no texts are there")
    data, lengths = content["bytes"], content["lengths"]
    for values, dtype in ((data, torch.uint8), (lengths, torch.int64)):
        if not isinstance(values, Tensor) or values.dtype is not dtype or values.ndim != 1:
            raise ValueError("the texts are no bytes and lengths")
    if len(lengths) and int(lengths.min()) < 0:
        raise ValueError("a text has fewer than no bytes")
    ends = np.cumsum(lengths.numpy().astype(object)).tolist() if len(lengths) else []
    if (ends[-1] if ends else 0) != len(data):
        raise ValueError("the texts have other lengths than their bytes")
    whole = data.numpy().tobytes()
    return [whole[start:end].decode() for start, end in zip([0, *ends], ends, strict=False)]
