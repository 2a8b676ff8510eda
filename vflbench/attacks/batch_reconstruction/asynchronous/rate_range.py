"""The local step sizes at which an update reveals its batches: how far asynchronous training is a defense."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vflbench.attacks.batch_reconstruction.asynchronous.local_map import expansion_terms, recover_map
from vflbench.attacks.batch_reconstruction.asynchronous.row_membership import row_membership
from vflbench.attacks.batch_reconstruction.asynchronous.total_sums import Estimate, recover_total


@dataclass(frozen=True)
class RateRange:
    """The longest run of step sizes on the grid, lowest and highest, at which the required share of draws was right.

    low, high: for the sum of all alphas. division_low, division_high: for the division of two batches, given their rows (n =
    2). None if there is no such rate. bound: median over draws of 2 / max |A_2|, beyond which the second-order term makes
    plain rounding wrong. wrong: share of the accepted results, at any rate, that were not right; proved_wrong: of those
    called proved.
    """

    low: float | None
    high: float | None
    division_low: float | None
    division_high: float | None
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
    estimate: Estimate = "separation",
    rates: np.ndarray | None = None,
    dtype: type = np.float64,
) -> RateRange:
    """Measured on random batches: thetas of 2 d rounds, differences rounded to `dtype`, then the recovery of an attack.

    rows: m of each batch; columns: d; batches: n. Rates are those of summed gradients: mean ones work at m times the rate.
    rates: ascending, `grid()` if None. share: of the draws that must be right, in (0, 1].
    """
    rates = grid() if rates is None else np.asarray(rates)
    right, divided = np.zeros((draws, len(rates)), dtype=bool), np.zeros((draws, len(rates)), dtype=bool)
    wrong = proved_wrong = accepted = 0
    bounds = []
    for draw in range(draws):
        x = (rng.random((batches, rows, columns)) < density).astype(np.int64)
        y = rng.choice([-1, 1], (batches, rows))
        alphas, betas = [a.T @ a for a in x], [a.T @ b for a, b in zip(x, y, strict=True)]
        thetas = rng.normal(size=(2 * columns, columns)).astype(dtype).astype(float)
        bounds.append(2 / max(1, expansion_terms(alphas, betas, 2)[1][0].max()))
        for k, rate in enumerate(rates):
            local_map = recover_map(thetas, _differences(thetas, alphas, betas, rate).astype(dtype).astype(float))
            if local_map.refusal:
                continue
            error = float(local_map.gamma_error.max())
            total = recover_total(local_map.gamma, local_map.eta, rate, batches, rows=rows, error=error, estimate=estimate)
            if total.refusal:
                continue
            accepted += 1
            right[draw, k] = np.array_equal(total.alpha_sum, sum(alphas))
            wrong += not right[draw, k]
            proved_wrong += total.proved and not right[draw, k]
            if total.alphas is not None:
                divided[draw, k] = np.array_equal(total.alphas, alphas)
            elif right[draw, k] and total.second is not None and batches == 2:
                division = row_membership(np.concatenate(x), total.second, rows=rows)
                divided[draw, k] = division.unique
    low, high = _stretch(rates, right.mean(0) >= share)
    return RateRange(
        low,
        high,
        *_stretch(rates, divided.mean(0) >= share),
        float(np.median(bounds)),
        wrong / max(accepted, 1),
        proved_wrong / max(accepted, 1),
    )


@dataclass(frozen=True)
class RateShares:
    """At one rate, shares of the draws. sums: the sum of both alphas was right, with proof. batches: each of them was right.
    proved_wrong: something that was called proved was wrong, or one of the two alphas.
    """

    rate: float
    sums: float
    batches: float
    proved_wrong: float


def shares_by_rate(
    rows: int,
    columns: int,
    rates: Sequence[float],
    rng: np.random.Generator,
    *,
    draws: int = 10,
    density: float = 0.5,
    dtype: type = np.float64,
) -> list[RateShares]:
    """Of two random local batches with mean gradients, at the rates of the protocol; otherwise as `rate_range`."""
    found = np.zeros((len(rates), 3))
    for _ in range(draws):
        x = (rng.random((2, rows, columns)) < density).astype(np.int64)
        y = rng.choice([-1, 1], (2, rows))
        alphas, betas = [a.T @ a for a in x], [a.T @ b for a, b in zip(x, y, strict=True)]
        thetas = rng.normal(size=(2 * columns, columns)).astype(dtype).astype(float)
        for k, rate in enumerate(rates):
            sent = _differences(thetas, alphas, betas, rate / rows).astype(dtype).astype(float)
            local_map = recover_map(thetas, sent)
            if local_map.refusal:
                continue
            error = float(local_map.gamma_error.max())
            total = recover_total(local_map.gamma, local_map.eta, rate, 2, rows=rows, reduction="mean", error=error)
            right = np.array_equal(total.alpha_sum, sum(alphas)) if total.proved else False
            each = np.array_equal(total.alphas, alphas) if total.alphas is not None else False
            found[k] += (right, each, (total.proved and not right) or (total.alphas is not None and not each))
    return [RateShares(rate, *(found[k] / draws)) for k, rate in enumerate(rates)]


def _differences(thetas: np.ndarray, alphas: list[np.ndarray], betas: list[np.ndarray], rate: float) -> np.ndarray:
    """theta_n - theta_0, step by step. (k, d)."""
    after = thetas
    for alpha, beta in zip(alphas, betas, strict=True):
        after = after - rate * (after @ alpha / 4 - beta / 2)
    return after - thetas


def _stretch(rates: np.ndarray, good: np.ndarray) -> tuple[float | None, float | None]:
    """Both ends of the longest run of good rates."""
    best: tuple[int, float | None, float | None] = (0, None, None)
    start = None
    for k, one in enumerate([*good, False]):
        if one and start is None:
            start = k
        if not one and start is not None:
            best = max(best, (k - start, float(rates[start]), float(rates[k - 1])), key=lambda run: run[0])
            start = None
    return best[1], best[2]
