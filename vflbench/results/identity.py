"""Which run a configuration stands for: what can't change a result does not count."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_OF_NO_MATTER = ("checkpoint", "hydra", "log_every", "logger", "name", "overwrite")


def essential(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a result depends on. The order of the groups is nothing; that of the defenses in one is."""
    return {key: config[key] for key in sorted(config, key=str) if key not in _OF_NO_MATTER}


def digest(config: Mapping[str, Any]) -> str:
    """8 hexadecimal digits of the SHA-256 of what is essential."""
    return hashlib.sha256(_text(essential(config)).encode()).hexdigest()[:8]


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The essential options in which two configurations differ, as `key: old value -> new value`; empty: the same run."""
    old, new = essential(old), essential(new)
    if _text(old) == _text(new):
        return []
    before, after = _leaves(old, ""), _leaves(new, "")
    found = [
        f"{key}: {before.get(key, 'not there')} -> {after.get(key, 'not there')}"
        for key in dict.fromkeys([*before, *after])
        if key not in before or key not in after or _text(before[key]) != _text(after[key])
    ]
    return found or [f"{key}: in another order" for key in new if _text(old[key]) != _text(new[key])]


def _leaves(node: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    found = {}
    for key, value in node.items():
        name = f"{prefix}{key}"
        found |= _leaves(value, f"{name}.") if isinstance(value, Mapping) and value else {name: value}
    return found


def _text(value: Any) -> str:
    return json.dumps(value, default=str)
