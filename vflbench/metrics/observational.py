"""A lower bound on eps from rows as they are, without canaries: do messages tell more than features do?"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vflbench.numerics.stratified_odds import StratifiedTable

_SHARES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
_STRATUM, _MOST_STRATA = 50, 200
_FARTHEST = 3.0  # log odds of a row from those of its stratum, by the proxy


@dataclass(frozen=True)
class Cut:
    """Which rows are guessed: `sign` times the score of `name` at or above `high` is high, at or below `low` is low; a row
    between is not guessed.
    """

    name: str
    sign: int
    high: float
    low: float

    def groups(self, scores: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """(n,) bool each: the rows guessed high, and low."""
        s = self.sign * scores[self.name].double()
        return s >= self.high, s <= self.low


def strata(chances: Tensor, rows: int = _STRATUM) -> Tensor:
    """(n,) number of the stratum of each row: ranks of its chance to be positive, in groups of about so many rows.

    chances: (n,), in any increasing scale; only their order matters. There are at most 200 strata. Equal chances are ordered
    by place, which is arbitrary; rows must not be sorted by label.
    """
    n = len(chances)
    count = max(1, min(_MOST_STRATA, n // rows))
    place = torch.empty(n, dtype=torch.int64)
    place[chances.cpu().argsort(stable=True)] = torch.arange(n)
    return place * count // max(n, 1)


def table(high: Tensor, low: Tensor, positive: Tensor, stratum: Tensor) -> StratifiedTable:
    """Counts by stratum. high, low, positive: (n,) bool. stratum: (n,) numbers from 0."""
    count = int(stratum.max()) + 1 if len(stratum) else 1
    groups = (high, high & positive, low, low & positive)
    return StratifiedTable(*(np.bincount(stratum[rows].numpy(), minlength=count) for rows in groups))


def best_cut(scores: Mapping[str, Tensor], positive: Tensor, stratum: Tensor, bounds: float = 2.0) -> Cut | None:
    """The cut with the largest estimated log odds ratio less `bounds` standard errors. None if none has an estimate.

    scores: name -> (n,) each, finite; positive: (n,) bool; stratum: (n,). Use rows that the bound isn't computed on: it is
    valid for a cut that doesn't depend on the labels it counts.
    """
    best, chosen = -math.inf, None
    for cut in _cuts(scores):
        estimate, error = table(*cut.groups(scores), positive, stratum).log_odds()
        if estimate - bounds * error > best:
            best, chosen = estimate - bounds * error, cut
    return chosen


def _cuts(scores: Mapping[str, Tensor]) -> Iterator[Cut]:
    shares = torch.tensor(_SHARES, dtype=torch.float64)
    for name, values in scores.items():
        for sign in (1, -1):
            s = sign * values.double()
            if not len(s):
                continue
            ordered = s.sort().values
            highs = ordered[((1 - shares) * (len(s) - 1)).round().long()].unique().tolist()
            lows = ordered[(shares * (len(s) - 1)).round().long()].unique().tolist()
            yield from (Cut(name, sign, high, low) for high in highs for low in lows if low < high)


def explained_log_odds(high: Tensor, low: Tensor, positive: Tensor, stratum: Tensor, log_odds: Tensor) -> float:
    """An estimate of the log odds ratio between the groups that features alone make, as far as a proxy knows them; >= 0.

        sum_s A_s b_s / n_s  /  sum_s a_s B_s / n_s,   A, B: sums of w over the high and the low rows of one class;
        a, b: their counts;   w = h for negative rows, 1 / h for positive ones;   h = odds of a positive label by the proxy,
        divided by those of the stratum

    With weights h, negative rows have the features of positive ones. Were they then guessed high more often, that would be
    the features' doing, since no label differs: the odds ratio of the groups is at most e^(2 eps) times this. The larger
    value of both classes counts. A guess that depends on the label alone, as one about a released label does, has none.

    high, low, positive: (n,) bool; stratum: (n,); log_odds: (n,), of a proxy that saw none of these labels.
    """
    largest = 0.0
    for is_positive in (False, True):
        rows = (high | low) & (positive == is_positive)
        if not rows.any():
            continue
        place, number = stratum[rows].unique(return_inverse=True)
        n = number.bincount(minlength=len(place)).double()

        def total(values: Tensor, number: Tensor = number, size: int = len(place)) -> Tensor:
            return torch.zeros(size, dtype=torch.float64).index_add_(0, number, values)

        centred = log_odds[rows].double() - (total(log_odds[rows].double()) / n)[number]
        weight = (centred.clamp(-_FARTHEST, _FARTHEST) * (-1 if is_positive else 1)).exp()
        is_high = high[rows].double()
        more = (total(weight * is_high) * total(1 - is_high) / n).sum() + 0.5
        fewer = (total(is_high) * total(weight * (1 - is_high)) / n).sum() + 0.5
        largest = max(largest, math.log(more / fewer))
    return largest


def epsilon_low(log_odds_low: float, odds_factor: float = 1.0) -> float:
    """Lower bound on eps of label DP, as sure as the bound on the odds ratio under the assumption; 0 if nothing is shown.

        eps_low = max(0, (w_low - log G) / 2),   w_low = log_odds_low, of `StratifiedTable`,   G = odds_factor >= 1

    Assumption, (a) or (b). (a) Given the features, labels of rows are independent, and in one stratum the odds of a positive
    label, by features, are at most G times as large in a row guessed high as in a row guessed low. Groups may come from all
    messages and all features in any way, but from no label that is counted here. (b) A row's group depends on its label and
    on coins of its own, but for no label on features; then G = 1 and any strata will do.

    Randomized response reaches the bound; a mechanism that reveals one class only has up to 2 eps_low.

    Why: exchanging the labels of a high and a low row changes two labels, hence the probability of the messages by a factor
    of at most e^(2 eps), and that of the labels, by features, by at most G. Without (a) or (b) nothing can be shown:
    messages that are a function of the features cost no privacy, and may be equal to the labels.

    Source: Kalemaj et al., "Observational auditing of label privacy", arXiv 2511.14084, for audits without canaries against
    a proxy of P(label | features); the test is Rosenbaum's, "Observational Studies", 2002, chapter 4.
    """
    return max(0.0, (log_odds_low - math.log(odds_factor)) / 2)


def odds_factor_needed(log_odds_low: float, eps: float) -> float:
    """The G from which on a promise of eps is within the bound: e^(w_low - 2 eps), at least 1."""
    return math.exp(max(0.0, log_odds_low - 2 * eps))
