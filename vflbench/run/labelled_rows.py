"""Labels by id, as arrays: what grades answers where no network is at work."""

from collections.abc import Sequence

import numpy as np

from vflbench.errors import UserError
from vflbench.messages.row_files import Labels


class LabelledRows:
    """Rows in the order of a table.

    ids: (n,) int64. shares: of the classes, where they are recorded. labelled: False for a table that has ids in place of
    labels. canary_ids: rows whose label is a coin. class_ratios: shares, or else those of the rows; equal ones where there
    is none.
    """

    def __init__(self, table: Labels, classes: int, shares: Sequence[float] | None = None, *, labelled: bool = True):
        self.ids, self.classes = table.ids, classes
        self._labels = table.labels.astype(np.int16 if labelled else np.int64)
        is_rising = bool((self.ids[1:] > self.ids[:-1]).all())
        self._order = None if is_rising else self.ids.argsort()
        self._sorted = self.ids if self._order is None else self.ids[self._order]
        counts = np.bincount(table.labels if labelled else table.labels[:0], minlength=classes).astype(np.float64)
        own = tuple((counts / counts.sum()).tolist()) if bool(counts.any()) else (1 / classes,) * classes
        self.class_ratios: tuple[float, ...] = own if shares is None else tuple(shares)
        self.canary_ids = self.ids[table.canary]

    def __len__(self) -> int:
        return len(self.ids)

    def labels(self, ids: np.ndarray) -> np.ndarray:
        """(n,) int64. Raises UserError for a row that isn't there."""
        first = int(np.searchsorted(self._sorted, ids[0])) if len(ids) else 0
        if self._order is None and np.array_equal(self._sorted[first : first + len(ids)], ids):  # rows that stand together
            return self._labels[first : first + len(ids)].astype(np.int64)
        place = np.searchsorted(self._sorted, ids)
        np.minimum(place, max(len(self._sorted) - 1, 0), out=place)
        missing = ids if not len(self._sorted) else ids[self._sorted[place] != ids]
        if len(missing):
            problem = f"there is no label of {len(missing)} rows of a batch, the first with id {int(missing[0])}"
            raise UserError(problem, key="labels.parquet")
        return self._labels[place if self._order is None else self._order[place]].astype(np.int64)
