"""What can be chosen: a line for every entry of the config groups, read from the configs and their classes."""

from pathlib import Path

from vflbench.cli.entries import Entry, read_entry
from vflbench.cli.groups import GROUPS
from vflbench.errors import UserError, nearest

__all__ = ["Entry", "catalog", "table"]


def catalog(folders: list[Path], group: str | None = None) -> list[Entry]:
    """The entries of one group, or of all groups, in these config folders; of two with the same name, the first folder's."""
    named = {**dict(zip(map(_plural, GROUPS), GROUPS, strict=True)), **{name: name for name in GROUPS}}
    if group is not None and group not in named:
        near = nearest(group, GROUPS) or f"; there are {', '.join(GROUPS)}"
        raise UserError(f"there is no such group{near}", key="list", value=group)
    groups = GROUPS if group is None else (named[group],)
    entries = []
    for name in groups:
        files = sorted({file.stem: file for folder in reversed(folders) for file in (folder / name).glob("*.yaml")}.items())
        entries += [read_entry(name, stem, file) for stem, file in files]
    return entries


def _plural(group: str) -> str:
    return f"{group.removesuffix('y')}ies" if group.endswith("y") else f"{group}s"


def table(entries: list[Entry]) -> str:
    """The entries, each group under its name."""
    lines = []
    for group in dict.fromkeys(entry.group for entry in entries):
        members = [entry for entry in entries if entry.group == group]
        width = max(len(entry.name) for entry in members)
        lines += [group, *(line for entry in members for line in entry.lines(width)), ""]
    return "\n".join(lines).rstrip()
