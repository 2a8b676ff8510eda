"""Pictures as tables: each pixel is a column, and each party holds a rectangle of pixels."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from string import ascii_lowercase
from typing import Any, Literal

import numpy as np
import torch

from vflbench.data.base import Dataset
from vflbench.data.columns import Assignment
from vflbench.data.table import RawTable
from vflbench.errors import UserError
from vflbench.numerics.pixels import Area, area_of, pixel_names
from vflbench.options import options

MOST_PIXELS = 1 << 20
"""Of one picture, times its channels; each is a column."""


@dataclass(frozen=True)
class PictureSet:
    """pixels: (n, height, width) or (n, height, width, channels) in 0 .. white. labels: (n,) classes 0 .. classes - 1."""

    pixels: np.ndarray
    labels: np.ndarray
    classes: int
    white: float = 255.0


@options
class Pictures(Dataset):
    """Pictures of one size with classes. All pixels are divided by the largest value that a pixel can have.

    parties: a number of non-label parties, or party -> columns `pixel_ROW_COLUMN`, patterns allowed.
    cut: how K parties divide a picture: `grid` (K = 2: upper and lower half; 4: quarters; 6: 3 x 2), `rows` (K strips, one
    above the other) or `columns` (K strips side by side).

    A subclass overrides `pictures`.
    """

    cut: Literal["grid", "rows", "columns"] = "grid"

    def pictures(self) -> tuple[PictureSet, dict[str, Any]]:
        """All pictures, and facts for the run's manifest."""
        raise NotImplementedError

    def read(self, rng: torch.Generator) -> tuple[RawTable, dict[str, Any]]:
        pictures, facts = self.pictures()
        return picture_table(pictures, self.rows), facts

    def divide(self, names: Sequence[str], raw: RawTable, role: np.ndarray) -> tuple[Assignment, str]:
        problem = "parties of a picture hold rectangles of it; name a number of them (and dataset.cut), or their pixels"
        raise UserError(problem, key="dataset.parties", value=getattr(self.parties, "kind", None))

    def assign(self, names: Sequence[str]) -> Assignment:
        if not isinstance(self.parties, int):
            return super().assign(names)
        whole = area_of(names)
        assert whole is not None  # `picture_table` names the columns
        rows, columns = _grid(self.parties, self.cut)
        fits = 1 <= self.parties <= len(ascii_lowercase) and rows <= whole.height and columns <= whole.width
        if not fits:
            problem = f"{whole.height} x {whole.width} pixels can't be cut into so many parts (cut={self.cut})"
            raise UserError(problem, key="dataset.parties", value=self.parties)
        pixel = {name: divmod(i // whole.channels, whole.width) for i, name in enumerate(names)}
        areas = product(_even_ranges(whole.height, rows), _even_ranges(whole.width, columns))
        return {
            party: tuple(name for name, (r, c) in pixel.items() if r in area_rows and c in area_columns)
            for party, (area_rows, area_columns) in zip(ascii_lowercase, areas, strict=False)
        }


def picture_table(pictures: PictureSet, rows: int | None = None) -> RawTable:
    """Pictures as raw columns. rows: how many, from the first on; None takes all."""
    pixels, labels = pictures.pixels[:rows], np.asarray(pictures.labels[:rows], dtype=np.int64)
    area = Area(0, 0, *pixels.shape[1:3], *pixels.shape[3:])
    numeric = np.ascontiguousarray(pixels.reshape(len(pixels), -1))
    digest = hashlib.sha256(repr((area, pictures.classes, pictures.white, numeric.dtype.str)).encode())
    digest.update(numeric)
    digest.update(labels)
    names = pixel_names(area.height, area.width, area.channels)
    return RawTable(
        names=names,
        numeric_names=names,
        categorical_names=(),
        sizes=(),
        numeric=numeric,
        categorical=np.empty((len(labels), 0), dtype=np.int32),
        labels=labels,
        classes=pictures.classes,
        fingerprint=digest.hexdigest(),
        limits=(np.zeros(len(names)), np.full(len(names), pictures.white)),
    )


def _grid(count: int, cut: str) -> tuple[int, int]:
    """Rows and columns of `count` parts. A grid is as square as possible, with at least as many rows as columns."""
    if cut != "grid" or count < 1:
        return (count, 1) if cut != "columns" else (1, count)
    columns = next(c for c in range(math.isqrt(count), 0, -1) if count % c == 0)
    return count // columns, columns


def _even_ranges(length: int, count: int) -> list[range]:
    return [range(start, stop) for start, stop in pairwise(round(i * length / count) for i in range(count + 1))]
