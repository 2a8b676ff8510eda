"""Random damage to Criteo lines, and a plain reference of which lines are good. Both are independent of vflbench.

Lines end with a line feed, a carriage return, or both. A byte-order mark may begin the file. An empty line is not a row,
neither a good nor a bad one, and has no number. A row is good if

    it is valid UTF-8, without NUL,
    has exactly 40 fields between tabs,
    its label is 0 or 1, spelled so, and
    its 13 integers are empty or -?[0-9]+ (ASCII digits) within 64 bits, -2^63 .. 2^63 - 1.
"""

import random
import re
from collections.abc import Callable
from typing import NamedTuple

COLUMNS = ("label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27)))
LONGEST = 1 << 20

_BOM = b"\xef\xbb\xbf"


class Fault(NamedTuple):
    """Why a line is not a good row: the rule it breaks, the column (None for the whole line) and the value of the column."""

    rule: str
    column: str | None = None
    value: bytes = b""


def faults(line: bytes) -> list[Fault]:
    """All faults of a line, given without its end. Empty for a good row."""
    fields = line.split(b"\t")
    if len(fields) != len(COLUMNS):
        return [Fault("fields")]
    return [
        Fault(rule, column, field) for column, field in zip(COLUMNS, fields, strict=True) for rule in _broken(column, field)
    ]


def is_valid(line: bytes) -> bool:
    """Whether a line, given without its end, is a good row."""
    return not faults(line)


def lines_of(content: bytes) -> list[tuple[int, bytes]]:
    """(number from 1, line without its end) of every line of a file that is not empty."""
    return list(enumerate(filter(None, re.split(rb"\r\n?|\n", content.removeprefix(_BOM))), 1))


def mutate(line: bytes, rng: random.Random) -> bytes:
    """A line with one random change, rarely several. The result may be a good row, two lines, or an empty line."""
    for _ in range(1 if rng.random() < 0.9 else rng.randint(2, 4)):
        line = STRETCH(line, rng) if rng.random() < 0.002 else rng.choice(MUTATIONS)(line, rng)
    return line


def _broken(column: str, field: bytes) -> list[str]:
    broken = []
    if b"\0" in field:
        broken.append("nul")
    try:
        field.decode("utf-8", "strict")
    except UnicodeDecodeError:
        broken.append("utf-8")
    if column == "label" and field not in (b"0", b"1"):
        broken.append("label")
    if column.startswith("I") and field and not _is_integer(field):
        broken.append("integer")
    return broken


def _is_integer(field: bytes) -> bool:
    if not re.fullmatch(rb"-?[0-9]+", field):
        return False
    digits = field.lstrip(b"-").lstrip(b"0") or b"0"
    if len(digits) > 19:
        return False  # Python does not convert thousands of digits
    value = -int(digits) if field.startswith(b"-") else int(digits)
    return -(2**63) <= value < 2**63


def _in_field(
    change: Callable[[bytes, random.Random], bytes], first: int, last: int
) -> Callable[[bytes, random.Random], bytes]:
    """A mutation of one of the fields first .. last, where 0 is the label. A line without that field stays the same."""

    def mutation(line: bytes, rng: random.Random) -> bytes:
        fields = line.split(b"\t")
        at = rng.randint(first, last)
        if at < len(fields):
            fields[at] = change(fields[at], rng)
        return b"\t".join(fields)

    return mutation


def _one_of(*values: bytes) -> Callable[[bytes, random.Random], bytes]:
    return lambda _, rng: rng.choice(values)


def _insert(*pieces: bytes) -> Callable[[bytes, random.Random], bytes]:
    """A mutation that inserts one of the pieces at a random position."""

    def mutation(text: bytes, rng: random.Random) -> bytes:
        at = rng.randint(0, len(text))
        return text[:at] + rng.choice(pieces) + text[at:]

    return mutation


def _drop_tab(line: bytes, rng: random.Random) -> bytes:
    tabs = [i for i, byte in enumerate(line) if byte == 9]
    at = rng.choice(tabs) if tabs else len(line)
    return line[:at] + line[at + 1 :]


def _double_tab(line: bytes, rng: random.Random) -> bytes:
    tabs = [i for i, byte in enumerate(line) if byte == 9]
    at = rng.choice(tabs) if tabs else 0
    return line[:at] + b"\t" + line[at:]


def _move_tab(line: bytes, rng: random.Random) -> bytes:
    """Change the fields and keep their number."""
    return _insert(b"\t")(_drop_tab(line, rng), rng)


def _flip_bit(line: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(line)) if line else 0
    return line[:at] + bytes([byte ^ 1 << rng.randrange(8) for byte in line[at : at + 1]]) + line[at + 1 :]


def _any_byte(line: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(line)) if line else 0
    return line[:at] + bytes([rng.randrange(256) for _ in line[at : at + 1]]) + line[at + 1 :]


def _truncate(line: bytes, rng: random.Random) -> bytes:
    return line[: rng.randint(0, len(line))]


def _behead(line: bytes, rng: random.Random) -> bytes:
    return line[rng.randint(0, len(line)) :]


def _stretch(_: bytes, rng: random.Random) -> bytes:
    """A long value, sometimes longer than a whole line may be."""
    unit = rng.choice([b"a", b"7", b"0", b"\xc3\xa9", b'"'])
    length = rng.choice([5_000, 70_000, LONGEST - 2000]) if rng.random() < 0.9 else LONGEST + rng.randint(-300, 1000)
    return (unit * (length // len(unit) + 1))[:length]


def _long_number(_: bytes, rng: random.Random) -> bytes:
    return rng.choice([b"", b"-"]) + b"0" * rng.choice([0, 20, 5000]) + str(rng.randrange(10 ** rng.randint(1, 22))).encode()


_NOT_UTF8 = (b"\xff", b"\xc3", b"\x80", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82")
_ODD_UTF8 = ("\u00e9", "\u20ac", "\U0001f600", "\u0663", "\uff11", "\u00a0", "\u2028", "\x85", "\ufeff", "\ufffd")
_ODD_NUMBERS = (
    *(
        b"many",
        b"0x10",
        b"1f",
        b"ff",
        b"1e3",
        b"1.5",
        b"1.0",
        b".5",
        b"5.",
        b"-",
        b"--1",
        b"-+1",
        b"+1",
        b"+",
        b"1-",
        b"1_000",
    ),
    *(
        b" 1",
        b"1 ",
        b" ",
        b"1,000",
        b"NaN",
        b"nan",
        b"inf",
        b"-inf",
        b"NULL",
        b"null",
        b"None",
        b"NA",
        b"N/A",
        b"true",
        b"-0",
    ),
    *(b"007", b"-007", b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808", b"-9223372036854775809"),
    *(b"18446744073709551616", b"1\x0b", b"\x0c1", b"1\x1a", b"\\N", b"\xd9\xa3", b"\xef\xbc\x91", b"2020-01-01"),
)
_ODD_LABELS = (
    *(
        b"01",
        b"00",
        b"2",
        b"-1",
        b"",
        b"1.0",
        b"0.0",
        b" 1",
        b"1 ",
        b"+1",
        b"-0",
        b"true",
        b"false",
        b"True",
        b"yes",
        b"1e0",
    ),
    *(b"0x1", b"NaN", b"null", b'"1"', b"'0'", b"\xef\xbb\xbf1", b"10", b"\xef\xbc\x91", b"1\x00", b"O", b"l"),
)

MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _drop_tab,
    _double_tab,
    _insert(b"\t"),
    _insert(b"\t\t\t"),
    _move_tab,
    _flip_bit,
    _any_byte,
    _insert(b"\0"),
    _insert(*_NOT_UTF8),
    _insert(*(text.encode() for text in _ODD_UTF8)),
    _insert(b"\r"),
    _insert(b"\n"),
    _insert(b"\r\n"),
    _insert(b'"', b'""', b"'", b'"\t"', b"\\", b"\\t", b",", b";", b"#", b" "),
    lambda line, rng: line + rng.choice([b"\r", b"\r\r", b" ", b"\t", b"\x1a", b"\0", b"\x0b"]),
    lambda line, rng: rng.choice([b" ", b"\t", b"\r", b"\0", b"#", b"\n", b"\n\n", b"\r\n"]) + line,
    lambda line, _: _BOM + line,
    lambda _, rng: rng.choice([b"", b"\r", b" ", b"\t", b"\t" * 39, b"\t" * 38, b"0" + b"\t" * 39, b"1" + b"\t" * 39]),
    lambda line, rng: line + rng.choice([b"\t", b""]) + line,
    lambda line, rng: line.replace(b"\t", rng.choice([b",", b" ", b"|", b"\t\t"])),
    lambda line, _: b'"' + line.replace(b"\t", b'"\t"') + b'"',
    lambda line, rng: b"\t".join(rng.sample(fields := line.split(b"\t"), len(fields))),
    _truncate,
    _behead,
    _in_field(_one_of(*_ODD_LABELS), 0, 0),
    _in_field(_one_of(*_ODD_LABELS), 0, 0),
    _in_field(_one_of(*_ODD_NUMBERS), 1, 13),
    _in_field(_one_of(*_ODD_NUMBERS), 1, 13),
    _in_field(_one_of(*_ODD_NUMBERS), 14, 39),
    _in_field(_long_number, 1, 13),
    _in_field(_one_of(b""), 0, 39),
    _in_field(_insert(b'"', b'""', b"\r", b"\0", b"\xff", b" ", b"+", b"-"), 0, 39),
)
"""The mutations that `mutate` draws from, with equal probability."""

STRETCH = _in_field(_stretch, 1, 39)
"""A very long field. It is drawn more rarely than the others, because it would dominate the size of a file."""
