"""Facts as arrays and JSON, and back. Only values can be recorded, and what is read is checked before it is used."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from vflbench.messages.fact import Fact
from vflbench.messages.facts import (
    Embeddings,
    Gradients,
    OwnColumns,
    Predictions,
    Rules,
    SummedGradients,
    Updates,
)
from vflbench.messages.round import PrivateBatch

RECORDABLE: Mapping[str, type[Fact]] = {
    fact.__name__: fact for fact in (Embeddings, Gradients, SummedGradients, OwnColumns, Predictions, Updates)
}
"""The facts that a recording can hold: values, not functions or networks that could be asked."""

Arrays = Mapping[str, Tensor]
"""Name of an array in the file -> its values."""

_STAND_INS = {"bfloat16": (torch.bfloat16, torch.int16)}
"""Types that NumPy lacks: name -> the type, and one of the same size that stands for it."""

_RULES = TypeAdapter(Rules)
T = TypeVar("T")


def packed(value: Any, keep: Callable[[Tensor], str]) -> Any:
    """Plain values for JSON, in which names stand for tensors.

    value: a fact, or what facts consist of: tensors, rules, texts, mappings. keep: stores a tensor and returns its name.
    """
    if isinstance(value, Tensor):
        dense = value.detach().to_dense() if value.is_sparse else value.detach()
        for name, (kind, stand_in) in _STAND_INS.items():
            if value.dtype is kind:
                return {"tensor": keep(dense.view(stand_in)), "dtype": name}
        return {"tensor": keep(dense)}
    if isinstance(value, Rules):
        return {"rules": asdict(value)}
    if isinstance(value, Mapping):
        return {"mapping": {str(key): packed(part, keep) for key, part in value.items()}}
    if isinstance(value, str):
        return {"text": value}
    return {part.name: packed(getattr(value, part.name), keep) for part in fields(value)}


def fact_from(name: str, node: Any, arrays: Arrays, rows: int) -> Fact:
    """The inverse of `packed`, for a fact of a round with so many rows.

    Raises ValueError, or another exception, for values of another shape or type than such a fact has.
    """
    if name not in RECORDABLE:
        raise ValueError(f"{name} is no fact that can be recorded")
    fact = _unpacked(RECORDABLE[name], node, arrays)
    for part, values in _tables(fact):
        _require(values, 2, f"{name}, {part}")
        if len(values) != rows:
            raise ValueError(f"{name}, {part}: it has {len(values)} rows, and the round has {rows}")
    for part, values in _real_numbers(fact):
        if not values.is_floating_point():
            raise ValueError(f"{name}, {part}: it must hold real numbers, not {values.dtype}")
    if isinstance(fact, OwnColumns) and fact.categorical.numel() and not _are_ids(fact.categorical):
        raise ValueError(f"{name}: categorical columns must hold ids, whole numbers from 0")
    if isinstance(fact, Updates):
        others = {f"update of {name}": update for name, update in fact.received.items()}
        _require_vectors(before=fact.before, sent=fact.sent, after=fact.after, **others)
    return fact


def private_from(node: Any, arrays: Arrays) -> PrivateBatch:
    """The inverse of `packed`, for a private batch. Raises ValueError, or another exception, for anything else."""
    batch = _unpacked(PrivateBatch, node, arrays)
    for name, values, ndim in (("x", batch.x, 2), ("y", batch.y, 1), ("steps", batch.steps, 1)):
        _require(values, ndim, f"private batch, {name}")
        if len(values) != len(batch.x):
            raise ValueError(f"private batch, {name}: it has {len(values)} rows, and x has {len(batch.x)}")
    return batch


def validated(kind: TypeAdapter[T], content: Any) -> T:
    """A value of that type. Raises ValueError, with one line, for other content."""
    try:
        return kind.validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _unpacked(kind: type[T], node: Mapping[str, Any], arrays: Arrays) -> T:
    def part(node: Mapping[str, Any]) -> Any:
        if "tensor" in node:
            values = arrays[node["tensor"]]
            return values.view(_STAND_INS[node["dtype"]][0]) if "dtype" in node else values
        if "rules" in node:
            return validated(_RULES, node["rules"])
        return node["text"] if "text" in node else {key: part(inner) for key, inner in node["mapping"].items()}

    return kind(**{name: part(inner) for name, inner in node.items()})


def _tables(fact: Fact) -> Iterator[tuple[str, Any]]:
    """What has a row for each row of the batch, by name."""
    match fact:
        case Embeddings():
            yield from fact.layers.items()
            for party, layers in fact.received.items():
                yield from ((f"{layer} of party {party}", values) for layer, values in layers.items())
        case Gradients():
            yield from fact.layers.items()
        case OwnColumns():
            yield from (("numeric", fact.numeric), ("categorical", fact.categorical))
        case Predictions():
            yield "logits", fact.logits


def _real_numbers(fact: Fact) -> Iterator[tuple[str, Tensor]]:
    if isinstance(fact, SummedGradients):
        yield from ((name, _require(values, None, name)) for name, values in fact.parameters.items())
    yield from ((name, values) for name, values in _tables(fact) if name != "categorical")


def _are_ids(values: Tensor) -> bool:
    return not values.is_floating_point() and values.dtype is not torch.bool and int(values.min()) >= 0


def _require(values: Any, ndim: int | None, name: str) -> Tensor:
    """values, which must be a tensor of so many dimensions; None: of any."""
    if not isinstance(values, Tensor):
        raise TypeError(f"{name}: it must be an array, not {type(values).__name__}")
    if ndim is not None and values.ndim != ndim:
        raise ValueError(f"{name}: it must have {ndim} dimensions, and its shape is {tuple(values.shape)}")
    return values


def _require_vectors(**vectors: Any) -> None:
    for name, values in vectors.items():
        _require(values, 1, f"Updates, {name}")
        if values.dtype is not torch.float64 or len(values) != len(vectors["before"]):
            raise ValueError("Updates: models and updates must be vectors of one length in float64")
