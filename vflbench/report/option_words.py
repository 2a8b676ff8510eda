"""Options in words, for the names of settings: `mu 1`, `audit.epochs last`, `columns of a opened+score`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

_MOST_LIST = 20
"""Characters of a list, but for a first entry that is longer."""
_DOTS = " ... "
_OF_PARTIES = {"parties": "columns of", "party_files": "file of"}
"""Option of a data set -> what it holds for each party."""


def short(key: str) -> str:
    """The last part of a dotted key; of a class, the part before."""
    parts = key.split(".")
    return parts[-2] if parts[-1] == "_target_" and len(parts) > 1 else parts[-1]


def shown(value: Any) -> str:
    """An option's value in a name; of a class or a file only the last part, of a list the first entries."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return _listed([shown(entry) for entry in value])
    text = str(value)
    return text.rsplit(".", 1)[-1] if text.startswith("vflbench.") else text.rsplit("/", 1)[-1]


def in_words(options: Mapping[str, Any]) -> list[str]:
    """Each option with its value, but for those that are null.

    A key that shares its last part with another has one part more, so that no name stands twice.
    """
    known = {key: value for key, value in options.items() if value is not None}
    names = _names(list(known))
    return [f"{name} {shown(value)}" for name, value in zip(names, known.values(), strict=True)]


def within(name: str, most: int) -> str:
    """The name in at most so many characters: its beginning and its end, cut between two options or words if it can be.

    Both, because long names often differ in one of them alone.
    """
    if len(name) <= most:
        return name
    room = most - len(_DOTS)
    for before, after in ((", ", ", "), (", ", " "), (" ", " ")):
        heads, tails = name.split(before), name.split(after)
        ends = [after.join(tails[-n:]) for n in range(1, len(tails))]
        end = max((text for text in ends if len(text) <= room // 2), key=len, default="")
        starts = [before.join(heads[:n]) for n in range(1, len(heads))]
        start = max((text for text in starts if len(text) <= room - len(end)), key=len, default="")
        if start and end:
            return f"{start.rstrip(',')}{_DOTS}{end}"
    return f"{name[: room - room // 2]}{_DOTS}{name[len(name) - room // 2 :]}"


def _names(keys: Sequence[str]) -> list[str]:
    times = Counter(map(_name, keys))
    return [_name(key) if times[_name(key)] == 1 else ".".join(_parts(key)[-2:]) for key in keys]


def _name(key: str) -> str:
    head = _parts(key)[-2:]
    if head[0] == "audit":  # `epochs last` would be another option's name
        return ".".join(head)
    return f"{_OF_PARTIES[head[0]]} {head[1]}" if len(head) == 2 and head[0] in _OF_PARTIES else short(key)


def _parts(key: str) -> list[str]:
    return key.removesuffix("._target_").split(".")


def _listed(entries: Sequence[str]) -> str:
    """`opened+score+1 more`."""
    kept = 1
    while kept < len(entries) and len("+".join(entries[: kept + 1])) <= _MOST_LIST:
        kept += 1
    more = [f"{len(entries) - kept} more"] if len(entries) > kept else []
    return "+".join([*entries[:kept], *more]) or "none"
