"""The config groups, by name, the content of our own configs, and the values of nested mappings, one by one."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

SINGLE_NAMES = ("dataset", "model", "protocol", "engine", "optimizer")
"""Groups of which one is chosen: its options stand directly under the group's name."""

KEYED_NAMES = ("defense", "attack", "adversary", "logger")
"""Groups of which several can be chosen: the options of each choice stand under its name."""

COMPONENTS = (*SINGLE_NAMES, *KEYED_NAMES)
GROUPS = (*COMPONENTS, "experiment")

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where it was built


def read_ours(file: Path) -> Any:
    """The content of one of our own configs, which needs no check. Raises yaml.YAMLError or OSError."""
    return yaml.load(file.read_bytes(), _LOADER)  # nosec B506  # one of PyYAML's two safe loaders


def leaves(node: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """The dotted keys of a nested mapping, with their values; empty mappings are values too."""
    if isinstance(node, Mapping) and node:
        for key, value in node.items():
            yield from leaves(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(node, list) and any(isinstance(item, Mapping | list) for item in node):
        for number, item in enumerate(node):
            yield from leaves(item, f"{prefix}[{number}]")
    else:
        yield prefix, node
