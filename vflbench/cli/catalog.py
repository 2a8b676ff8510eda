"""What can be chosen: a line for every entry of the config groups, read from the configs and their classes."""

import inspect
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, MissingMandatoryValue, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from vflbench.attacks.base import Attack
from vflbench.cli.build import KEYED, SINGLE, component
from vflbench.cli.classes import locate
from vflbench.cli.shared_files import check_file, is_ours
from vflbench.errors import UserError, paragraph, printable
from vflbench.places import config_folder
from vflbench.results.report.reproductions import comments_of

__all__ = ["GROUPS", "Entry", "catalog", "choices", "config_folder", "nearest_options", "table"]

GROUPS = (*SINGLE, *KEYED, "experiment")


@dataclass(frozen=True)
class Entry:
    """One choice. does: what it does, in a sentence. threat: where an attack sits and what it knows. cost: of a sweep."""

    group: str
    name: str
    does: str
    threat: str
    source: str
    cost: str = ""

    def line(self, width: int) -> str:
        """The entry in one line, its name padded to this width."""
        parts = [self.does, self.threat and f"[{self.threat}]", self.source and f"({self.source})"]
        parts.append(self.cost and f"[{self.cost}]")
        return printable(f"  {self.name:<{width}}  " + "  ".join(part for part in parts if part))


def catalog(folders: list[Path], group: str | None = None) -> list[Entry]:
    """The entries of one group, or of all groups, in these config folders; of two with the same name, the first folder's."""
    named = {**dict(zip(map(_plural, GROUPS), GROUPS, strict=True)), **{name: name for name in GROUPS}}
    if group is not None and group not in named:
        raise UserError(f"there is no such group; there are {', '.join(GROUPS)}", key="list", value=group)
    groups = GROUPS if group is None else (named[group],)
    entries = []
    for name in groups:
        files = sorted({file.stem: file for folder in reversed(folders) for file in (folder / name).glob("*.yaml")}.items())
        entries += [_entry(name, stem, file) for stem, file in files]
    return entries


def _plural(group: str) -> str:
    return f"{group.removesuffix('y')}ies" if group.endswith("y") else f"{group}s"


def table(entries: list[Entry]) -> str:
    """The entries, each group under its name."""
    lines = []
    for group in dict.fromkeys(entry.group for entry in entries):
        members = [entry for entry in entries if entry.group == group]
        width = max(len(entry.name) for entry in members)
        lines += [group, *(entry.line(width) for entry in members), ""]
    return "\n".join(lines).rstrip()


def choices(folders: list[Path], group: str) -> list[str]:
    """The names in a group."""
    return sorted({file.stem for folder in folders for file in (folder / group).glob("*.yaml")})


def nearest_options(folder: Path, key: str) -> str:
    """A hint for an unknown key: the choices that have it, or a similar key."""
    holders: dict[str, list[str]] = {name: [] for name in _keys(folder / "train.yaml", skip=("defaults", "hydra"))}
    for group in (*SINGLE, *KEYED):
        holders.setdefault(group, [])
        for file in sorted((folder / group).glob("*.yaml")):
            for name in _keys(file, f"{group}."):
                holders.setdefault(name, []).append(f"{group}={file.stem}")
    if holders.get(key):
        return f"; it goes with {', '.join(holders[key])}"
    if any(key.startswith(f"{name}.") for name in holders if "." in name):  # an entry of a mapping that is open
        return f"; to add it, write +{key}=VALUE"
    close = [name for name in get_close_matches(key, holders, n=2) if name != key]
    return f"; did you mean {close[0]}?" if close else ""


def _keys(file: Path, prefix: str = "", skip: tuple[str, ...] = ("_target_",)) -> list[str]:
    """The dotted names of all options in a config."""

    def below(node: dict[Any, Any], prefix: str) -> list[str]:
        keys: list[str] = []
        for key, value in node.items():
            if key not in skip:
                keys += below(value, f"{prefix}{key}.") if isinstance(value, dict) else [f"{prefix}{key}"]
        return keys

    nodes = OmegaConf.to_container(OmegaConf.load(file))
    return below(nodes, "" if sets_options(file) else prefix) if isinstance(nodes, dict) else []


def sets_options(file: Path) -> bool:
    """Whether a config also sets options outside its group."""
    return "# @package _global_" in file.read_text()


def _entry(group: str, name: str, file: Path) -> Entry:
    """Of an entry of others that can't be used, why; the rest is still listed."""
    try:
        if not is_ours(file):
            check_file(file.parents[1], file)
        return _entry_of(group, name, file, OmegaConf.load(file))
    except (UserError, YAMLError, OmegaConfBaseException, OSError) as error:
        return Entry(group, name, f"can't be used: {paragraph(str(error))}", "", "")


def _entry_of(group: str, name: str, file: Path, node: Any) -> Entry:
    node = node if isinstance(node, DictConfig) else OmegaConf.create()
    node = node.get(name) if group in KEYED else node.get(group, node)  # a set of several has no entry of its own name
    if group not in {*SINGLE, *KEYED} or not node:
        comments = comments_of(file)
        return Entry(group, name, comments["does"], "", comments["source"], comments["cost"])
    if not isinstance(node, DictConfig):
        raise UserError("it must be a mapping of options", key=f"{group}/{name}", value=node)
    cls = locate(node.get("_target_"), f"{group}/{name}", {**SINGLE, **KEYED}[group])
    if group in SINGLE and cls.__module__.rsplit(".", 1)[-1] != name and comments_of(file)["source"]:  # a preset
        comments = comments_of(file)
        return Entry(group, name, comments["does"], "", comments["source"])
    paragraphs = [" ".join(p.split()) for p in (inspect.getdoc(cls) or "").split("\n\n")]
    source = next((p.removeprefix("Source: ") for p in paragraphs if p.startswith("Source: ")), "")
    return Entry(group, name, paragraphs[0], _threat(cls, node, group, name), source)


def _threat(cls: type, node: DictConfig, group: str, name: str) -> str:
    """The level of knowledge, and who attacks, as an instance with the options of its config states it."""
    if not issubclass(cls, Attack):
        return ""
    try:
        threat = component(OmegaConf.to_container(node, throw_on_missing=True), f"{group}/{name}", Attack).threat
        return f"{threat.level}; {threat}"
    except (UserError, MissingMandatoryValue):
        return "the threat depends on options that must be given"
