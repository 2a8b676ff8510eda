"""A promise of label DP held against rows as they are: what recorded messages tell about labels, beyond their features."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from vflbench.errors import UserError
from vflbench.metrics.observational import (
    Cut,
    best_cut,
    epsilon_low,
    explained_log_odds,
    odds_factor_needed,
    strata,
    table,
)
from vflbench.metrics.proxy import better, proxy_scores
from vflbench.numerics.auc import auc

Model = Callable[[Tensor, Tensor, Tensor, Tensor, int], Mapping[str, Tensor]]
"""Features (n, d), outcome (n,) bool, places to learn from, places to ask, seed -> name -> (k,) log odds of the outcome."""

ASSUMPTION = (
    "the recording has every feature that the messages depend on; and either a row's guess, had its label been this or that,"
    " depends on no feature, or labels are independent given the features and, of two rows in one stratum of the proxy, "
    "neither has more than G times the odds of a positive label. Neither can be confirmed from the recording: features that "
    "are missing can make a mechanism that keeps its promise look broken"
)
_MOST_ROWS = 50_000  # that are audited, at random; with more the bound is hardly tighter
_CHECKED_ROWS = 200  # of a class, to learn from and to ask about; of fewer, nothing is known about guesses
_TOLERATED, _ERRORS = 0.52, 3.0  # AUC of guesses by features that is too small to matter; standard errors


@dataclass(frozen=True)
class ObservedPrivacy:
    """What the messages show against a promise.

    claimed: eps that is promised for all messages together. eps_low: the bound at `confidence` under `assumption` with
    G = odds_factor; 0 shows nothing. odds_factor: the larger of what was asked for and odds_factor_seen, what features
    alone, as far as the proxies know them, make of the guesses. odds_factor_needed: G from which on the messages fit the
    promise; 1 if they fit anyway. features_tell_guess: AUC by which features tell the guess about rows of one class; nan if
    that could not be checked. reads_features: whether it is above 0.52 and 3 standard errors above 0.5.
    rows, counted: rows that were audited, and those in the tables of the decisive half. attack: whose scores.
    """

    claimed: float
    eps_low: float
    confidence: float
    odds_factor: float
    odds_factor_seen: float
    odds_factor_needed: float
    features_tell_guess: float
    reads_features: bool
    rows: int
    counted: int
    attack: str
    assumption: str = ASSUMPTION

    @property
    def outcome(self) -> str:
        """`against`, `undecided` or `nothing`; never that a promise was kept."""
        if self.eps_low <= self.claimed:
            return "nothing"
        return "undecided" if self.reads_features or math.isnan(self.features_tell_guess) else "against"

    @property
    def verdict(self) -> str:
        """For the reader of a report. It never says that a promise was kept, nor that it is proven broken."""
        percent = f"{100 * self.confidence:g} %"
        if self.outcome == "nothing":
            return (
                f"Nothing against the claimed eps {self.claimed:g} was found: what the messages show needs at least eps "
                f"{self.eps_low:.2f} at {percent}. This proves nothing."
            )
        needs = (
            f"The recording claims eps {self.claimed:g}; what {self.attack} reads from the messages would need at least eps "
            f"{self.eps_low:.2f} at {percent}"
        )
        if self.outcome == "undecided":
            why = (
                f"it reads features as well (AUC {self.features_tell_guess:.3f} within a class)"
                if self.reads_features
                else "whether it reads features could not be checked"
            )
            return (
                f"{needs}, but {why}, and features may predict labels without a leak. Undecided: only canaries can decide."
            )
        return (
            f"{needs}, if features predict labels at most {self.odds_factor:.2f} times better, in odds, than the proxy "
            f"knows, or don't enter the guess. The claim is refuted under this assumption; it can hold only if the factor "
            f"is {self.odds_factor_needed:.2f} or more. This is evidence, no proof: planted canaries decide it."
        )

    def plain(self) -> dict[str, Any]:
        """For JSON: null in place of nan."""
        values = {**asdict(self), "outcome": self.outcome, "verdict": self.verdict}
        return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in values.items()}


def observed_privacy(
    scores: Mapping[str, Tensor],
    labels: Tensor,
    features: Tensor,
    claimed: float,
    *,
    confidence: float = 0.95,
    odds_factor: float = 1.0,
    seed: int = 0,
    proxy: Model = proxy_scores,
    guess_model: Model = proxy_scores,
) -> ObservedPrivacy:
    """Hold a promise of eps-label-DP against scores that attacks gave to rows.

    scores: attack -> (n,) scores of rows (`joined` makes them of several batches), computed without any label of these rows;
    in particular not turned by the truth from batch to batch. Rows whose label an attack knew must be left out. labels: (n,)
    true classes; class 0 against all others is tested. features: (n, d) numbers; all that messages may depend on except
    labels: the party's columns, the label party's own, embeddings from before the row's label was used. claimed: eps of all
    messages together: of flips drawn again in each of T epochs, T times that of one. odds_factor: G >= 1 of `epsilon_low`.
    proxy: of P(label | features). guess_model: of P(guess | features) within a class.

    Of more than 50,000 rows so many are drawn. Either half of the rows is audited with a proxy, strata, an attack and a
    cut that are chosen on the labels of the other half alone, at (1 - confidence) / 2 each; the larger bound counts.

    Raises UserError for arguments out of range.
    """
    _check(scores, labels, features, claimed, confidence, odds_factor)
    known = {name: torch.nan_to_num(values.double().cpu(), 0.0) for name, values in scores.items()}
    rows = _Rows(known, labels.cpu() != 0, features.cpu(), seed, proxy, guess_model)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))[:_MOST_ROWS]
    parts = [order[start::4] for start in range(4)]
    alpha = (1 - confidence) / 2
    halves = [
        rows.half(torch.cat(parts[:2]), (parts[2], parts[3]), alpha),
        rows.half(torch.cat(parts[2:]), (parts[0], parts[1]), alpha),
    ]
    audited = [half for half in halves if half]
    if not audited:
        return ObservedPrivacy(claimed, 0.0, confidence, odds_factor, 1.0, 1.0, math.nan, False, len(order), 0, "none")
    best = max(audited, key=lambda half: half.log_odds_low - half.explained)
    seen = math.exp(best.explained)
    factor = max(odds_factor, seen)
    eps, needed = epsilon_low(best.log_odds_low, factor), odds_factor_needed(best.log_odds_low, claimed)
    told, reads = best.told
    return ObservedPrivacy(
        claimed, eps, confidence, factor, seen, needed, told, reads, len(order), best.counted, best.attack
    )


@dataclass(frozen=True)
class _Half:
    """One half of the rows, with strata and a cut from the labels of the other half. log_odds_low: of the groups.
    explained: log odds ratio that features alone make. told: AUC of the guess by features, and whether it counts.
    """

    log_odds_low: float
    explained: float
    told: tuple[float, bool]
    counted: int
    attack: str


@dataclass(frozen=True)
class _Rows:
    scores: Mapping[str, Tensor]
    positive: Tensor
    features: Tensor
    seed: int
    proxy: Model
    guess_model: Model

    def half(self, audited: Tensor, others: tuple[Tensor, Tensor], alpha: float) -> _Half | None:
        """Audit these rows. others: two quarters, whose proxies learn from each other, so that a cut is chosen as used."""
        learn = torch.cat(others)
        of_quarters = [
            self.proxy(self.features, self.positive, others[1 - which], others[which], self.seed) for which in (0, 1)
        ]
        learned = {name: torch.cat([chances[name] for chances in of_quarters]) for name in of_quarters[0]}
        asked = self.proxy(self.features, self.positive, learn, audited, self.seed)
        name = better(learned, self.positive[learn])
        cut = self._cut(learn, others, strata(learned[name]))
        if cut is None:
            return None
        stratum, labels = strata(asked[name]), self.positive[audited]
        high, low = cut.groups({cut.name: self.scores[cut.name][audited]})
        counts = table(high, low, labels, stratum)
        explained = max(explained_log_odds(high, low, labels, stratum, chances) for chances in asked.values())
        return _Half(counts.log_odds_low(alpha), explained, self._told(cut, learn, audited), counts.rows, cut.name)

    def _cut(self, learn: Tensor, quarters: tuple[Tensor, Tensor], stratum: Tensor) -> Cut | None:
        """The best cut of an attack whose guesses don't follow features; of any attack if all do."""
        chosen = None
        remaining = {name: values[learn] for name, values in self.scores.items()}
        while remaining:
            cut = best_cut(remaining, self.positive[learn], stratum)
            if cut is None:
                break
            chosen = chosen or cut
            if len(self.scores) == 1 or not self._told(cut, *quarters)[1]:
                return cut
            del remaining[cut.name]
        return chosen

    def _told(self, cut: Cut, learn: Tensor, ask: Tensor) -> tuple[float, bool]:
        """AUC by which features tell the guess about rows of one class, the more telling class; and whether it counts."""
        high, low = cut.groups(self.scores)
        most, told, reads = -math.inf, math.nan, False
        for is_positive in (False, True):
            rows = (high | low) & (self.positive == is_positive)
            fit, asked = learn[rows[learn]], ask[rows[ask]]
            ones = int(high[asked].sum())
            zeros = len(asked) - ones
            if min(len(fit), len(asked)) < _CHECKED_ROWS or not self.features.shape[1]:
                continue
            if not ones or not zeros:  # one guess about all of the class: features tell nothing about it
                most, told = (0.5, 0.5) if most < 0.5 else (most, told)
                continue
            error = math.sqrt((len(asked) + 1) / (12 * ones * zeros))
            for values in self.guess_model(self.features, high, fit, asked, self.seed).values():
                area = auc(values, high[asked])
                if area > most:
                    most, told = area, area
                reads = reads or area > max(_TOLERATED, 0.5 + _ERRORS * error)
        return told, reads


def _check(
    scores: Mapping[str, Tensor], labels: Tensor, features: Tensor, claimed: float, confidence: float, odds_factor: float
) -> None:
    if not (math.isfinite(claimed) and claimed >= 0):
        raise UserError("eps must be a finite number, at least 0", key="claims.label_dp.eps", value=claimed)
    if not 0.5 <= confidence < 1:
        raise UserError("it must be at least 0.5 and below 1", key="confidence", value=confidence)
    if not (math.isfinite(odds_factor) and odds_factor >= 1):
        raise UserError("it must be a finite number, at least 1", key="odds_factor", value=odds_factor)
    wrong = [name for name, values in scores.items() if values.shape != labels.shape]
    if wrong or labels.ndim != 1 or features.ndim != 2 or len(features) != len(labels):
        problem = "scores (n,), labels (n,) and features (n, d) must be of the same rows"
        raise UserError(problem, key="scores", value=wrong or tuple(features.shape))
