"""What an attack's scores give away: (scores, truth) -> leak AUC, over the audited batches of an epoch."""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from vflbench.metrics.canary import Guesses, guess
from vflbench.numerics.auc import auc
from vflbench.numerics.interval import Interval, mean_interval, within_unit


def two_sided(raw: Interval) -> Interval:
    """max(a, 1 - a) of a mean leak AUC, its interval folded at 0.5 with it.

    Taken of the epoch's mean, not batch by batch: the mean of max(a, 1 - a) is above 0.5 even for a coin.
    """
    if math.isnan(raw.mean):
        return raw
    mean = max(raw.mean, 1 - raw.mean)
    ends = sorted((abs(raw.low - 0.5), abs(raw.high - 0.5)))
    low = 0.5 if raw.low <= 0.5 <= raw.high else 0.5 + ends[0]
    return Interval(mean, low, 0.5 + ends[1])


@dataclass(frozen=True)
class Leak:
    """One attack on one layer of one party's network over an epoch.

    raw: leak AUC, mean over `batches` audited batches. two_sided: max(a, 1 - a) of that mean. oriented: the mean of
    max(a, 1 - a), what an attacker would reach who is told in each batch which end is positive; a coin's is above 0.5, by
    about 0.8 sqrt((n + 1) / (12 P N)) for P positives and N negatives a batch. left_out: batches of a single class, where
    no AUC exists, or with too few positives for an attack that is told some. guesses: about canaries, which count for no
    AUC.
    """

    attack: str
    message: str
    party: str
    layer: str
    visible: bool
    raw: Interval
    two_sided: Interval
    oriented: Interval
    batches: int
    left_out: int
    guesses: Guesses = field(default_factory=Guesses)

    def state(self) -> list[Any]:
        """Its values in the order of its fields, intervals as three numbers each, guesses as four."""
        return [list(map(float, value)) if isinstance(value, tuple) else value for value in astuple(self)]

    @classmethod
    def from_state(cls, state: Sequence[Any]) -> Self:
        *values, guesses = (Interval(*value) if isinstance(value, list) and len(value) == 3 else value for value in state)
        return cls(*values, Guesses(*map(int, guesses)))


@dataclass
class LeakTable:
    """Collects leak AUCs batch by batch."""

    _values: dict[tuple[str, str, str, str, bool], list[float]] = field(default_factory=dict)
    _guesses: dict[tuple[str, str, str, str, bool], Guesses] = field(default_factory=dict)

    def add(
        self,
        key: tuple[str, str, str, str, bool],
        scores: Tensor,
        truth: Tensor,
        known: Tensor | None = None,
        canary: Tensor | None = None,
    ) -> None:
        """key: (attack, message, party, layer, visible); scores (n,): higher = more likely positive; truth (n,) classes.
        known: (k,) places of rows whose label the attacker was told, which don't count. canary: (n,) bool, rows whose label
        is a coin, about which the scores are taken for guesses.

        Raises ValueError for scores that are not one finite number a row: a broken attack must not pass for a harmless one.
        """
        if scores.shape != truth.shape or not scores.isfinite().all():
            shape = tuple(scores.shape)
            raise ValueError(f"{key[0]} on {key[3]}: scores must be {len(truth)} finite numbers, got shape {shape}")
        positive = truth != 0
        if known is not None and len(known):
            asked = torch.ones_like(positive).index_fill_(0, known, False)
            scores, positive = scores[asked], positive[asked]
            canary = None if canary is None else canary[asked]
        if canary is not None and bool(canary.any()):
            self._guesses[key] = self._guesses.get(key, Guesses()) + guess(scores, positive, canary)
            scores, positive = scores[~canary], positive[~canary]
        self._values.setdefault(key, []).append(auc(scores, positive))

    def leave_out(self, key: tuple[str, str, str, str, bool]) -> None:
        """A batch in which that attack could not be asked."""
        self._values.setdefault(key, []).append(math.nan)

    def state(self) -> list[list[Any]]:
        """[attack, message, party, layer, visible], [values], [guesses] of each key."""
        return [
            [list(key), list(map(float, values)), list(astuple(self._guesses.get(key, Guesses())))]
            for key, values in self._values.items()
        ]

    @classmethod
    def from_state(cls, state: Sequence[Sequence[Any]]) -> Self:
        values = {tuple(key): list(values) for key, values, _ in state}
        return cls(values, {tuple(key): Guesses(*guesses) for key, _, guesses in state})

    def leaks(self) -> list[Leak]:
        """One entry a key, in the order they first came."""
        found = []
        for key, values in self._values.items():
            valid = [v for v in values if not math.isnan(v)]
            raw = within_unit(mean_interval(valid))
            oriented = within_unit(mean_interval([max(v, 1 - v) for v in valid]))
            left_out, guesses = len(values) - len(valid), self._guesses.get(key, Guesses())
            found.append(Leak(*key, raw, two_sided(raw), oriented, len(valid), left_out, guesses))
        return found
