"""One parsed block as numbers: integer codes for texts, int32 or float64 for numeric columns."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from vflbench.data.parse import BadRow, Parsed
from vflbench.data.table import MISSING_INTEGER


@dataclass(frozen=True)
class BlockCodes:
    """One block as numbers.

    numeric: (m, k) int32 or float64. values, codes, counts: of each categorical column and, last, of the label: the values
    that occur, as texts or as the numbers that `vocabulary.pack` makes of them, the code of each row, how often each occurs.
    names: each feature column, and whether it is numeric. bad: the rows left out.
    """

    rows: int
    numeric: np.ndarray
    values: tuple[pa.Array | np.ndarray, ...]
    codes: tuple[np.ndarray, ...]
    counts: tuple[np.ndarray, ...]
    names: tuple[tuple[str, bool], ...]
    bad: tuple[BadRow, ...]


def block_codes(parsed: Parsed, label: str) -> BlockCodes:
    """Encode one parsed block. Runs in a worker thread."""
    table = parsed.table
    features = [name for name in table.column_names if name != label]
    is_numeric = {name: not pa.types.is_dictionary(table.schema.field(name).type) for name in features}
    texts = [*(n for n in features if not is_numeric[n]), label]
    values, codes, counts = zip(*(_dictionary_codes(table.column(name)) for name in texts), strict=True)
    return BlockCodes(
        rows=len(table),
        numeric=_numeric([table.column(n) for n in features if is_numeric[n]], len(table)),
        values=values,
        codes=codes,
        counts=counts,
        names=tuple((n, is_numeric[n]) for n in features),
        bad=parsed.bad,
    )


def code_type(values: int) -> np.dtype:
    """What codes of so many values are stored as."""
    return np.dtype(np.uint16 if values <= 1 << 16 else np.int32)


def _dictionary_codes(column: pa.ChunkedArray) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """The values that occur, the code of each row, the count of each value. A missing value is the empty string."""
    if not len(column):
        return pa.array([], pa.string()), np.zeros(0, dtype=np.uint16), np.zeros(0, dtype=np.int64)
    array = column.combine_chunks()
    values, codes = array.dictionary, array.indices
    if codes.null_count:
        values, codes = pa.concat_arrays([values, pa.array([""], pa.string())]), codes.fill_null(len(values))
    codes = codes.to_numpy()
    counts = np.bincount(codes, minlength=len(values))
    occurs = counts > 0
    if not occurs.all():  # in a block that was cut at the row limit
        values, codes, counts = values.filter(pa.array(occurs)), (np.cumsum(occurs) - 1)[codes], counts[occurs]
    return values, codes.astype(code_type(len(values))), counts


def _numeric(columns: Sequence[pa.ChunkedArray], rows: int) -> np.ndarray:
    """(rows, k): int32 if every value fits, else float64."""
    integers = np.empty((rows, len(columns)), dtype=np.int32)
    for j, column in enumerate(columns):
        try:
            if not pa.types.is_integer(column.type):
                raise pa.ArrowInvalid("not integers")
            values = column.cast(pa.int32())
            integers[:, j] = values.fill_null(MISSING_INTEGER).to_numpy()
            if values.null_count != np.count_nonzero(integers[:, j] == MISSING_INTEGER):
                raise pa.ArrowInvalid("the marker of missing values occurs as a value")
        except pa.ArrowInvalid:
            break
    else:
        return integers
    reals = np.empty((rows, len(columns)), dtype=np.float64)
    for j, column in enumerate(columns):
        reals[:, j] = column.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy()
    return reals
