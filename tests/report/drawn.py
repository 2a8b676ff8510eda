"""What a figure shows, read from its specification and from the SVG that is drawn of it."""

import re
from xml.etree import ElementTree

from vflbench.report.figure_files import svg

_SVG = "{http://www.w3.org/2000/svg}"


def texts_of(figure):
    """Everything that is written, from top to bottom of the file."""
    return ["".join(node.itertext()) for node in ElementTree.fromstring(svg(figure)).iter(f"{_SVG}text")]


def marks_of(figure):
    """Pixels of the marks, (x, y) in the plot, y from the top."""
    root = ElementTree.fromstring(svg(figure))
    groups = [g for g in root.iter(f"{_SVG}g") if "mark-symbol role-mark" in g.get("class", "")]
    paths = list(groups[-1].iter(f"{_SVG}path")) if groups else []
    return [tuple(map(float, re.match(r"translate\((.+),(.+)\)", path.get("transform")).groups())) for path in paths]


def points_of(figure):
    """The records that are drawn as marks."""
    return [record for record in figure.spec["datasets"]["points"] if record["mark"]]


def expressions(spec):
    """Every text of a specification that Vega computes with."""
    found = []
    for key, value in spec.items() if isinstance(spec, dict) else enumerate(spec):
        if key in ("datasets", "usermeta"):
            continue
        if key in ("expr", "labelExpr", "signal", "calculate", "test", "filter", "zoom", "translate") and isinstance(
            value, str
        ):
            found.append(value)
        elif isinstance(value, dict | list):
            found += expressions(value)
    return found
