"""Encoded blocks on their way from the texts to the table: codes in a file on disk, values in growing vocabularies."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from vflbench.data.block_codes import BlockCodes
from vflbench.data.vocabulary import GrowingVocabulary, unpack
from vflbench.plain_files import open_to_write


class Spool:
    """Collects blocks, then returns them with codes replaced by ids in the complete, sorted vocabularies.

    rows: how many rows were added. names: each feature column, and whether it is numeric.
    """

    def __init__(self, folder: Path):
        self.rows = 0
        self.names: tuple[tuple[str, bool], ...] = ()
        self._folder = folder
        self._file = open_to_write(folder / "spool", "w+b", private=True)
        self._blocks: list[tuple[int, np.dtype, list[tuple[np.dtype, int]]]] = []  # rows, numeric, (codes, values)
        self._vocabularies: list[GrowingVocabulary] = []

    @property
    def numeric(self) -> list[str]:
        return [name for name, is_numeric in self.names if is_numeric]

    @property
    def categorical(self) -> list[str]:
        return [name for name, is_numeric in self.names if not is_numeric]

    @property
    def all_int32(self) -> bool:
        """Whether the numeric columns of every block are int32."""
        return all(dtype == np.int32 for _, dtype, _ in self._blocks)

    def add(self, codes: BlockCodes) -> None:
        """Append a block, which has at least one row."""
        if not self._vocabularies:
            self.names = codes.names
            self._vocabularies = [GrowingVocabulary(self._folder, f"{j}") for j in range(len(self.categorical) + 1)]
        for vocabulary, values, counts in zip(self._vocabularies, codes.values, codes.counts, strict=True):
            vocabulary.add(values, counts)
        self._file.write(memoryview(codes.numeric).cast("B") if codes.numeric.size else b"")
        for column in codes.codes:
            self._file.write(memoryview(column).cast("B"))
        sizes = [(column.dtype, len(values)) for column, values in zip(codes.codes, codes.values, strict=True)]
        self._blocks.append((codes.rows, codes.numeric.dtype, sizes))
        self.rows += codes.rows

    def unify(self) -> tuple[list[np.ndarray], list[str]]:
        """Sort the vocabularies. Returns the counts of each categorical column's values, and all labels in order."""
        unified = [vocabulary.unify() for vocabulary in self._vocabularies]
        *counts, _ = [count for count, _ in unified]
        labels = unified[-1][1]
        return counts, (unpack(labels) if isinstance(labels, np.ndarray) else labels).to_pylist()

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """After `unify`, each block: (m, k) numeric columns, (m, c) int32 ids, (m,) positions of the labels."""
        width = len(self.numeric)
        self._file.seek(0)
        for rows, dtype, sizes in self._blocks:
            numbers = np.fromfile(self._file, dtype, rows * width).reshape(rows, width)
            *columns, last = zip(self._vocabularies, sizes, strict=True)
            ids = np.empty((rows, len(columns)), dtype=np.int32)
            for j, (vocabulary, (code_type, size)) in enumerate(columns):
                ids[:, j] = vocabulary.next_ids(size)[np.fromfile(self._file, code_type, rows)]
            vocabulary, (code_type, size) = last
            yield numbers, ids, vocabulary.next_ids(size)[np.fromfile(self._file, code_type, rows)]

    def remove(self) -> None:
        """Delete everything from the disk."""
        for vocabulary in self._vocabularies:
            vocabulary.close()
        with suppress(OSError):
            self._file.close()
        (self._folder / "spool").unlink()
