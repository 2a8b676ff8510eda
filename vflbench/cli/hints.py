"""Hints for who mistyped a key or a choice, from the names in our configs."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser

from vflbench.cli.groups import COMPONENTS, KEYED_NAMES
from vflbench.cli.help import sets_options
from vflbench.cli.shared_files import read_ours


def of_your_own(folders: Sequence[Path]) -> str:
    """How to name folders of configs, where the user named none. folders: ours first."""
    return "" if len(folders) > 1 else "; the folder of one of your own is named by --plugins DIR"


def choices(folders: Sequence[Path], group: str) -> list[str]:
    """The names in a group."""
    return sorted({file.stem for folder in folders for file in (folder / group).glob("*.yaml")})


def nearest_options(folders: Sequence[Path], key: str) -> str:
    """A hint for an unknown key: the choices that have it, or a similar key.

    folders: of configs, ours first. Of a key such as attack.norm.k, only options of that attack are similar.
    """
    holders = _holders(folders)
    if holders.get(key):
        return f"; it goes with {', '.join(holders[key])}"
    if any(key.startswith(f"{name}.") for name in holders if "." in name):  # an entry of a mapping that is open
        return f"; to add it, write +{key}=VALUE"
    group, _, rest = key.partition(".")
    if group in KEYED_NAMES and "." in rest:
        return _of_choice(group, rest, holders, choices(folders, group), of_your_own(folders))
    close = [name for name in get_close_matches(key, holders, n=2) if name != key]
    return f"; did you mean {close[0]}?" if close else ""


def lacking_runs(folders: Sequence[Path], key: str, words: Sequence[str]) -> str | None:
    """Of a sweep in which some runs have the option and others have not, what to do; None for any other mistake.

    words: of the command line, all of which Hydra can read.
    """
    group, holders = key.partition(".")[0], _holders(folders).get(key)
    swept = [word for word in words if word.startswith(f"{group}=")]
    if not holders or not swept:
        return None
    override = OverridesParser.create().parse_override(swept[-1])
    if not override.is_sweep_override():
        return None
    has: list[str] = []
    lacks: list[str] = []
    for value in map(str, override.sweep_string_iterator()):
        names = re.findall(r"\w+", value)
        (has if any(f"{group}={name}" in holders for name in names) else lacks).append(value)
    if not has or not lacks:
        return None
    without, given = f"{group}={','.join(lacks)}", [word for word in words if word.lstrip("+").startswith(f"{key}=")]
    runs = "the runs with {} have" if len(lacks) > 1 else "the run with {} has"
    with_it = f"{group}={','.join(has)}"
    both = f"one with {without}, one with {' '.join([with_it, *given])}"
    return f"{runs.format(without)} no such option; make two sweeps: {both}"


def _holders(folders: Sequence[Path]) -> dict[str, list[str]]:
    """Option -> the choices that have it; none for those of any run."""
    holders: dict[str, list[str]] = {name: [] for name in _keys(folders[0] / "train.yaml", skip=("defaults", "hydra"))}
    for group in COMPONENTS:
        holders.setdefault(group, [])
        for file in (file for folder in folders for file in sorted((folder / group).glob("*.yaml"))):
            for name in _keys(file, f"{group}."):
                holders.setdefault(name, []).append(f"{group}={file.stem}")
    return holders


def _of_choice(group: str, rest: str, holders: Iterable[str], names: Sequence[str], own: str) -> str:
    """A hint for an unknown option of an attack, a defense, ... rest: NAME.OPTION. own: follows where there is no NAME."""
    name, _, option = rest.partition(".")
    if name not in names:
        close = get_close_matches(name, names, n=1)
        meant = f"{group}.{close[0]}.{option}" if close else ""
        return f"; did you mean {meant}?" if meant in holders else f"; there is no {group}={name}{own}"
    prefix = f"{group}.{name}."
    options = [key.removeprefix(prefix) for key in holders if key.startswith(prefix)]
    close = get_close_matches(option, options, n=1)
    if close:
        return f"; did you mean {prefix}{close[0]}?"
    words = f"these options: {', '.join(options)}" if options else "no options"
    return f"; {group}={name} has {words}"


def _keys(file: Path, prefix: str = "", skip: tuple[str, ...] = ("_target_",)) -> list[str]:
    """The dotted names of all options in a config."""

    def below(node: dict[Any, Any], prefix: str) -> list[str]:
        keys: list[str] = []
        for key, value in node.items():
            if key not in skip:
                keys += below(value, f"{prefix}{key}.") if isinstance(value, dict) else [f"{prefix}{key}"]
        return keys

    nodes = read_ours(file)
    return below(nodes, "" if sets_options(file) else prefix) if isinstance(nodes, dict) else []
