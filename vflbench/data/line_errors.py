"""Why a line of text does not fit its format: the column and the value at fault, in words."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vflbench.data.blocks import MAX_LINE_BYTES
from vflbench.data.files import listed
from vflbench.data.labels import label_problem
from vflbench.data.numerals import is_integer, is_real
from vflbench.data.text import TextFormat, fields_of
from vflbench.errors import shown

if TYPE_CHECKING:
    from vflbench.data.readings import Reading

_SHOWN_BYTES = 60  # of a wrong value


MOST_COLUMNS = 100_000
_LONGEST_NAME = 200


def names_error(names: Sequence[str]) -> str | None:
    """What is wrong with the names of columns, whatever the table; None if nothing is."""
    if len(names) > MOST_COLUMNS:
        return f"the header names {len(names):,} columns; there are at most {MOST_COLUMNS:,}"
    for number, name in enumerate(names, 1):
        if any("\udc80" <= sign <= "\udcff" for sign in name):
            quoted = _quoted(name.encode(errors="surrogateescape"))
            how = "for Latin-1 or Windows-1252, say dataset.encoding=cp1252"
            return f"the header names column {number} {quoted}, which is not valid UTF-8; {how}"
        if not name.isprintable() or len(name) > _LONGEST_NAME:
            what = f"at most {_LONGEST_NAME} printable characters"
            return f"the header names column {number} {_quoted(name.encode(errors='surrogateescape'))}; a name has {what}"
    repeated = [name for name, count in Counter(names).items() if count > 1]
    return f"the header names {shown(repeated[0]) or 'the empty name'} twice" if repeated else None


def header_error(names: Sequence[str], form: TextFormat) -> str | None:
    """What is wrong with a header's names; None if nothing is."""
    there = set(names)
    missing = [name for name in form.columns if name not in there]
    if missing == [form.label]:
        return f"the header has no column {form.label}; these rows carry no label, and training needs one"
    if missing:
        return f"the header must name the {len(form.columns)} columns of {form.name}; missing: {listed(missing)}"
    surplus = list((Counter(names) - Counter(form.columns)).elements())
    return f"the header names columns that {form.name} does not have: {listed(surplus)}" if surplus else None


def line_error(line: bytes, form: TextFormat, names: Sequence[str]) -> str | None:
    """What is wrong with a line, given without its line end; None if nothing is. names: the columns in their order."""
    if len(line) > MAX_LINE_BYTES:
        return f"it is longer than {MAX_LINE_BYTES:,} bytes"
    fields = fields_of(line, form.delimiter, quotes=form.quoted)
    if fields is None:
        return _misplaced(line)
    if len(fields) == len(names) - 1 and not form.header:
        what = f": is its {form.label} missing? Rows without a label can't be used" if form.label else ""
        return f"{len(fields)} fields where {form.name} has {len(names)}{what}"
    if len(fields) != len(names):
        return f"{len(fields)} fields where {form.name} has {len(names)}"
    within_quotes = form.multiline and b'"' in line
    problems = (_field_error(*field, form, within_quotes) for field in zip(names, fields, strict=True))
    return next(filter(None, problems), None)


def _misplaced(line: bytes) -> str:
    if line.count(b'"') % 2:
        return "a quote is opened and not closed"
    if b"\r" in line:
        return "it holds a carriage return outside quotes"
    return 'a quote is within a value; quotes go around the whole value, and within them a quote is written ""'


def _field_error(column: str, value: bytes, form: TextFormat, within_quotes: bool) -> str | None:
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        how = "; of a file in Latin-1 or Windows-1252, say dataset.encoding=cp1252" if form.read_as else ""
        return f"column {shown(column)}: {_quoted(value)} is not valid UTF-8{how}"
    if "\0" in text:
        return f"column {shown(column)}: {_quoted(value)} holds a NUL byte"
    if "\r" in text and not within_quotes:
        return f"column {shown(column)}: {_quoted(value)} holds a carriage return"
    if form.label and column == form.label:
        if form.binary_label and text not in ("0", "1"):
            return f"column {shown(column)}: the label is {_quoted(value)}; it must be 0 or 1"
        problem = label_problem(text)
        return problem and f"column {shown(column)}: {problem}"
    if column in form.readings and text not in form.missing and not _accepts(form.readings[column], text):
        return f"column {shown(column)} holds {form.readings[column].words}, and {_quoted(value)} is none"
    if column in form.integers and text not in form.missing and not is_integer(text):
        return f"column {shown(column)}: {_quoted(value)} is not an integer"
    if column in form.reals and text not in form.missing and not is_real(text):
        return f"column {shown(column)} is numeric, and {_quoted(value)} is not a finite number"
    return None


def _quoted(value: bytes) -> str:
    return repr(value[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")) + ("..." if len(value) > _SHOWN_BYTES else "")


def _accepts(reading: "Reading", text: str) -> bool:
    from vflbench.data.readings import accepts  # late: it imports pyarrow, and most lines have no such column

    return accepts(reading, text)
