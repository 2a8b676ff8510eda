"""A run's folder: the names of its files, how those that others may have written are read, and what it holds already: which
run its configuration stands for, and what else decided its numbers (`run.provenance.origin_of`).

Files are plain ones alone, of bounded size, and data: what is wrong ends in `Unreadable`.
"""

import hashlib
import json
import os
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from vflbench import errors
from vflbench.errors import UserError
from vflbench.files import open_plain, written_whole
from vflbench.results.schema import FORMAT, Manifest, Record, Summary

CONFIG = "config.yaml"
MANIFEST = "manifest.json"
METRICS = "metrics.csv"
SUMMARY = "summary.json"
LOG = "train.log"
LOSSES = "loss.log"
ERROR = "error.txt"
CHECKPOINT = "checkpoint.pt"
LOCK = ".lock"
RECONSTRUCTIONS = "reconstructions.npz"
TABLE = "table.txt"
"""All figures of the last epoch as tables, for a person."""
EVENTS = "tensorboard"
"""The folder of TensorBoard's event files."""
HONEST = "honest"
"""The folder of the same run without its adversary: a whole run folder of its own."""

RESULTS = (CHECKPOINT, SUMMARY, METRICS, RECONSTRUCTIONS, LOSSES, TABLE)
"""What a run computes, in the order in which a new run deletes it: half of it never looks like a run that can go on."""

MARKS = frozenset({CONFIG, MANIFEST, METRICS, SUMMARY, ERROR, LOG, CHECKPOINT})
"""A folder with any of these belongs to a run."""

RECORDING = "vflbench-messages/"
"""So begins the `format` in manifest.json of recorded messages, which is no run's."""


def is_begun(folder: Path) -> bool:
    """Whether a run began in this folder: metrics.csv is written last at the start of a run."""
    return (folder / METRICS).exists()


def is_finished(folder: Path) -> bool:
    """Whether the run in this folder is complete: summary.json is written last."""
    return (folder / SUMMARY).exists()


def run_folders(folder: Path) -> Iterator[Path]:
    """The folders of runs in or under this one, in the order of their names, of which no file is read."""
    for name, folders, files in os.walk(folder):
        place, marks = Path(name), MARKS.intersection(files)
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        if len(place.parts) - len(folder.parts) >= MOST_FOLDERS:
            folders[:] = []
        if marks:
            # what a run keeps for itself, its honest run included; a config alone may have come with runs of others
            folders[:] = [f for f in folders if f != HONEST] if marks == {CONFIG} else []
            yield place


def finished_folders(folder: Path) -> list[Path]:
    """The folders of finished runs in or under this one, by name; not the honest runs that other runs keep."""
    return [*filter(is_finished, run_folders(folder))]


MOST_FOLDERS = 50
"""Folders within each other in which runs are looked for: os.walk goes into each by a call of its own."""

MOST_BYTES = 256_000_000
"""Of any file of a run: some 3 million rows of metrics.csv."""
MOST_YAML_BYTES, MOST_YAML_LEVELS, MOST_YAML_ALIASES = 100_000, 40, 20
"""Of a YAML file: bytes; lists and mappings in each other; names of what stands elsewhere in it, so that it stays small."""
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where it was built
_SPACES = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]+")


class Unreadable(UserError):  # noqa: N818
    """A file that can't be read, and why."""

    def __init__(self, path: Path, reason: object):
        problem = f"{cleaned(path.name)} can't be read: {cleaned(reason, 300)}"
        super().__init__(problem, key="folder", value=cleaned(path.parent, 300))


def cleaned(value: object, most: int = 200) -> str:
    """`errors.shown`, for pages, tables and terminals: line ends become spaces."""
    return errors.shown(_SPACES.sub(" ", value) if isinstance(value, str) else value, most)


def read_bytes(path: Path, most: int = MOST_BYTES, *, whole: bool = True) -> bytes:
    """The file, or if `whole` is False its first `most` bytes. Raises FileNotFoundError, and Unreadable for anything but a
    plain file, and for a whole one that has more bytes.
    """
    try:
        with open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size
            if whole and size > most:
                raise ValueError(f"it has {size:,} bytes, and at most {most:,} are read")
            return file.read(min(size, most))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise Unreadable(path, getattr(error, "strerror", None) or error) from error


def read_head(path: Path, most: int) -> str:
    """The first so many bytes of a file as text, whatever they are. Raises as `read_bytes`."""
    return read_bytes(path, most, whole=False).decode(errors="replace")


