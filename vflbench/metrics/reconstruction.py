"""What attacks rebuilt of the private data, in figures and examples; rows of batches without an order are matched first."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflbench.numerics.interval import Interval, mean_interval, range_of, share_interval

_Key = tuple[str, str, str, str, bool]
"""Attack, kind of message, party whose data it is, layer, and whether an attacker sees that."""

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
    without a message -> margin. distinguished: whether more rows are identified than by chance; None if that can't be
    tested, or if neither these rows nor the true ones are.
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
    distinguished: bool | None = None
    beats_every_guess: bool | None = None


@dataclass
class ReconstructionTable:
    """Collects figures batch by batch, and of each key the first example."""

    _batches: dict[_Key, list[dict[str, float]]] = field(default_factory=dict)
    _examples: dict[_Key, Example] = field(default_factory=dict)
    _notes: dict[_Key, dict[str, int]] = field(default_factory=dict)
    _rows: dict[_Key, dict[str, list[float]]] = field(default_factory=dict)
    _margins: dict[_Key, dict[str, list[float]]] = field(default_factory=dict)

    def add(
        self,
        key: _Key,
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

    def entries(self) -> list[Reconstruction]:
        """One entry a key, in the order they first came."""
        return [self._entry(key, batches) for key, batches in self._batches.items()]

    def _entry(self, key: _Key, batches: Sequence[Mapping[str, float]]) -> Reconstruction:
        names = dict.fromkeys(name for figures in batches for name in figures)
        figures = {n: mean_interval([of.get(n, math.nan) for of in batches], range_of(n)) for n in names}
        rows = self._rows.get(key, {})
        figures |= {name: over_rows(name, values) for name, values in rows.items() if name in figures}
        if "psnr" in figures and "mse" in rows:
            mse = figures["mse"]
            figures["psnr"] = Interval(psnr(mse.mean), psnr(mse.high), psnr(mse.low))
        margins = {guess: _margin(values) for guess, values in self._margins.get(key, {}).items()}
        distinguished = _distinguishes(rows) if margins else None
        truth = self._rows.get((key[0], "none", key[2], "true", False))  # the true rows that the answer is compared with
        if distinguished is False and truth is not None and not _distinguishes(truth):
            distinguished = None  # not even the true rows can be
        beaten = all(margin.beats for margin in margins.values()) and distinguished is not False if margins else None
        compared = max(map(len, rows.values()), default=0)
        notes = dict(self._notes.get(key, {}))
        return Reconstruction(*key, figures, len(batches), notes, compared, margins, distinguished, beaten)

    def examples(self) -> dict[str, Any]:
        """NumPy arrays by `attack/party/layer/truth` and `attack/party/layer/answer`."""
        arrays = {}
        for (attack, _, party, layer, _), (truth, answer) in self._examples.items():
            arrays[f"{attack}/{party}/{layer}/truth"] = truth.numpy()
            arrays[f"{attack}/{party}/{layer}/answer"] = answer.numpy()
        return arrays


def over_rows(name: str, values: Sequence[float]) -> Interval:
    """The mean of a figure's values over rows with its 95 % interval: Wilson's for shares of hits, else Student's t."""
    return share_interval(values) if name.startswith(_HITS) else mean_interval(values, range_of(name))


def psnr(mse: float) -> float:
    """10 log10(1 / mse) in dB, for values in [0, 1]; at most 100, reached at mse = 1e-10, so that means stay finite."""
    return math.nan if math.isnan(mse) else -10 * math.log10(max(mse, _LEAST_MSE))


def _margin(values: Sequence[float]) -> Margin:
    interval = mean_interval(values)
    return Margin(interval.mean, interval.low, interval.high, interval.low > 0)


def _distinguishes(rows: Mapping[str, Sequence[float]]) -> bool | None:
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
    return hits.to(torch.float64).mean().item()


CLOSE = 1e-3
"""Largest error at which a real-valued entry counts as right."""


