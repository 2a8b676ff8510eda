"""Figures of plots: marks stand where their values are, and no text of a run is more than a text."""

import io
import math
from dataclasses import replace

import altair as alt
import numpy as np
import pytest
from PIL import Image
from report.drawn import expressions, marks_of, points_of, texts_of

from vflbench.numerics.interval import Interval
from vflbench.report.figure import text
from vflbench.report.figure_files import FORMATS, files, svg
from vflbench.report.palette import GREY, PALETTE, UTILITY
from vflbench.report.plot import Axis, Level, Plot, Point, Series, exact
from vflbench.report.plot_figure import figure_of
from vflbench.report.run_plots import REFERENCES

AXES = Axis("x", ((0.0, "first"), (4.0, "last"))), Axis("y", limits=(0.0, 1.0))
HOSTILE = (
    *("</script><script>alert(1)</script>", "datum.x", '{"signal":"width"}', "' + alert(1) + '", "'; dark=true; '"),
    *("https://evil.example/x.png", "javascript:alert(1)", "<img src=x onerror=alert(1)>", "]]>", "&amp;", "$x^2$ {} %s"),
    *("__proto__", "constructor", "toString", "valueOf", "hasOwnProperty", "length", "null", "undefined", "NaN"),
    *("\ud800", "\x00\x1b[31m", "x" * 5000, "", "a\nb", "ü 漢字 ع"),
)


def plot(points, **changes):
    return Plot("p", "title", *AXES, (Series("s", tuple(points), **changes),))


def every(texts):
    """The texts wherever a plot has some."""
    places = [float(j) for j in range(len(texts))]
    series = tuple(
        Series(
            text, (Point(exact(j), Interval(j, j - 1, j + 1), text, text), Point(exact(j + 0.3), exact(j), text)), look=look
        )
        for look, (j, text) in enumerate(zip(places, texts, strict=True))
    )
    levels = [
        Level(j, text, in_legend=look % 2 == 0, upright=look % 3 == 0)
        for look, (j, text) in enumerate(zip(places, texts, strict=True))
    ]
    ticks = tuple(zip(places, texts, strict=True))
    return Plot("slug", texts[0], Axis(texts[1], ticks), Axis(texts[2], ticks), series, tuple(levels), texts[3])


def test_marks_stand_where_their_values_are():
    """The plot is 490 wide and 300 high; x runs from -0.5 to 4.5."""
    values = [(0, 0.1), (1, 0.5), (4, 0.9)]
    places = marks_of(figure_of(plot([Point(exact(x), exact(y)) for x, y in values])))
    assert places == [pytest.approx(((x + 0.5) / 5 * 490, (1 - y) * 300), abs=0.6) for x, y in values]


def test_what_has_no_place_is_not_drawn():
    unknown = [(math.nan, 0.5), (1, math.nan), (1, math.inf), (-math.inf, 0.5)]
    drawn = figure_of(plot([Point(exact(x), exact(y)) for x, y in unknown] + [Point(exact(1), Interval(0.5, math.nan, 1))]))
    (record,) = points_of(drawn)
    assert (record["x"], record["y"], record.get("y_low"), record.get("y_high")) == (1, 0.5, None, None)
    log = Plot("p", "t", Axis("x", log=10), Axis("y", log=2), plot([]).series)
    places = [(0, 1), (10, 0), (-1, 1), (10, 3)]
    log = replace(log, series=(Series("s", tuple(Point(Interval(x, 0, 2 * x), exact(y)) for x, y in places)),))
    (record,) = points_of(figure_of(log))  # what a logarithm has no value of has no place, an end of an interval neither
    assert (record["x"], record["y"], record.get("x_low")) == (10, 3, None)
    assert len(marks_of(figure_of(log))) == 1


@pytest.mark.slow
def test_no_text_is_computed_with_or_ends_a_drawing():
    """Expressions depend on how long texts are, and on nothing else of them."""
    figure = figure_of(every(HOSTILE))
    as_long = [f"{number:>{len(text(word, 200))}}" for number, word in enumerate(HOSTILE)]
    assert expressions(figure.spec) == expressions(figure_of(every(as_long)).spec)
    assert len(expressions(figure.spec)) > 20
    written = texts_of(figure)  # which parses it: it is well-formed
    assert {"datum.x", "constructor", "https://evil.example/x.png", HOSTILE[0]} <= set(written)
    assert len(marks_of(figure)) == 2 * len(HOSTILE)
    assert "<script" not in svg(figure)


def test_every_format_shows_the_figure():
    made = dict(files(figure_of(plot([Point(exact(1), exact(0.5))]))))
    assert list(made) == [f"p.{ending}" for ending in FORMATS]
    assert made["p.pdf"].startswith(b"%PDF-")
    pixels = np.asarray(Image.open(io.BytesIO(made["p.png"])).convert("RGB")).astype(int)
    assert pixels.shape[1] > 1000
    assert np.ptp(pixels) > 200
    assert dict(files(figure_of(plot([])), ("svg",))).keys() == {"p.svg"}
    with pytest.raises(ValueError, match="no format"):
        list(files(figure_of(plot([])), ("gif",)))


@pytest.mark.slow
@pytest.mark.parametrize("points", [0, 1, 200])
def test_none_one_and_many_points_are_figures(points):
    series = tuple(
        Series(f"series {j}", (Point(exact(j), Interval(j, j - 1, j + 1), tag="tag"),), look=j) for j in range(points)
    )
    levels = (Level(0.5, "a coin"), Level(0.6, "test AUC 0.6", "dotted", in_legend=True), Level(math.nan, "unknown"))
    figure = figure_of(Plot("p", "t", Axis("x", whole=True), Axis("y"), series, levels, "A note."))
    if points == 1:
        alt.LayerChart.from_dict(figure.spec)  # which validates it
    assert len(points_of(figure)) == points
    assert f"{points} point" in figure.alt
    assert ("The legend names 30 of 201." in figure.note) == (points == 200)
    assert svg(figure).count("<path") < 3000


def test_parts_of_a_series_share_its_place_in_the_legend_and_long_labels_stay_apart():
    point = (Point(exact(1), exact(0.5)), Point(exact(2), exact(0.5)))
    series = [Series("a", point), Series("a", point, hollow=True, line="dotted")]
    series += [Series("x" * 500 + end, point, look=look) for look, end in enumerate("pq", start=1)]
    records = points_of(figure_of(replace(plot([]), series=tuple(series))))
    assert {r["series"] for r in records if r["part"] < 2} == {"a"}
    assert len({r["series"] for r in records}) == 3
    assert {r["hollow"] for r in records if r["part"] == 1} == {True}


def test_names_beside_marks_do_not_lie_on_each_other():
    crowd = [Point(exact(1 + 0.001 * j), exact(0.5), tag=f"name {j}") for j in range(20)]
    records = points_of(figure_of(plot(crowd, line="none")))
    assert 1 <= sum("tag" in record for record in records) <= 4
    apart = [Point(exact(j), exact(0.2 * j), tag=f"name {j}") for j in range(4)]
    assert all("tag" in record for record in points_of(figure_of(plot(apart, line="none"))))


def luminance(colour):
    """WCAG's relative luminance of #rrggbb."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_colour_has_a_contrast_of_three_to_the_light_and_to_the_dark_page():
    for colour in (*PALETTE, GREY, UTILITY, *REFERENCES.values()):
        light, dark = (1.05 / (luminance(colour) + 0.05), (luminance(colour) + 0.05) / (luminance("#16181b") + 0.05))
        assert min(light, dark) >= 3, colour
    assert len(set(PALETTE)) == len(PALETTE)