def read_yaml(path: Path) -> tuple[str, Any]:
    """The text of a YAML file, and its content: plain values. Raises as `read_bytes`, and Unreadable for one without end."""
    text = read_bytes(path, MOST_YAML_BYTES).decode("utf-8-sig", "replace")
    levels = aliases = 0
    try:
        for event in yaml.parse(text, _LOADER):  # PyYAML composes by recursion in C
            levels += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            aliases += isinstance(event, yaml.AliasEvent)
            if levels > MOST_YAML_LEVELS or aliases > MOST_YAML_ALIASES:
                raise ValueError("it is nested too deeply, or has too many aliases")
            if isinstance(event, yaml.ScalarEvent) and event.value == "<<":  # merged keys multiply, unseen by this check
                raise ValueError("it merges mappings")
        content = yaml.load(text, _LOADER)  # nosec B506  # one of PyYAML's two safe loaders
        json.dumps(content, default=str)  # refuses what contains itself
        return text, content
    except (ValueError, TypeError, yaml.YAMLError) as error:  # such as a date that is none, or a list for a key
        raise Unreadable(path, " ".join(str(error).split())) from error


_MOST_ERROR = 64_000  # bytes of error.txt
_R = TypeVar("_R", bound=Record)


def read_manifest(folder: Path) -> Manifest:
    """manifest.json, of this version of vflbench's records alone."""
    if format_of(folder) != str(FORMAT):
        raise Unreadable(folder / MANIFEST, "another version of vflbench made this run")
    return _parsed(folder / MANIFEST, Manifest)


def recorded_manifest(folder: Path) -> Manifest:
    """manifest.json; an empty one if it can't be read."""
    with suppress(OSError, Unreadable):
        return read_manifest(folder)
    return Manifest()


def read_summary(folder: Path) -> Summary:
    return _parsed(folder / SUMMARY, Summary)


def format_of(folder: Path) -> str:
    """The version of its manifest.json, of a run or of recorded messages; empty if it has none."""
    return str(_parsed(folder / MANIFEST, Record).written().get("format") or "")


def is_recording(folder: Path) -> bool:
    """Whether it holds recorded messages, and no run."""
    with suppress(OSError, Unreadable):
        return not os.path.lexists(folder / SUMMARY) and format_of(folder).startswith(RECORDING)
    return False


def read_run_config(folder: Path) -> dict[str, Any]:
    """config.yaml: plain values."""
    path = folder / CONFIG
    config = read_yaml(path)[1]
    if not isinstance(config, dict):
        raise Unreadable(path, "it holds no options")
    if type(config.get("seed")) not in (int, type(None)):
        raise Unreadable(path, "its seed is no whole number")
    groups = [(group, config.get(group) or {}) for group in ("dataset", "defense", "attack", "adversary")]
    for group, chosen in groups:
        parts = [chosen, *([] if group == "dataset" or not isinstance(chosen, dict) else chosen.values())]
        if not all(isinstance(part, dict | None) for part in parts):
            raise Unreadable(path, f"{group} holds no options")
    return config


def read_error(folder: Path) -> str | None:
    """The first paragraph of error.txt, which is for the user; a traceback follows it. None if there is no such file."""
    try:
        text = read_head(folder / ERROR, _MOST_ERROR).strip()
    except FileNotFoundError:
        return None
    return cleaned(text.split("\n\n")[0].strip(), 600) or "no message"


def _parsed(path: Path, kind: type[_R]) -> _R:
    """Its texts are printable, also where nothing reads them part by part."""
    try:
        return kind.model_validate(_printable(json.loads(read_bytes(path))), strict=True)
    except (ValueError, RecursionError) as error:
        if not isinstance(error, ValidationError):
            raise Unreadable(path, error) from error
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise Unreadable(path, f"{place or 'it'} is {cleaned(repr(first['input']), 60)}: {first['msg'].lower()}") from None


