"""One party's messages about one batch: read from a file, checked, and as facts."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, BinaryIO

import torch
from pydantic import ConfigDict, Field, TypeAdapter
from safetensors import safe_open
from torch import Tensor

from vflbench.messages.fact import Fact
from vflbench.messages.facts import Embeddings, Gradients, OwnColumns, Predictions, Rules, SummedGradients, Updates
from vflbench.messages.recording_format import LAYER, Manifest, Phase, checked, no_name_twice, refuse_constant
from vflbench.plain_files import check_plain

FLOATS = ("float32", "float16", "bfloat16", "float64")
_PER_ROW = ("embedding", "gradient", "received", "prediction", "columns")
FACTS: Mapping[str, type[Fact]] = {
    "embedding": Embeddings,
    "gradient": Gradients,
    "summed_gradient": SummedGradients,
    "prediction": Predictions,
    "columns": OwnColumns,
    "update": Updates,
}
"""Kind of message, or of what a party has beside them -> the fact that is made of it."""

MOST_BYTES = 2**31
"""Of one party's messages about one batch; a batch is the part of a recording that must fit memory."""

MOST_SUMMED = 2**20
"""Numbers of a parameter whose summed gradient is recorded, at most; tables of embeddings have more."""


@dataclass(frozen=True)
class Batch:
    """ids: (n,). tensors: `KIND/NAME` -> values."""

    ids: Tensor
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    def of(self, kind: str) -> dict[str, Tensor]:
        """NAME -> values of that kind, in the order of the file."""
        return {name.partition("/")[2]: values for name, values in self.tensors.items() if name.partition("/")[0] == kind}


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
        case OwnColumns():
            categories = {"columns/categorical": fact.categorical} if fact.categorical.shape[1] else {}
            return {"columns/numeric": fact.numeric, **categories}
        case Predictions():
            return {"prediction/logits": fact.logits}
        case Updates():
            others = {f"update/received.{name}": update for name, update in fact.received.items()}
            return {"update/before": fact.before, "update/sent": fact.sent, "update/after": fact.after, **others}
    return {}


def facts_of(batch: Batch, order: Mapping[str, int], rules: Rules | None) -> dict[type[Fact], Fact]:
    """The facts of one party. order: layer -> place in its network. Half precision becomes float32, as attacks compute."""
    kinds = {name.partition("/")[0] for name in batch.tensors}
    made: dict[type[Fact], Fact] = {}
    if "embedding" in kinds or "received" in kinds:
        received: dict[str, dict[str, Tensor]] = {}
        for name, values in batch.of("received").items():
            party, _, layer = name.partition("/")
            received.setdefault(party, {})[layer] = _single(values)
        made[Embeddings] = Embeddings(_ordered(batch.of("embedding"), order), received)
    if "gradient" in kinds:
        made[Gradients] = Gradients(_ordered(batch.of("gradient"), order))
    if "summed_gradient" in kinds:
        made[SummedGradients] = SummedGradients(batch.of("summed_gradient"))
    if "prediction" in kinds:
        made[Predictions] = Predictions(_single(batch.tensors["prediction/logits"]))
    if "columns" in kinds:
        columns, n = batch.of("columns"), len(batch.ids)
        none, no_ids = torch.empty(n, 0), torch.empty(n, 0, dtype=torch.int32)
        made[OwnColumns] = OwnColumns(columns.get("numeric", none), columns.get("categorical", no_ids))
    if "update" in kinds and rules is not None:
        update = batch.of("update")
        others = {name.removeprefix("received."): u for name, u in update.items() if name.startswith("received.")}
        made[Updates] = Updates(rules, update["before"], update["sent"], update["after"], others)
    return made


def _ordered(layers: Mapping[str, Tensor], order: Mapping[str, int]) -> dict[str, Tensor]:
    return {layer: _single(layers[layer]) for layer in sorted(layers, key=lambda layer: order.get(layer, len(order)))}


def _single(values: Tensor) -> Tensor:
    return values.float()


