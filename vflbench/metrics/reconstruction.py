"""What attacks rebuilt of the private data, in figures and in examples to look at."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import UNIT, Interval, mean_interval

Key = tuple[str, str, str, str, bool]
"""Attack, kind of message, party whose data it is, layer, and whether an attacker sees that."""

_SCALED_ERROR = "mse"
"""Of columns and pixels in [0, 1], and therefore in [0, 1] itself."""

Example = tuple[Tensor, Tensor]
"""Some rows as they are and as they were rebuilt, of the same shape: (n, columns), or (n, height, width) for pictures."""


@dataclass(frozen=True)
class Reconstruction:
    """Figures of one attack on one party's data over an epoch: mean over the audited batches, and a 95 % interval.

    batches: that were attacked; a figure may be defined in fewer of them, and is nan where it is in none. notes: what the
    attack said, and of how many batches.
    """

    attack: str
    message: str
    party: str
    layer: str
    visible: bool
    figures: Mapping[str, Interval]
    batches: int
    notes: Mapping[str, int] = field(default_factory=dict)

    def state(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        return cls(**{**state, "figures": {name: Interval(**value) for name, value in state["figures"].items()}})


@dataclass
class ReconstructionTable:
    """Collects figures batch by batch, and of each key the first example."""

    _batches: dict[Key, list[dict[str, float]]] = field(default_factory=dict)
    _examples: dict[Key, Example] = field(default_factory=dict)
    _notes: dict[Key, dict[str, int]] = field(default_factory=dict)

    def add(self, key: Key, figures: Mapping[str, float], example: Example | None = None, note: str = "") -> None:
        """figures: name -> value of one batch, nan where it is not defined. note: what the attack says of it."""
        self._batches.setdefault(key, []).append(dict(figures))
        if note:
            notes = self._notes.setdefault(key, {})
            notes[note] = notes.get(note, 0) + 1
        if example is not None and key not in self._examples:
            truth, answer = (values.detach().cpu() for values in example)
            if truth.shape != answer.shape:
                raise ValueError(f"{key[0]} on {key[3]}: {tuple(truth.shape)} rebuilt as {tuple(answer.shape)}")
            self._examples[key] = truth, answer

    def found(self) -> list[Reconstruction]:
        """One entry a key, in the order they first came."""
        found = []
        for key, batches in self._batches.items():
            names = dict.fromkeys(name for figures in batches for name in figures)
            defined = {n: [f[n] for f in batches if not math.isnan(f.get(n, math.nan))] for n in names}
            limits = {n: UNIT if n.partition(":")[0] == _SCALED_ERROR else range_of(n) for n in names}
            figures = {name: mean_interval(values, limits[name]) for name, values in defined.items()}
            found.append(Reconstruction(*key, figures, len(batches), dict(self._notes.get(key, {}))))
        return found

    def examples(self) -> dict[str, Any]:
        """NumPy arrays by `attack/party/layer/truth` and `attack/party/layer/answer`."""
        arrays = {}
        for (attack, _, party, layer, _), (truth, answer) in self._examples.items():
            arrays[f"{attack}/{party}/{layer}/truth"] = truth.numpy()
            arrays[f"{attack}/{party}/{layer}/answer"] = answer.numpy()
        return arrays

    def state(self) -> dict[str, Any]:
        return {
            "batches": [[list(key), [dict(figures) for figures in batches]] for key, batches in self._batches.items()],
            "examples": [[list(key), list(example)] for key, example in self._examples.items()],
            "notes": [[list(key), dict(notes)] for key, notes in self._notes.items()],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Sequence[Any]]) -> Self:
        batches = {tuple(key): [dict(figures) for figures in found] for key, found in state["batches"]}
        examples = {tuple(key): (truth.clone(), answer.clone()) for key, (truth, answer) in state["examples"]}
        return cls(batches, examples, {tuple(key): dict(notes) for key, notes in state["notes"]})


def share(hits: Tensor) -> float:
    """The share of True, nan of none."""
    return hits.to(torch.float64).mean().item() if hits.numel() else math.nan
