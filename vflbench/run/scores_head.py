"""What stands beside scores without labels: the recording, and the attacks that scored it, as data from others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter

from vflbench.errors import UserError
from vflbench.messages.manifest import LAYER, MOST_CLASSES, PARTY, PRINTABLE, Figures, checked, read_json
from vflbench.messages.message_files import write_json
from vflbench.results.levels import LEVELS

HEAD = "scores.json"
FORMAT = "vflbench-scores/1"

Name = Annotated[str, Field(max_length=300, pattern=PRINTABLE)]
Text = Annotated[str, Field(max_length=10_000, pattern=PRINTABLE)]


@dataclass(frozen=True)
class ThreatRecord:
    """What `Threat.record` says of an attack, and what it does."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    seat: Name
    knows: Sequence[Name]
    known_rows: Annotated[int, Field(ge=0)]
    hints: Annotated[int, Field(ge=0)]
    active: bool
    level: Name
    message: Name
    text: Text
    does: Text = ""


@dataclass(frozen=True)
class ScoresHead:
    """What `scores.json` says: of the recording, and of the attacks that scored it."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    classes: Annotated[int, Field(ge=2, le=MOST_CLASSES)]
    epochs: Annotated[int, Field(ge=1, le=10**4)]
    threats: Mapping[Name, ThreatRecord]
    layers: Mapping[Name, Sequence[Name]]
    cut_layers: Mapping[Name, Sequence[Name]]
    skipped: Mapping[Name, Text]
    attacks: Sequence[Name]
    rows: Annotated[int, Field(ge=0)] = 0
    batch_size: Annotated[int, Field(ge=0)] = 0
    seed: Annotated[int, Field(ge=0)] = 0
    class_shares: Sequence[Annotated[float, Field(ge=0, le=1)]] | None = None
    model: Figures = field(default_factory=dict)
    notes: Annotated[Sequence[Text], Field(max_length=1000)] = ()

    def __post_init__(self) -> None:
        for party, names in {**self.layers, **self.cut_layers}.items():
            if not PARTY.fullmatch(party) or not all(LAYER.fullmatch(name) for name in names):
                raise ValueError("layers: these are no names of parties and layers")
        for name in self.attacks:
            if name not in self.threats or self.threats[name].level not in LEVELS:
                raise ValueError(f"threats: attack {name[:80]!r} must be there, at one of the levels {', '.join(LEVELS)}")

    def write(self, folder: Path) -> None:
        write_json(folder / HEAD, {"format": FORMAT, **_HEAD.dump_python(self, mode="json")})


_HEAD: TypeAdapter[Any] = TypeAdapter(ScoresHead)


def read_head(folder: Path) -> ScoresHead:
    """scores.json of a folder. Raises UserError."""
    content = read_json(folder, HEAD)
    if content.pop("format", None) != FORMAT:
        raise UserError(f"{HEAD} can't be read: its format is not {FORMAT}", key="grade", value=folder)
    try:
        head: ScoresHead = checked(_HEAD, content)
    except ValueError as error:
        raise UserError(f"{HEAD} can't be read: {error}", key="grade", value=folder) from error
    return head
