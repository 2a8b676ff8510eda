"""A plot as data: points with their intervals, lines and levels with their names. `plot_figure` makes a figure of it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

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
    """label: in the legend; of two with the same label the later one belongs to the earlier one, as hidden layers do.

    look: its place in the palette and in the list of marks, -1 for neutral grey. line: solid | dashed | dotted | dashdot |
    none. colour: #rrggbb in place of the palette's. shift: to the right of its places, in units of the axis, so that its
    intervals do not lie on those of others.
    """

    label: str
    points: tuple[Point, ...]
    look: int = 0
    line: str = "solid"
    marks: bool = True
    hollow: bool = False
    colour: str = ""
    shift: float = 0.0


@dataclass(frozen=True)
class Level:
    """A line across the plot. upright: at x = y. in_legend: named there, not along it. line, colour: as of a series."""

    y: float
    label: str
    line: str = "dashed"
    colour: str = ""
    in_legend: bool = False
    upright: bool = False


@dataclass(frozen=True)
class Axis:
    """title: its name. ticks: (place, text), if it is no number line. limits: if not what the points need. log: the base of
    a logarithmic axis, 0 for none. whole: only whole numbers are named, such as epochs.
    """

    title: str
    ticks: tuple[tuple[float, str], ...] = ()
    limits: tuple[float, float] | None = None
    log: int = 0
    whole: bool = False

    def domain(self, values: list[float]) -> tuple[float, float]:
        """values: what is drawn along it. The ends of the axis."""
        if self.limits is not None:
            return self.limits
        if self.ticks:
            return min(t for t, _ in self.ticks) - 0.5, max(t for t, _ in self.ticks) + 0.5
        if self.log:
            low, high = padded([math.log(v) for v in values if v > 0])
            return math.exp(low), math.exp(high)
        return padded(values)


@dataclass(frozen=True)
class Plot:
    """slug: the name of its files. note: sentences below it. height: of the plot alone, in pixels."""

    slug: str
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    levels: tuple[Level, ...] = ()
    note: str = ""
    height: int = 300

    def points(self) -> Iterator[Point]:
        for series in self.series:
            yield from series.points

    def x_domain(self) -> tuple[float, float]:
        values = [v for p in self.points() for v in ends(p.x)] + [level.y for level in self.levels if level.upright]
        return self.x.domain([v for v in values if math.isfinite(v)])

    def y_domain(self) -> tuple[float, float]:
        values = [v for p in self.points() for v in ends(p.y)] + [level.y for level in self.levels if not level.upright]
        return self.y.domain([v for v in values if math.isfinite(v)])


def exact(value: float) -> Interval:
    """A value without an interval."""
    return Interval(value, math.nan, math.nan)


def ends(interval: Interval) -> list[float]:
    """The finite numbers of an interval."""
    return [v for v in (interval.mean, interval.low, interval.high) if math.isfinite(v)]


def is_drawn(point: Point) -> bool:
    return math.isfinite(point.x.mean) and math.isfinite(point.y.mean)


def padded(values: list[float]) -> tuple[float, float]:
    """The range of an axis: the values and some room."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = 0.06 * (high - low) or 0.05 * max(abs(high), 0.1)
    return low - room, high + room
