"""A run's folder: the names of its files, how those that others may have written are read, and what it holds already: which
run its configuration stands for, and what else decided its numbers (`run.provenance.origin_of`).

Files are plain ones alone, of bounded size, and data: what is wrong ends in `Unreadable`.
"""

import glob
import hashlib
import io
import json
import math
import os
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from vflbench import errors
from vflbench.errors import UserError
from vflbench.plain_files import open_plain, written_whole
from vflbench.results.schema import COLUMNS, FORMAT, Manifest, MetricRow, Record, Summary

if TYPE_CHECKING:
    import pyarrow

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

RESULTS = (
    *(CHECKPOINT, SUMMARY, METRICS, RECONSTRUCTIONS, LOSSES, TABLE),
    *("auc_per_epoch.png", "leak_per_layer.png", "reconstructions.png"),  # of runs of older versions
)
"""What a run computes, in the order in which a new run deletes it: half of it never looks like a run that can go on."""

MARKS = frozenset({CONFIG, MANIFEST, METRICS, SUMMARY, ERROR, LOG, CHECKPOINT})
"""A folder with any of these belongs to a run."""

RECORDING = "vflbench-messages/"
"""So begins the `format` in manifest.json of recorded messages, which is no run's."""

PAGE_MARK = "<!-- made by vflbench report -->"
"""Stands near the top of every page of a report, by which later reports know it."""


def is_begun(folder: Path) -> bool:
    """Whether a run began in this folder: metrics.csv is written last at the start of a run."""
    return (folder / METRICS).exists()


def is_finished(folder: Path) -> bool:
    """Whether the run in this folder is complete: summary.json is written last."""
    return (folder / SUMMARY).exists()


def finished_folders(folder: Path) -> list[Path]:
    """The folders of finished runs in or under this one, by name; not the honest runs that other runs keep."""
    folders = sorted(file.parent for file in folder.rglob(SUMMARY))
    return [f for f in folders if f.name != HONEST or MARKS.isdisjoint(file.name for file in f.parent.iterdir())]


MOST_BYTES = 256_000_000
"""Of any file of a run: some 3 million rows of metrics.csv."""
MOST_YAML_BYTES, MOST_YAML_VALUES, MOST_YAML_LEVELS = 100_000, 20_000, 40
"""Of a YAML file: bytes; values, where each alias counts as all that it stands for; lists and mappings in each other."""
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where it was built
_SPACES = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]+")


class Unreadable(UserError):  # noqa: N818
    """A file that can't be read, and why."""

    def __init__(self, path: Path, reason: object):
        super().__init__(
            f"{shown(path.name)} can't be read: {shown(reason, 300)}", key="folder", value=shown(path.parent, 300)
        )


def shown(value: object, most: int = 200) -> str:
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
            with open(os.dup(file.fileno()), "rb") as buffered:
                return buffered.read(most)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise Unreadable(path, getattr(error, "strerror", None) or error) from error


def read_head(path: Path, most: int) -> str:
    """The first so many bytes of a file as text, whatever they are. Raises as `read_bytes`."""
    return read_bytes(path, most, whole=False).decode(errors="replace")


def read_yaml(path: Path) -> tuple[str, Any]:
    """The text of a YAML file, and its content: plain values. Raises as `read_bytes`, and Unreadable for one without end."""
    try:
        text = read_bytes(path, MOST_YAML_BYTES).decode("utf-8-sig")
        _check_size(text)
        return text, yaml.load(text, _LOADER)  # nosec B506  # one of PyYAML's two safe loaders
    except Unreadable:
        raise
    except (ValueError, TypeError, yaml.YAMLError) as error:  # such as a date that is none, or a list for a key
        raise Unreadable(path, " ".join(str(error).split())) from error


def _check_size(text: str) -> None:
    """Raises ValueError for too many values or levels, before anything is composed of them: PyYAML recurses in C."""
    anchored: dict[str | None, tuple[int, int] | None] = {}  # values and levels of a node; None until it ends
    opened: list[tuple[str | None, int]] = []  # anchor, and the number of values before it
    heights = [0]  # the levels within each opened node
    count = 0
    for event in yaml.parse(text, _LOADER):
        values, height = 1, 0
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, count))
            heights.append(0)
            anchored[event.anchor] = None
        elif isinstance(event, yaml.AliasEvent):
            known = anchored.get(event.anchor, (1, 0))  # the composer refuses an anchor that isn't there
            if known is None:
                raise ValueError("it contains itself")
            values, height = known
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            values, height = 0, heights.pop() + 1
            anchored[anchor] = count - before, height
        elif isinstance(event, yaml.ScalarEvent):
            anchored[event.anchor] = 1, 0
        else:
            continue
        count += values
        heights[-1] = max(heights[-1], height)
        if count > MOST_YAML_VALUES:
            raise ValueError(f"it stands for more than {MOST_YAML_VALUES:,} values")
        if len(opened) + height > MOST_YAML_LEVELS:
            raise ValueError("it is nested too deeply")


