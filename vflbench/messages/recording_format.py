"""The format of recorded messages, docs/reference/messages.md: manifest, head of a run, and files that are written."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from safetensors.torch import save
from torch import Tensor

from vflbench.errors import UserError
from vflbench.messages.facts import Rules
from vflbench.options import Count
from vflbench.plain_files import in_a_line, is_there, open_plain, replaced

FORMAT = "vflbench-messages/1"
FORMAT_PAGE = "the documentation, The format of recorded messages"
"""A page, by its title: who installed a wheel has no file of it."""
MANIFEST, MESSAGES, LABELS, KNOWN, FEATURES = "manifest.json", "messages", "labels.parquet", "known.parquet", "features"
LABEL_PARTY = "label"

_MOST_JSON = 2**20  # bytes of manifest.json and of run.json
MOST_CLASSES = 1000
MOST_PARTIES = 64
MOST_LAYERS = 1000
PARTY = re.compile(r"\w[\w.-]{0,63}")
_UNSEEN = r"\x00-\x1f\x7f-\xa0\xad\u061c\u180e\u200b-\u200f\u2028-\u202f\u205f-\u206f\ufeff\ufff9-\ufffb"
LAYER = re.compile(rf"[^{_UNSEEN}\ud800-\udfff\U000e0000-\U000e0fff]{{1,200}}")
"""No control characters, and none that are not seen or that turn the direction of text."""

Phase = Literal["train", "end"]
"""Of training, or at the end of an epoch."""

PRINTABLE = r"^[^\p{C}\p{Zl}\p{Zp}]*$"
"""What a text from others may be: a line without control characters, as it is printed on terminals and in logs."""

Share = Annotated[float, Field(ge=0, le=1)]
Figures = Mapping[Annotated[str, Field(max_length=100, pattern=PRINTABLE)], Share]
_STRICT = ConfigDict(extra="forbid")  # a misspelt key is a mistake


@dataclass(frozen=True)
class PartyLayers:
    """layers: layer -> width, in the order of the network. cut: the layers that cross; the last one, if left out."""

    __pydantic_config__ = _STRICT

    layers: Mapping[str, Annotated[int, Field(ge=1, le=10**7)]]
    cut: Sequence[str] = ()


@dataclass(frozen=True)
class LabelDpClaim:
    """Label differential privacy that is promised. fresh: whether labels are drawn again in each epoch."""

    __pydantic_config__ = _STRICT

    eps: Annotated[float, Field(gt=0, le=1000)]
    fresh: bool = False


@dataclass(frozen=True)
class Claims:
    """What is promised about the labels."""

    __pydantic_config__ = _STRICT

    label_dp: LabelDpClaim | None = None


@dataclass(frozen=True)
class Manifest:
    """What holds for all batches: see docs/reference/messages.md for each key."""

    __pydantic_config__ = _STRICT

    classes: Annotated[int, Field(ge=2, le=MOST_CLASSES)]
    parties: Annotated[Mapping[str, PartyLayers], Field(min_length=1, max_length=MOST_PARTIES)]
    producer: Annotated[str, Field(max_length=1000, pattern=PRINTABLE)] = ""
    labels: str = LABEL_PARTY
    class_shares: Sequence[Share] | None = None
    batch_size: Count | None = None
    complete: bool = False
    claims: Claims = field(default_factory=Claims)
    model: Figures = field(default_factory=dict)
    rules: Rules | None = None

    def __post_init__(self) -> None:
        for party, of_party in self.parties.items():
            if not PARTY.fullmatch(party):
                raise ValueError(f"parties: {party[:80]!r} is no name of letters, digits, `_`, `-` and `.`, 64 at most")
            if len(of_party.layers) > MOST_LAYERS:
                raise ValueError(f"parties: {party} has more than {MOST_LAYERS} layers")
            for layer in of_party.layers:
                if not LAYER.fullmatch(layer):
                    raise ValueError(
                        f"parties: a layer of {party} has a name of no or over 200 characters, or with control ones"
                    )
            if len(set(of_party.cut)) != len(of_party.cut):
                raise ValueError(f"parties: {party} has a cut layer that is there twice")
            absent = [layer for layer in of_party.cut if layer not in of_party.layers]
            if absent:
                raise ValueError(f"parties: cut layer {absent[0][:80]!r} of {party} is not among its layers")
        if not PARTY.fullmatch(self.labels):
            raise ValueError("labels: it must be a party's name")
        if self.class_shares is not None:
            if len(self.class_shares) != self.classes:
                raise ValueError(f"class_shares: there are {len(self.class_shares)}, for {self.classes} classes")
            if abs(sum(self.class_shares) - 1) > 1e-6:
                raise ValueError("class_shares: they must add up to 1")

    def cut(self, party: str) -> tuple[str, ...]:
        """The layers of a party that cross."""
        of_party = self.parties[party]
        return tuple(of_party.cut) or tuple(of_party.layers)[-1:]

    @property
    def non_label_parties(self) -> tuple[str, ...]:
        return tuple(party for party in self.parties if party != self.labels)

    def plain(self) -> dict[str, Any]:
        """Values for JSON, from which `read_manifest` makes the same."""
        return {"format": FORMAT, **_MANIFEST.dump_python(self, mode="json", exclude_none=True)}


_MANIFEST = TypeAdapter(Manifest)


def read_manifest(folder: Path) -> Manifest:
    """The manifest in a folder of recorded messages. Raises UserError where there is none that can be read."""
    content = read_json(folder, MANIFEST)
    found = content.pop("format", None)
    if found != FORMAT:
        problem = f"its format is {in_a_line(str(found), 80)!r}, and this version reads {FORMAT}"
        raise UserError(f"{MANIFEST} can't be read: {problem}", key="recording", value=folder)
    try:
        return checked(_MANIFEST, content)
    except ValueError as error:
        raise UserError(f"{MANIFEST} can't be read: {in_a_line(error)}", key="recording", value=folder) from error


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """A JSON object of at most 1 MB. Raises UserError."""
    try:
        with open_plain(folder / name) as file:
            text = file.read(_MOST_JSON + 1)
        if len(text) > _MOST_JSON:
            raise ValueError(f"it is larger than {_MOST_JSON:,} bytes")
        content = json.loads(text.decode(), parse_constant=refuse_constant, object_pairs_hook=no_name_twice)
        if not isinstance(content, dict):
            raise ValueError("it holds no JSON object")
    except FileNotFoundError as error:
        raise UserError(f"there is no {name} in this folder", key="recording", value=folder, see=FORMAT_PAGE) from error
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{name} can't be read: {in_a_line(error)}", key="recording", value=folder) from error
    return content


def checked(kind: TypeAdapter[Any], content: Any) -> Any:
    """A value of that type. Raises ValueError, with one line, for other content."""
    try:
        return kind.validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part)[:80] for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{place}: {message}" if place else message) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def refuse_constant(name: str) -> float:
    """As `parse_constant` of JSON: NaN and Infinity are none."""
    raise ValueError(f"{name} is no JSON number")


def no_name_twice(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """As `object_pairs_hook` of JSON: readers differ on which of two values counts, so none does."""
    made = dict(pairs)
    if len(made) != len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"{name[:80]!r} is there twice")
    return made


RUN = "run.json"
SAMPLES = "samples"
"""A folder: rows that the run drew from data of which it holds a part at a time, by how many it asked for."""

Rows = Annotated[int, Field(ge=0, le=10**12)]
Steps = Annotated[int, Field(ge=0, lt=10**7)]


@dataclass(frozen=True)
class RunHead:
    """seed, batches, epochs, probe, dcor: of the run, as `audit.batches` and so on. steps: rounds of each epoch, recorded or
    not. recorded: steps of each epoch whose rounds are recorded, where not all are. cheating: parties with an adversary.
    threads: of torch, on which last bits depend. test_rows: of class 0 and of class 1, on which the model is tested; None
    for more classes.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    seed: Annotated[int, Field(ge=0)] = 0
    batches: Count | Literal["all", "auto"] = "auto"
    epochs: Literal["all", "last"] = "all"
    probe: bool = True
    dcor: bool = False
    cheating: Sequence[str] = ()
    steps: Annotated[Sequence[Steps], Field(max_length=10**4)] = field(default_factory=list)
    recorded: Sequence[Sequence[Steps]] = field(default_factory=list)
    threads: Annotated[int, Field(ge=1, le=4096)] = 1
    test_rows: tuple[Rows, Rows] | None = None

    @classmethod
    def read(cls, folder: Path) -> "RunHead | None":
        """None where the recording is of another program. Raises UserError."""
        if not is_there(folder / RUN):
            return None
        content = read_json(folder, RUN)
        try:
            return checked(_HEAD, content)
        except ValueError as error:
            raise UserError(f"{RUN} can't be read: {in_a_line(error)}", key="recording", value=folder) from error

    def check_rounds(self, epochs: Mapping[int, Sequence[int]], folder: Path) -> None:
        """Raises UserError for recorded rounds of which the run doesn't speak: they would not be attacked.

        epochs: epoch -> its recorded steps.
        """
        count = len(self.steps)
        for epoch, steps in epochs.items():
            problem = f"{count} epochs, and there are messages of epoch {epoch}"
            if epoch < count:
                problem = f"{self.steps[epoch]} steps in epoch {epoch}, and there are messages of step {steps[-1]}"
            if epoch >= count or steps[-1] >= self.steps[epoch]:
                raise UserError(f"{RUN} speaks of {problem}", key="recording", value=folder)

    def expected(self, epoch: int, *, complete: bool) -> Sequence[int]:
        """The steps of an epoch that must be recorded."""
        if complete:
            return range(self.steps[epoch])
        return self.recorded[epoch] if epoch < len(self.recorded) else ()


