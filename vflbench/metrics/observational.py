"""A lower bound on eps from rows as they are, without canaries: do messages tell more than features do?"""

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaln
from torch import Tensor

Counts = NDArray[np.int64]
_MOST = 60.0  # log odds ratio that no bound exceeds
_HALVINGS = 28  # to 3e-7
_LEAST_MASS = 1e-20


@dataclass(frozen=True)
class StratifiedTable:
    """How many of the rows in two groups are positive, stratum by stratum.

    high, low: (S,) rows of each group. high_positive, low_positive: (S,) the positive ones among them.
    """

    high: Counts
    high_positive: Counts
    low: Counts
    low_positive: Counts

    @property
    def rows(self) -> int:
        """Rows in strata that have both groups and both classes. No other stratum counts."""
        positive, total = self.high_positive + self.low_positive, self.high + self.low
        counts = (self.high > 0) & (self.low > 0) & (positive > 0) & (positive < total)
        return int(total[counts].sum())

    def log_odds_low(self, alpha: float) -> float:
        """Lower bound on the log odds ratio w of positives in the high group against the low one; 0 if nothing is shown.

            w_low = the largest w >= 0 with P(T >= t) <= alpha,   T = sum over strata of independent
                    noncentral hypergeometric counts of positives in the high group, given all margins, odds ratio e^w

        Where no exchange of one positive row of the low group for a row of the high group in its stratum multiplies the
        probability of the labels by more than e^w, the observed t exceeds T's (1 - alpha) quantile with probability at most
        alpha. Rows need not be independent beyond that (docs/explain/proofs.md has the proof).

        Source: Fisher, "The logic of inductive inference", 1935, for the law of T; Rosenbaum, "Observational Studies", 2002,
        chapter 4, for its use where odds are known up to a factor.
        """
        strata = _log_weights(self)
        observed = int(self.high_positive.sum()) - sum(least for least, _ in strata)
        weights = [weight for _, weight in strata if len(weight) > 1]
        if _tail(weights, observed, 0.0) > alpha:
            return 0.0
        below, above = 0.0, _MOST
        for _ in range(_HALVINGS):
            middle = (below + above) / 2
            below, above = (middle, above) if _tail(weights, observed, middle) <= alpha else (below, middle)
        return below

    def log_odds(self) -> tuple[float, float]:
        """An estimate of the log odds ratio that all strata share, and its standard error; (0, inf) without one.

            e^w = R / Q,   R = sum a d / n,   Q = sum b c / n,   half a row added to each of the two

        a, b: positives and others in the high group; c, d: in the low one; n: rows of the stratum.

        Source: Mantel and Haenszel, 1959; variance of Robins, Breslow and Greenland, "Estimators of the Mantel-Haenszel
        variance consistent in both sparse data and large-strata limiting models", Biometrics 1986.
        """
        n = self.high + self.low
        full = n > 0
        a, c, n = self.high_positive[full], self.low_positive[full], n[full]
        b, d = self.high[full] - a, self.low[full] - c
        right, wrong = a * d / n, b * c / n
        r, q = float(right.sum()) + 0.5, float(wrong.sum()) + 0.5
        if r + q <= 1:
            return 0.0, math.inf
        p, rest = (a + d) / n, (b + c) / n
        variance = (
            (0.5 + (p * right).sum()) / (2 * r * r)
            + (0.5 + (p * wrong + rest * right).sum()) / (2 * r * q)
            + (0.5 + (rest * wrong).sum()) / (2 * q * q)
        )
        return math.log(r / q), math.sqrt(float(variance))


def _log_weights(table: StratifiedTable) -> list[tuple[int, NDArray[np.float64]]]:
    """For each stratum, the least count of positives in the high group, and the log weights of it and all larger ones."""
    strata = []
    for high, low, positive in zip(table.high, table.low, table.high_positive + table.low_positive, strict=True):
        least, most = max(0, int(positive - low)), int(min(high, positive))
        t = np.arange(least, most + 1)
        ways = [gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0) for n, k in ((high, t), (low, positive - t))]
        strata.append((least, ways[0] + ways[1]))
    return strata


def _tail(strata: list[NDArray[np.float64]], observed: int, log_odds: float) -> float:
    """P(T >= observed), with T counted from its least value; what rounding leaves out counts as if it were in the tail."""
    start, law = 0, np.ones(1)
    for weights in strata:
        exponent = weights + log_odds * np.arange(len(weights))
        chances = np.exp(exponent - exponent.max())
        chances /= chances.sum()
        first, end = _ends(chances)
        law = np.convolve(law, chances[first:end])
        start += first
        first, end = _ends(law)
        start, law = start + first, law[first:end]
    return min(1.0, max(0.0, 1.0 - float(law[: max(0, observed - start)].sum())))


def _ends(law: NDArray[np.float64]) -> tuple[int, int]:
    places = np.flatnonzero(law > _LEAST_MASS)
    return int(places[0]), int(places[-1]) + 1


_LEAST_ROWS = 100  # to learn from, below which every row has the same chance
_LEAST_OF_A_CLASS = 10


def proxy_scores(features: Tensor, positive: Tensor, learn: Tensor, ask: Tensor, seed: int) -> dict[str, Tensor]:
    """Log odds of a positive label by each of two models, learned from the rows `learn`, for the rows `ask`.

    features: (n, d) finite numbers. positive: (n,) bool. learn, ask: (m,), (k,) places of rows, with none in common. Returns
    `logistic` (standardised features, L2 penalty 1) and `trees` (100 boosted trees of depth 3), (k,) float64 each. Of too
    few rows or features of none, all scores are 0.
    """
    finite, y = torch.nan_to_num(features.double(), 0.0, 0.0, 0.0).cpu(), positive[learn].cpu().numpy()
    x, asked = (finite[rows.cpu()].numpy() for rows in (learn, ask))
    fewest = min(y.sum(), (~y).sum())
    if len(x) < _LEAST_ROWS or fewest < _LEAST_OF_A_CLASS or not x.shape[1] or not len(asked):
        return dict.fromkeys(("logistic", "trees"), torch.zeros(len(asked), dtype=torch.float64))
    from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    mean, deviation = x.mean(axis=0), x.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1.0)
    standardised, asked_standardised = (((values - mean) / scale).clip(-20, 20) for values in (x, asked))
    trees_of = (
        GradientBoostingClassifier(n_estimators=60, max_depth=3, random_state=seed)
        if len(x) < 500
        else HistGradientBoostingClassifier(max_iter=100, max_depth=3, early_stopping=False, random_state=seed)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a logistic regression that stops at its last iteration
        linear = LogisticRegression(max_iter=300).fit(standardised, y)
    trees = trees_of.fit(x, y).decision_function(asked)
    answers = {"logistic": linear.decision_function(asked_standardised), "trees": trees}
    return {name: torch.from_numpy(np.asarray(scores, dtype=np.float64)) for name, scores in answers.items()}


def better(scores: Mapping[str, Tensor], positive: Tensor) -> str:
    """The name of the scores with the least mean logistic loss on these rows. positive: (k,) bool."""
    y = positive.double()
    return min(scores, key=lambda name: float((torch.nn.functional.softplus(scores[name]) - y * scores[name]).mean()))


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


def stratified_table(high: Tensor, low: Tensor, positive: Tensor, stratum: Tensor) -> StratifiedTable:
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
        estimate, error = stratified_table(*cut.groups(scores), positive, stratum).log_odds()
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
