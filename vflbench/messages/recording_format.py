"""The format of recorded messages, docs/reference/messages.md: manifest, head of a run, and one party's messages about one
batch, as tensors `KIND/NAME` in a file and as facts.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import torch
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from pydantic_core import from_json
from torch import Tensor

from vflbench.errors import UserError
from vflbench.files import in_a_line, is_there, open_plain, replaced
from vflbench.messages.facts import Embeddings, Fact, Gradients, PartyFeatures, Predictions, Rules, SummedGradients, Updates
from vflbench.messages.serialize import saved
from vflbench.options import Count

MESSAGES_FORMAT = "vflbench-messages/1"
FORMAT_PAGE = "the documentation, The format of recorded messages"
"""A page, by its title: who installed a wheel has no file of it."""
MANIFEST, MESSAGES, LABELS, KNOWN, FEATURES = "manifest.json", "messages", "labels.parquet", "known.parquet", "features"
LABEL_HOLDER = "label"

_MOST_JSON = 2**20  # bytes of manifest.json and of run.json
MAX_CLASSES = 1000
MOST_STEPS = 10**8  # of an epoch that is recorded here
PARTY = re.compile(r"\w[\w.-]{0,63}")
_CLOSED = ConfigDict(extra="forbid")  # a misspelt key is a mistake

_T = TypeVar("_T")
Phase = Literal["train", "end"]
"""Of training, or at the end of an epoch."""

PRINTABLE = r"^[^\p{C}\p{Zl}\p{Zp}]*$"
"""What a text from others may be: a line without control characters, as it is printed on terminals and in logs."""

_Share = Annotated[float, Field(ge=0, le=1)]
Shares = Mapping[Annotated[str, Field(max_length=100, pattern=PRINTABLE)], _Share]


def is_layer(name: str) -> bool:
    """Whether a layer may have this name: no control characters, and none that are not seen or that turn text around."""
    return 0 < len(name) <= 200 and name.isprintable()


def _party_name(name: str) -> str:
    if not PARTY.fullmatch(name):
        raise ValueError(f"{name[:80]!r} is no name of letters, digits, `_`, `-` and `.`, 64 at most")
    return name


PartyName = Annotated[str, AfterValidator(_party_name)]
LayerName = Annotated[str, Field(min_length=1, max_length=200, pattern=PRINTABLE)]


@dataclass(frozen=True, config=_CLOSED)
class PartyLayers:
    """layers: layer -> width, in the order of the network. cut: the layers that cross; the last one, if left out."""

    layers: Annotated[Mapping[LayerName, Annotated[int, Field(ge=1, le=10**7)]], Field(max_length=1000)]
    cut: Sequence[str] = ()

    def __post_init__(self) -> None:
        if sorted({*self.cut} & {*self.layers}) != sorted(self.cut):
            raise ValueError(f"cut must name some of its layers, each once, not {', '.join(self.cut)[:80]!r}")


@dataclass(frozen=True, config=_CLOSED)
class LabelDpClaim:
    """Label differential privacy that is promised. fresh: whether labels are drawn again in each epoch."""

    eps: Annotated[float, Field(gt=0, le=1000)]
    fresh: bool = False


@dataclass(frozen=True, config=_CLOSED)
class Claims:
    """What is promised about the labels."""

    label_dp: LabelDpClaim | None = None


@dataclass(frozen=True, config=_CLOSED)
class RecordingManifest:
    """What holds for all batches: see docs/reference/messages.md for each key."""

    classes: Annotated[int, Field(ge=2, le=MAX_CLASSES)]
    parties: Annotated[Mapping[PartyName, PartyLayers], Field(min_length=1, max_length=64)]
    producer: Annotated[str, Field(max_length=1000, pattern=PRINTABLE)] = ""
    labels: PartyName = LABEL_HOLDER
    class_shares: Sequence[_Share] | None = None
    batch_size: Count | None = None
    complete: bool = False
    claims: Claims = field(default_factory=Claims)
    model: Shares = field(default_factory=dict)
    rules: Rules | None = None

    def __post_init__(self) -> None:
        if self.class_shares is not None and len(self.class_shares) != self.classes:
            raise ValueError(f"class_shares: there are {len(self.class_shares)}, for {self.classes} classes")
        if self.class_shares is not None and abs(sum(self.class_shares) - 1) > 1e-6:
            raise ValueError("class_shares: they must add up to 1")

    def cut(self, party: str) -> tuple[str, ...]:
        """The layers of a party that cross."""
        of_party = self.parties[party]
        return tuple(of_party.cut) or tuple(of_party.layers)[-1:]

    @property
    def non_label_parties(self) -> tuple[str, ...]:
        return tuple(party for party in self.parties if party != self.labels)

    def plain(self) -> dict[str, Any]:
        """Values for JSON, from which `manifest_in` makes the same."""
        return {"format": MESSAGES_FORMAT, **_MANIFEST.dump_python(self, mode="json", exclude_none=True)}


_MANIFEST = TypeAdapter(RecordingManifest)


def manifest_in(folder: Path) -> RecordingManifest:
    """The manifest in a folder of recorded messages. Raises UserError where there is none that can be read."""

    return read_json(folder, MANIFEST, manifest_of)


def manifest_of(content: Mapping[str, Any]) -> RecordingManifest:
    """Of values for JSON; None says nothing. Raises ValueError, with one line, for other content."""
    if (format_read := content.get("format")) != MESSAGES_FORMAT:
        raise ValueError(f"its format is {in_a_line(str(format_read), 80)!r}, and this version reads {MESSAGES_FORMAT}")
    said = {key: value for key, value in content.items() if key != "format" and value is not None}
    manifest: RecordingManifest = validated(_MANIFEST, said)
    return manifest


def read_json(folder: Path, name: str, made: Callable[[dict[str, Any]], _T]) -> _T:
    """What is made of a JSON object of at most 1 MB. Raises UserError, also for a ValueError of `made`."""
    try:
        with open_plain(folder / name) as file:
            text = file.read(_MOST_JSON + 1)
        if len(text) > _MOST_JSON:
            raise ValueError(f"it is larger than {_MOST_JSON:,} bytes")
        content = from_json(text, allow_inf_nan=False)
        if not isinstance(content, dict):
            raise ValueError("it holds no JSON object")
        return made(content)
    except FileNotFoundError as error:
        raise UserError(f"there is no {name} in this folder", key="recording", value=folder, see=FORMAT_PAGE) from error
    except (OSError, ValueError) as error:
        raise UserError(f"{name} can't be read: {in_a_line(error)}", key="recording", value=folder) from error


def validated(kind: TypeAdapter[Any], content: Any) -> Any:
    """A value of that type. Raises ValueError for other content: the first thing that pydantic refuses, with its place."""
    try:
        return kind.validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        place, message = ".".join(str(part)[:80] for part in first["loc"]), first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{place}: {message}" if place else message) from error


RUN = "run.json"
SAMPLES = "samples"
"""A folder: rows that the run drew from data of which it holds a part at a time, by how many it asked for."""

_Rows = Annotated[int, Field(ge=0, le=10**12)]
_Steps = Annotated[int, Field(ge=0, lt=10**7)]


@dataclass(frozen=True, config=_CLOSED)
class RunHead:
    """seed, batches, epochs, probe, dcor: of the run, as `audit.batches` and so on. steps: rounds of each epoch, recorded or
    not. recorded: steps of each epoch whose rounds are recorded, where not all are. cheating: parties with an adversary.
    threads: of torch, on which last bits depend. test_rows: of class 0 and of class 1, on which the model is tested; None
    for more classes.
    """

    seed: Annotated[int, Field(ge=0)] = 0
    batches: Count | Literal["all", "auto"] = "auto"
    epochs: Literal["all", "last"] = "all"
    probe: bool = True
    dcor: bool = False
    cheating: Sequence[str] = ()
    steps: Annotated[Sequence[_Steps], Field(max_length=10**4)] = field(default_factory=list)
    recorded: Sequence[Sequence[_Steps]] = field(default_factory=list)
    threads: Annotated[int, Field(ge=1, le=4096)] = 1
    test_rows: tuple[_Rows, _Rows] | None = None

    @classmethod
    def read(cls, folder: Path) -> "RunHead | None":
        """None where the recording is of another program. Raises UserError."""
        return read_json(folder, RUN, partial(validated, _HEAD)) if is_there(folder / RUN) else None

    def check_rounds(self, epochs: Mapping[int, Sequence[int]], folder: Path) -> None:
        """Raises UserError for recorded rounds of which the run doesn't speak: they would not be attacked.

        epochs: epoch -> its recorded steps.
        """
        for epoch, steps in epochs.items():
            count = self.steps[epoch] if epoch < len(self.steps) else 0
            if steps[-1] >= count:
                problem = f"{count} steps in epoch {epoch}, and there are messages of step {steps[-1]}"
                raise UserError(f"{RUN} speaks of {problem}", key="recording", value=folder)

    def expected(self, epoch: int, *, complete: bool) -> Sequence[int]:
        """The steps of an epoch that must be recorded, in order."""
        if complete:
            return range(self.steps[epoch])
        return sorted({*self.recorded[epoch]}) if epoch < len(self.recorded) else ()


_HEAD: TypeAdapter[RunHead] = TypeAdapter(RunHead)


def write_manifest(folder: Path, manifest: RecordingManifest) -> None:
    """Write manifest.json, and make the folder."""
    (folder / MESSAGES).mkdir(parents=True, exist_ok=True)
    write_json(folder / MANIFEST, manifest.plain())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """In place of an earlier file, whole or not at all."""
    with replaced(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False), encoding="utf-8")


def batch_path(folder: Path, party: str, epoch: int, step: int, phase: Phase = "train") -> Path:
    """The file of a batch. Its number only tells files apart: readers go by what is in them."""
    number = epoch * MOST_STEPS + step if phase == "train" else (epoch + 1) * MOST_STEPS - 1
    return folder / MESSAGES / f"{party}-{number:08d}.safetensors"


def write_batch_file(
    folder: Path, party: str, ids: Tensor, tensors: Mapping[str, Tensor], *, epoch: int, step: int, phase: Phase = "train"
) -> Path:
    """Write the messages of one party about one batch, in place of an earlier file. Returns its path.

    ids: (n,) int64, no row twice. tensors: `KIND/NAME` -> values, as `embedding/f1` -> (n, d).
    """
    content = {f"{step}/{name}": values for name, values in {"ids": ids, **tensors}.items()}
    path = batch_path(folder, party, epoch, step, phase)
    with replaced(path) as temporary:
        temporary.write_bytes(saved(content, {str(step): json.dumps({"epoch": epoch, "step": step, "phase": phase})}))
    return path


FLOATS = ("float32", "float16", "bfloat16", "float64")
OF_LAYERS = ("embedding/", "gradient/")
PER_ROW = ("embedding", "gradient", "received", "prediction", "columns")
FACTS: Mapping[str, type[Fact]] = {
    "embedding": Embeddings,
    "received": Embeddings,
    "gradient": Gradients,
    "summed_gradient": SummedGradients,
    "prediction": Predictions,
    "columns": PartyFeatures,
    "update": Updates,
}
"""Kind of message, or of what a party has beside them -> the fact that is made of it."""

MOST_SUMMED = 2**20
"""Numbers of a parameter whose summed gradient is recorded, at most; tables of embeddings have more."""


def packed(fact: Fact) -> dict[str, Tensor]:
    """`KIND/NAME` -> values of a fact that can be recorded; nothing of others. The inverse of `facts_of`, but for summed
    gradients of more than MOST_SUMMED numbers, which are left out.
    """
    match fact:
        case Embeddings():
            sent = {f"received/{party}/{layer}": h for party, layers in fact.received.items() for layer, h in layers.items()}
            return {f"embedding/{layer}": h for layer, h in fact.layers.items()} | sent
        case Gradients():
            return {f"gradient/{layer}": g for layer, g in fact.layers.items()}
        case SummedGradients():
            small = {name: g for name, g in fact.parameters.items() if g.numel() <= MOST_SUMMED}
            return {f"summed_gradient/{name}": g.to_dense() if g.is_sparse else g for name, g in small.items()}
        case PartyFeatures():
            categories = {"columns/categorical": fact.categorical} if fact.categorical.shape[1] else {}
            return {"columns/numeric": fact.numeric, **categories}
        case Predictions():
            return {"prediction/logits": fact.logits}
        case Updates():
            others = {f"update/received.{name}": update for name, update in fact.received.items()}
            return {"update/before": fact.before, "update/sent": fact.sent, "update/after": fact.after, **others}
    return {}


def facts_of(
    tensors: Mapping[str, Tensor], rows: int, order: Sequence[str], rules: Rules | None, withheld: Sequence[str] = ()
) -> dict[type[Fact], Fact]:
    """The facts of one party. order: layers as they come in its network. withheld: kinds that are there without layers.

    Half precision of messages becomes float32, as attacks compute.
    """
    of: dict[str, dict[str, Tensor]] = {kind: {} for kind in withheld}
    for name, values in tensors.items():
        kind, _, rest = name.partition("/")
        of.setdefault(kind, {})[rest] = values.float() if kind in PER_ROW and kind != "columns" else values
    made: list[Fact] = []
    if "embedding" in of or "received" in of:
        received: dict[str, dict[str, Tensor]] = {}
        for name, values in of.get("received", {}).items():
            party, _, layer = name.partition("/")
            received.setdefault(party, {})[layer] = values
        made.append(Embeddings(_ordered(of.get("embedding", {}), order), received))
    if "gradient" in of:
        made.append(Gradients(_ordered(of["gradient"], order)))
    if "summed_gradient" in of:
        made.append(SummedGradients(of["summed_gradient"]))
    if "prediction" in of:
        made.append(Predictions(of["prediction"]["logits"]))
    if "columns" in of:
        none = {"numeric": torch.empty(rows, 0), "categorical": torch.empty(rows, 0, dtype=torch.int32)}
        made.append(PartyFeatures(**none | of["columns"]))
    if "update" in of and rules is not None:
        before, sent, after = (of["update"].pop(name) for name in ("before", "sent", "after"))
        others = {name.removeprefix("received."): update for name, update in of["update"].items()}
        made.append(Updates(rules, before, sent, after, others))
    return {type(fact): fact for fact in made}


def _ordered(layers: Mapping[str, Tensor], order: Sequence[str]) -> dict[str, Tensor]:
    return {layer: layers[layer] for layer in order if layer in layers}


def check_shape(name: str, shape: Sequence[int], dtype: str, rows: int, layers: Mapping[str, int], classes: int) -> None:
    """Raises ValueError unless `KIND/NAME` may have this shape and type in a batch of so many rows.

    dtype: its name. layers: of the party, layer -> width.
    """
    kind, _, rest = name.partition("/")
    problem = ""
    if kind not in FACTS or not is_layer(rest):
        problem = f"it is no `KIND/NAME`: kinds are {', '.join(FACTS)}, and names 1 to 200 printable characters"
    elif kind in PER_ROW and (len(shape) != 2 or shape[0] != rows):
        problem = f"its shape is {tuple(shape)}, and it must be ({rows}, width), as there are {rows} ids"
    elif name == "columns/categorical" and dtype not in ("int32", "int64"):
        problem = f"it must hold int32 or int64, not {dtype}"
    elif name != "columns/categorical" and dtype not in FLOATS:
        problem = f"it must hold floating-point numbers, not {dtype}: {', '.join(FLOATS)}"
    elif kind in ("embedding", "gradient") and rest not in layers:
        problem = f"{MANIFEST} has no such layer of this party"
    elif kind in ("embedding", "gradient") and shape[1] != layers[rest]:
        problem = f"its width is {shape[1]}, and that of the layer is {layers[rest]}"
    elif kind == "prediction" and (rest != "logits" or shape[1] not in ({1, 2} if classes == 2 else {classes})):
        problem = f"logits of {classes} classes must be named `prediction/logits`, a column a class"
    elif kind == "columns" and rest not in ("numeric", "categorical"):
        problem = "columns are `columns/numeric` and `columns/categorical`"
    elif kind == "update" and (dtype != "float64" or len(shape) != 1):
        problem = "models and updates must be vectors in float64"
    if problem:
        raise ValueError(f"{name[:120]!r}: {problem}")


def check_values(ids: Tensor, tensors: Mapping[str, Tensor]) -> None:
    """Raises ValueError for a row that is there twice, numbers that are not finite, in float32 too, and categories outside
    0 .. 2^31 - 1.
    """
    ordered = ids.sort().values
    if len(twice := ordered[1:][ordered[1:] == ordered[:-1]]):
        raise ValueError(f"id {int(twice[0])} occurs twice in a batch")
    for name, values in tensors.items():
        if not values.is_floating_point():
            if values.numel() and not 0 <= int(values.min()) <= int(values.max()) < 2**31:
                raise ValueError(f"{name}: ids of categories are whole numbers from 0, below 2^31")
        elif not bool(values.sum().isfinite()) and not bool(values.isfinite().all()):
            raise ValueError(f"{name}: it has numbers that are not finite (NaN or infinite)")
        elif values.dtype is torch.float64 and not name.startswith("update/") and not bool(values.float().isfinite().all()):
            raise ValueError(f"{name}: it has numbers that are too large for float32, in which attacks compute")
    update = {name.removeprefix("update/"): len(values) for name, values in tensors.items() if name.startswith("update/")}
    if update and (not {"before", "sent", "after"} <= set(update) or len(set(update.values())) > 1):
        raise ValueError("update: before, sent and after must be there, of one length")
