"""Figures on a page: what its template and its Content-Security-Policy need, without a network.

A page holds `style()`, once at its end `library()` and `script()`, each in a script of its own, and for each figure the
macro `plot` of figures.html with `on_page(figure)`. The library computes expressions by an interpreter, so no `unsafe-eval`
is needed, and injects no style.
"""

import base64
import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from markupsafe import Markup

from vflbench.report.figure import Figure

_TEMPLATES = Path(__file__).with_name("templates")


def on_page(figure: Figure) -> dict[str, Any]:
    """What the macro `plot` needs."""
    return {"slug": figure.slug, "title": figure.title, "alt": figure.alt, "note": figure.note, "json": as_json(figure)} | {
        "has_data": not {"points", "cells"}.isdisjoint(figure.spec["datasets"]),
        "is_wide": figure.is_wide,
    }


def as_json(figure: Figure) -> Markup:
    """The specification for a script of type application/json: no text in it can end the script."""
    written = json.dumps(figure.spec, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    for sign in "<>&":
        written = written.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(written)  # nosec B704  # its <, > and & are escaped


def style() -> str:
    return (_TEMPLATES / "figures.css").read_text("utf-8")


def script() -> str:
    return (_TEMPLATES / "figures.js").read_text("utf-8")


@functools.cache
def library() -> str:
    """Vega, Vega-Lite and Vega-Embed as `scripts/vega_bundle.py` wrote them, with their licences in its first comment."""
    return (_TEMPLATES / "vega.js").read_text("utf-8")


def digest(text: str) -> str:
    """As a Content-Security-Policy names a script or a style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
