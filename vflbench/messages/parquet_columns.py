"""Columns of a Parquet file as arrays, checked: whole numbers, codes of texts, lists of floats. All raise ValueError."""

from typing import Any

import numpy as np
import pyarrow as pa


def float_type(kind: pa.DataType) -> str:
    """Of the values in a column of lists. Raises ValueError."""
    types = {pa.float32(): "float32", pa.float64(): "float64", pa.float16(): "float16"}
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not lists or kind.value_type not in types:
        raise ValueError(f"column values must hold lists of float32, float16 or float64, not {str(kind)[:200]}")
    return types[kind.value_type]


def integers(column: Any, name: str) -> np.ndarray:
    if column.null_count:
        raise ValueError(f"column {name} has rows without a value")
    return np.array(numbers_of(column if column.type in _INTEGERS else column.cast(pa.int64())), np.int64)


def numbers_of(column: Any) -> np.ndarray:
    """(n,) numbers or truth values; those of a single chunk in its own memory. Raises ValueError for a column of another
    type, and for nulls. (pyarrow's `to_numpy` imports pandas where it is installed, which takes half a second.)
    """
    if column.type not in _TYPES or column.null_count:
        wrong = "rows without a value" if column.null_count else f"values of type {str(column.type)[:200]}"
        raise ValueError(f"a column of numbers has {wrong}")
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [_of_chunk(chunk) for chunk in chunks if len(chunk)] or [np.empty(0, _TYPES[column.type])]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _of_chunk(chunk: pa.Array) -> np.ndarray:
    first, end, buffer = chunk.offset, chunk.offset + len(chunk), chunk.buffers()[1]
    if pa.types.is_boolean(chunk.type):
        bits = np.frombuffer(buffer, np.uint8)[first // 8 : -(-end // 8)]
        values = np.unpackbits(bits, bitorder="little")[first % 8 :][: len(chunk)].astype(np.bool_)
    else:
        values = np.frombuffer(buffer, _TYPES[chunk.type])[first:end]
    if len(values) != len(chunk):
        raise ValueError("a column has fewer values than rows")
    return values


_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32())
"""Those that int64 holds."""

_TYPES: dict[pa.DataType, type] = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.uint8(): np.uint8,
    pa.uint16(): np.uint16,
    pa.uint32(): np.uint32,
    pa.uint64(): np.uint64,
    pa.bool_(): np.bool_,
    pa.float16(): np.float16,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
}


def codes_of(column: Any, name: str, known: dict[str, int], *, are_all: bool = False) -> np.ndarray:
    """(n,) the code of each text; a new text gets the next one in `known`, unless these are all that may be."""
    made = [np.zeros(0, np.int64)]
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        texts = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        if chunk.null_count or not (
            pa.types.is_string(texts.type.value_type) or pa.types.is_large_string(texts.type.value_type)
        ):
            raise ValueError(f"column {name} must hold text in every row, not {str(chunk.type)[:200]}")
        places = numbers_of(texts.indices).astype(np.int64)
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
            self._offsets = numbers_of(lists.offsets).astype(np.int64)
            self._offsets = self._offsets - self._offsets[0]

    def matrix(self, places: np.ndarray, name: str) -> np.ndarray:
        """(n, d) of these rows, whose lists must have one length, in memory of its own."""
        if self._has_nulls:
            raise ValueError(f"{name}: there are rows without values")
        starts, lengths = self._offsets[places], np.diff(self._offsets)[places]
        width = int(lengths[0])
        if (lengths != width).any() or not width:
            raise ValueError(f"{name}: its rows have lists of different lengths, or empty ones")
        numbers = numbers_of(self._values)
        if len(places) == int(places[-1]) - int(places[0]) + 1:
            return numbers[starts[0] : starts[-1] + width].reshape(len(places), width).copy()
        return numbers[starts[:, None] + np.arange(width)]
