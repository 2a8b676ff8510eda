"""The arrays of a prepared table as they are written: numbers at once, ids and labels when vocabularies are known."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
from tqdm import tqdm

from vflbench.data.spool import Spool
from vflbench.data.store import ArrayWriter
from vflbench.data.table import MISSING_INTEGER

_LIMITS_ROWS = 4096  # looked at together, so that they stay in the processor's cache
_COPIED_ROWS = 1 << 16
_WAITING = 2  # blocks that may wait to be written


class TableWriter:
    """Writes `numeric`, `categorical` and `labels` of a store into a folder.

    writers: of the arrays, in this order, once they are begun. low, high: (k,), minimum and maximum of each numeric column;
    missing counts as 0. Numbers are int32 for as long as those of every block are, and then float64.
    """

    def __init__(self, folder: Path):
        self.writers: dict[str, ArrayWriter] = {}
        self.low = self.high = np.zeros(0)
        self._folder = folder

    def add_numbers(self, numbers: np.ndarray) -> None:
        """Append a block, (m, k) int32 or float64."""
        if "numeric" not in self.writers:
            width = numbers.shape[1]
            self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)
            self.writers["numeric"] = ArrayWriter(self._folder / "numeric", numbers.dtype, width)
        if numbers.dtype != self.writers["numeric"].dtype and numbers.dtype == np.float64:
            self._widen(self.writers["numeric"])
        step = _LIMITS_ROWS if numbers.dtype == np.int32 else len(numbers)
        for start in range(0, len(numbers) if numbers.size else 0, step):
            piece = numbers[start : start + step]
            filled = np.where(_is_missing(piece), 0, piece)
            self.low, self.high = np.minimum(self.low, filled.min(axis=0)), np.maximum(self.high, filled.max(axis=0))
        self.writers["numeric"].write(numbers if numbers.dtype == self.writers["numeric"].dtype else _reals(numbers))

    def add_ids(self, spool: Spool, classes: int, class_of: np.ndarray) -> None:
        """After `spool.unify`, write all ids and labels. class_of: the class of each label. Encodes and writes at once."""
        label_kind = np.dtype(np.uint8 if classes <= 256 else np.int32)
        self.writers["categorical"] = ArrayWriter(self._folder / "categorical", np.dtype(np.int32), len(spool.categorical))
        self.writers["labels"] = ArrayWriter(self._folder / "labels", label_kind, None)
        waiting: deque[Future[None]] = deque()
        with (
            ThreadPoolExecutor(1) as pool,
            tqdm(total=spool.rows, desc="encoding", unit="row", unit_scale=True, disable=None, leave=False) as bar,
        ):
            for ids, labels in spool.blocks():
                waiting.append(pool.submit(self._write, ids, class_of[labels]))
                if len(waiting) > _WAITING:
                    waiting.popleft().result()
                bar.update(len(ids))
            while waiting:
                waiting.popleft().result()

    def abandon(self) -> None:
        """Close all files and ignore errors."""
        for writer in self.writers.values():
            writer.abandon()

    def _write(self, ids: np.ndarray, labels: np.ndarray) -> None:
        self.writers["labels"].write(labels)
        self.writers["categorical"].write(ids)

    def _widen(self, integers: ArrayWriter) -> None:
        """Write all numbers again as float64."""
        integers.abandon()
        width = integers.width or 0
        writer = self.writers["numeric"] = ArrayWriter(self._folder / "numeric.reals", np.dtype(np.float64), width)
        with (self._folder / "numeric").open("rb") as file:
            while len(numbers := np.fromfile(file, np.int32, _COPIED_ROWS * width)):
                writer.write(_reals(numbers.reshape(-1, width)))
        (self._folder / "numeric.reals").replace(self._folder / "numeric")


def _is_missing(numbers: np.ndarray) -> np.ndarray:
    return numbers == MISSING_INTEGER if numbers.dtype == np.int32 else np.isnan(numbers)


def _reals(numbers: np.ndarray) -> np.ndarray:
    """As float64, NaN where missing."""
    return np.where(_is_missing(numbers), np.nan, numbers)
