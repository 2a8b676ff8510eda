"""Which run a configuration stands for: its essential options and the source of its plug-ins."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_WITHOUT_EFFECT = ("checkpoint", "hydra", "log_every", "logger", "name", "overwrite")


def essential(config: Mapping[Any, Any]) -> dict[str, Any]:
    """The options that a result depends on. The order of the groups doesn't matter; that of the defenses in one does."""
    return {key: config[key] for key in sorted(config, key=str) if key not in _WITHOUT_EFFECT}


def digest(config: Mapping[str, Any], modules: Mapping[str, str] | None = None) -> str:
    """8 hexadecimal digits of the SHA-256 of the essential options and of the plug-ins among `modules`.

    modules: dotted module -> digest of its source, as manifest.json has them.
    """
    plugins = plugins_among(modules or {})
    text = _text(essential(config)) + (_text(plugins) if plugins else "")
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def plugins_among(modules: Mapping[str, str]) -> dict[str, str]:
    """The modules outside vflbench, sorted: a run without plug-ins has the same identity in every version."""
    return {name: modules[name] for name in sorted(modules) if name.partition(".")[0] != "vflbench"}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The essential options in which two configurations differ, as `key: old value -> new value`; empty: the same run."""
    old, new = essential(old), essential(new)
    if _text(old) == _text(new):
        return []
    before, after = _leaves(old, ""), _leaves(new, "")
    changed = [
        f"{key}: {before.get(key, 'not there')} -> {after.get(key, 'not there')}"
        for key in dict.fromkeys([*before, *after])
        if key not in before or key not in after or _text(before[key]) != _text(after[key])
    ]
    return changed or [f"{key}: in another order" for key in new if _text(old[key]) != _text(new[key])]


def edited_plugins(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """The plug-ins whose source differs between two runs, or of which only one run has a digest."""
    before, after = plugins_among(old), plugins_among(new)
    return [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]


def _leaves(node: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in node.items():
        name = f"{prefix}{key}"
        leaves |= _leaves(value, f"{name}.") if isinstance(value, Mapping) and value else {name: value}
    return leaves


def _text(value: Any) -> str:
    return json.dumps(value, default=str)
