"""`vflbench train --help`: what can be chosen, and each option with its value and what it means, in 80 columns."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from vflbench.cli.declared import declared
from vflbench.cli.groups import KEYED_NAMES, SINGLE_NAMES
from vflbench.errors import printable
from vflbench.results.wrapping import WIDTH, wrapped

_COLUMN = 30
"""Where the words on an option begin."""
_BASES = {"dataset": "vflbench.data.base.Dataset"}
"""Group -> a class whose docstring explains the options that all choices of the group have."""

_MAIN = "train.yaml"
_CHOICES = (
    "Choices, as GROUP=NAME; defense and attack also take lists, 'attack=[norm,spectral]'. `vflbench list GROUP` says what "
    "each choice does."
)

Node = Mapping[Any, Any]


def train_help(config: DictConfig, groups: Mapping[str, Sequence[str]], folders: Sequence[Path]) -> str:
    """The text. config: as it would run, with Hydra's part. groups: group -> what can be chosen. folders: of configs."""
    own = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    options = cast(dict[str, Any], OmegaConf.to_container(own))
    words = explanations(folders, config.hydra.runtime.choices, options)
    lines = [*wrapped(str(config.hydra.help.header)), "", *wrapped(_CHOICES)]
    for group, names in sorted(groups.items()):
        if "/" not in group:
            lines += ["", f"{group}:", *(f"  {line}" for line in _listed(names))]
    lines += ["", "Options, as KEY=VALUE, with their current values:"]
    above = ""
    for place, (key, value) in enumerate(_leaves(options, "")):
        block = key.split(".")[0] if "." in key else ""
        lines += [""] if block != above or not place else []
        above = block
        none = f"none is chosen; {key}=NAME chooses one" if value == {} else ""
        of_all = words.pop(key.rpartition(".")[0], "")  # of a mapping, as the types of columns: with the first entry
        lines += option_lines(f"{key}={_text(value)}", none or words.get(key, of_all))
    return "\n".join([*lines, "", str(config.hydra.help.footer)])


def explanations(folders: Sequence[Path], choices: Node, options: Node) -> dict[str, str]:
    """Dotted key -> what the comment in its config says, or else the docstring of its class.

    choices: group -> the name that is chosen. options: as they would run. Of configs with the same name, the last folder's
    counts.
    """
    places = [(group, group, choices.get(group), options.get(group)) for group in SINGLE_NAMES]
    for group in KEYED_NAMES:
        chosen = options.get(group) or {}
        places += [(group, f"{group}.{name}", name, node) for name, node in chosen.items()]
    words: dict[str, str] = {}
    for group, key, _, node in places:
        for path in (_BASES.get(group), node.get("_target_") if isinstance(node, Mapping) else None):
            with suppress(LookupError, OSError, SyntaxError, AttributeError):  # the sources don't say it
                words |= {f"{key}.{option}": text for option, text in documented(declared(str(path)).docstring).items()}
    for folder in folders:
        for group, _, name, _ in places:
            file = folder / group / f"{name}.yaml"
            if file.is_file():
                found = comments(file)
                is_global = "# @package _global_" in file.read_text(encoding="utf-8")
                words |= found if is_global else {f"{group}.{key}": text for key, text in found.items()}
        words |= comments(folder / _MAIN) if (folder / _MAIN).is_file() else {}
    return words


def comments(file: Path) -> dict[str, str]:
    """Dotted key -> the comment on its line of a YAML file."""
    words: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        match = re.match(r"^( *)([\w.-]+):(?:\s+(.*))?$", line)
        if match is None:
            continue
        indent, rest = len(match[1]), match[3] or ""
        above = [*((at, name) for at, name in above if at < indent), (indent, match[2])]
        comment = re.search(r"(?:^|\s)#\s+(.*)$", rest)
        if comment:
            words[".".join(name for _, name in above)] = comment[1].strip()
    return words


def documented(docstring: str) -> dict[str, str]:
    """Option -> what a docstring says of it, as `rows: rows of one batch. parties: ...`."""
    words: dict[str, str] = {}
    for paragraph in docstring.split("\n\n"):
        if paragraph.startswith(("Source:", "    ")):
            continue
        parts = re.split(r"(?:^|(?<=[.;] ))([a-z_][a-z_0-9]*(?:, [a-z_][a-z_0-9]*)*): ", " ".join(paragraph.split()))
        for names, text in zip(parts[1::2], parts[2::2], strict=True):
            words |= {name: text.strip() for name in names.split(", ")}
    return words


def option_lines(option: str, words: str) -> list[str]:
    """`  epochs=2                 passes over the rows`, with more lines under the words."""
    start = f"  {printable(option)}"
    if not words:
        return [start]
    made, margin = wrapped(words, width=WIDTH - _COLUMN), " " * _COLUMN
    if len(start) < _COLUMN:
        return [f"{start:<{_COLUMN}}{made[0]}", *(f"{margin}{line}" for line in made[1:])]
    return [start, *(f"{margin}{line}" for line in made)]


def _leaves(node: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping) and (node or not key):
        for name, value in node.items():
            if name != "_target_":
                yield from _leaves(value, f"{key}.{name}" if key else str(name))
    else:
        yield key, node


def _text(value: Any) -> str:
    if isinstance(value, Mapping) or value is None:
        return "{}" if value == {} else "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _listed(names: Sequence[str]) -> list[str]:
    """Names, separated by commas, in lines of 78 columns."""
    lines: list[str] = []
    line = ""
    for place, name in enumerate(sorted(names)):
        word = f"{name}," if place < len(names) - 1 else name
        if line and len(line) + 1 + len(word) > WIDTH - 2:
            lines, line = [*lines, line], ""
        line = f"{line} {word}".strip()
    return [*lines, line]
