"""Which pages written by hand speak of an attack or a defense."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

WRITTEN = ("howto", "experiments", "explain", "reference", "performance")
_MOST = 6


@cache
def _pages(docs: Path) -> dict[Path, tuple[str, Counter[str]]]:
    """Page -> its title, and how often each word in backticks stands there."""
    files = [*docs.glob("*.md"), *(file for folder in WRITTEN for file in sorted((docs / folder).rglob("*.md")))]
    return {file: (title(text), Counter(_names(text))) for file in sorted(files) if (text := file.read_text("utf-8"))}


def title(text: str) -> str:
    return next((line.removeprefix("# ").strip() for line in text.splitlines() if line.startswith("# ")), "")


def _names(text: str) -> Iterator[str]:
    yield from re.findall(r"`([^`\n]+)`", text)
    yield from re.findall(r"\b(?:attack|defense)=\w+", text)


def related(docs: Path, group: str, name: str) -> list[tuple[str, str]]:
    """(title, path below docs) of the pages that name it most often, the first one first."""
    counts = {
        file: names[f"{group}={name}"] * 2 + names[name]
        for file, (_, names) in _pages(docs).items()
        if names[f"{group}={name}"] or names[name]
    }
    best = sorted(counts, key=lambda file: (-counts[file], file))[:_MOST]
    return [(_pages(docs)[file][0], file.relative_to(docs).as_posix()) for file in best]
