"""The values of a nested mapping, one by one."""

from collections.abc import Iterator, Mapping
from typing import Any


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
