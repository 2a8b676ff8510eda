"""Answers of attacks as plain values and back, for attacks that are asked in another process than the auditor's."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from vflbench.attacks.base import Answer, Answers, ClassCounts, RebuiltRows, Scores
from vflbench.errors import UserError
from vflbench.messages.facts import OwnColumns
from vflbench.messages.message import Kind
from vflbench.metrics.leakage import checked_scores
from vflbench.run.posts import Post
from vflbench.run.question import places_of

_MOST_NAMES, _MOST_LETTERS = 10_000, 200
_TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool)

Plain = Mapping[str, Any]


def to_plain(answers: Answers, names: Tensor, attack: str) -> list[dict[str, Any]]:
    """Rows are named by their places among those that were asked about. names: (n,) of these. attack: its name.

    Raises UserError for an answer that nobody at another process can grade.
    """
    several = answers if isinstance(answers, Sequence) else [answers]
    return [_plain(answer, names, attack) for answer in several if answer is not None]


def _plain(answer: Answer, names: Tensor, attack: str) -> dict[str, Any]:
    if isinstance(answer, Scores):
        by_layer = isinstance(answer.layers, Mapping)
        layers = answer.layers if isinstance(answer.layers, Mapping) else {"": answer.layers}
        return {
            "type": "scores",
            "rows": _places(answer.ids, names, attack),
            "by_layer": by_layer,
            "layers": {layer: _bare(values, attack, layer) for layer, values in layers.items()},
            "message": None if answer.message is None else str(answer.message),
            "candidates": {layer: _bare(values, attack, layer) for layer, values in answer.candidates.items()},
        }
    if isinstance(answer, ClassCounts):
        return {
            "type": "class counts",
            "layers": {layer: _bare(counts, attack, layer) for layer, counts in answer.layers.items()},
        }
    if isinstance(answer, RebuiltRows):
        return {
            "type": "rebuilt rows",
            "rows": _places(answer.ids, names, attack),
            "layer": answer.layer,
            "features": {
                party: [_bare(columns.numeric, attack, party), _bare(columns.categorical, attack, party)]
                for party, columns in answer.features.items()
            },
            "figures": {name: float(value) for name, value in answer.figures.items()},
            "note": answer.note,
        }
    problem = (
        f"it answered with {type(answer).__name__}; from a non-label party that lives in a process of its own, allowed are "
        "Scores, ClassCounts, RebuiltRows, a list of them, or None"
    )
    raise UserError(problem, key="attack", value=attack)


def _places(ids: Tensor, names: Tensor, attack: str) -> Tensor | None:
    places = places_of(ids, names, attack)
    return None if places is None else places.cpu()


def _bare(values: Any, attack: str, layer: str) -> Tensor:
    if not isinstance(values, Tensor):
        problem = f"its answer on {layer or 'its layer'} must be a tensor, got {type(values).__name__}"
        raise UserError(problem, key="attack", value=attack)
    return values.detach().as_subclass(Tensor).cpu()


class Arrival:
    """Reads answers that a party sent: what isn't one is a UserError that names the party.

    post: whose answers they are. names: (n,) of the rows that it was asked about. classes: K.
    """

    def __init__(self, party: str, post: Post, names: Tensor, classes: int):
        self._party, self._post, self._names, self._classes = party, post, names, classes

    def answers(self, content: Any) -> list[Answer]:
        if type(content) is not list or len(content) > _MOST_NAMES:
            raise self._refused("no list of answers")
        return [self._answer(one) for one in content]

    def _refused(self, what: str) -> UserError:
        return refused(self._party, f"the answer of attack={self._post.name} holds {what}")

    def _answer(self, content: Any) -> Answer:
        kind = content.get("type") if type(content) is dict else None
        if kind == "scores":
            return self._scores(content)
        if kind == "class counts":
            return self._counts(content)
        if kind == "rebuilt rows":
            return self._rebuilt(content)
        raise self._refused("an answer of no known type")

    def _scores(self, content: Plain) -> Scores:
        names = self._rows(content.get("rows"))
        layers = self._layers(content.get("layers"))
        for layer, values in layers.items():
            try:
                checked_scores(values, len(names), self._classes, attack=self._post.name, layer=layer or "its layer")
            except UserError as error:
                raise refused(self._party, f"attack={self._post.name}: {error.problem}") from error
        candidates = self._layers(content.get("candidates"))
        if any(v.ndim != 2 or len(v) != len(names) or not bool(v.isfinite().all()) for v in candidates.values()):
            raise self._refused("candidates that are no scores of its rows")
        message, by_layer = content.get("message"), content.get("by_layer")
        if message is not None and message not in [str(kind) for kind in Kind]:
            raise self._refused("scores about no kind of message")
        if by_layer is not True and (by_layer is not False or list(layers) != [""]):
            raise self._refused("scores of no layer")
        kind = None if message is None else Kind(message)
        return Scores(names, layers if by_layer else layers[""], kind, candidates)

    def _counts(self, content: Plain) -> ClassCounts:
        layers = self._layers(content.get("layers"))
        if any(tuple(counts.shape) != (self._classes,) or not bool(counts.isfinite().all()) for counts in layers.values()):
            raise self._refused(f"class counts that are no {self._classes} finite numbers")
        return ClassCounts(layers)

    def _rebuilt(self, content: Plain) -> RebuiltRows:
        names, features, figures = self._rows(content.get("rows")), content.get("features"), content.get("figures")
        layer, note = content.get("layer"), content.get("note")
        if type(features) is not dict or type(figures) is not dict or not is_name(layer) or type(note) is not str:
            raise self._refused("rebuilt rows without columns")
        columns: dict[str, OwnColumns] = {}
        for party, parts in features.items():
            if type(parts) is not list or len(parts) != 2 or not all(self._is_table(one, len(names)) for one in parts):
                raise self._refused("rebuilt rows that are no table")
            columns[party] = OwnColumns(*(values.to(self._names.device) for values in parts))
        if not all(is_name(name) and type(value) is float and not math.isinf(value) for name, value in figures.items()):
            raise self._refused("figures that are no numbers")
        return RebuiltRows(names, str(layer), columns, figures, note)

    def _is_table(self, values: Any, rows: int) -> bool:
        return is_tensor(values) and values.ndim == 2 and len(values) == rows

    def _rows(self, places: Any) -> Tensor:
        """(m,) names."""
        if places is None:
            return self._names
        if not is_rows(places, len(self._names)) or len(places.unique()) != len(places):
            raise self._refused("rows that it wasn't asked about, or one twice")
        return self._names[places.to(self._names.device)]

    def _layers(self, content: Any) -> dict[str, Tensor]:
        if type(content) is not dict or len(content) > _MOST_NAMES:
            raise self._refused("no layers")
        for layer, values in content.items():
            if not is_name(layer) or not is_tensor(values):
                raise self._refused("a layer that is none")
        return {layer: values.to(self._names.device) for layer, values in content.items()}


def refused(party: str, problem: str) -> UserError:
    """What a party sent can't be used."""
    return UserError(f"party {party} sends what is no answer: {problem}", key="engine")


def is_name(value: Any) -> bool:
    return type(value) is str and len(value) <= _MOST_LETTERS and value.isprintable()


def is_tensor(value: Any) -> bool:
    """A plain one, on the CPU as all that crosses."""
    return type(value) is Tensor and value.dtype in _TYPES and value.device.type == "cpu" and not value.requires_grad


def is_rows(value: Any, count: int) -> bool:
    """(m,) int64 places among so many rows."""
    if not is_tensor(value) or value.dtype is not torch.int64 or value.ndim != 1:
        return False
    return not len(value) or bool((value.min() >= 0) & (value.max() < count))
