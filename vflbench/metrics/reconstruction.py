"""What attacks rebuilt of the private data, in figures and in examples to look at."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflbench.numerics.figure_range import range_of
from vflbench.numerics.interval import UNIT, Interval, Range, mean_interval, share_interval

Key = tuple[str, str, str, str, bool]
"""Attack, kind of message, party whose data it is, layer, and whether an attacker sees that."""

_SCALED_ERROR = "mse"
"""Of columns and pixels in [0, 1], and therefore in [0, 1] itself."""

_LEAST_MSE = 1e-10
_HITS = ("recognised", "identified", "rows_right", "id_accuracy:")
"""Figures that are the share of rows with a hit."""

CHANCE = "chance"
"""The value of a row that is the probability of being identified without any message about it."""

_DOUBT = 0.025
"""A row's messages tell who it is, unless so many hits by chance are at least so likely."""

Example = tuple[Tensor, Tensor]
"""Some rows as they are and as they were rebuilt, of the same shape: (n, columns), or (n, height, width) for pictures."""


@dataclass(frozen=True)
class Margin(Interval):
    """By how much the error of a guess exceeds that of the answer, row by row. beats: whether the interval is above 0."""

    beats: bool = False


@dataclass(frozen=True)
class Reconstruction:
    """Figures of one attack on one party's data over an epoch, with 95 % intervals.

    A figure with a value for each row is the mean over the rows of all audited batches, with an interval over rows: it says
    what other rows would change, not what another network or another seed would. Any other figure is the mean over the
    audited batches, with an interval over them.

    batches: that were attacked; a figure may be defined in fewer of them, and is nan where it is in none. notes: what the
    attack said, and of how many batches. rows: that were compared, 0 if figures have no values of rows. beats_guesses: guess
    without a message -> margin. told_apart: whether more rows are identified than by chance; None if that can't be tested,
    or if neither these rows nor the true ones are.
    beats_every_guess: whether every margin is above 0 and rows are told apart as far as that could be tested; None for what
    is not compared with guesses.
    """

    attack: str
    message: str
    party: str
    layer: str
    visible: bool
    figures: Mapping[str, Interval]
    batches: int
    notes: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    beats_guesses: Mapping[str, Margin] = field(default_factory=dict)
    told_apart: bool | None = None
    beats_every_guess: bool | None = None


@dataclass
class ReconstructionTable:
    """Collects figures batch by batch, and of each key the first example."""

    _batches: dict[Key, list[dict[str, float]]] = field(default_factory=dict)
    _examples: dict[Key, Example] = field(default_factory=dict)
    _notes: dict[Key, dict[str, int]] = field(default_factory=dict)
    _rows: dict[Key, dict[str, list[float]]] = field(default_factory=dict)
    _margins: dict[Key, dict[str, list[float]]] = field(default_factory=dict)

    def add(
        self,
        key: Key,
        figures: Mapping[str, float],
        example: Example | None = None,
        note: str = "",
        *,
        rows: Mapping[str, Tensor] = MappingProxyType({}),
        margins: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> None:
        """figures: name -> value of one batch, nan where it is not defined. note: what the attack says of it.

        rows: name -> (n,) values whose mean is the figure of that name; nan where a row has none; `CHANCE` too. margins:
        guess -> (n,) by how much its error exceeds that of the answer.
        """
        self._batches.setdefault(key, []).append(dict(figures))
        for kept, given in ((self._rows, rows), (self._margins, margins)):
            for name, values in given.items():
                kept.setdefault(key, {}).setdefault(name, []).extend(values.double().cpu().tolist())
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
        return [self._entry(key, batches) for key, batches in self._batches.items()]

    def _entry(self, key: Key, batches: Sequence[Mapping[str, float]]) -> Reconstruction:
        names = dict.fromkeys(name for figures in batches for name in figures)
        defined = {n: [f[n] for f in batches if not math.isnan(f.get(n, math.nan))] for n in names}
        figures = {name: mean_interval(values, _limits(name)) for name, values in defined.items()}
        rows = self._rows.get(key, {})
        figures |= {name: over_rows(name, values) for name, values in rows.items() if name in figures}
        if "psnr" in figures and _SCALED_ERROR in rows:
            mse = figures[_SCALED_ERROR]
            figures["psnr"] = Interval(psnr(mse.mean), psnr(mse.high), psnr(mse.low))
        margins = {guess: _margin(values) for guess, values in self._margins.get(key, {}).items()}
        told_apart = _told_apart(rows) if margins else None
        truth = self._rows.get(_truth_beside(key))
        if told_apart is False and truth is not None and not _told_apart(truth):
            told_apart = None  # not even the true rows can be
        beaten = all(margin.beats for margin in margins.values()) and told_apart is not False if margins else None
        compared = max(map(len, rows.values()), default=0)
        notes = dict(self._notes.get(key, {}))
        return Reconstruction(*key, figures, len(batches), notes, compared, margins, told_apart, beaten)

    def examples(self) -> dict[str, Any]:
        """NumPy arrays by `attack/party/layer/truth` and `attack/party/layer/answer`."""
        arrays = {}
        for (attack, _, party, layer, _), (truth, answer) in self._examples.items():
            arrays[f"{attack}/{party}/{layer}/truth"] = truth.numpy()
            arrays[f"{attack}/{party}/{layer}/answer"] = answer.numpy()
        return arrays


def over_rows(name: str, values: Sequence[float]) -> Interval:
    """The mean of a figure's values over rows with its 95 % interval: Wilson's for shares of hits, else Student's t."""
    known = [value for value in values if not math.isnan(value)]
    return share_interval(known) if name.startswith(_HITS) else mean_interval(known, _limits(name))


def psnr(mse: float) -> float:
    """10 log10(1 / mse) in dB, for values in [0, 1]; at most 100, reached at mse = 1e-10, so that means stay finite."""
    return math.nan if math.isnan(mse) else -10 * math.log10(max(mse, _LEAST_MSE))


def _limits(name: str) -> Range:
    return UNIT if name.partition(":")[0] == _SCALED_ERROR else range_of(name)


def _margin(values: Sequence[float]) -> Margin:
    interval = mean_interval([value for value in values if not math.isnan(value)])
    return Margin(interval.mean, interval.low, interval.high, interval.low > 0)


def _truth_beside(key: Key) -> Key:
    """Where the true rows stand that an answer is compared with."""
    attack, _, party, _, _ = key
    return attack, "none", party, "true", False


def _told_apart(rows: Mapping[str, Sequence[float]]) -> bool | None:
    """Whether more rows are identified than by chance: an exact one-sided test, at 2.5 %, of the whole hits, each row
    with its own chance.
    """
    if CHANCE not in rows:
        return None
    pairs = [pair for pair in zip(rows["identified"], rows[CHANCE], strict=True) if not any(map(math.isnan, pair))]
    if all(chance == 1 for _, chance in pairs):
        return None
    hits = math.floor(math.fsum(hit for hit, _ in pairs) + 1e-9)
    of_hits = np.zeros(len(pairs) + 1)  # probability of so many by chance
    of_hits[0] = 1.0
    for _, chance in pairs:
        of_hits[1:] = of_hits[1:] * (1 - chance) + of_hits[:-1] * chance
        of_hits[0] *= 1 - chance
    return bool(of_hits[hits:].sum() < _DOUBT)


def share(hits: Tensor) -> float:
    """The share of True, nan of none."""
    return hits.to(torch.float64).mean().item() if hits.numel() else math.nan
