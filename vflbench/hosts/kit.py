"""A party's kit: the folder with its certificate and party.yaml, which says what it brings and what it agreed to."""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vflbench.cli.config import read_config
from vflbench.errors import UserError, shown
from vflbench.files import open_to_write

SUBMITTER = "submit"
FILE = "party.yaml"
SECRET = Path("private", "secret")
ANY_EXPERIMENT = "any"
LOCAL_KEYS = ("name", "logger", "overwrite", "log_every")
"""Options of the label party's output alone, on which nobody needs to agree."""

LOCAL_FILES = {"dataset": ("path", "party_files"), "audit": ("auxiliary_path",), "engine": ("workspace",)}
"""Options that say where somebody's own files are."""


class Kit(BaseModel):
    """What one party brings. data: options of `dataset` that are its own, as path, id and columns; paths are absolute.

    agreed: the experiment, as plain values; ANY; or None where nothing was agreed. output: where it writes its results and
    checkpoints. others: in the label party's kit, the parties that take part where each has a file of its own.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    folder: Path
    party: str = Field(min_length=1)
    data: dict[str, Any] = {}
    experiment: str | None = None
    output: str | Path = "runs"
    others: list[str] = []
    agreed: dict[str, Any] | str | None = None

    @property
    def is_label(self) -> bool:
        """Whether it is the label party's."""
        from vflbench.data.table import LABEL_PARTY  # late: it loads torch, which help does without

        return self.party == LABEL_PARTY

    @property
    def has_file(self) -> bool:
        """Whether this party's rows are in a file of its own, and are aligned with those of the others."""
        return "path" in self.data

    def dataset(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of `dataset` with this party's own in their place, and no file of another's."""
        of_party = {key: value for key, value in self.data.items() if key != "path"}
        files = {"party_files": {self.party: self.data["path"]}} if self.has_file else {}
        return {**options, **of_party, **files}

    def secret(self) -> bytes:
        """32 random bytes that only this party has; `vflbench parties start` draws them. They go into its generators."""
        try:
            secret = bytes.fromhex((self.folder / SECRET).read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            problem = f"it is drawn by `vflbench parties start`, and can't be read: {error}"
            raise UserError(problem, key=str(self.folder / SECRET)) from error
        if len(secret) != 32:
            raise UserError("it must be 64 hexadecimal digits", key=str(self.folder / SECRET))
        return secret

    def refuse_other(self, config: Mapping[str, Any]) -> None:
        """Raise UserError naming the first key in which an experiment differs from what this party agreed to."""
        if self.agreed == ANY_EXPERIMENT:
            return
        if not isinstance(self.agreed, Mapping):
            problem = f"it has agreed to no experiment: its {FILE} names none under `experiment`"
            raise UserError(problem, see="vflbench parties --help")
        difference = first_difference(shared(config), shared(self.agreed))
        if difference:
            key, asked, agreed = difference
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
            if difference := first_difference(asked[name], agreed[name], below):
                return difference
        return None
    same = asked == agreed and isinstance(asked, bool) == isinstance(agreed, bool)
    return None if same else (key, asked, agreed)


def read_kit(folder: Path) -> Kit:
    """What party.yaml in this folder says. Raises UserError, naming the key, for what it may not."""
    folder = folder.resolve()
    if not (folder / FILE).is_file():
        raise UserError(f"it is no kit of `vflbench parties write`: it has no {FILE}", key="kit", value=folder)
    content = _mapping(folder / FILE)
    try:
        kit = Kit(**{"folder": folder, **{key: value for key, value in content.items() if value is not None}})
    except ValidationError as error:
        detail = error.errors()[0]
        name, unknown = ".".join(map(str, detail["loc"])), detail["type"] == "extra_forbidden"
        problem = "there is no such option" if unknown else detail["msg"].replace("Input should", "it must")
        raise UserError(problem, key=f"{name} in {folder / FILE}", value=content.get(name)) from error
    agreed: Any = kit.experiment if kit.experiment in (None, ANY_EXPERIMENT) else _mapping(folder / kit.experiment)
    data = {key: _absolute(folder, value) if key == "path" else value for key, value in kit.data.items()}
    return kit.model_copy(update={"agreed": agreed, "data": data, "output": folder / kit.output})


def _absolute(folder: Path, path: Any) -> Any:
    """Paths in party.yaml begin in its folder."""
    return [_absolute(folder, one) for one in path] if isinstance(path, list) else str(folder / str(path))


def _mapping(file: Path) -> dict[str, Any]:
    content = read_config(file)[1]
    if not isinstance(content, dict):
        raise UserError("it must be a mapping of options", key=str(file))
    return content


def draw_secret(kit: Path) -> None:
    """Draw a party's secret into its private folder, once: on its own host, when it first starts."""
    if not (kit / SECRET).exists():
        (kit / SECRET).parent.mkdir(mode=0o700, exist_ok=True)
        with open_to_write(kit / SECRET, "x", private=True) as out:
            out.write(f"{secrets.token_hex(32)}\n")
