"""What can be chosen: every entry of the config groups, in one line each, read from the configs and their classes."""

import inspect
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from omegaconf import DictConfig, MissingMandatoryValue, OmegaConf

from vflbench.attacks.base import Attack
from vflbench.cli.build import KEYED, SINGLE, component, locate
from vflbench.errors import UserError
from vflbench.places import config_folder
from vflbench.results.report.reproductions import comments_of

__all__ = ["GROUPS", "Entry", "catalog", "choices", "config_folder", "nearest_options", "table"]

GROUPS = (*SINGLE, *KEYED, "experiment")


@dataclass(frozen=True)
class Entry:
    """One choice. does: its first sentence. threat: where an attack sits and what it knows. cost: what is expected."""

    group: str
    name: str
    does: str
    threat: str
    source: str
    cost: str = ""

    def line(self, width: int) -> str:
        parts = [self.does, self.threat and f"[{self.threat}]", self.source and f"({self.source})"]
        parts.append(self.cost and f"[{self.cost}]")
        return f"  {self.name:<{width}}  " + "  ".join(part for part in parts if part)


def catalog(folders: list[Path], group: str | None = None) -> list[Entry]:
    """Entries of one group, or of all, from these config folders; a user's own come with the user's folder."""
    if group is not None and group.removesuffix("s") not in GROUPS:
        raise UserError(f"there is no such group; there are {', '.join(GROUPS)}", key="list", value=group)
    groups = GROUPS if group is None else (group.removesuffix("s"),)
    found = []
    for name in groups:
        files = sorted({file.stem: file for folder in reversed(folders) for file in (folder / name).glob("*.yaml")}.items())
        found += [_entry(name, stem, file) for stem, file in files]
    return found


def table(entries: list[Entry]) -> str:
    """Entries under their group's name."""
    lines = []
    for group in dict.fromkeys(entry.group for entry in entries):
        members = [entry for entry in entries if entry.group == group]
        width = max(len(entry.name) for entry in members)
        lines += [group, *(entry.line(width) for entry in members), ""]
    return "\n".join(lines).rstrip()


def choices(folders: list[Path], group: str) -> list[str]:
    """Names in a group."""
    return sorted({file.stem for folder in folders for file in (folder / group).glob("*.yaml")})


def nearest_options(folder: Path, key: str) -> str:
    """A hint for a key that was refused: the choices that do have it, or the key that was probably meant."""
    holders: dict[str, list[str]] = {
        name: [] for name in _keys(OmegaConf.load(folder / "train.yaml"), "", ("defaults", "hydra"))
    }
    for group in (*SINGLE, *KEYED):
        holders.setdefault(group, [])
        for file in sorted((folder / group).glob("*.yaml")):
            for name in _keys(OmegaConf.load(file), f"{group}."):
                holders.setdefault(name, []).append(f"{group}={file.stem}")
    if holders.get(key):
        return f"; it goes with {', '.join(holders[key])}"
    close = [name for name in get_close_matches(key, holders, n=2) if name != key]
    return f"; did you mean {close[0]}?" if close else ""


def _keys(node: DictConfig, prefix: str, skip: tuple[str, ...] = ("_target_",)) -> list[str]:
    found = []
    for key in node:
        if key not in skip:
            below = None if OmegaConf.is_missing(node, key) or OmegaConf.is_interpolation(node, key) else node[key]
            found += _keys(below, f"{prefix}{key}.") if isinstance(below, DictConfig) else [f"{prefix}{key}"]
    return found


def _entry(group: str, name: str, file: Path) -> Entry:
    node = OmegaConf.load(file)
    node = node.get(name) if group in KEYED else node.get(group, node)
    if group not in {*SINGLE, *KEYED} or not node:
        told = comments_of(file)
        return Entry(group, name, told["does"], "", told["source"], told["cost"])
    try:
        cls = locate(node.get("_target_"), f"{group}/{name}", {**SINGLE, **KEYED}[group])
    except UserError as error:  # a class of the user's that does not work; the others are still worth listing
        return Entry(group, name, f"can't be used: {error}", "", "")
    paragraphs = [" ".join(p.split()) for p in (inspect.getdoc(cls) or "").split("\n\n")]
    source = next((p.removeprefix("Source: ") for p in paragraphs if p.startswith("Source: ")), "")
    return Entry(group, name, paragraphs[0], _threat(cls, node, group, name), source)


def _threat(cls: type, node: DictConfig, group: str, name: str) -> str:
    """Who attacks, as an instance with the options of its config states it."""
    if not issubclass(cls, Attack):
        return ""
    try:
        return str(component(OmegaConf.to_container(node, throw_on_missing=True), f"{group}/{name}", Attack).threat)
    except (UserError, MissingMandatoryValue):
        return "the threat depends on options that must be given"
