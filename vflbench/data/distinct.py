"""Distinct keys of a stream, by a hash table: memory for each different key alone, however often it comes."""

from types import ModuleType

import numpy as np

_LEAST = 1 << 12


class Distinct:
    """Numbers keys in the order in which they come first, and adds up what each weighs. scan: the compiled module."""

    def __init__(self, scan: ModuleType):
        self._scan, self.size = scan, 0
        self._table = np.full(2 * _LEAST, -1, np.int32)
        self._values, self._counts = np.empty(_LEAST, np.uint64), np.empty(_LEAST, np.int64)

    def add(self, keys: np.ndarray, weights: np.ndarray) -> np.ndarray | None:
        """(n,) int32, the number of each key; None if the keys are such that a hash table takes too long.

        keys: (n,) uint64. weights: (n,) int64.
        """
        if 2 * (self.size + len(keys)) > len(self._table) and not self._grow(self.size + len(keys)):
            return None
        places = np.empty(len(keys), np.int32)
        return places if self._number(keys, weights, places) else None

    def sorted(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The different keys in order, (size,) uint64; what each weighs, int64; the place in that order by number, int32.

        Nothing can be added afterwards.
        """
        self._table = np.zeros(0, np.int32)  # memory for what follows
        order = np.argsort(self._values[: self.size])
        rank = np.empty(self.size, np.int32)
        rank[order] = np.arange(self.size, dtype=np.int32)
        self._counts = self._counts[order]
        self._values = self._values[order]
        return self._values, self._counts, rank

    def _number(self, keys: np.ndarray, weights: np.ndarray, places: np.ndarray) -> bool:
        size = self._scan.number_keys(keys, weights, self._table, self._values, self._counts, self.size, places)
        self.size = max(size, 0)
        return bool(size != self._scan.CAREFUL)

    def _grow(self, room: int) -> bool:
        """Make room for so many keys, and number those of before anew, in the same order."""
        room = 1 << room.bit_length()
        values, counts, size = self._values, self._counts, self.size
        self._table, self.size = np.full(2 * room, -1, np.int32), 0
        self._values, self._counts = np.empty(room, np.uint64), np.empty(room, np.int64)
        return self._number(values[:size], counts[:size], np.empty(size, np.int32))
