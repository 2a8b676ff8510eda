"""Which run a configuration stands for, and what else decided its numbers: read from manifests, compared, put into words.

The provenance of a run is the entry `identity` of its manifest, which `run.provenance.origin_of` makes: version and hash of
our sources, hashes of the files in plug-in folders, hashes of data files.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vflbench.results.runs import Run

_WITHOUT_EFFECT = ("checkpoint", "hydra", "log_every", "logger", "name", "overwrite")
_ABSENT = {
    "code": "code not recorded",
    "plug-ins": "no plug-ins",
    "data": "data not recorded",
    "device": "device not recorded",
}
_MOST_NAMED = 3  # files in a sentence


def essential(config: Mapping[Any, Any]) -> dict[str, Any]:
    """The options that a result depends on. The order of the groups doesn't matter; that of the defenses in one does."""
    return {key: config[key] for key in sorted(config, key=str) if key not in _WITHOUT_EFFECT}


def digest(config: Mapping[str, Any], origin: Mapping[str, Any] | None = None) -> str:
    """8 hexadecimal digits of the SHA-256 of the essential options and of the provenance: the end of a folder's name."""
    text = _text(essential(config)) + (json.dumps(origin, sort_keys=True) if origin else "")
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Why a run of the same options is another one, as `made by another version of ...`; empty: it is the same run."""
    if old == new:
        return ""
    parts = []
    if old.get("vflbench") != new.get("vflbench"):
        parts.append(f"made by vflbench {old.get('vflbench')}, and this is {new.get('vflbench')}")
    elif old.get("code") != new.get("code"):
        parts.append("made by another version of vflbench's code")
    if old.get("plugins") != new.get("plugins"):
        parts.append(f"made with other plug-ins ({_named(edited_files(old, new)) or 'in another order'})")
    before, after = old.get("data", {}), new.get("data", {})
    if changed := [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]:
        parts.append(f"made with another content of the file in {_named(changed)}")
    return " and ".join(parts) or "of another provenance"


def edited_files(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The files of plug-ins that differ in two provenances, or that only one has; those that both have come first."""
    before, after = plugin_files(old), plugin_files(new)
    names = {name for name, _ in before ^ after}
    both = {name for name, _ in before} & {name for name, _ in after}
    return sorted(names, key=lambda name: (name not in both, name))


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The essential options in which two configurations differ, as `key: old value -> new value`; empty: the same run."""
    old, new = essential(old), essential(new)
    before, after = dict(flat(old)), dict(flat(new))
    changed = [
        f"{key}: {before.get(key, 'not there')} -> {after.get(key, 'not there')}"
        for key in dict.fromkeys([*before, *after])
        if key not in before or key not in after or _text(before[key]) != _text(after[key])
    ]
    return changed or [f"{key}: in another order" for key in new if _text(old.get(key)) != _text(new[key])]


def origin(run: "Run") -> dict[str, str]:
    """Part -> a text that is equal for two runs if they have this part in common; '' where it does not apply.

    code: vflbench's version and sources. plug-ins, data: contents of files; of an audit the state of its recording. device.
    """
    known, manifest = run.manifest.identity, run.manifest
    data: Any = known.get("data")
    if run.is_audit:
        data = [data, (manifest.source or {}).get("state")]
    return {
        "code": f"vflbench {known.get('vflbench')} {known.get('code', '')[:8]}" if known else "",
        "plug-ins": f"plug-ins {_short(known['plugins'])}" if known.get("plugins") else "",
        "data": f"data {_short(data)}" if data else "",
        "device": manifest.device or "",
    }


def made_by(run: "Run") -> str:
    """8 hexadecimal digits: equal for two runs if nothing but options and rounding tells them apart."""
    return _short(origin(run))


def apart(runs: Sequence["Run"]) -> str:
    """In what runs of one configuration differ, in words: `plug-ins (loud.py) and data`; '' in nothing."""
    origins = [origin(run) for run in runs]
    files = {name for run in runs for name in edited_files(runs[0].manifest.identity, run.manifest.identity)}
    words = {"code": "vflbench's code", "plug-ins": f"plug-ins ({_named(sorted(files))})" if files else "plug-ins"}
    return " and ".join(words.get(part, part) for part in origins[0] if len({one[part] for one in origins}) > 1)


def rounding(runs: Sequence["Run"]) -> str:
    """The versions of packages and the numbers of threads in which averaged runs differ, in words; '' if in none."""
    known = [{**run.manifest.versions, "threads": run.manifest.threads} for run in runs]
    values = {name: list(dict.fromkeys(str(one.get(name)) for one in known)) for one in known for name in one}
    return ", ".join(f"{name} {' and '.join(different)}" for name, different in values.items() if len(different) > 1)


def may_be_compared(one: "Run", other: "Run") -> bool:
    """Whether two runs are of one origin, where one of them may have no plug-in: a setting and its undefended baseline."""
    ours, theirs = origin(one), origin(other)
    plugins = {ours.pop("plug-ins"), theirs.pop("plug-ins")}
    return ours == theirs and (len(plugins) == 1 or "" in plugins)


def names_of(runs: Sequence["Run"]) -> list[str]:
    """For each of some runs, what of its origin it has for itself, in words; '' for a single run."""
    origins = [origin(run) for run in runs]
    parts = [part for part in _ABSENT if len({one[part] for one in origins}) > 1]
    return [", ".join(one[part] or _ABSENT[part] for part in parts) for one in origins]


def flat(node: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of nested mappings; an empty mapping is a value."""
    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def plugin_files(origin: Mapping[str, Any]) -> set[tuple[str, str]]:
    """(path, hash) of every file of plug-ins in a provenance."""
    return {pair for folder in origin.get("plugins", ()) for pair in folder.items()}


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else "")


def _text(value: Any) -> str:
    return json.dumps(value, default=str)


def _short(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:8]