def _printable(node: Any) -> Any:
    if isinstance(node, dict):
        return {_printable(key): _printable(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_printable(one) for one in node]
    return errors.shown(node, 20_000) if isinstance(node, str) and not node.isprintable() else node


_WITHOUT_EFFECT = ("checkpoint", "hydra", "log_every", "logger", "name", "overwrite")
PARTS = {"code": "vflbench's code", "plugins": "plug-ins", "data": "data", "device": "device"}
"""Part of a run's provenance -> its name in a sentence."""


def essential(config: Mapping[Any, Any]) -> dict[str, Any]:
    """The options that a result depends on. The order of the groups doesn't matter; that of the defenses in one does."""
    return {key: config[key] for key in sorted(config, key=str) if key not in _WITHOUT_EFFECT}


def digest(config: Mapping[str, Any], origin: Mapping[str, Any] | None = None) -> str:
    """8 hexadecimal digits of the SHA-256 of the essential options and of the provenance: the end of a folder's name."""
    text = _text(essential(config)) + (json.dumps(origin, sort_keys=True) if origin else "")
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def differing(*origins: Mapping[str, Any]) -> str:
    """In what the provenances of runs of one configuration differ: `data and plug-ins (loud.py)`; empty: in nothing."""
    words = []
    for part, name in PARTS.items():
        first, *others = (one.get(part) for one in origins)
        changed = {file for other in others for file, _ in _files(first) ^ _files(other)}
        if any(other != first for other in others):
            words.append(f"{name} ({_named(sorted(changed))})" if changed else name)
    return " and ".join(words)


def _files(part: Any) -> set[tuple[str, str]]:
    """(path or option, hash) of what a part of a provenance lists: a mapping, or several."""
    listed = part if isinstance(part, list) else [part]
    return {(file, _text(content)) for one in listed if isinstance(one, Mapping) for file, content in one.items()}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The essential options in which two configurations differ, as `key: old value -> new value`; empty: the same run."""
    before, after = ({key: _text(value) for key, value in flat(essential(one))} for one in (old, new))
    changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    if not changed and list(before) != list(after):
        return ["the same options in another order"]
    return [f"{key}: {before.get(key, 'not there')} -> {after.get(key, 'not there')}" for key in changed]


def flat(node: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of nested mappings; an empty mapping is a value."""
    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _named(names: Sequence[str], most: int = 3, between: str = ", ") -> str:
    return between.join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _text(value: Any) -> str:
    return json.dumps(value, default=str)


class FolderError(UserError):
    """The folder holds something else, or belongs to another process for now."""


class BusyError(FolderError):
    """Another process is at work there."""


def look(folder: Path, config: Mapping[str, Any], origin: Mapping[str, Any]) -> bool:
    """Whether the run with this resolved configuration and this origin (see `differing`) is finished in this folder.

    Raises FolderError if the folder holds a run of other options, or one that another code, other plug-ins or other data
    made.
    """
    if not is_finished(folder) and not is_begun(folder):
        return False
    options, parts = differences(recorded_config(folder), config), differing(recorded_manifest(folder).identity, origin)
    if not options and not parts:
        return is_finished(folder)
    other = f"another configuration ({_named(options, 4, '; ')})" if options else f"these options that differs in {parts}"
    text = f"this folder holds a run of {other}; it stays as it is; name another folder, or replace it with overwrite=true"
    raise FolderError(text, key="hydra.run.dir", value=folder)


def recorded_config(folder: Path) -> dict[str, Any]:
    """The config.yaml of the run that a folder holds."""
    try:
        return read_run_config(folder)
    except (OSError, Unreadable) as error:
        problem = f"this folder holds results without a config.yaml that can be read ({type(error).__name__}); name another"
        raise FolderError(f"{problem}, or replace them with overwrite=true", key="hydra.run.dir", value=folder) from error


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """While entered, no other process runs in this folder. The lock ends with its process, however that ends.

    A folder in which nothing was begun is left empty. Raises BusyError.
    """
    from filelock import FileLock, Timeout  # late: it imports more than the rest of this module

    try:
        lock = FileLock(folder / LOCK).acquire(blocking=False)
    except Timeout:
        problem = "another process is at work in this folder; wait for it, or stop it"
        raise BusyError(problem, key="hydra.run.dir", value=folder) from None
    with lock:
        try:
            yield
        finally:
            if [file.name for file in folder.iterdir()] == [LOCK]:
                (folder / LOCK).unlink()


def remove_if_empty(folder: Path) -> None:
    """A run that could not begin leaves nothing behind."""
    with suppress(OSError):
        folder.rmdir()


def is_busy(folder: Path) -> bool:
    """Whether another process is at work there now."""
    with suppress(BusyError), alone_in(folder) if (folder / LOCK).exists() else nullcontext():
        return False
    return True


def leave_error(folder: Path, text: str, error: BaseException) -> None:
    """Write error.txt: a paragraph for the user, an empty line, the traceback. If the disk is full, nothing is written."""
    trace = "".join(traceback.format_exception(error))
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with written_whole(folder / ERROR, "w") as file:
            file.write(f"{' '.join(text.split())}\n\n{trace}")
