"""One choice of a config group in a few lines: what it does, who attacks, where it comes from."""

import inspect
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from vflbench.cli.declared import declared
from vflbench.cli.groups import COMPONENTS, KEYED_NAMES, SINGLE_NAMES
from vflbench.cli.shared_files import check_file, is_ours, read_ours
from vflbench.errors import UserError, paragraph, printable
from vflbench.report.reproductions import comments_of
from vflbench.results.wrapping import WIDTH, wrapped


@dataclass(frozen=True)
class Entry:
    """One choice. does: what it does, in a sentence. threat: where an attack sits and what it knows. cost: of a sweep."""

    group: str
    name: str
    does: str
    threat: str
    source: str
    cost: str = ""

    def lines(self, width: int) -> list[str]:
        """The entry in lines of 80 columns, its name padded to this width."""
        parts = [self.does, self.threat and f"[{self.threat}]", self.source and f"({self.source})"]
        parts.append(self.cost and f"[{self.cost}]")
        margin = width + 4
        first, *others = wrapped("  ".join(part for part in parts if part), width=WIDTH - margin) or [""]
        return [f"  {printable(self.name):<{width}}  {first}", *(f"{' ' * margin}{line}" for line in others)]


def read_entry(group: str, name: str, file: Path) -> Entry:
    """Of an entry of others that can't be used, why; the rest is still listed. Classes of ours are not imported."""
    if is_ours(file):
        with suppress(Exception):  # whatever the sources don't say, the class itself does
            return _read(group, name, file)
    return _imported(group, name, file)


def _read(group: str, name: str, file: Path) -> Entry:
    """An entry of ours, from the sources of its config and of its class. May raise anything."""
    content = read_ours(file)
    node: Any = content if isinstance(content, dict) else {}
    node = node.get(name) if group in KEYED_NAMES else node.get(group, node)
    if group not in COMPONENTS or not node:
        return _commented(group, name, file)
    cls = declared(node["_target_"])
    if _is_preset(group, name, file, cls.source.name):
        return _commented(group, name, file, cost=False)
    if group != "attack":
        return _documented(group, name, cls.docstring, "")
    threat = cls(**{option: value for option, value in node.items() if option != "_target_"}).threat
    return _documented(group, name, cls.docstring, f"{threat.level}; {threat}")


def _imported(group: str, name: str, file: Path) -> Entry:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        if not is_ours(file):
            check_file(file.parents[1], file)
        return _entry_of(group, name, file, OmegaConf.load(file))
    except (UserError, yaml.YAMLError, OmegaConfBaseException, OSError) as error:
        return Entry(group, name, f"can't be used: {paragraph(str(error))}", "", "")


def _entry_of(group: str, name: str, file: Path, node: Any) -> Entry:
    from omegaconf import DictConfig, OmegaConf

    node = node if isinstance(node, DictConfig) else OmegaConf.create()
    node = node.get(name) if group in KEYED_NAMES else node.get(group, node)  # a set of several has no entry of its own name
    if group not in COMPONENTS or not node:
        return _commented(group, name, file)
    if not isinstance(node, DictConfig):
        raise UserError("it must be a mapping of options", key=f"{group}/{name}", value=node)
    from vflbench.cli.build import KEYED, SINGLE  # late: it imports what trains
    from vflbench.cli.classes import locate

    cls = locate(node.get("_target_"), f"{group}/{name}", {**SINGLE, **KEYED}[group])
    if _is_preset(group, name, file, cls.__module__):
        return _commented(group, name, file, cost=False)
    return _documented(group, name, _own_docstring(cls), _threat(cls, node, group, name))


def _own_docstring(cls: type) -> str:
    """Not that of a base, nor the signature that `dataclass` puts in its place."""
    text = inspect.cleandoc(vars(cls).get("__doc__") or "")
    return f"({cls.__name__} has no docstring)" if not text or text.startswith(f"{cls.__name__}(") else text


def _threat(cls: type, node: Any, group: str, name: str) -> str:
    """The level of knowledge, and who attacks, as an instance with the options of its config states it."""
    from omegaconf import MissingMandatoryValue, OmegaConf

    from vflbench.attacks.base import Attack
    from vflbench.cli.components import component

    if not issubclass(cls, Attack):
        return ""
    try:
        threat = component(OmegaConf.to_container(node, throw_on_missing=True), f"{group}/{name}", Attack).threat
        return f"{threat.level}; {threat}"
    except (UserError, MissingMandatoryValue):
        return "the threat depends on options that must be given"


def _is_preset(group: str, name: str, file: Path, module: str) -> bool:
    """Whether a config of another name than its class's module says by its comments what it is."""
    return group in SINGLE_NAMES and module.rsplit(".", 1)[-1] != name and bool(comments_of(file)["source"])


def _commented(group: str, name: str, file: Path, *, cost: bool = True) -> Entry:
    comments = comments_of(file)
    return Entry(group, name, comments["does"], "", comments["source"], comments["cost"] if cost else "")


def _documented(group: str, name: str, docstring: str, threat: str) -> Entry:
    paragraphs = [" ".join(p.split()) for p in docstring.split("\n\n")]
    source = next((p.removeprefix("Source: ") for p in paragraphs if p.startswith("Source: ")), "")
    return Entry(group, name, paragraphs[0], threat, source)
