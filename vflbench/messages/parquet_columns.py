"""Columns of a Parquet file as arrays, checked: whole numbers, codes of texts, lists of floats. All raise ValueError."""

from typing import Any

import numpy as np
import pyarrow as pa
import torch


def float_type(kind: pa.DataType) -> torch.dtype:
    """Of the values in a column of lists. Raises ValueError."""
    types = {pa.float32(): torch.float32, pa.float64(): torch.float64, pa.float16(): torch.float16}
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not lists or kind.value_type not in types:
        raise ValueError(f"column values must hold lists of float32, float16 or float64, not {str(kind)[:200]}")
    return types[kind.value_type]


def integers(column: Any, name: str) -> np.ndarray:
    if column.null_count:
        raise ValueError(f"column {name} has rows without a value")
    numbers = column.cast(pa.int64())
    return np.array(
        numbers.to_numpy(zero_copy_only=False) if isinstance(numbers, pa.Array) else numbers.to_numpy(), np.int64
    )


def codes_of(column: Any, name: str, known: dict[str, int], *, are_all: bool = False) -> np.ndarray:
    """(n,) the code of each text; a new text gets the next one in `known`, unless these are all that may be."""
    made = [np.zeros(0, np.int64)]
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        texts = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        if chunk.null_count or not (
            pa.types.is_string(texts.type.value_type) or pa.types.is_large_string(texts.type.value_type)
        ):
            raise ValueError(f"column {name} must hold text in every row, not {str(chunk.type)[:200]}")
        places = texts.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        used, inverse = np.unique(places, return_inverse=True)
        codes = np.zeros(len(used), np.int64)
        for number, place in enumerate(used.tolist()):
            text = texts.dictionary[place].as_py()
            if text is None or (are_all and text not in known):
                raise ValueError(f"{name} {str(text)[:80]!r}: it must be {', '.join(known)}")
            codes[number] = known.setdefault(text, len(known))
        made.append(codes[inverse])
    return np.concatenate(made)


class Lists:
    """A column of lists."""

    def __init__(self, lists: pa.Array):
        self._values = lists.flatten()
        self._has_nulls = bool(lists.null_count or self._values.null_count)
        if pa.types.is_fixed_size_list(lists.type):
            self._offsets = np.arange(len(lists) + 1) * lists.type.list_size
        elif not self._has_nulls:
            self._offsets = lists.offsets.to_numpy().astype(np.int64)
            self._offsets = self._offsets - self._offsets[0]

    def matrix(self, places: np.ndarray, name: str) -> np.ndarray:
        """(n, d) of these rows, whose lists must have one length, in memory of its own."""
        if self._has_nulls:
            raise ValueError(f"{name}: there are rows without values")
        starts, lengths = self._offsets[places], np.diff(self._offsets)[places]
        width = int(lengths[0])
        if (lengths != width).any() or not width:
            raise ValueError(f"{name}: its rows have lists of different lengths, or empty ones")
        numbers = self._values.to_numpy(zero_copy_only=False)
        if len(places) == int(places[-1]) - int(places[0]) + 1:
            return numbers[starts[0] : starts[-1] + width].reshape(len(places), width).copy()
        return numbers[starts[:, None] + np.arange(width)]
