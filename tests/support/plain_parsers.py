"""What lines of data files mean, read character by character and independent of vflbench."""

import math
import re
import unicodedata

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")


def real(text: str) -> float | None:
    """A finite decimal number of ASCII digits, within blanks; None for any other text."""
    number = re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", text.strip(" \t"), re.IGNORECASE)
    return float(number[0]) if number and math.isfinite(float(number[0])) else None


def is_label(text: str) -> bool:
    """Whether a text can name a class."""
    printable = all(c == " " or unicodedata.category(c)[0] not in "CZ" for c in text)
    return text.strip() not in MISSING and printable and len(text) <= 64


def record(text: str, start: int, delimiter: str, *, multiline: bool) -> tuple[list[str] | None, int]:
    """The fields of the record that starts there, as RFC 4180 has them, and where the next one starts.

    A carriage return ends a line too. None for the fields of a line that is no record; the next one then starts on the next
    line.
    """
    ends, inner = rf"{re.escape(delimiter)}\r\n", '[^"]' if multiline else r'[^"\r\n]'
    field = re.compile(rf'(?:"({inner}*(?:""{inner}*)*)"|(?!")([^{ends}]*))(?=[{ends}]|\Z)')
    fields, place = [], start
    while match := field.match(text, place):
        fields.append(match[2] if match[1] is None else match[1].replace('""', '"'))
        place = match.end() + 1
        if place > len(text) or text[place - 1] != delimiter:
            return fields, min(place + (text[place - 1 : place + 1] == "\r\n"), len(text))
    end = re.compile(r"\r\n?|\n").search(text, start)
    return None, end.end() if end else len(text)


def records(content: bytes, delimiter: str, *, multiline: bool) -> list[list[str] | None]:
    """All records but the empty lines; None for what is none. Bytes that are no UTF-8 become lone surrogates."""
    text, place, found = content.decode("utf-8", "surrogateescape"), 0, []
    while place < len(text):
        fields, after = record(text, place, delimiter, multiline=multiline)
        if text[place:after].strip("\r\n"):
            found.append(fields)
        place = after
    return found
