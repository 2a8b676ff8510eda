"""What a figure shows, read from its specification and from the SVG that is drawn of it."""

import json
import re
from xml.etree import ElementTree

from vflbench.report.charts import svg
from vflbench.report.group import sections
from vflbench.results.runs import read_tree

_SVG = "{http://www.w3.org/2000/svg}"


def section_of(folder, **how):
    """The only section of the runs in that folder."""
    (section,) = sections(read_tree([folder]).runs, **how)
    return section


def by_name(figures):
    """The end of a slug, after the data set -> the figure."""
    return {figure.slug.partition("criteo_")[2]: figure for figure in figures if figure is not None}


def texts_of(figure):
    """Everything that is written, from top to bottom of the file."""
    return [" ".join(node.itertext()) for node in ElementTree.fromstring(svg(figure)).iter(f"{_SVG}text")]


def points_of(figure):
    """Those with both places; a line across has one."""
    return [point for point in figure.spec["datasets"]["points"] if None not in (point["x"], point["y"])]


def lines_of(figure):
    """Label -> its points, (x, y)."""
    made = {}
    for point in points_of(figure):
        made.setdefault(point["label"], []).append((point["x"], round(point["y"], 3)))
    return made


def levels_of(figure):
    """Label -> place of each line across."""
    places = {one["label"]: one["x"] if one["y"] is None else one["y"] for one in figure.spec["datasets"]["points"]}
    drawn = {point["label"] for point in points_of(figure)}
    return {label: round(place, 3) for label, place in places.items() if label not in drawn}


def expressions(spec):
    """Every text of a specification that Vega computes with."""
    text = json.dumps({key: value for key, value in spec.items() if key not in ("datasets", "usermeta")})
    names = "expr|labelExpr|signal|calculate|test|filter|zoom|translate"
    return re.findall(rf'"(?:{names})": "((?:[^"\\]|\\.)*)"', text)
