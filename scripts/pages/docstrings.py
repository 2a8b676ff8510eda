"""Docstrings of vflbench as Markdown: paragraphs, formulas in indented blocks, and a source."""

import inspect
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

_CODE_OR_PAGE = re.compile(r"(`[^`]+`|(?<![\w/])docs/[\w/]+\.md)")
_SPECIAL = re.compile(r"([\\*_\[\]<>])")


@dataclass(frozen=True)
class Docstring:
    """first: the first paragraph, in one line. body: the others, as Markdown. source: what `Source:` says, as Markdown."""

    first: str
    body: str
    source: str


def read_docstring(text: str, above: str = "../", names: Iterable[str] = ()) -> Docstring:
    """above: the way from the page to the folder docs, for links to other pages. names: of options, which become code where
    a sentence explains them, as in `lr, steps: of the descent`.
    """
    blocks = re.split(r"\n\s*\n", _with_options(inspect.cleandoc(text or ""), set(names)))
    parts = [part for block in blocks for part in _parts(block)]
    source = next((part for part in parts if part.startswith("Source: ")), "")
    first, rest = (parts[0], parts[1:]) if parts else ("", [])
    body = [part if part.startswith("```") else markdown(part, above) for part in _joined(rest) if part != source]
    return Docstring(
        markdown(_line(first), above), "\n\n".join(body), markdown(_line(source).removeprefix("Source: "), above)
    )


def _with_options(text: str, names: set[str]) -> str:
    if not names:
        return text
    name = rf"(?:{'|'.join(sorted(map(re.escape, names), key=len, reverse=True))})"
    explained = re.compile(rf"(?:(?<=^)|(?<=\. )|(?<=\n))(?! )({name}(?:, {name})*)(?=: )")
    return explained.sub(lambda match: _begun(match) + re.sub(rf"\b{name}\b", r"`\g<0>`", match[0]), text)


def _begun(match: re.Match[str]) -> str:
    """What makes an option at the start of a line begin a paragraph."""
    return "\n" if match.start() and match.string[match.start() - 1] == "\n" else ""


def markdown(text: str, above: str = "../") -> str:
    """Plain text with code in backticks: everything that Markdown would take for a mark is escaped."""
    pieces = _CODE_OR_PAGE.split(text)
    escaped = "".join(_piece(piece, above) if i % 2 else _SPECIAL.sub(r"\\\1", piece) for i, piece in enumerate(pieces))
    return re.sub(r"^(\s*)([#+-]|\d+[.)])(?=\s)", r"\1\\\2", escaped, flags=re.MULTILINE)


def _piece(piece: str, above: str) -> str:
    """Code stays as it is; docs/PAGE.md becomes a link."""
    return piece if piece.startswith("`") else f"[{piece}]({above}{piece.removeprefix('docs/')})"


def _line(text: str) -> str:
    return " ".join(text.split())


def _parts(block: str) -> list[str]:
    """A block of a docstring: text, and what is indented as a fence of its own; of `Args:`, a paragraph each."""
    if block.startswith(("Args:\n", "Attributes:\n")):
        title, *entries = re.split(r"\n {4}(?! )", block)
        return [title, *(re.sub(r"^\w+", r"`\g<0>`", _line(entry)) for entry in entries)]
    parts: list[tuple[bool, list[str]]] = []
    for line in block.split("\n"):
        indented = line.startswith("    ")
        if not parts or parts[-1][0] != indented:
            parts.append((indented, []))
        parts[-1][1].append(line)
    return [_fence(lines) if indented else "\n".join(lines) for indented, lines in parts]


def _fence(lines: list[str]) -> str:
    return "\n".join(["```text", textwrap.dedent("\n".join(lines)), "```"])


def _joined(parts: list[str]) -> list[str]:
    """Fences that follow each other are one, with an empty line between."""
    joined: list[str] = []
    for part in parts:
        if joined and part.startswith("```") and joined[-1].startswith("```"):
            joined[-1] = joined[-1].removesuffix("```") + "\n" + part.removeprefix("```text\n")
        else:
            joined.append(part)
    return joined