def batch_figures(
    x: Tensor,
    y: Tensor,
    when: Tensor,
    *,
    rows: Tensor | None,
    labels: Tensor | None,
    candidates: Sequence[Tensor],
    guess: Tensor,
    guess_label: float,
    steps: Tensor | None,
    binary: Tensor | None,
    guessed_rows: Tensor | None = None,
    column_guesses: Tensor | None = None,
) -> dict[str, float]:
    """Figures of one batch x (m, d), y (m,) in {-1, +1}, and when (m,), the local step of each row.

    The other arguments are those of an attack's answer. The guess, the same for every row, needs no update.

    exact: 1 if every entry is right once answered rows are matched to true rows. contained: 1 if a candidate equals the
    batch in the binary columns. entries_right: share of right entries, real values within 0.001; where there is no answer,
    the attack's own guess of the batch counts, and rows are matched by its columns, too; then the guess. labels_right: share
    of right labels, likewise; among equal rows only the number of positives counts. guess_entries_right,
    guess_labels_right: the same of the guess. matched_guess_right: of batches that follow from the attacker's columns alone,
    matched like an answer, their mean: the line that entries_right is to be held against. guessed_share: 1 if the attack
    found no row. columns_recovered: share of columns with an answer. steps_right: share of rows with the right local step.
    """
    guessed = guess.to(x).expand_as(x)
    constant = share((guessed - x).abs() <= CLOSE)
    figures = {
        "exact": 0.0,
        "contained": 0.0,
        "entries_right": constant,
        "labels_right": share(y == guess_label),
        "guess_entries_right": constant,
        "guess_labels_right": share(y == guess_label),
        "matched_guess_right": _matched_right(column_guesses, x, constant),
        "guessed_share": float(rows is None or bool(rows.isnan().all())),
        "columns_recovered": 0.0,
    }
    answer = _filled(rows, guessed_rows)
    if answer is None:
        return figures
    columns = _matching_columns(binary, x)
    order = matched(answer[:, columns], x[:, columns])
    answer = answer.to(x)
    right = _right(answer[order], x, guessed)
    figures["entries_right"] = share(right)
    if not columns.all() and guessed_rows is not None:
        figures["entries_right"] = share(_right(answer[matched(answer, x)], x, guessed))
    answer = answer[order]
    if labels is not None:
        figures["labels_right"] = _labels_right(answer[:, columns], labels.to(x)[order], y, guess_label)
    if rows is None:
        return figures
    known = ~rows.to(x.device)[order].isnan()
    same = [_same_rows(candidate.to(x)[:, columns], x[:, columns]) for candidate in candidates]
    figures |= {
        "exact": float(right.all() and bool(known.all())),
        "contained": float(any(same) or bool((known & (answer == x))[:, columns].all())),
        "columns_recovered": share(known.all(dim=0)),
    }
    if steps is not None:
        figures["steps_right"] = share(steps.to(x)[order] == when)
    return figures


def _right(answer: Tensor, x: Tensor, guessed: Tensor) -> Tensor:
    """(m, d) bool, of matched rows; the guess counts where there is no answer."""
    return (torch.where(answer.isnan(), guessed, answer) - x).abs() <= CLOSE


def _filled(known: Tensor | None, guessed: Tensor | None) -> Tensor | None:
    """The guess where nothing is known."""
    if known is None or guessed is None:
        return guessed if known is None else known
    return torch.where(known.isnan(), guessed.to(known), known)


def _matched_right(guesses: Tensor | None, x: Tensor, constant: float) -> float:
    """The mean share of right entries of these batches (g, m, d), each matched to x; `constant` without any."""
    if guesses is None or guesses.shape[1:] != x.shape:
        return constant
    return sum(share((guess[matched(guess, x)] - x).abs() <= CLOSE) for guess in guesses.to(x)) / len(guesses)


def batch_example(
    x: Tensor,
    y: Tensor,
    *,
    rows: Tensor | None,
    labels: Tensor | None,
    guess: Tensor,
    guess_label: float,
    binary: Tensor | None,
    shares: Tensor | None = None,
    guessed_rows: Tensor | None = None,
    **_: object,
) -> Example:
    """The batch and the answer, row by row, with the label as 0 or 1 in the last column.

    shares: if several batches fit, the share of them with a 1 in each entry, nan in real-valued columns. Where there is no
    answer, the attack's own guess of the batch is shown, then the guess.
    """
    truth = torch.cat([x, (y[:, None] + 1) / 2], dim=1)
    answer = _filled(rows, guessed_rows)
    if answer is None:
        features, answered_labels = guess.to(x).expand_as(x), torch.full_like(y, guess_label)
    else:
        columns = _matching_columns(binary, x)
        order = matched(answer[:, columns], x[:, columns])
        nothing = math.nan if rows is not None else guess_label
        answered_labels = torch.full_like(y, nothing) if labels is None else labels.to(y)[order]
        answer = answer.to(x)
        likely = answer if shares is None else torch.where(shares.to(x).isnan(), answer, shares.to(x))
        features = likely[order]
    return truth, torch.cat([features, (answered_labels[:, None] + 1) / 2], dim=1)


def matched(rows: Tensor, x: Tensor) -> Tensor:
    """The order of rows (m, d) that is nearest to x (m, d): least sum of |differences|, a nan counting 1."""
    distance = (rows.to(x)[None, :, :] - x[:, None, :]).abs().nan_to_num(nan=1.0).sum(dim=2)
    from scipy.optimize import linear_sum_assignment  # slow to import, and needed by few runs

    return torch.from_numpy(linear_sum_assignment(distance.cpu().numpy())[1]).to(x.device)


def _matching_columns(binary: Tensor | None, x: Tensor) -> Tensor:
    """(d,) bool: the columns by which rows are matched."""
    return torch.ones(x.shape[1], dtype=torch.bool, device=x.device) if binary is None else binary.to(x.device)


def _same_rows(rows: Tensor, x: Tensor) -> bool:
    """Whether both are equal up to the order of rows."""
    return rows.shape == x.shape and sorted(map(tuple, rows.tolist())) == sorted(map(tuple, x.tolist()))


def _labels_right(rows: Tensor, labels: Tensor, y: Tensor, guess_label: float) -> float:
    """Share of right labels. Equal rows are exchangeable, so in each group of them only the number of positives counts."""
    answer = torch.where(labels.isnan(), torch.full_like(labels, guess_label), labels)
    _, group = torch.unique(rows.nan_to_num(nan=2.0), dim=0, return_inverse=True)
    wrong = 0.0
    for number in group.unique():
        members = group == number
        answered, true = ((values[members] + 1).sum() / 2 for values in (answer, y))
        wrong += abs(round(answered.item()) - true.item())
    return 1 - wrong / len(y) if len(y) else math.nan
