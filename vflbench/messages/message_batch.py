"""One party's messages about one batch as a file has them, and as facts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from vflbench.messages.fact import Fact
from vflbench.messages.facts import Embeddings, Gradients, OwnColumns, Predictions, SummedGradients, Updates
from vflbench.messages.manifest import LAYER, Manifest
from vflbench.messages.rules import Rules

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


def without(batch: Batch, *kinds: str) -> Batch:
    """The same without messages of these kinds."""
    return replace(batch, tensors={n: v for n, v in batch.tensors.items() if n.partition("/")[0] not in kinds})


def type_name(values: Tensor) -> str:
    """float32 for torch.float32."""
    return str(values.dtype).removeprefix("torch.")
