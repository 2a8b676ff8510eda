"""YAML files that others may have written: read with bounds, and refused where they ask for more than options."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from vflbench.errors import UserError, shown
from vflbench.places import config_folder
from vflbench.plain_files import open_plain

LARGEST = 100_000  # bytes of a file
DEEPEST = 40  # mappings and lists within each other
MOST = 20_000  # values in it, where each alias counts as all that it stands for
RESOLVERS = ("names", "chosen", "difference", "hydra", "oc.select")
"""What `${NAME:...}` may be in a config from elsewhere. `oc.env` would carry secrets into results that are shared."""

HYDRAS = (
    "a config from elsewhere can't set it: of Hydra's options it may have hydra.sweeper.params, hydra.sweeper.runs "
    "and hydra.mode; what you choose yourself stands on the command line"
)
_REFERENCE = re.compile(r"\$\{\s*\.*[\w.\-\[\]]*\s*\}", re.ASCII)
_RESOLVER = re.compile(rf"\$\{{\s*({'|'.join(map(re.escape, RESOLVERS))})\s*:", re.ASCII)
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where it was built
_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq", "timestamp", "merge")}


def is_ours(file: Path) -> bool:
    """Whether a config is one of vflbench's own."""
    return file.resolve().is_relative_to(_our_folder())


@cache
def _our_folder() -> Path:
    return config_folder().resolve()


def read_ours(file: Path) -> Any:
    """The content of one of our own configs, which needs no check. Raises yaml.YAMLError or OSError."""
    return yaml.load(file.read_bytes(), _LOADER)  # nosec B506  # one of PyYAML's two safe loaders


def check_file(folder: Path, file: Path) -> None:
    """Refuse a config that Hydra is about to read from a folder, if it isn't ours and asks for more than options.

    What it sets, and where, is known only after Hydra has placed it: `trust.check_shared`.
    """
    if is_ours(file):
        return
    if not file.resolve().is_relative_to(folder.resolve()):
        problem = "it leads out of the folder of configs that it was looked for in"
        raise UserError(f"{problem}; give its own folder as --config-dir", key=str(file))
    inside = Path(os.path.relpath(file, folder)).with_suffix("").parts
    if inside[0] == "hydra":
        raise UserError("a config from elsewhere can't be one of Hydra's own groups, under hydra/", key=str(file))
    content = read(file)
    if isinstance(content, dict):
        _check_hydra(content.get("hydra"), file)
        defaults = content.get("defaults")
        for item in defaults if isinstance(defaults, list) else ():
            _check_default(item, file)


def read(file: Path, *, references: bool = True) -> Any:
    """The content of a YAML file as plain values. Raises UserError where it can't be read, or is not what it should be."""
    try:
        text = _text(file)  # once: what was looked at is what is loaded
        return yaml.safe_load(text) if tree(text, file, references=references) is not None else None
    except (yaml.YAMLError, ValueError, TypeError) as error:  # such as a date that is none, or a list for a key
        if isinstance(error, UserError):
            raise
        raise UserError(f"it is no YAML file: {' '.join(str(error).split())}", key=str(file)) from error


