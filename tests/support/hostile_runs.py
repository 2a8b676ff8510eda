"""Folders of runs as somebody who means harm would make them, and what must never come of them."""

import csv
import io
import json
import math
import os
import re
from pathlib import Path

import yaml

EVIL = "<b id=evil>&\"'</b>"
"""Unescaped, it is a tag."""
TEXTS = (
    *(EVIL, "=cmd|'/c calc'!A0", "+1+cmd", "-2+3", "@SUM(A1)", "\t=1+1", "x;=1+1"),
    *("[x](javascript:alert(1))", "![x](http://evil.example/x.png)", "`code` | pipe \\| \\"),
    *("\\input{/etc/passwd} \\write18{id}", "[2cm] % comment\n\\input{x}"),
    *("</style></script><script>alert(1)</script>", "../../../../x"),
    *("a\x00b\x1b[31mred\x1b[0m\x9b2J", "\u202egnp.exe\u2066", "\ud800"),
    *("$\\frac{1}{$", "x" * 30_000, "", "none", "all"),
)
NUMBERS = (0, -1, 1, 2**63, 10**30, 10**4000, 0.5, 1e99, 1e308, -1e308, 5e-324, math.nan, math.inf)
OTHERS = (None, True, False, [], {}, [[]], [None], {"": None}, {"mean": None}, {"mean": "x"}, [1, "x"], {EVIL: EVIL})
ODD = (*TEXTS, *NUMBERS, *OTHERS)


def deep(levels, opening="[", closing="]"):
    return opening * levels + closing * levels


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
"""Of 350 bytes, of a billion values."""


def places(value, place=()):
    """The paths to all values within."""
    yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, (*place, key))


def with_value(value, place, new):
    """The same with another value at a path."""
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = with_value(copy[place[0]], place[1:], new)
    return copy


def written(name, value):
    """The text of the file with that value; JSON with NaN and numbers of any size, as Python writes and others read them."""
    return yaml.safe_dump(value) if name.endswith(".yaml") else json.dumps(value)


def replaced_by(path: Path, kind: str, victim: Path) -> None:
    """Put something else than a file in the place of one."""
    path.unlink(missing_ok=True)
    links = {"link": victim, "loop": path.name, "device": "/dev/zero"}
    if kind in links:
        path.symlink_to(links[kind])
    elif kind != "missing":
        {"fifo": os.mkfifo, "folder": os.mkdir}[kind](path)


HARMFUL = {".md": r"<[A-Za-z/!?]|(?<!\\)\]\(|(?<!\\)`", ".tex": r"^(?!%).*(?<!\\)\\(?:input|write)"}
HARMFUL |= dict.fromkeys((".html", ".svg"), "<b id=evil|<script>alert|</style></script>")
"""What no line of a file of that kind has: tags of runs, tags, links and code of Markdown, and commands of TeX."""


def faults(page: Path) -> list[str]:
    """What in a report could harm its reader."""
    found = []
    for file in sorted(page.parent.rglob("*")):
        if file.is_symlink() or not (file.is_file() or file.is_dir()):
            found.append(f"{file.name} is a link")
        if not file.is_file() or file.suffix in (".png", ".pdf"):
            continue
        text = file.read_bytes().decode()
        name = file.name
        if any(not c.isprintable() and c != "\n" for c in text) and name != page.name:
            found.append(f"{name} has control characters")
        if pattern := HARMFUL.get(file.suffix):
            found += [f"{name}: {line}" for line in text.splitlines() if re.search(pattern, line)]
        if file.suffix == ".csv":
            cells = [cell for line in csv.reader(io.StringIO(text)) for cell in line]
            found += [f"{name}: {cell[:60]!r}" for cell in cells if is_formula(cell)]
    return found


def is_formula(cell: str) -> bool:
    return re.search(r"^[=+\-@\t\r](?!([\d.e+-]*|inf)$)|;\s*[=+\-@]", cell) is not None