def check_shape(name: str, shape: tuple[int, ...], dtype: str, rows: int, party: str, manifest: Manifest) -> None:
    """Raises ValueError unless `KIND/NAME` may have this shape and type in a batch of so many rows. dtype: its name."""
    kind, _, rest = name.partition("/")
    shown = name[:120]
    if (kind not in FACTS and kind != "received") or not LAYER.fullmatch(rest):
        raise ValueError(f"{shown!r} is no `KIND/NAME`; kinds are {', '.join(FACTS)}")
    if kind in _PER_ROW and (len(shape) != 2 or shape[0] != rows):
        raise ValueError(f"{shown}: its shape is {shape}, and it must be ({rows}, width), as there are {rows} ids")
    is_categorical = name == "columns/categorical"
    if is_categorical and dtype not in ("int32", "int64"):
        raise ValueError(f"{shown}: it must hold int32 or int64, not {dtype}")
    if not is_categorical and dtype not in FLOATS:
        raise ValueError(f"{shown}: it must hold floating-point numbers, not {dtype}")
    if kind in ("embedding", "gradient"):
        layers = manifest.parties[party].layers
        if rest not in layers:
            raise ValueError(f"{shown}: manifest.json has no layer {rest[:80]!r} of party {party}")
        if shape[1] != layers[rest]:
            raise ValueError(f"{shown}: its width is {shape[1]}, and manifest.json says {layers[rest]}")
    if kind == "prediction" and (
        rest != "logits" or shape[1] not in ({1, 2} if manifest.classes == 2 else {manifest.classes})
    ):
        raise ValueError(
            f"{shown}: logits of {manifest.classes} classes must be named `prediction/logits`, a column a class"
        )
    if kind == "columns" and rest not in ("numeric", "categorical"):
        raise ValueError(f"{shown}: columns are `columns/numeric` and `columns/categorical`")
    if kind == "update" and (dtype != "float64" or len(shape) != 1):
        raise ValueError(f"{shown}: models and updates must be vectors in float64")


def check_bytes(count: int, where: str) -> None:
    """Raises ValueError for a batch of so many bytes that it doesn't fit memory."""
    if count > MOST_BYTES:
        raise ValueError(f"{where}: the batch has {count:,} bytes, and {MOST_BYTES:,} are read at most; record smaller ones")


def check_values(batch: Batch) -> None:
    """Raises ValueError for a row that is there twice, numbers that are not finite, in float32 too, and categories outside
    0 .. 2^31 - 1.
    """
    ordered = batch.ids.sort().values
    if bool((ordered[1:] == ordered[:-1]).any()):
        raise ValueError(f"id {int(ordered[1:][ordered[1:] == ordered[:-1]][0])} occurs twice in a batch")
    for name, values in batch.tensors.items():
        if not values.is_floating_point():
            if values.numel() and not 0 <= int(values.min()) <= int(values.max()) < 2**31:
                raise ValueError(f"{name}: ids of categories are whole numbers from 0, below 2^31")
        elif not bool(values.sum().isfinite()) and not bool(values.isfinite().all()):
            raise ValueError(f"{name}: it has numbers that are not finite (NaN or infinite)")
        elif values.dtype is torch.float64 and not name.startswith("update/") and not bool(values.float().isfinite().all()):
            raise ValueError(f"{name}: it has numbers that are too large for float32, in which attacks compute")
    update = batch.of("update")
    if update:
        missing = {"before", "sent", "after"} - set(update)
        if missing or len({len(values) for values in update.values()}) > 1:
            raise ValueError("update: before, sent and after must be there, of one length")


def in_order_of(ids: Tensor, batch: Batch) -> Batch:
    """The same rows in the order of these ids, which are theirs."""
    place = batch.ids.argsort()[ids.argsort().argsort()]
    moved = {name: v[place] if name.partition("/")[0] in _PER_ROW else v for name, v in batch.tensors.items()}
    return Batch(batch.ids[place], moved)


def type_name(values: Tensor) -> str:
    """float32 for torch.float32."""
    return str(values.dtype).removeprefix("torch.")


_TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32"}
"""Types of safetensors that are read, and torch's names for them."""


MOST_STEPS = 10**9
"""Of an epoch, that are read."""


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor in a file: the first byte, its shape, and the name of its type in torch."""

    start: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * getattr(torch, self.dtype).itemsize


@dataclass(frozen=True)
class When:
    """When a batch was met."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    epoch: Annotated[int, Field(ge=0, lt=10**6)] = 0
    step: Annotated[int, Field(ge=0, lt=MOST_STEPS)] | None = None
    phase: Phase = "train"