_MOST_ERROR = 64_000  # bytes of error.txt
_R = TypeVar("_R", bound=Record)


class _Version(BaseModel):
    format: int | str | None = None


def read_manifest(folder: Path) -> Manifest:
    """manifest.json, of this version of vflbench's records alone."""
    path = folder / MANIFEST
    content = read_bytes(path)
    if _parsed(path, content, _Version).format != FORMAT:
        raise Unreadable(path, "another version of vflbench made this run")
    return _parsed(path, content, Manifest)


def read_summary(folder: Path) -> Summary:
    path = folder / SUMMARY
    return _parsed(path, read_bytes(path), Summary)


def format_of(folder: Path) -> str:
    """The version of its manifest.json, of a run or of recorded messages; empty if it has none."""
    path = folder / MANIFEST
    return str(_parsed(path, read_bytes(path), _Version).format or "")


def read_config(folder: Path) -> dict[str, Any]:
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


def read_table(folder: Path) -> "pyarrow.Table":
    """metrics.csv in the order in which it was written, with the types of `MetricRow`; null in place of an empty cell."""
    from pyarrow import ArrowException, array, bool_, csv, float64, int64, string

    path = folder / METRICS
    content = read_bytes(path)
    types = dict.fromkeys(COLUMNS, string()) | dict.fromkeys(("value", "ci_low", "ci_high"), float64())
    convert = csv.ConvertOptions(
        column_types=types | {"epoch": int64(), "visible": bool_()},
        include_columns=COLUMNS,
        null_values=[""],
        strings_can_be_null=True,
        true_values=["true"],
        false_values=["false"],
    )
    parse = csv.ParseOptions(newlines_in_values=True)
    try:
        table = csv.read_csv(io.BytesIO(content), csv.ReadOptions(use_threads=False), parse, convert)
    except (ValueError, KeyError, ArrowException) as error:
        raise Unreadable(path, error) from error
    if table["epoch"].null_count or table["split"].null_count or table["metric"].null_count:
        raise Unreadable(path, "a row of it has no epoch, split or metric")
    for number, field in enumerate(table.schema):
        if field.type == string() and not all(map(str.isprintable, table[number].drop_null().unique().to_pylist())):
            texts = [value if value is None else shown(value) for value in table[number].to_pylist()]
            table = table.set_column(number, field, array(texts, string()))
    return table


def read_metrics(folder: Path) -> list[MetricRow]:
    """All rows of metrics.csv, in the order in which they were written."""
    table = read_table(folder)
    empty = dict.fromkeys(("value", "ci_low", "ci_high"), math.nan) | {"visible": None}
    columns = [[empty.get(name, "") if value is None else value for value in table[name].to_pylist()] for name in COLUMNS]
    return [MetricRow(*values) for values in zip(*columns, strict=True)]


def read_error(folder: Path) -> str | None:
    """The first paragraph of error.txt, which is for the user; a traceback follows it. None if there is no such file."""
    try:
        text = read_head(folder / ERROR, _MOST_ERROR).strip()
    except FileNotFoundError:
        return None
    return shown(text.split("\n\n")[0].strip(), 600) or "no message"


def _parsed(path: Path, content: bytes, kind: type[_R] | type[_Version]) -> Any:
    try:
        return kind.model_validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise Unreadable(path, f"{place or 'it'} is {shown(repr(first['input']), 60)}: {first['msg'].lower()}") from None


_WITHOUT_EFFECT = ("checkpoint", "hydra", "log_every", "logger", "name", "overwrite")
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
        parts.append(f"made with other plug-ins ({named(edited_files(old, new)) or 'in another order'})")
    before, after = old.get("data", {}), new.get("data", {})
    if changed := [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]:
        parts.append(f"made with another content of the file in {named(changed)}")
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


def named(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else "")


def _text(value: Any) -> str:
    return json.dumps(value, default=str)


