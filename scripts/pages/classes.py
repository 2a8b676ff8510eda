"""Choices of a config group with their classes: docstring, options, defaults, what is allowed, what each option means."""

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from pages.docstrings import markdown
from vflbench.files import config_folder
from vflbench.options import Range


@dataclass(frozen=True)
class Option:
    """default: as YAML has it. allowed: in words; empty where its type says nothing. meaning: the comment in the config."""

    name: str
    default: str
    allowed: str
    meaning: str


@dataclass(frozen=True)
class Choice:
    """One file of a config group. cls: None of a file that chooses several or none."""

    group: str
    name: str
    file: Path
    cls: type | None
    options: tuple[Option, ...] = ()
    content: Any = field(default=None, repr=False)


def choices(group: str) -> list[Choice]:
    """Of the group, by name, without those in folders below it."""
    return [read_choice(group, file) for file in sorted((config_folder() / group).glob("*.yaml"))]


def read_choice(group: str, file: Path) -> Choice:
    text = file.read_text("utf-8")
    content = yaml.safe_load(text) or {}
    node = content.get(file.stem, content.get(group, content))
    target = node.get("_target_") if isinstance(node, dict) else None
    if not isinstance(target, str):
        return Choice(group, file.stem, file, None, content=content)
    module, _, name = target.rpartition(".")
    cls = getattr(importlib.import_module(module), name)
    comments = dict(comments_in(text))
    hints = get_type_hints(cls, include_extras=True)
    options = tuple(
        Option(key, written(value), allowed(hints.get(key)), comments.get(key, ""))
        for key, value in node.items()
        if key != "_target_"
    )
    return Choice(group, file.stem, file, cls, options, content)


def comments_in(text: str) -> Iterator[tuple[str, str]]:
    """Key, and the comment at the end of its line or on lines of their own below it, of a YAML file."""
    for line in text.splitlines():
        if match := re.match(r"\s*([\w.]+):(?:\s[^#]*)?\s#\s(.*)", line):
            yield match[1], match[2]


def written(value: Any) -> str:
    """A value as YAML has it, in one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("...\n").strip()


def allowed(hint: Any) -> str:
    """What a type with ranges takes, in words."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return " or ".join(filter(None, map(allowed, get_args(hint))))
    if origin is Literal:
        return " or ".join(f"`{written(value)}`" for value in get_args(hint))
    if origin is Annotated:
        base, *marks = get_args(hint)
        ranges = [str(mark) for mark in marks if isinstance(mark, Range)]
        return f"{_TYPES.get(base, allowed(base))} {ranges[-1]}" if ranges else allowed(base)
    if origin in (tuple, list):
        inner = {allowed(of) for of in get_args(hint) if of is not Ellipsis}
        return f"a list of {' or '.join(sorted(inner))}"
    if origin is dict:
        return "a mapping"
    return _TYPES.get(hint, "")


_TYPES = {
    int: "a whole number",
    float: "a number",
    bool: "`true` or `false`",
    str: "text",
    NoneType: "`null`",
}


def option_table(options: tuple[Option, ...]) -> str:
    """As Markdown."""
    if not options:
        return "None."
    lines = ["| option | default | allowed | meaning |", "|---|---|---|---|"]
    lines += [f"| `{o.name}` | {default_cell(o)} | {cell(o.allowed)} | {cell(markdown(o.meaning))} |" for o in options]
    return "\n".join(lines)


def default_cell(option: Option) -> str:
    """The default as code; `???`, as YAML of Hydra has it, in words."""
    return "none: you must give it" if option.default in ("???", "'???'") else f"`{cell(option.default)}`"


def cell(text: str) -> str:
    return text.replace("|", "\\|")
