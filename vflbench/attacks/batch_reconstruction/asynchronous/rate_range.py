"""For which local step sizes a pushed difference gives its batches away: how far asynchronous training is a defense."""

from dataclasses import dataclass

import numpy as np

from vflbench.attacks.batch_reconstruction.asynchronous.row_membership import tell_apart
from vflbench.attacks.batch_reconstruction.asynchronous.total_sums import Estimate, recover_map, terms, total


@dataclass(frozen=True)
class RateRange:
    """Step sizes on the grid at which at least the asked share of draws was right, lowest and highest in one stretch.

    low, high: of the sum of all alphas. apart_low, apart_high: of telling both batches apart, given their rows (n = 2). None
    where there is none. bound: median over draws of 2 / max |A_2|, where the second term hides the sum from plain rounding.
    wrong: share of all answers, at any rate, that were not refused and not right; proved_wrong: of those called proved.
    """

    low: float | None
    high: float | None
    apart_low: float | None
    apart_high: float | None
    bound: float
    wrong: float
    proved_wrong: float


def grid(per_decade: int = 6, lowest: float = 1e-14) -> np.ndarray:
    """Rates from `lowest` to 1, geometric."""
    decades = -np.log10(lowest)
    return np.logspace(-decades, 0, round(decades * per_decade) + 1)


def rate_range(
    rows: int,
    columns: int,
    batches: int,
    rng: np.random.Generator,
    *,
    draws: int = 10,
    share: float = 0.9,
    density: float = 0.5,
    estimate: Estimate = "root",
    rates: np.ndarray | None = None,
    dtype: type = np.float64,
) -> RateRange:
    """Measured: random batches, thetas of 2 d rounds, differences rounded to `dtype`, least squares, `total`, `tell_apart`.

    rows: m of each batch; columns: d; batches: n. Rates are those of summed gradients: mean ones work at m times the rate.
    rates: ascending, `grid()` if None. share: of the draws that must be right, in (0, 1].
    """
    rates = grid() if rates is None else np.asarray(rates)
    right, apart = np.zeros((draws, len(rates)), dtype=bool), np.zeros((draws, len(rates)), dtype=bool)
    wrong = proved_wrong = answers = 0
    bounds = []
    for draw in range(draws):
        x = (rng.random((batches, rows, columns)) < density).astype(np.int64)
        y = rng.choice([-1, 1], (batches, rows))
        alphas, betas = [a.T @ a for a in x], [a.T @ b for a, b in zip(x, y, strict=True)]
        thetas = rng.normal(size=(2 * columns, columns)).astype(dtype).astype(float)
        bounds.append(2 / max(1, terms(alphas, betas, 2)[1][0].max()))
        for k, rate in enumerate(rates):
            found = recover_map(thetas, _pushed(thetas, alphas, betas, rate).astype(dtype).astype(float))
            if found.refusal:
                continue
            error = float(found.gamma_error.max())
            answer = total(found.gamma, found.eta, rate, batches, rows=rows, error=error, estimate=estimate)
            if answer.refusal:
                continue
            answers += 1
            right[draw, k] = np.array_equal(answer.alpha_sum, sum(alphas))
            wrong += not right[draw, k]
            proved_wrong += answer.proved and not right[draw, k]
            if right[draw, k] and answer.second is not None and batches == 2:
                told = tell_apart(np.concatenate(x), answer.second, rows=rows)
                apart[draw, k] = told.unique
    low, high = _stretch(rates, right.mean(0) >= share)
    return RateRange(
        low,
        high,
        *_stretch(rates, apart.mean(0) >= share),
        float(np.median(bounds)),
        wrong / max(answers, 1),
        proved_wrong / max(answers, 1),
    )


def _pushed(thetas: np.ndarray, alphas: list[np.ndarray], betas: list[np.ndarray], rate: float) -> np.ndarray:
    """theta_n - theta_0, step by step. (k, d)."""
    after = thetas
    for alpha, beta in zip(alphas, betas, strict=True):
        after = after - rate * (after @ alpha / 4 - beta / 2)
    return after - thetas


def _stretch(rates: np.ndarray, good: np.ndarray) -> tuple[float | None, float | None]:
    """The longest run of good rates: its ends."""
    best, start = (0, None, None), None
    for k, one in enumerate([*good, False]):
        if one and start is None:
            start = k
        if not one and start is not None:
            best = max(best, (k - start, float(rates[start]), float(rates[k - 1])), key=lambda run: run[0])
            start = None
    return best[1], best[2]