def tree(text: str, file: Path, *, references: bool = True) -> yaml.Node | None:
    """The nodes of a YAML text: bounded in size and depth, with the usual types and the resolvers that are allowed.

    references: whether `${...}` in it is one of OmegaConf's, and not just text.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        values = _count(root, {}) if root is not None else 0
        nodes = list(_nodes(root, set())) if root is not None else []
    except RecursionError:
        raise UserError("it is nested too deeply, or contains itself", key=str(file)) from None
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"it is no YAML file: {' '.join(str(error).split())}", key=str(file)) from error
    if values > MOST:
        raise UserError(f"it stands for more than {MOST:,} values", key=str(file))
    for node in nodes:
        if node.tag not in _TAGS:
            raise UserError(f"a config has no values of the type {node.tag}", key=str(file))
        _check_node(node, file)
        unknown = unknown_interpolation(node.value) if references and isinstance(node, yaml.ScalarNode) else None
        if unknown:
            problem = f"a config from elsewhere may have ${{KEY}}, for another option, and {', '.join(RESOLVERS)}"
            raise UserError(problem, key=str(file), value=unknown)
    return root


def _check_node(node: yaml.Node, file: Path) -> None:
    if isinstance(node, yaml.MappingNode):
        times = Counter((key.tag, str(key.value)) for key, _ in node.value)
        if any(tag.endswith(":null") for tag, _ in times):
            raise UserError("an option must have a name, and one of its keys is null", key=str(file))
        twice = [name for (tag, name), count in times.items() if count > 1 and not tag.endswith(":merge")]
        if twice:
            raise UserError("it is there twice", key=f"{shown(twice[0])} in {file}")
    elif isinstance(node, yaml.ScalarNode) and node.tag.endswith((":int", ":float")) and ":" in node.value:
        raise UserError(
            "YAML reads this in base 60; write a plain number, or quotes around it", key=str(file), value=node.value
        )


def unknown_interpolation(text: str) -> str | None:
    """The first `${...}` in a text that is neither a reference nor a resolver of the list. Escapes don't hide one."""
    bare = text.replace("\\", "")
    for found in re.finditer(r"\$\{", bare):
        if not (_REFERENCE.match(bare, found.start()) or _RESOLVER.match(bare, found.start())):
            return bare[found.start() :]
    return None


def _text(file: Path) -> str:
    try:
        with open_plain(file.resolve()) as opened:
            content = opened.read(LARGEST + 1)
        text = content.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise UserError("there is no such file", key=str(file)) from error
    except OSError as error:
        raise UserError(f"it can't be read: {error.strerror}", key=str(file)) from error
    except UnicodeDecodeError as error:
        raise UserError("it is no YAML file: it is not in UTF-8", key=str(file)) from error
    except (ValueError, RuntimeError) as error:  # a pipe or a device; links in a circle
        raise UserError(str(error), key=str(file)) from error
    if len(content) > LARGEST:
        raise UserError(f"it is larger than a config can be, {LARGEST:,} bytes", key=str(file))
    return text


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _count(node: yaml.Node, known: dict[int, int], depth: int = 0) -> int:
    """How many values it stands for. Raises RecursionError for one that is nested too deeply, or contains itself."""
    if depth > DEEPEST:
        raise RecursionError
    if id(node) not in known:
        known[id(node)] = 1 + sum(_count(child, known, depth + 1) for child in _children(node))
    return known[id(node)]


def _nodes(node: yaml.Node, seen: set[int]) -> Iterator[yaml.Node]:
    if id(node) not in seen:
        seen.add(id(node))
        yield node
        for child in _children(node):
            yield from _nodes(child, seen)


def _check_hydra(node: Any, file: Path) -> None:
    """At the top of a file: Hydra reads some of its options before it has placed them."""
    if node is None:
        return
    if not isinstance(node, dict):
        raise UserError(f"{HYDRAS}, in {file}", key="hydra", value=node)
    for key, value in node.items():
        if key not in ("mode", "sweeper"):
            raise UserError(f"{HYDRAS}, in {file}", key=f"hydra.{key}", value=value)
    sweeper = node.get("sweeper") or {}
    for key in sweeper if isinstance(sweeper, dict) else [sweeper]:
        if key not in ("params", "runs"):
            raise UserError(f"{HYDRAS}, in {file}", key=f"hydra.sweeper.{key}")


def _check_default(item: Any, file: Path) -> None:
    """An entry of a list of defaults: a group of ours and a choice."""
    key, choice = next(iter(item.items())) if isinstance(item, dict) and item else (item, "")
    name = (str(key).split() or [""])[-1]
    group, _, package = name.lstrip("/").partition("@")
    choices = [str(one) for one in (choice if isinstance(choice, list) else [choice])]
    silent = group in ("hydra/job_logging", "hydra/hydra_logging") and set(choices) <= {"disabled", "none"}
    if (group.partition("/")[0] == "hydra" and not silent) or re.match(r"(_global_\.)?hydra\b", package):
        problem = "a config from elsewhere can't choose it; what you choose yourself stands on the command line"
        raise UserError(f"{problem}, in {file}", key=f"defaults: {name}", value=choice or None)
    if any(".." in part.split("/") for part in (group, *choices)):
        raise UserError(f"it leads out of its folder, in {file}", key=f"defaults: {name}", value=choice or None)
