"""Blocks of a fixed layout -> numbers in one compiled pass; any block that isn't plain is left to the careful parser."""

import threading
from collections.abc import Sequence
from types import ModuleType

import numpy as np
import pyarrow as pa

from vflbench.data.block_codes import BlockCodes, block_codes, code_type
from vflbench.data.blocks import Block, line_ends
from vflbench.data.parse import Parsed
from vflbench.data.table import MISSING_INTEGER
from vflbench.data.text import TextFormat, unchanged
from vflbench.data.vocabulary import unpack


def is_fixed(form: TextFormat) -> bool:
    """Whether columns are labels 0 and 1, whole numbers and texts, one row a line, and only the empty field is missing."""
    return (
        bool(form.label and form.binary_label and form.missing == ("",) and not (form.reals or form.multiline))
        and form.delimiter.isascii()
    )


class FixedLayout:
    """Reads blocks of one format. Blocks may be read in several threads at once. scan: the compiled module."""

    def __init__(self, form: TextFormat, scan: ModuleType):
        self._form, self._scan = form, scan
        self._integers = [name for name in form.features if name in form.integers]
        self._texts = [*(name for name in form.features if name not in form.integers), form.label]
        self._of_thread = threading.local()

    def codes(self, block: Block, names: Sequence[str], limit: int | None = None) -> BlockCodes | None:
        """The rows of a block, at most the first `limit`, as `block_codes(parse(...))` has them. None: it must be parsed.

        names: the columns in the part's order.
        """
        scan, form = self._scan, self._form
        most = line_ends(block.data) + 1
        numbers = np.empty((most, len(self._integers)), dtype=np.int32)
        keys = self._room(most)[0]
        kinds, places = zip(*(self._column(name) for name in names), strict=True)
        delimiter, quote = (
            ord(form.delimiter),
            ord('"') if form.quoted else ord(form.delimiter) * form.delimiter.isprintable(),
        )
        marks = [np.uint64(mark * 0x0101010101010101) for mark in (delimiter, quote)]
        text = np.frombuffer(block.data, np.uint8)
        layout = np.array(kinds, np.int64), np.array(places, np.int64)
        rows = scan.scan(text, *marks, *layout, most if limit is None else limit, numbers, keys)
        if rows == scan.CAREFUL:
            return None
        numbered = [self._numbered(keys[j, :rows]) for j in range(len(self._texts))]
        if None in numbered:
            return None
        values, codes, counts = zip(*numbered, strict=True)
        if form.finish is not unchanged:
            return block_codes(Parsed(form.finish(self._table(numbers[:rows], values, codes))), form.label)
        columns = tuple((name, name in form.integers) for name in form.features)
        return BlockCodes(rows, numbers[:rows], values, codes, counts, columns, ())

    def _column(self, name: str) -> tuple[int, int]:
        """Kind of a column, and the place of its values."""
        scan = self._scan
        if name in self._form.ignored:
            return scan.IGNORED, 0
        if name in self._form.integers:
            return scan.INTEGER, self._integers.index(name)
        return scan.LABEL if name == self._form.label else scan.CATEGORY, self._texts.index(name)

    def _room(self, rows: int) -> tuple[np.ndarray, ...]:
        """Arrays of this thread for so many rows: keys, and what `_numbered` needs. What they hold is left over."""
        room: tuple[np.ndarray, ...] | None = getattr(self._of_thread, "room", None)
        if room is None or len(room[1]) < rows:
            keys, table = np.empty((len(self._texts), rows), np.uint64), np.empty(1 << (2 * rows).bit_length(), np.int32)
            kinds = (np.int64, np.uint64, np.int64, np.int32)
            room = keys, np.ones(rows, np.int64), *(np.empty(rows, kind) for kind in kinds[1:]), table
            self._of_thread.room = room
        return room

    def _numbered(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """The keys that occur, the code of each row, how often each key occurs. None if that takes too long."""
        _, ones, values, counts, codes, table = self._of_thread.room
        table[:] = -1
        rows = len(keys)
        size = self._scan.number_keys(keys, ones[:rows], table, values, counts, 0, codes)
        if size == self._scan.CAREFUL:
            return None
        return values[:size].copy(), codes[:rows].astype(code_type(size)), counts[:size].copy()

    def _table(self, numbers: np.ndarray, values: Sequence[np.ndarray], codes: Sequence[np.ndarray]) -> pa.Table:
        """The block as `parse` would return it."""
        columns = {
            name: pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32)), unpack(key))
            for name, key, code in zip(self._texts, values, codes, strict=True)
        }
        for j, name in enumerate(self._integers):
            columns[name] = pa.array(numbers[:, j].astype(np.int64), mask=numbers[:, j] == MISSING_INTEGER)
        return pa.table({name: columns[name] for name in (self._form.label, *self._form.features)})