_WHEN = TypeAdapter(When)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a batch is: epoch, step and phase, its file, and where its tensors are there, by `KIND/NAME` and
    `ids`. kinds: of its messages. types: of them.
    """

    epoch: int
    step: int
    phase: Phase
    path: Path
    parts: Mapping[str, Part]
    kinds: frozenset[str]
    types: frozenset[str]


def read_parts(path: Path) -> tuple[dict[str, str], dict[str, Part]]:
    """The metadata of a safetensors file, and where each tensor is. Raises ValueError, or what the library raises."""
    check_plain(path)
    with safe_open(path, framework="np") as file:  # refuses what is cut off, or whose tensors overlap
        metadata = file.metadata() or {}
    with path.open("rb") as raw:
        length = int.from_bytes(raw.read(8), "little")
        described = json.loads(raw.read(length), object_pairs_hook=no_name_twice)
    described.pop("__metadata__", None)
    unread = [(name, one["dtype"]) for name, one in described.items() if one["dtype"] not in _TYPES]
    if unread:
        raise ValueError(f"{unread[0][0][:120]!r}: its type is {unread[0][1]!r}, and only {', '.join(_TYPES)} are read")
    parts = {
        name: Part(8 + length + one["data_offsets"][0], tuple(one["shape"]), _TYPES[one["dtype"]])
        for name, one in described.items()
    }
    return metadata, parts


def read_part(file: BinaryIO, part: Part) -> Tensor:
    """A copy of its values."""
    values = torch.empty(part.shape, dtype=getattr(torch, part.dtype))
    file.seek(part.start)
    if file.readinto(memoryview(values.view(-1).view(torch.uint8).numpy())) < part.bytes:  # type: ignore[attr-defined]
        raise ValueError("the file ends too early")
    return values


def read_places(path: Path, party: str, manifest: Manifest) -> Iterator[Place]:
    """The batches of a file of one party, in the order of their numbers. Names, shapes and types of all tensors are checked.

    Raises ValueError, or what safetensors raises, for another file.
    """
    metadata, parts = read_parts(path)
    batches: dict[str, dict[str, Part]] = {}
    for name, part in parts.items():
        step, _, rest = name.partition("/")
        if not (step.isascii() and step.isdecimal() and len(step) < 12 and step == str(int(step)) and rest):
            raise ValueError(f"{name[:120]!r} is no `STEP/KIND/NAME`")
        batches.setdefault(step, {})[rest] = part
    for step in sorted(batches, key=int):
        yield _place(path, step, batches[step], metadata.get(step, "{}"), party, manifest)


def _place(path: Path, step: str, parts: Mapping[str, Part], when: str, party: str, manifest: Manifest) -> Place:
    check_bytes(sum(part.bytes for part in parts.values()), step)
    ids = parts.get("ids")
    if ids is None or len(ids.shape) != 1 or ids.dtype != "int64":
        raise ValueError(f"{step}/ids: there must be (n,) int64 ids of its rows")
    if not ids.shape[0]:
        raise ValueError(f"{step}/ids: it is a batch of no rows")
    types = {name: part.dtype for name, part in parts.items() if name != "ids"}
    for name, dtype in types.items():
        check_shape(name, parts[name].shape, dtype, ids.shape[0], party, manifest)
    try:
        met: When = checked(_WHEN, json.loads(when, object_pairs_hook=no_name_twice, parse_constant=refuse_constant))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"metadata of {step}: {' '.join(str(error).split()) or 'it is nested too deeply'}") from error
    kinds = frozenset(name.partition("/")[0] for name in types)
    floats = frozenset(dtype for name, dtype in types.items() if name.startswith(("embedding/", "gradient/")))
    return Place(met.epoch, int(step) if met.step is None else met.step, met.phase, path, parts, kinds, floats)


def read_batch(place: Place, *, ids_alone: bool = False) -> Batch:
    """What stands there. ids_alone: without its messages."""
    with place.path.open("rb") as file:
        tensors = {n: read_part(file, part) for n, part in place.parts.items() if n == "ids" or not ids_alone}
    return Batch(tensors.pop("ids"), tensors)
