"""Texts of runs on a page: where a long name may break, and what is code."""

import re

from markupsafe import Markup, escape

_BREAK = re.compile(r"(?<=\w[._/+])(?=\w)")
_CODE = re.compile(r"(`+)([^`]+)\1")


def breakable(text: str) -> Markup:
    """With a place to break after the dots and underscores in names."""
    return Markup("<wbr>").join(_BREAK.split(text))


def coded(text: str) -> Markup:
    """What stands between backticks as code."""
    parts = _CODE.split(text)  # text, backticks, code, text, ...
    made = [escape(parts[0])]
    for code, after in zip(parts[2::3], parts[3::3], strict=True):
        made += [Markup("<code>%s</code>") % code, escape(after)]
    return Markup("").join(made)
