"""Which runs may be averaged: those that one version of one code made, with the same plug-ins, from the same data."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from vflbench.results.identity import changed_in, edited_files, origin_in
from vflbench.results.runs import Run

_DECIDE_NO_NUMBER = ("vflbench.cli", "vflbench.results")
_OLDER = "an older version"


def origin(run: Run) -> dict[str, str]:
    """Part -> a text that is equal for two runs if they have this part in common; '' where it does not apply.

    code: vflbench's version and sources. plug-ins: their files, and what these import. data: contents of files; of an audit
    the state of its recording. device. edited on the way: such a run shares a row with no other.
    """
    known, manifest = origin_in(run.manifest), run.manifest
    plugins: Any = [known.get("plugins"), known.get("imports")] if known else _modules(run, ours=False)
    data: Any = known.get("data") if known else (manifest.get("data") or {}).get("file_sha256")
    if run.is_audit:
        data = [known.get("data"), (manifest.get("source") or {}).get("state")]
    changed = changed_in(manifest)
    return {
        "code": f"vflbench {str(known.get('vflbench'))[:20]} {str(known.get('code'))[:8]}" if known else _older(manifest),
        "plug-ins": f"plug-ins {_short(plugins)}" if _holds(plugins) else "",
        "data": f"data {_short(data)}" if _holds(data) else "",
        "device": str(manifest.get("device") or ""),
        "edited on the way": f"{', '.join(changed)[:80]} edited while {run.folder.name} ran" if changed else "",
    }


def _older(manifest: Mapping[str, Any]) -> str:
    """Of a run that records no digest of vflbench's code."""
    version = manifest.get("vflbench")
    return f"{_OLDER}, {str(version)[:20]}" if version else _OLDER


def made_by(run: Run) -> str:
    """8 hexadecimal digits: equal for two runs if nothing but options and rounding tells them apart.

    For older runs, which record no digest of vflbench's code, its version and commit count.
    """
    known = origin_in(run.manifest)
    return _short([origin(run), None if known else [run.manifest.get("vflbench"), run.manifest.get("git_commit")]])


def apart(runs: Sequence[Run]) -> str:
    """In what runs of one configuration differ, in words: `plug-ins (loud.py) and data`; '' in nothing."""
    origins = [origin(run) for run in runs]
    parts = [part for part in origins[0] if len({one[part] for one in origins}) > 1] or (
        ["vflbench's code"] if len(of_one_code(runs)) > 1 else []
    )
    files = {name for run in runs for name in edited_files(origin_in(runs[0].manifest), origin_in(run.manifest))}
    named = f" ({', '.join(sorted(files)[:3])}{f' and {len(files) - 3} more' if len(files) > 3 else ''})" if files else ""
    words = {
        "code": "vflbench's code",
        "plug-ins": f"plug-ins{named}",
        "edited on the way": "what was edited while they ran",
    }
    return " and ".join(words.get(part, part) for part in parts)


def rounding(runs: Sequence[Run]) -> str:
    """The versions of packages and the numbers of threads in which averaged runs differ, in words; '' if in none."""
    known = [{**(run.manifest.get("versions") or {}), "threads": run.manifest.get("threads")} for run in runs]
    differ = [
        name for name in dict.fromkeys(n for one in known for n in one) if len({str(one.get(name)) for one in known}) > 1
    ]
    return ", ".join(f"{name} {' and '.join(dict.fromkeys(str(one.get(name)) for one in known))}" for name in differ)


def may_be_compared(one: Run, other: Run) -> bool:
    """Whether two runs are of one origin, where one of them may have no plug-in: a setting and its undefended baseline."""
    ours, theirs = origin(one), origin(other)
    plugins = {ours.pop("plug-ins"), theirs.pop("plug-ins")}
    return ours == theirs and (len(plugins) == 1 or "" in plugins) and len(of_one_code([one, other])) == 1


def of_one_code(runs: Sequence[Run]) -> list[list[Run]]:
    """The same runs in parts. In a part, no module of vflbench that decides numbers has two digests in their manifests.

    Only of older runs, which record the modules that were loaded: it may differ between runs of one version which they were.
    """
    parts: list[tuple[dict[str, str], list[Run]]] = []
    for run in runs:
        modules = {} if origin_in(run.manifest) else _modules(run, ours=True)
        for known, members in parts:
            if all(known.get(name, value) == value for name, value in modules.items()):
                known.update(modules)
                members.append(run)
                break
        else:
            parts.append((dict(modules), [run]))
    return [members for _, members in parts]


def names_of(runs: Sequence[Run]) -> list[str]:
    """For each of some runs, no two of one origin, what of its origin they differ in, in words; '' for a single run."""
    named = labels([origin(run) for run in runs])
    modules = [f"modules {_short(_modules(run, ours=True))}" for run in runs]
    return [f"{name}, {ours}" if named.count(name) > 1 else name for name, ours in zip(named, modules, strict=True)]


def labels(origins: Sequence[Mapping[str, str]]) -> list[str]:
    """For each of several origins the parts in which they differ, in words; '' for all if they are equal."""
    parts = [
        part for part in dict.fromkeys(key for one in origins for key in one) if len({o.get(part) for o in origins}) > 1
    ]
    words = {"plug-ins": "no plug-ins", "data": "data not recorded", "device": "device not recorded"}
    return [", ".join(text for part in parts if (text := one[part] or words.get(part, ""))) for one in origins]


def _modules(run: Run, *, ours: bool) -> dict[str, str]:
    if not ours:
        return {name: value for name, value in run.modules.items() if name.partition(".")[0] != "vflbench"}
    named = {name: value for name, value in run.modules.items() if name.partition(".")[0] == "vflbench"}
    return {name: value for name, value in named.items() if not f"{name}.".startswith(_with_dots())}


def _with_dots() -> tuple[str, ...]:
    return tuple(f"{room}." for room in _DECIDE_NO_NUMBER)


def _holds(value: Any) -> bool:
    """Whether there is anything in nested lists and mappings."""
    if isinstance(value, Mapping):
        return any(_holds(child) for child in value.values())
    return any(map(_holds, value)) if isinstance(value, list) else bool(value)


def _short(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:8]
