"""One categorical column while it is read block by block: which values there are, and what becomes of each block's codes."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_PACKED_BYTES = 8


class GrowingVocabulary:
    """Collects each block's values, on disk where they are short, and puts them in one order at the end.

    Values of at most 8 bytes are kept as the 64-bit number that they spell, which keeps their order: no hash, no collision.
    """

    def __init__(self, folder: Path, name: str):
        self._keys = (folder / f"{name}.keys").open("w+b")
        self._counts = (folder / f"{name}.counts").open("w+b")
        self._ids = (folder / f"{name}.ids").open("w+b")
        self._texts: list[tuple[int, pa.Array]] = []  # (values before, the block's values), of blocks with a longer one
        self._length = 0

    def add(self, values: pa.Array, counts: np.ndarray) -> None:
        """A block's values, all different, and how often each occurs."""
        keys = pack(values)
        if keys is None:
            self._texts.append((self._length, values))
            keys = np.zeros(len(values), dtype=np.uint64)
        keys.tofile(self._keys)
        counts.astype(np.int32).tofile(self._counts)
        self._length += len(values)

    def unify(self) -> tuple[np.ndarray, pa.Array | np.ndarray]:
        """How often each value occurs, and the values, packed or not, in order.

        Writes the position of each block's each value in that order, for `next_ids`.
        """
        self._keys.seek(0)
        self._counts.seek(0)
        keys, counts = np.fromfile(self._keys, np.uint64), np.fromfile(self._counts, np.int32)
        if self._texts:
            values, inverse = self._unify_texts(keys)
        else:
            values, inverse = np.unique(keys, return_inverse=True)
        inverse.astype(np.int32).tofile(self._ids)
        self._ids.seek(0)
        return np.bincount(inverse, weights=counts, minlength=len(values)).astype(np.int64), values

    def next_ids(self, count: int) -> np.ndarray:
        """Of the next block's values, in turn: (count,) int32."""
        return np.fromfile(self._ids, np.int32, count)

    def close(self) -> None:
        """Remove what was kept on disk."""
        for file in (self._keys, self._counts, self._ids):
            file.close()
            os.unlink(file.name)

    def _unify_texts(self, keys: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        pieces, start = [], 0
        for before, values in self._texts:
            pieces += [unpack(keys[start:before]), values]
            start = before + len(values)
        pieces.append(unpack(keys[start:]))
        joined = pa.concat_arrays([piece.cast(pa.large_string()) for piece in pieces]).dictionary_encode()
        order = pc.sort_indices(joined.dictionary).to_numpy()
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return joined.dictionary.take(pa.array(order)), rank[joined.indices.to_numpy()]


def pack(values: pa.Array) -> np.ndarray | None:
    """Texts of at most 8 bytes, none of them NUL, as numbers in the same order; None if one is longer. (n,) uint64."""
    if not len(values):
        return np.zeros(0, dtype=np.uint64)
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    lengths = np.diff(ends)
    if lengths.max() > _PACKED_BYTES:
        return None
    spelled = np.zeros((len(values), _PACKED_BYTES), dtype=np.uint8)
    letters = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]
    spelled[np.arange(_PACKED_BYTES) < lengths[:, None]] = letters
    return spelled.view(">u8").ravel().astype(np.uint64)


def unpack(keys: np.ndarray) -> pa.Array:
    """The texts that `pack` was given."""
    spelled = keys.astype(">u8").view(f"S{_PACKED_BYTES}")
    return pa.array(spelled.tolist(), pa.binary()).cast(pa.string())
