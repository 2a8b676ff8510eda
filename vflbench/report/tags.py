"""Where a plot's names beside marks stand, so that none lies on another."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LETTER, _TALL, _MARK = (
    6.4,
    14.0,
    7.5,
)  # pixels: a letter's mean width, a line's height, half of a mark and the halo of a name


@dataclass(frozen=True)
class Place:
    """Pixels from the mark to the text's middle, and where its end is that is nearer to the mark."""

    dx: float
    dy: float
    align: str


PLACES: Mapping[str, Place] = {
    "upper right": Place(9, -9, "left"),
    "lower right": Place(9, 10, "left"),
    "upper left": Place(-9, -9, "right"),
    "lower left": Place(-9, 10, "right"),
}


@dataclass(frozen=True)
class Scale:
    """From values to pixels."""

    domain: tuple[float, float]
    pixels: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.domain
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        return (value - low) / ((high - low) or 1.0) * self.pixels


def with_places(records: Sequence[Mapping[str, Any]], across: Scale, up: Scale) -> list[dict[str, Any]]:
    """Records with `at`, a key of PLACES, beside `tag`; a tag that would lie on a mark or on another is left out."""
    taken = [_around(across(record["x"]), up.pixels - up(record["y"])) for record in records if record["mark"]]
    made = []
    for record in records:
        rest = {name: value for name, value in record.items() if name != "tag"}
        if record.get("tag"):
            x, y, wide = across(record["x"]), up.pixels - up(record["y"]), _LETTER * len(record["tag"])
            for name, place in PLACES.items():
                left = x + place.dx - (wide if place.align == "right" else 0)
                middle = y + place.dy
                box = (left, middle - _TALL / 2, left + wide, middle + _TALL / 2)
                is_inside = box[0] > 0 and box[2] < across.pixels and box[1] > 0 and box[3] < up.pixels
                if is_inside and not any(_overlap(box, other) for other in taken):
                    taken.append(box)
                    rest |= {"tag": record["tag"], "at": name}
                    break
        made.append(rest)
    return made


def _around(x: float, y: float) -> tuple[float, float, float, float]:
    return x - _MARK, y - _MARK, x + _MARK, y + _MARK


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
