"""A party's kit: the folder with its certificate and party.yaml, which says what it brings and what it agreed to."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from vflbench.errors import UserError, shown
from vflbench.plain_files import open_plain

LABEL_PARTY = "label"
SUBMITTER = "submit"
LABEL_PARTY_SITE = "vflbench.hosts.sites.LabelPartyAtHost"
PARTY_SITE = "vflbench.hosts.sites.PartyAtHost"
"""The classes that a job may name at the sites of a project, beside the controller and the executor."""

FILE = "party.yaml"
SECRET = Path("private", "secret")
ANY = "any"
LOCAL_KEYS = ("name", "logger", "overwrite", "log_every")
"""Options of the label party's output alone, on which nobody needs to agree."""

LOCAL_FILES = {"dataset": ("path", "party_files"), "audit": ("auxiliary_path",), "engine": ("workspace",)}
"""Options that say where somebody's own files are."""

_LARGEST = 1_000_000  # bytes of a file in a kit
_KEYS = ("party", "data", "experiment", "output", "others")
_SECRET = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Kit:
    """What one party brings. data: options of `dataset` that are its own, as path, id and columns, paths absolute.

    agreed: the experiment, as plain values; ANY; or None where nothing was agreed. output: where it writes its results and
    checkpoints. others: in the label party's kit, the parties that take part where each has a file of its own.
    """

    folder: Path
    party: str
    data: Mapping[str, Any]
    agreed: Mapping[str, Any] | str | None
    output: Path
    others: tuple[str, ...] = ()

    @property
    def has_own_file(self) -> bool:
        """Whether this party's rows are in a file of its own, and are aligned with those of the others."""
        return "path" in self.data

    def dataset(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of `dataset` with this party's own in their place, and no file of another's."""
        own = {key: value for key, value in self.data.items() if key != "path"}
        files = {"party_files": {self.party: self.data["path"]}} if self.has_own_file else {}
        return {**options, **own, **files}

    def secret(self) -> bytes:
        """32 random bytes that only this party has; `vflbench parties start` draws them. They go into its generators."""
        return _secret(self.folder)

    def refuse_other(self, config: Mapping[str, Any]) -> None:
        """Raise UserError naming the first key in which an experiment differs from what this party agreed to."""
        if self.agreed == ANY:
            return
        if self.agreed is None:
            problem = f"it has agreed to no experiment: its {FILE} names none under `experiment`"
            raise UserError(problem, see="vflbench parties --help")
        assert isinstance(self.agreed, Mapping)
        found = first_difference(shared(config), shared(self.agreed))
        if found:
            key, asked, agreed = found
            problem = f"it has agreed to {key}={shown(agreed, 100)}, not to {shown(asked, 100)}"
            raise UserError(f"{problem}; all parties' experiments must be the same", see="vflbench parties --help")


def shared(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options that parties agree on: without those of somebody's own files and output. They are all that is sent."""
    kept = {key: value for key, value in config.items() if key not in LOCAL_KEYS}
    for group, names in LOCAL_FILES.items():
        if isinstance(kept.get(group), Mapping):
            kept[group] = {key: value for key, value in kept[group].items() if key not in names}
    return kept


def first_difference(asked: Any, agreed: Any, key: str = "") -> tuple[str, Any, Any] | None:
    """The dotted key, and both values, where two configs first differ; None if they don't. 1 and 1.0 are the same."""
    if isinstance(asked, Mapping) and isinstance(agreed, Mapping):
        for name in [*asked, *(name for name in agreed if name not in asked)]:
            below = f"{key}.{name}" if key else str(name)
            if name not in asked or name not in agreed:
                return below, asked.get(name, "left out"), agreed.get(name, "left out")
            if found := first_difference(asked[name], agreed[name], below):
                return found
        return None
    same = asked == agreed and isinstance(asked, bool) == isinstance(agreed, bool)
    return None if same else (key, asked, agreed)


def read_kit(folder: Path) -> Kit:
    """The kit in a folder. Raises UserError where it is none, or party.yaml is wrong."""
    folder = folder.resolve()
    if not (folder / FILE).is_file():
        raise UserError(f"it is no kit of `vflbench parties write`: it has no {FILE}", key="kit", value=folder)
    content = _mapping(folder / FILE)
    for key in content:
        if key not in _KEYS:
            raise UserError(f"there is no such option; there are {', '.join(_KEYS)}", key=f"{key} in {folder / FILE}")
    party = content.get("party")
    if not isinstance(party, str) or not party or not party.isprintable():
        raise UserError("it must be the party's name", key=f"party in {folder / FILE}", value=party)
    data = content.get("data") or {}
    if not isinstance(data, dict):
        raise UserError("it must be a mapping of options", key=f"data in {folder / FILE}", value=data)
    output = content.get("output") or "runs"
    if not isinstance(output, str):
        raise UserError("it must be a folder", key=f"output in {folder / FILE}", value=output)
    others = content.get("others") or []
    if not (isinstance(others, list) and all(isinstance(other, str) for other in others)):
        raise UserError("it must be a list of names", key=f"others in {folder / FILE}", value=others)
    paths = data.get("path") or []
    if not all(isinstance(one, str) and one.isprintable() for one in (paths if isinstance(paths, list) else [paths])):
        raise UserError("it must be a file, or a list of files", key=f"data.path in {folder / FILE}", value=paths)
    if not output.isprintable():
        raise UserError("it must be a folder", key=f"output in {folder / FILE}", value=output)
    data = {key: _absolute(folder, value) if key == "path" else value for key, value in data.items()}
    return Kit(folder, party, data, _agreed(folder, content.get("experiment")), folder / output, tuple(others))


def _absolute(folder: Path, value: Any) -> Any:
    """Paths in party.yaml begin in its folder."""
    if isinstance(value, list):
        return [_absolute(folder, one) for one in value]
    return str(folder / value) if isinstance(value, str) else value


def _agreed(folder: Path, experiment: Any) -> Mapping[str, Any] | str | None:
    if experiment is None or experiment == ANY:
        return experiment
    if not isinstance(experiment, str):
        problem = f"it must be a file, `{ANY}`, or null: nothing"
        raise UserError(problem, key=f"experiment in {folder / FILE}", value=experiment)
    return _mapping(folder / experiment)


def _mapping(file: Path) -> dict[str, Any]:
    try:
        with open_plain(file) as opened:
            text = opened.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise UserError(f"it is larger than {_LARGEST:,} bytes", key=str(file))
        content = yaml.safe_load(text.decode("utf-8-sig"))
    except FileNotFoundError as error:
        raise UserError("there is no such file", key=str(file)) from error
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"it can't be read: {' '.join(str(error).split())}", key=str(file)) from error
    if not isinstance(content, dict):
        raise UserError("it must be a mapping of options", key=str(file))
    return content


def _secret(folder: Path) -> bytes:
    file = folder / SECRET
    try:
        with open_plain(file) as opened:
            text = opened.read(200).decode("ascii", "replace").strip()
    except FileNotFoundError as error:
        raise UserError("it is drawn by `vflbench parties start`, and not there", key=str(file)) from error
    except (OSError, ValueError) as error:
        raise UserError(f"it can't be read: {error}", key=str(file)) from error
    if not _SECRET.fullmatch(text):
        raise UserError("it must be 64 hexadecimal digits", key=str(file))
    return bytes.fromhex(text)
