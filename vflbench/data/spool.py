"""Encoded blocks on their way from the texts to the table: codes in a file on disk, values in growing vocabularies."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np

from vflbench.data.block_codes import BlockCodes
from vflbench.data.vocabulary import GrowingVocabulary, unpack
from vflbench.plain_files import open_to_write

_LARGE = 1 << 19  # values, each counted once a block


class Spool:
    """Collects blocks, then returns them with codes replaced by ids in the complete, sorted vocabularies.

    rows: how many rows were added. names: each feature column, and whether it is numeric.
    """

    def __init__(self, folder: Path):
        self.rows = 0
        self.names: tuple[tuple[str, bool], ...] = ()
        self._folder = folder
        self._file = open_to_write(folder / "spool", "w+b", private=True)
        self._blocks: list[tuple[int, list[tuple[np.dtype, int]]]] = []  # rows, (codes, values)
        self._vocabularies: list[GrowingVocabulary] = []

    @property
    def numeric(self) -> list[str]:
        return [name for name, is_numeric in self.names if is_numeric]

    @property
    def categorical(self) -> list[str]:
        return [name for name, is_numeric in self.names if not is_numeric]

    def add(self, codes: BlockCodes) -> None:
        """Append a block's codes and values; it has at least one row."""
        if not self._vocabularies:
            self.names = codes.names
            self._vocabularies = [GrowingVocabulary(self._folder, f"{j}") for j in range(len(self.categorical) + 1)]
        for vocabulary, values, counts in zip(self._vocabularies, codes.values, codes.counts, strict=True):
            vocabulary.add(values, counts)
        for column in codes.codes:
            self._file.write(memoryview(column).cast("B"))
        sizes = [(column.dtype, len(values)) for column, values in zip(codes.codes, codes.values, strict=True)]
        self._blocks.append((codes.rows, sizes))
        self.rows += codes.rows

    def unify(self) -> tuple[list[np.ndarray], dict[str, int]]:
        """Sort the vocabularies. Returns the counts of each categorical column's values, and all labels with their rows."""
        *columns, last = self._vocabularies
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:  # large ones one by one, as they take memory
            small = [pool.submit(_counts, column) if len(column) <= _LARGE else None for column in columns]
            counts = [_counts(v) if f is None else f.result() for v, f in zip(columns, small, strict=True)]
        rows, labels = last.unify()
        texts = (unpack(labels) if isinstance(labels, np.ndarray) else labels).to_pylist()
        return counts, dict(zip(texts, rows.tolist(), strict=True))

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """After `unify`, each block: (m, c) int32 ids, (m,) positions of the labels."""
        self._file.seek(0)
        for rows, sizes in self._blocks:
            *columns, last = zip(self._vocabularies, sizes, strict=True)
            ids = np.empty((len(columns), rows), dtype=np.int32)
            for j, (vocabulary, (code_type, size)) in enumerate(columns):
                ids[j] = vocabulary.next_ids(size)[np.fromfile(self._file, code_type, rows)]
            vocabulary, (code_type, size) = last
            yield np.ascontiguousarray(ids.T), vocabulary.next_ids(size)[np.fromfile(self._file, code_type, rows)]

    def remove(self) -> None:
        """Delete everything from the disk."""
        for vocabulary in self._vocabularies:
            vocabulary.close()
        with suppress(OSError):
            self._file.close()
        (self._folder / "spool").unlink()


def _counts(vocabulary: GrowingVocabulary) -> np.ndarray:
    """Sort it, and forget the values: how often each occurs, in their order."""
    return vocabulary.unify()[0]
