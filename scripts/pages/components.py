"""A page for each attack and each defense."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from pages.classes import Choice, choices, option_table
from pages.docstrings import Docstring, read_docstring
from pages.measured import Column, Table, names_in, read_table
from pages.related import related
from vflbench.attacks.base import Attack
from vflbench.cli.components import component
from vflbench.defenses.base import LabelDefense, NonLabelDefense, ParticipantDefense

MATRIX = ("experiments/matrix.md", ("matrix",))
REBUILDING = (
    "experiments/rebuilding.md",
    tuple(f"rebuilding_{name}" for name in ("pictures", "shallow", "hijack", "table")),
)
_OF_MATRIX = (
    "The values are two-sided leak AUCs at the visible layer where they are largest, after two epochs on 27,000 rows of "
    "Criteo, means of seeds 0 to 2. 0.5 is a coin, and 1 means that every label is read. The commands and the columns are "
    "explained on the page "
    "[Every attack against every defense](../experiments/matrix.md)."
)
_OF_REBUILDING = (
    "A value is the share of the error of the best guess that the attack removes, a mean of seeds 0 to 2 with its 95 % "
    "interval. 1 is exact, and 0 or less is no better than a guess. The commands, data and models are on the page "
    "[Every attack on features against every defense](../experiments/rebuilding.md)."
)


def pages(docs: Path) -> dict[str, str]:
    attacks, defenses = ([choice for choice in choices(group) if choice.cls] for group in ("attack", "defense"))
    found = {f"attacks/{choice.name}.md": attack_page(choice, docs) for choice in attacks}
    found |= {f"defenses/{choice.name}.md": defense_page(choice, docs) for choice in defenses}
    found["attacks/index.md"] = index("Attacks", "attack", attacks, lambda choice: str(_attack(choice).threat.level))
    found["defenses/index.md"] = index("Defenses", "defense", defenses, lambda choice: _side(choice))
    return found


def attack_page(choice: Choice, docs: Path) -> str:
    threat = _attack(choice).threat
    text = _docstring(choice)
    return "\n\n".join(
        [
            *_head(choice, text),
            "## Threat model",
            f"{threat.sentence()} Level of knowledge: *{threat.level}*. With other options it can be another one; "
            f"`vflbench list attacks` prints that of the defaults.",
            "## Options",
            option_table(choice.options),
            "## What it reads",
            *_readings(choice, docs),
            *_tail(choice, text, docs),
        ]
    )


def defense_page(choice: Choice, docs: Path) -> str:
    text = _docstring(choice)
    return "\n\n".join(
        [
            *_head(choice, text),
            "## Who applies it",
            _side(choice).capitalize() + ".",
            "## Options",
            option_table(choice.options),
            "## What attacks read",
            *_left(choice, docs),
            *_tail(choice, text, docs),
        ]
    )


def index(title: str, group: str, listed: list[Choice], kind: Callable[[Choice], str]) -> str:
    lines = [f"| {group} | {'level of knowledge' if group == 'attack' else 'applied by'} | what it does |", "|---|---|---|"]
    lines += [
        f"| [{choice.name}]({choice.name}.md) | {kind(choice)} | {_cell(_docstring(choice).first)} |" for choice in listed
    ]
    toctree = "\n".join(["```{toctree}", ":hidden:", "", *(choice.name for choice in listed), "```"])
    intro = (
        f"`vflbench train {group}=NAME` chooses one, `'{group}=[NAME,NAME]'` several. "
        f"Each page has the formula, the source, the options with their ranges, and measured figures."
    )
    return "\n\n".join([f"# {title}", intro, "\n".join(lines), toctree]) + "\n"


def _head(choice: Choice, text: Docstring) -> Iterator[str]:
    yield f"# {choice.name}"
    yield text.first
    yield f"```text\nvflbench train {choice.group}={choice.name}\n```"
    if text.body:
        yield "## How it works"
        yield text.body


def _tail(choice: Choice, text: Docstring, docs: Path) -> Iterator[str]:
    yield "## Source"
    yield text.source or "Ours."
    yield f"Code: `{choice.cls.__module__}`. Config: `configs/{choice.group}/{choice.name}.yaml`."
    if pages := related(docs, choice.group, choice.name):
        yield "## Related pages"
        yield "\n".join(f"- [{title}](../{path})" for title, path in pages)
    yield ""


def _readings(choice: Choice, docs: Path) -> Iterator[str]:
    """An attack: a line for each defense."""
    shown = False
    for (page, experiments), explained in ((MATRIX, _OF_MATRIX), (REBUILDING, _OF_REBUILDING)):
        table = read_table(docs / page)
        if columns := table.of_attack(names_in(experiments, choice.name)):
            shown = True
            yield explained
            yield _attack_table(table, columns)
    if not shown:
        yield (
            "It is not in the two large comparisons ([on labels](../experiments/matrix.md), "
            "[on features](../experiments/rebuilding.md)). The related pages below have its figures."
        )


def _attack_table(table: Table, columns: list[Column]) -> str:
    several = len({column.group for column in columns}) > 1
    names = [f"{column.group}: `{column.name}`" if several else f"`{column.name}`" for column in columns]
    lines = ["| defense | " + " | ".join(names) + " |", "|---" * (len(columns) + 1) + "|"]
    for row, cells in table.rows.items():
        if any(cells[column] for column in columns):
            lines.append(f"| {row} | " + " | ".join(cells[column] or "-" for column in columns) + " |")
    return "\n".join(lines)


def _left(choice: Choice, docs: Path) -> Iterator[str]:
    """A defense: a line for each attack, beside no defense."""
    shown = False
    for (page, _), explained in ((MATRIX, _OF_MATRIX), (REBUILDING, _OF_REBUILDING)):
        table = read_table(docs / page)
        if rows := table.of_defense(choice.name):
            shown = True
            yield explained
            yield _defense_table(table, ["none", *rows])
    if not shown:
        yield (
            "It is not in the two large comparisons ([on labels](../experiments/matrix.md), "
            "[on features](../experiments/rebuilding.md)). The related pages below have its figures."
        )


def _defense_table(table: Table, rows: list[str]) -> str:
    lines = [
        "| attack | " + " | ".join("no defense" if row == "none" else row for row in rows) + " |",
        "|---" * (len(rows) + 1) + "|",
    ]
    group = ""
    for column in table.columns:
        cells = [table.rows[row][column] for row in rows]
        if not any(cells[1:]):
            continue
        if column.group != group:
            group = column.group
            lines.append(f"| *{group}* |" + " |" * len(rows))
        lines.append(f"| {column.name} | " + " | ".join(cell or "-" for cell in cells) + " |")
    return "\n".join(lines)


def _attack(choice: Choice) -> Attack:
    node = choice.content[choice.name]
    return component(node, f"attack/{choice.name}", Attack)


def _side(choice: Choice) -> str:
    sides = (
        (LabelDefense, "the label party"),
        (NonLabelDefense, "a non-label party"),
        (ParticipantDefense, "a participant"),
    )
    return next((words for base, words in sides if issubclass(choice.cls, base)), "whoever sends the message")


def _docstring(choice: Choice) -> Docstring:
    return read_docstring(choice.cls.__doc__ or "", names=(option.name for option in choice.options))


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text)
