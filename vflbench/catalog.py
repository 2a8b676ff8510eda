"""What can be chosen: every entry of the config groups, in one line each, read from the configs and their classes."""

import inspect
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from vflbench.attacks.base import Attack
from vflbench.build import KEYED, SINGLE, locate
from vflbench.errors import UserError

GROUPS = (*SINGLE, *KEYED, "experiment")


@dataclass(frozen=True)
class Entry:
    """One choice. does: its first sentence. threat: where an attack sits and what it knows. source: the paper."""

    group: str
    name: str
    does: str
    threat: str
    source: str

    def line(self, width: int) -> str:
        parts = [self.does, self.threat and f"[{self.threat}]", self.source and f"({self.source})"]
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


def option_names(folder: Path) -> list[str]:
    """Every key that a command line can set, as `epochs`, `dataset.rows` or `attack.spectral.score`."""
    names = _keys(OmegaConf.load(folder / "train.yaml"), "", skip=("defaults", "hydra"))
    for group in (*SINGLE, *KEYED):
        names += [
            group,
            *(key for file in sorted((folder / group).glob("*.yaml")) for key in _keys(OmegaConf.load(file), f"{group}.")),
        ]
    return list(dict.fromkeys([*names, "experiment"]))


def _keys(node: DictConfig, prefix: str, skip: tuple[str, ...] = ("_target_",)) -> list[str]:
    found = []
    for key in node:
        if key not in skip:
            below = None if OmegaConf.is_missing(node, key) or OmegaConf.is_interpolation(node, key) else node[key]
            found += _keys(below, f"{prefix}{key}.") if isinstance(below, DictConfig) else [f"{prefix}{key}"]
    return found


def _entry(group: str, name: str, file: Path) -> Entry:
    node = OmegaConf.load(file)
    if group in KEYED:
        node = node.get(name)
    if group not in {*SINGLE, *KEYED} or not node:
        return Entry(group, name, _first_comment(file), "", "")
    cls = locate(node.get("_target_"), f"{group}/{name}", {**SINGLE, **KEYED}[group])
    paragraphs = [" ".join(p.split()) for p in (inspect.getdoc(cls) or "").split("\n\n")]
    source = next((p.removeprefix("Source: ") for p in paragraphs if p.startswith("Source: ")), "")
    threat = f"{cls.seat}; knows {', '.join(sorted(cls.knows))}" if issubclass(cls, Attack) else ""
    return Entry(group, name, paragraphs[0], threat, source)


def _first_comment(file: Path) -> str:
    lines = (line.lstrip("# ") for line in file.read_text().splitlines() if line.startswith("#") and "@package" not in line)
    return next(lines, "")
