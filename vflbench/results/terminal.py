"""Lines of a terminal's width, and paths as they are typed there."""

import os
import shlex
import textwrap
from pathlib import Path
from typing import TextIO

from vflbench.errors import printable

WIDTH = 80
"""Columns of a terminal."""


def wrapped(text: str, indent: str = "", width: int = WIDTH, most: int | None = None) -> list[str]:
    """Lines of at most `width` columns; a number stays with its percent sign, and long names and paths stay whole.

    indent: of every line but the first. most: lines; what is left out is a ` ...`.
    """
    kept = printable(text).replace(" %", "\u00a0%")
    options = {"break_long_words": False, "break_on_hyphens": False, "max_lines": most, "placeholder": " ..."}
    made = textwrap.wrap(kept, width, subsequent_indent=indent, **options)  # type: ignore[arg-type]
    return [line.replace("\u00a0", " ") for line in made]


def for_stream(text: str, stream: TextIO | None) -> str:
    """A message as it is printed: wrapped at a terminal; elsewhere, where it may be searched, each paragraph is a line."""
    if stream is None or not stream.isatty():
        return text
    return "\n".join("\n".join(wrapped(line)) for line in text.split("\n"))


def path_text(path: Path) -> str:
    """As it is typed from the working folder, if it lies in it, else whole; quoted for the shell."""
    inside = os.path.relpath(path) if path.is_absolute() and path.is_relative_to(Path.cwd()) else str(path)
    return shlex.quote(printable(inside))
