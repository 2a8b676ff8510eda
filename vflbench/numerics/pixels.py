"""Columns that are pixels of a picture: their names, and the rectangle that they fill."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_NAME = re.compile(r"pixel_(\d+)_(\d+)(?:_(\d+))?")


@dataclass(frozen=True)
class Area:
    """A rectangle of a picture: first row and column, size, and channels per pixel (1: grey; 3: red, green, blue)."""

    top: int
    left: int
    height: int
    width: int
    channels: int = 1

    def picture(self, x: Tensor) -> Tensor:
        """Rows of a table as pictures. x: (n, height width channels). Returns (n, channels, height, width)."""
        return x.reshape(-1, self.height, self.width, self.channels).permute(0, 3, 1, 2)


def pixel_names(height: int, width: int, channels: int = 1) -> tuple[str, ...]:
    """pixel_ROW_COLUMN, counted from 0, row by row; with several channels pixel_ROW_COLUMN_CHANNEL."""
    places = [f"pixel_{row}_{column}" for row in range(height) for column in range(width)]
    return tuple(places if channels == 1 else (f"{place}_{k}" for place in places for k in range(channels)))


def area_of(names: Sequence[str]) -> Area | None:
    """The rectangle that these columns fill in the order of `pixel_names`, or None if they do not."""
    matches = [match for match in map(_NAME.fullmatch, names) if match]
    if not matches or len(matches) < len(names):
        return None
    places = [tuple(int(part) for part in match.groups("0")) for match in matches]
    (top, left, _), (bottom, right, last) = places[0], places[-1]
    area = Area(top, left, bottom - top + 1, right - left + 1, last + 1)
    rows, columns = range(top, bottom + 1), range(left, right + 1)
    expected = [(row, column, k) for row in rows for column in columns for k in range(area.channels)]
    return area if places == expected else None


def put_together(parts: Mapping[Area, Tensor]) -> Tensor | None:
    """Join the areas to whole pictures: (n, height, width), with several channels (n, height, width, channels).

    parts: area -> (n, height width channels). Returns None if areas overlap or leave pixels of their bounding box uncovered.
    """
    top, left = min(area.top for area in parts), min(area.left for area in parts)
    height = max(area.top + area.height for area in parts) - top
    width = max(area.left + area.width for area in parts) - left
    channels = {area.channels for area in parts}
    if len(channels) > 1 or sum(area.height * area.width for area in parts) != height * width:
        return None
    first = next(iter(parts.values()))
    whole = first.new_zeros(len(first), height, width, *channels)
    covered = torch.zeros(height, width, dtype=torch.bool)
    for area, x in parts.items():
        rows = slice(area.top - top, area.top - top + area.height)
        columns = slice(area.left - left, area.left - left + area.width)
        whole[:, rows, columns] = x.reshape(-1, area.height, area.width, area.channels)
        covered[rows, columns] = True
    if not covered.all():
        return None
    return whole[..., 0] if channels == {1} else whole