_HEAD: TypeAdapter[RunHead] = TypeAdapter(RunHead)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write manifest.json, and make the folder."""
    (folder / MESSAGES).mkdir(parents=True, exist_ok=True)
    write_json(folder / MANIFEST, manifest.plain())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """In place of an earlier file, whole or not at all."""
    with replaced(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False), encoding="utf-8")


def write_batch_file(
    folder: Path,
    party: str,
    number: int,
    ids: Tensor,
    tensors: Mapping[str, Tensor],
    *,
    epoch: int,
    step: int,
    phase: Phase = "train",
) -> Path:
    """Write the messages of one party about one batch, in place of an earlier file of this number. Returns its path.

    ids: (n,) int64, no row twice. tensors: `KIND/NAME` -> values, as `embedding/f1` -> (n, d). number: of the file; batches
    are read in the order of epoch and step, whatever their files' numbers.
    """
    if not PARTY.fullmatch(party):
        raise UserError("letters, digits, `_`, `-` and `.` make a party's name, 64 at most", key="party", value=party)
    for name in tensors:
        if not LAYER.fullmatch(name.partition("/")[2]):
            raise UserError(
                "a layer's name has 1 to 200 characters, none of them control", key="layer", value=repr(name)[:80]
            )
    content = {f"{step}/ids": ids, **{f"{step}/{name}": values for name, values in tensors.items()}}
    plain = {name: values.detach().cpu().contiguous() for name, values in content.items()}
    place = json.dumps({"epoch": epoch, "step": step, "phase": phase})
    path = folder / MESSAGES / f"{party}-{number:08d}.safetensors"
    with replaced(path) as temporary:
        temporary.write_bytes(save(_own_memory(plain), {str(step): place}))
    return path


def _own_memory(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same without two tensors in the same memory, which the format doesn't have."""
    seen: set[int] = set()
    made = {}
    for name, values in tensors.items():
        place = values.untyped_storage().data_ptr()
        made[name] = values.clone() if values.numel() and place in seen else values
        seen.add(place)
    return made
