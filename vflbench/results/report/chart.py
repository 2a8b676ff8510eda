"""A chart as data: points, lines and levels with their names. `svg` draws it for pages, `raster` for papers."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from vflbench.numerics.interval import Interval


@dataclass(frozen=True)
class Point:
    """x, y: means with intervals; an interval with nan ends is not drawn. name: shown on hover. tag: written beside it."""

    x: Interval
    y: Interval
    name: str = ""
    tag: str = ""


@dataclass(frozen=True)
class Series:
    """look: index in the palette and in the list of marks, -1 for neutral grey. line: solid | dashed | dotted | none."""

    label: str
    points: tuple[Point, ...]
    look: int = 0
    line: str = "solid"
    marks: bool = True
    hollow: bool = False


@dataclass(frozen=True)
class Level:
    """A horizontal line."""

    y: float
    label: str


@dataclass(frozen=True)
class Chart:
    """slug: the name of its files. ticks: (place, text) along x, if x is not a number line. note: sentences below it."""

    slug: str
    title: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    levels: tuple[Level, ...] = ()
    ticks: tuple[tuple[float, str], ...] = ()
    note: str = field(default="")

    def points(self) -> Iterator[Point]:
        for series in self.series:
            yield from series.points

    def x_range(self) -> tuple[float, float]:
        if self.ticks:
            return min(t for t, _ in self.ticks) - 0.5, max(t for t, _ in self.ticks) + 0.5
        return padded([v for p in self.points() for v in ends(p.x)])

    def y_range(self) -> tuple[float, float]:
        return padded([v for p in self.points() for v in ends(p.y)] + [level.y for level in self.levels])


def exact(value: float) -> Interval:
    """A value without an interval."""
    return Interval(value, math.nan, math.nan)


def ends(interval: Interval) -> list[float]:
    """The finite numbers of an interval."""
    return [v for v in (interval.mean, interval.low, interval.high) if math.isfinite(v)]


def padded(values: list[float]) -> tuple[float, float]:
    """The range of an axis: the values and some room."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = 0.06 * (high - low) or 0.05 * max(abs(high), 0.1)
    return low - room, high + room


def nice_ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Round numbers in low .. high, about `count` of them."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [step * (first + i) for i in range(int((high - step * first) / step + 1e-9) + 1)]
