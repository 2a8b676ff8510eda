"""The tables of measured figures in docs/experiments, read from their Markdown."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from vflbench.places import config_folder


@dataclass(frozen=True)
class Column:
    """group: what stands in italics before the first name of a group. name: of the attack, as the experiment has it."""

    group: str
    name: str


@dataclass(frozen=True)
class Table:
    """rows: name of the defense with its options -> column -> text of the cell."""

    columns: tuple[Column, ...]
    rows: Mapping[str, Mapping[Column, str]]

    def of_attack(self, names: set[str]) -> list[Column]:
        return [column for column in self.columns if column.name in names]

    def of_defense(self, name: str) -> list[str]:
        return [row for row in self.rows if name in defenses_in(row)]


def defenses_in(row: str) -> list[str]:
    """`marvell + dcor, alpha_d 0.02` -> marvell, dcor."""
    return [part.split(",")[0].strip() for part in row.split(" + ")]


@cache
def read_table(file: Path) -> Table:
    """The first table of a page whose header begins with `defense`."""
    lines = file.read_text("utf-8").splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("| defense |")), None)
    if start is None:
        raise ValueError(f"{file} has no table that begins with `| defense |`")
    columns, group = [], ""
    for cell in _cells(lines[start])[1:]:
        if match := re.fullmatch(r"\*(.+?):?\*\s*(.*)", cell):
            group, cell = match[1], match[2]
        columns.append(Column(group, cell))
    rows = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        name, *cells = _cells(line)
        rows[name] = dict(zip(columns, cells, strict=True))
    return Table(tuple(columns), rows)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


@cache
def attacks_of(experiment: str) -> Mapping[str, str]:
    """Name of an attack in an experiment -> name of its choice: the last part of its module."""
    content = yaml.safe_load((config_folder() / "experiment" / f"{experiment}.yaml").read_text("utf-8"))
    return dict(_attacks(content.get("attack") or {}))


def _attacks(nodes: Mapping[str, Mapping[str, object]]) -> Iterator[tuple[str, str]]:
    for name, node in nodes.items():
        target = node.get("_target_")  # none: only options of a choice with this name
        yield name, str(target).split(".")[-2] if target else name


def names_in(experiments: tuple[str, ...], attack: str) -> set[str]:
    """Under which names these experiments run an attack."""
    named = {name for experiment in experiments for name, of in attacks_of(experiment).items() if of == attack}
    return named | {attack}
