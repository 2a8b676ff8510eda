"""Which run a configuration stands for: its essential options and what else decides the numbers (`run.identity`)."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

_WITHOUT_EFFECT = ("checkpoint", "hydra", "log_every", "logger", "name", "overwrite")
CHANGED = "changed_while_running"
"""Entry of manifest.json beside `identity`: what was edited while the run was under way."""


def essential(config: Mapping[Any, Any]) -> dict[str, Any]:
    """The options that a result depends on. The order of the groups doesn't matter; that of the defenses in one does."""
    return {key: config[key] for key in sorted(config, key=str) if key not in _WITHOUT_EFFECT}


def digest(config: Mapping[str, Any], origin: Mapping[str, Any] | None = None) -> str:
    """8 hexadecimal digits of the SHA-256 of the essential options and of the origin.

    origin: the entry `identity` of manifest.json: our version and code, plug-ins, what they import, data. None or empty
    for runs of older versions, which record none.
    """
    text = _text(essential(config)) + (json.dumps(origin, sort_keys=True) if origin else "")
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def origin_in(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """The entry `identity` of a manifest; empty where there is none."""
    origin = manifest.get("identity")
    return origin if isinstance(origin, Mapping) else {}


def changed_in(manifest: Mapping[str, Any]) -> list[str]:
    """What was edited while the run was under way."""
    changed = manifest.get(CHANGED)
    return [str(one) for one in changed] if isinstance(changed, list) else []


def differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Why a run of the same options is another one, as `made by another version of ...`; empty: it is the same run."""
    if json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True):
        return ""
    if not old:
        return "made by an older version of vflbench, which recorded no digest of its code"
    parts = []
    if old.get("vflbench") != new.get("vflbench"):
        parts.append(f"made by vflbench {old.get('vflbench')}, and this is {new.get('vflbench')}")
    elif old.get("code") != new.get("code"):
        parts.append("made by another version of vflbench's code")
    edited = edited_files(old, new)
    parts += [f"made with other plug-ins ({_named(edited)})"] if old.get("plugins") != new.get("plugins") else []
    for entry, words in (("imports", "with plug-ins that import another"), ("data", "with another content of the file in")):
        names = _unequal(_pairs(old.get(entry)), _pairs(new.get(entry)))
        parts += [f"made {words} {_named(names)}"] if names else []
    return " and ".join(parts) or "made under another identity"


def edited_files(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The files of plug-ins that differ between two origins, or that only one has."""
    return _unequal(_files(old.get("plugins")), _files(new.get("plugins")))


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


def _leaves(node: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in node.items():
        name = f"{prefix}{key}"
        leaves |= _leaves(value, f"{name}.") if isinstance(value, Mapping) and value else {name: value}
    return leaves


def _files(folders: Any) -> list[tuple[str, str]]:
    """(path, digest) of every file of a list of folders."""
    return [pair for folder in folders for pair in _pairs(folder)] if isinstance(folders, list) else []


def _pairs(mapping: Any) -> list[tuple[str, str]]:
    return [(str(key), _text(value)) for key, value in mapping.items()] if isinstance(mapping, Mapping) else []


def _unequal(old: Iterable[tuple[str, str]], new: Iterable[tuple[str, str]]) -> list[str]:
    """The names of pairs that only one of two has; of edited files those that both name come first."""
    before, after = set(old), set(new)
    names = sorted({name for name, _ in before ^ after})
    both = {name for name, _ in before} & {name for name, _ in after}
    return sorted(names, key=lambda name: name not in both)


def _named(names: list[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "") or "in another order"


def _text(value: Any) -> str:
    return json.dumps(value, default=str)
