"""What lines of data files mean, read character by character and independent of vflbench."""

import math
import re
import unicodedata

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")


def real(text: str) -> float | None:
    """A finite decimal number of ASCII digits, within blanks; None for any other text."""
    text = text.strip(" \t")
    mantissa, exponent, power = text.lower().partition("e")
    digits = mantissa[1:] if mantissa[:1] in ("+", "-") else mantissa
    whole, _, rest = digits.partition(".")
    if not all(c in "0123456789" for c in whole + rest) or not whole + rest or digits.count(".") > 1:
        return None
    power = power[1:] if power[:1] in ("+", "-") else power
    if exponent and (not power or not all(c in "0123456789" for c in power)):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def is_label(text: str) -> bool:
    """Whether a text can name a class."""
    printable = all(c == " " or unicodedata.category(c)[0] not in "CZ" for c in text)
    return text.strip() not in MISSING and printable and len(text) <= 64


def record(text: str, start: int, delimiter: str, *, multiline: bool) -> tuple[list[str] | None, int]:
    """The fields of the record that starts there, as RFC 4180 has them, and where the next one starts.

    A carriage return ends a line too. None for the fields of a line that is no record; the next one then starts on the next
    line.
    """
    fields, place = [], start
    while True:
        field = ""
        if text[place : place + 1] == '"':
            place += 1
            while True:
                if place >= len(text) or (text[place] in "\r\n" and not multiline):
                    return None, _next_line(text, start)
                if text[place] == '"' and text[place + 1 : place + 2] == '"':
                    field, place = field + '"', place + 2
                elif text[place] == '"':
                    place += 1
                    break
                else:
                    field, place = field + text[place], place + 1
        else:
            while place < len(text) and text[place] not in f"{delimiter}\r\n":
                field, place = field + text[place], place + 1
        fields.append(field)
        if place >= len(text):
            return fields, len(text)
        if text[place] in "\r\n":
            return fields, place + 1 + (text[place : place + 2] == "\r\n")
        if text[place] != delimiter:
            return None, _next_line(text, start)
        place += 1


def records(content: bytes, delimiter: str, *, multiline: bool) -> list[list[str] | None]:
    """All records but the empty lines; None for what is none. Bytes that are no UTF-8 become lone surrogates."""
    text, place, found = content.decode("utf-8", "surrogateescape"), 0, []
    while place < len(text):
        fields, after = record(text, place, delimiter, multiline=multiline)
        if text[place:after].strip("\r\n"):
            found.append(fields)
        place = after
    return found


def _next_line(text: str, start: int) -> int:
    end = re.compile(r"\r\n?|\n").search(text, start)
    return end.end() if end else len(text)
