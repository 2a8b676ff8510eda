"""The option reference: what stands in configs/train.yaml, and a page for each config group."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from pages.classes import Choice, Option, cell, choices, comments_in, option_table, written
from pages.docstrings import markdown, read_docstring
from vflbench.files import config_folder

GROUPS = {
    "dataset": "Data sets",
    "model": "Models",
    "protocol": "Protocols",
    "engine": "Engines",
    "optimizer": "Optimizers",
    "adversary": "Parties that cheat",
    "logger": "Loggers",
}


def pages() -> dict[str, str]:
    texts = {f"options/{group}.md": group_page(group, title) for group, title in GROUPS.items()}
    texts["options/run.md"] = run_page()
    names = ["run", *GROUPS, "experiments"]
    texts["options/index.md"] = "\n".join(
        [
            "# Options",
            "",
            "These pages have every option with its default, what is allowed, and what it means. `vflbench train "
            "KEY=VALUE` sets one, `vflbench train --help` prints them, and `vflbench train --cfg job` shows the config "
            "that would run.",
            "The options of attacks and defenses are on pages of their own: [attacks](../attacks/index.md), "
            "[defenses](../defenses/index.md).",
            "",
            "```{toctree}",
            *names,
            "```",
            "",
        ]
    )
    return texts


def run_page() -> str:
    text = (config_folder() / "train.yaml").read_text("utf-8")
    content = {key: value for key, value in yaml.safe_load(text).items() if key not in ("defaults", "hydra")}
    comments = dict(comments_in(text))
    rows = tuple(Option(key, written(value), "", comments.get(key.split(".")[-1], "")) for key, value in flat(content))
    lines = ["| option | default | meaning |", "|---|---|---|"]
    lines += [f"| `{row.name}` | `{cell(row.default)}` | {cell(markdown(row.meaning))} |" for row in rows]
    return "\n".join(["# Options of a run", "", "Those that belong to no group.", "", *lines, ""])


def flat(content: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield from flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def group_page(group: str, title: str) -> str:
    parts = [f"# {title}", f"`vflbench train {group}=NAME` chooses one; its options are set as `{_example(group)}`."]
    for choice in choices(group):
        parts += [f"## {choice.name}", *described(choice)]
    return "\n\n".join(parts) + "\n"


def _example(group: str) -> str:
    return f"{group}.NAME.OPTION=VALUE" if group in ("adversary", "logger") else f"{group}.OPTION=VALUE"


def described(choice: Choice) -> Iterator[str]:
    of = choice.cls.__module__.rsplit(".", 1)[-1] if choice.cls else ""
    if of != choice.name:
        yield markdown(first_comment(choice.file))
        if of:
            yield f"Its class is that of `{of}`, where the options are explained."
            yield option_table(choice.options)
    else:
        text = read_docstring(choice.cls.__doc__ or "", names=(option.name for option in choice.options))
        yield text.first
        if text.body:
            yield text.body
        if text.source:
            yield f"Source: {text.source}"
        yield option_table(choice.options)


def first_comment(file: Path) -> str:
    """The comment above everything else, in one line, without its `Source:`."""
    lines = [line for line in file.read_text("utf-8").splitlines() if "@package" not in line]
    comment = itertools.takewhile(lambda line: line.startswith("#"), lines)
    return " ".join(line.lstrip("# ") for line in comment).split("Source: ")[0].strip()