_NAMED_DIFFERENCES = 4
_DIGITS = 8  # of the digest at the end of a folder's name


class FolderError(UserError):
    """The folder holds something else, or belongs to another process for now."""


class BusyError(FolderError):
    """Another process is at work there."""


class Earlier(Enum):
    """How far an earlier run of the same configuration came in this folder."""

    NOTHING = "nothing"
    BEGUN = "begun"
    FINISHED = "finished"


def look(folder: Path, config: Mapping[str, Any], origin: Mapping[str, Any] | None = None) -> Earlier:
    """How far the run with this resolved configuration and this origin (see `differing`) came in this folder.

    Raises FolderError if the folder holds a run of other options, or one that another code, other plug-ins or other data
    made. origin: None leaves that open.
    """
    finished = is_finished(folder)
    if not finished and not is_begun(folder):
        return Earlier.NOTHING
    different = differences(recorded_config(folder), config)
    if different:
        more = f" and {len(different) - _NAMED_DIFFERENCES} more" if len(different) > _NAMED_DIFFERENCES else ""
        named = shown("; ".join(different[:_NAMED_DIFFERENCES]), 500)
        raise FolderError(
            f"this folder holds a run of another configuration ({named}{more}), which "
            "stays as it is; name another folder, or replace it with overwrite=true",
            key="hydra.run.dir",
            value=folder,
        )
    manifest = _recorded_manifest(folder)
    change = "" if origin is None else differing(manifest.identity, origin)
    if change:
        raise FolderError(
            f"this folder holds a run of these options {change}; the run stays as it is; name another folder, or "
            "replace it with overwrite=true",
            key="hydra.run.dir",
            value=folder,
        )
    return Earlier.FINISHED if finished else Earlier.BEGUN


def recorded_config(folder: Path) -> dict[str, Any]:
    """The config.yaml of the run that a folder holds."""
    try:
        return read_config(folder)
    except (OSError, Unreadable) as error:
        problem = f"this folder holds results without a config.yaml that can be read ({type(error).__name__}); name another"
        raise FolderError(f"{problem}, or replace them with overwrite=true", key="hydra.run.dir", value=folder) from error


def other_versions(folder: Path, config: Mapping[str, Any], origin: Mapping[str, Any]) -> list[str]:
    """A line for each finished run beside this folder, of the same options and another origin: why it is not the answer.

    Looks at folders whose names differ in their digest alone.
    """
    head, _, end = folder.name.rpartition("_")
    lines = []
    for other in sorted(folder.parent.glob(f"{glob.escape(head)}_*")) if head and len(end) == _DIGITS else ():
        if other.name == folder.name or len(other.name) != len(folder.name) or not is_finished(other):
            continue
        manifest = _recorded_manifest(other)
        with suppress(FolderError):
            if not differences(recorded_config(other), config) and (why := differing(manifest.identity, origin)):
                lines.append(f"{other} holds a run of these options {why}, so it is computed anew")
    return lines


def _recorded_manifest(folder: Path) -> Manifest:
    """manifest.json; an empty one if it can't be read."""
    with suppress(OSError, Unreadable):
        return read_manifest(folder)
    return Manifest()


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """While entered, no other process runs in this folder. The lock ends with its process, however that ends.

    A folder in which nothing was begun is left empty. Raises BusyError.
    """
    from filelock import FileLock, Timeout  # late: it imports more than the rest of this module

    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        problem = "another process is at work in this folder; wait for it, or stop it"
        raise BusyError(problem, key="hydra.run.dir", value=folder) from None
    try:
        yield
    finally:
        if [file.name for file in folder.iterdir()] == [LOCK]:
            with suppress(OSError):
                (folder / LOCK).unlink()
        lock.release()


def remove_if_empty(folder: Path) -> None:
    """A run that could not begin leaves nothing behind."""
    with suppress(OSError):
        folder.rmdir()


def is_busy(folder: Path) -> bool:
    """Whether another process is at work there now."""
    if not (folder / LOCK).exists():
        return False
    try:
        with alone_in(folder):
            return False
    except BusyError:
        return True


def leave_error(folder: Path, text: str, error: BaseException) -> None:
    """Write error.txt: a paragraph for the user, an empty line, the traceback. If the disk is full, nothing is written."""
    trace = "".join(traceback.format_exception(error))
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with written_whole(folder / ERROR, "w") as file:
            file.write(f"{' '.join(text.split())}\n\n{trace}")
