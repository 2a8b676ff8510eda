"""The vocabulary of one categorical column, built while the column is read block by block."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vflbench.plain_files import open_to_write

_PACKED_BYTES = 8


class GrowingVocabulary:
    """Collects the values of each block and finally sorts them. Short values are kept on disk.

    A value of at most 8 bytes is stored as the 64-bit number that its bytes form. This keeps the order, without collisions.
    No file stays open, as a table may have more columns than a process may have open files.
    """

    def __init__(self, folder: Path, name: str):
        self._keys, self._counts, self._ids = (folder / f"{name}.{kind}" for kind in ("keys", "counts", "ids"))
        self._ids_read = 0
        self._texts: list[tuple[int, pa.Array]] = []  # (number of earlier values, values) of each block with a long value
        self._length = 0

    def add(self, values: pa.Array | np.ndarray, counts: np.ndarray) -> None:
        """Add the values of a block, all different, as texts or packed, and how often each occurs."""
        keys = values if isinstance(values, np.ndarray) else pack(values)
        if keys is None:
            self._texts.append((self._length, values))
            keys = np.zeros(len(values), dtype=np.uint64)
        _append(self._keys, keys)
        _append(self._counts, counts.astype(np.int32))
        self._length += len(values)

    def __len__(self) -> int:
        """How many values were added."""
        return self._length

    def unify(self) -> tuple[np.ndarray, pa.Array | np.ndarray]:
        """Sort all values. Returns how often each occurs, and the values, packed or as texts.

        Writes the position of every value of every block in that order to disk, for `next_ids`.
        """
        keys, counts = np.fromfile(self._keys, np.uint64), np.fromfile(self._counts, np.int32)
        if self._texts:
            values, inverse = self._unify_texts(keys)
        else:
            values, inverse = np.unique(keys, return_inverse=True)
        _append(self._ids, inverse.astype(np.int32))
        return np.bincount(inverse, weights=counts, minlength=len(values)).astype(np.int64), values

    def next_ids(self, count: int) -> np.ndarray:
        """(count,) int32: the ids of the values of the next block. Call it once for each block, in order."""
        ids = np.fromfile(self._ids, np.int32, count, offset=self._ids_read)
        self._ids_read += ids.nbytes
        return ids

    def close(self) -> None:
        """Delete the files."""
        for file in (self._keys, self._counts, self._ids):
            file.unlink(missing_ok=True)

    def _unify_texts(self, keys: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        pieces: list[pa.Array] = []
        start = 0
        for before, values in self._texts:
            pieces += [unpack(keys[start:before]), values]
            start = before + len(values)
        pieces.append(unpack(keys[start:]))
        joined = pa.concat_arrays([piece.cast(pa.large_string()) for piece in pieces]).dictionary_encode()
        order = pc.sort_indices(joined.dictionary).to_numpy()
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return joined.dictionary.take(pa.array(order)), rank[joined.indices.to_numpy()]


def _append(file: Path, values: np.ndarray) -> None:
    with open_to_write(file, "ab", private=True) as stream:
        values.tofile(stream)


def pack(values: pa.Array) -> np.ndarray | None:
    """(n,) uint64: texts of at most 8 bytes without NUL, as numbers in the same order. None if a text is longer."""
    if not len(values):
        return np.zeros(0, dtype=np.uint64)
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    lengths = np.diff(ends)
    if lengths.max() > _PACKED_BYTES:
        return None
    padded = np.zeros((len(values), _PACKED_BYTES), dtype=np.uint8)
    letters = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]
    padded[np.arange(_PACKED_BYTES) < lengths[:, None]] = letters
    return padded.view(">u8").ravel().astype(np.uint64)


def unpack(keys: np.ndarray) -> pa.Array:
    """The texts that `pack` turned into these keys."""
    padded = keys.astype(">u8").view(f"S{_PACKED_BYTES}")
    return pa.array(padded.tolist(), pa.binary()).cast(pa.string())
