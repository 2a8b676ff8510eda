"""Every attack of ours, or those chosen by name, with the options of its config, for `vflbench audit RECORDING --describe`.

What `audit_config` composes for the same words, without Hydra and without torch. A config that needs more than to be read,
such as one with a reference to another option, is left to it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vflbench.attacks.base import Attack
from vflbench.cli.components import component
from vflbench.cli.mistakes import describe
from vflbench.cli.shared_files import read_ours
from vflbench.errors import UserError
from vflbench.places import config_folder

_NAME = re.compile(r"[A-Za-z][A-Za-z_.]*")
"""Text that every reader of YAML takes for text: no number, no truth value, no reference."""
_CHOSEN = re.compile(r"attack=(?:([a-z_]+)|\[([a-z_]+(?:,[a-z_]+)*)\])")
_WORDS_FOR_TRUTH = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}


def every_attack() -> tuple[dict[str, Attack], dict[str, str]] | None:
    """Attacks by name, and why others can't be built; None where Hydra has to compose them."""
    nodes = {file.stem: node for file in sorted((config_folder() / "attack").glob("*.yaml")) if (node := _single(file))}
    return built(nodes, set()) if all(map(_is_plain, nodes.values())) else None


def chosen_attacks(words: Sequence[str]) -> dict[str, Attack] | None:
    """The attacks of one word attack=NAME or attack=[NAME,...]; None where Hydra has to compose them, or to say what is
    wrong with them: for other words, a set of several attacks, and what is not there or can't be built.
    """
    chosen = _CHOSEN.fullmatch(words[0]) if len(words) == 1 else None
    names = (chosen[1] or chosen[2]).split(",") if chosen else []
    files = [config_folder() / "attack" / f"{name}.yaml" for name in names]
    if not names or len(set(names)) < len(names) or not all(file.is_file() for file in files):
        return None
    nodes = {file.stem: _single(file) for file in files}
    if not all(node and _is_plain(node) for node in nodes.values()):
        return None
    try:
        return built(nodes, None)[0]
    except Exception:  # which composing them raises again
        return None


def _single(file: Path) -> Mapping[str, Any] | None:
    """The entry of the one attack in a config, or None in that of a set."""
    content = read_ours(file)
    entry = content.get(file.stem) if isinstance(content, dict) and list(content) == [file.stem] else None
    return entry if isinstance(entry, dict) and "_target_" in entry else None


def built(
    nodes: Mapping[str, Any], asked: set[str] | None, values: Callable[[Any], Any] = lambda node: node
) -> tuple[dict[str, Attack], dict[str, str]]:
    """Attacks by name, and why others can't be built; of those that were asked for by name, None for all, each must be.

    values: what a node comes to.
    """
    if not isinstance(nodes, Mapping):
        raise UserError("it must be a name or a list of names", key="attack", value=nodes, see="vflbench list attack")
    attacks: dict[str, Attack] = {}
    unusable: dict[str, str] = {}
    for name, node in {str(name): node for name, node in nodes.items()}.items():
        try:
            attacks[name] = component(values(node), f"attack.{name}", Attack)
        except Exception as error:
            text = describe(error)
            if asked is None or name in asked or text is None:
                raise
            unusable[name] = text
    return attacks, unusable


def _is_plain(node: Any) -> bool:
    if isinstance(node, Mapping):
        return all(isinstance(key, str) and _is_plain(value) for key, value in node.items())
    if isinstance(node, list):
        return all(map(_is_plain, node))
    if isinstance(node, str):
        return bool(_NAME.fullmatch(node)) and node.lower() not in _WORDS_FOR_TRUTH
    return node is None or isinstance(node, bool | int | float)
