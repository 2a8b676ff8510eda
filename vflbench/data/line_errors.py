"""Why a line of text does not fit its format: the column and the value at fault, in words."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from vflbench.data.blocks import MAX_LINE_BYTES
from vflbench.data.text import TextFormat, fields_of

_SHOWN_BYTES = 60  # of a wrong value


def header_error(names: Sequence[str], form: TextFormat) -> str | None:
    """What is wrong with a header's names; None if nothing is."""
    missing = [name for name in form.columns if name not in names]
    if missing == [form.label]:
        return f"the header has no column {form.label}; these rows carry no label, and training needs one"
    if missing:
        return f"the header must name the {len(form.columns)} columns of {form.name}; missing: {', '.join(missing)}"
    surplus = list((Counter(names) - Counter(form.columns)).elements())
    return f"the header names columns that {form.name} does not have: {', '.join(surplus)}" if surplus else None


def line_error(line: bytes, form: TextFormat, names: Sequence[str]) -> str | None:
    """What is wrong with a line, given without its line end; None if nothing is. names: the columns in their order."""
    if len(line) > MAX_LINE_BYTES:
        return f"it is longer than {MAX_LINE_BYTES:,} bytes"
    if form.header and line.count(b'"') % 2:
        return "a quote is opened and not closed"
    fields = fields_of(line, form.delimiter, quotes=form.header)
    if len(fields) == len(names) - 1 and not form.header:
        return (
            f"{len(fields)} fields where {form.name} has {len(names)}: "
            f"is its {form.label} missing? Rows without a label can't be used"
        )
    if len(fields) != len(names):
        return f"{len(fields)} fields where {form.name} has {len(names)}"
    return next(filter(None, map(_field_error, names, fields, [form] * len(fields))), None)


def _field_error(column: str, value: bytes, form: TextFormat) -> str | None:
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return f"column {column}: {_quoted(value)} is not valid UTF-8"
    if "\0" in text:
        return f"column {column}: {_quoted(value)} holds a NUL byte"
    if "\r" in text and not form.multiline:
        return f"column {column}: {_quoted(value)} holds a carriage return"
    if column == form.label:
        if form.binary_label and text not in ("0", "1"):
            return f"column {column}: the label is {_quoted(value)}; it must be 0 or 1"
        return f"column {column}: the row has no label" if text in form.missing else None
    if column in form.integers and text not in form.missing and not _is_integer(text):
        return f"column {column}: {_quoted(value)} is not an integer"
    if column in form.reals and text not in form.missing and not _is_real(text):
        return f"column {column} is numeric, and {_quoted(value)} is not a finite number"
    return None


def _is_integer(text: str) -> bool:
    match = re.fullmatch(r"(-?)0*([0-9]{1,19})", text)
    return match is not None and -(2**63) <= int(match[1] + match[2]) < 2**63


def _is_real(text: str) -> bool:
    try:
        return "_" not in text and bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _quoted(value: bytes) -> str:
    return repr(value[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")) + ("..." if len(value) > _SHOWN_BYTES else "")
