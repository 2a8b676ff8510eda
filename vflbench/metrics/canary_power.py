"""What a check with so many canaries can find: the probability that it catches a promise that is broken."""

import math

import numpy as np

from vflbench.numerics.special import betainc, ndtr

MOST_CANARIES = 1_000_000
_FAR = 6.5  # standard deviations of a fair coin's count; beyond lies less than 1e-10


def power(claim: float, times: float, canaries: int, alpha: float, *, gaussian: bool = False) -> float:
    """The probability that `Guesses.epsilon_low` (gaussian: `mu_low`) is above the claim, if the mechanism is weaker.

        eps:  1 - sum_h P(H = h) (1 - a(h)) (1 - a(n - h)),   H ~ Bin(n, 1/2),   X ~ Bin(h, q)
              a(h) = P(X >= c_h) + P(X <= h - c_h),   c_h the least count with P(Bin(h, p) >= c_h) < alpha / 4
        mu:   a(n), with alpha / 2

    p is the largest chance of a right guess under the claim, q that under `times` the claim: e^eps / (1 + e^eps) of eps,
    Phi(mu / 2) of mu. Exact for one reader of randomized response (of Gaussian noise), which tells as much as the promise
    allows, where the reader guesses every canary. A reader who sees less, or abstains, finds it more rarely.

    claim: eps or mu, of all messages together. canaries: how many. alpha: of the bound.
    """
    if not canaries or not 0 < claim < math.inf:
        return 0.0
    p, q = (_chance(value, gaussian=gaussian) for value in (claim, times * claim))
    if gaussian:
        return float(_caught(np.array([canaries]), p, q, alpha / 2)[0])
    half = _FAR * math.sqrt(canaries) / 2
    high = np.arange(max(0, math.floor(canaries / 2 - half)), min(canaries, math.ceil(canaries / 2 + half)) + 1)
    either = 1 - (1 - _caught(high, p, q, alpha / 4)) * (1 - _caught(canaries - high, p, q, alpha / 4))
    below = _at_least(high, canaries, 0.5) - _at_least(high + 1, canaries, 0.5)
    return float(np.average(either, weights=below))


def canaries_needed(claim: float, times: float, alpha: float, wanted: float = 0.8, *, gaussian: bool = False) -> int | None:
    """So many canaries have this power, rounded up to two digits; None if MOST_CANARIES have less.

    The power rises with the number of canaries but for small steps, as counts are whole.
    """
    low, high = 0, 16
    while power(claim, times, high, alpha, gaussian=gaussian) < wanted:
        low, high = high, 2 * high
        if high > MOST_CANARIES:
            return None
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        enough = power(claim, times, middle, alpha, gaussian=gaussian) >= wanted
        low, high = (low, middle) if enough else (middle, high)
    step = 10 ** max(0, len(str(high)) - 2)
    rounded = -(-high // step) * step
    while power(claim, times, rounded, alpha, gaussian=gaussian) < wanted:
        rounded += step
    return rounded


def _chance(claim: float, *, gaussian: bool) -> float:
    """Of a right guess, at most."""
    return float(ndtr(claim / 2)) if gaussian else 1 / (1 + math.exp(-min(claim, 700.0)))


def _caught(guessed: np.ndarray, p: float, q: float, level: float) -> np.ndarray:
    """P(X >= c) + P(X <= n - c) of X ~ Bin(n, q), c the least count that Bin(n, p) reaches with less than `level`."""
    least, most = np.zeros_like(guessed), guessed + 1
    while (most - least > 1).any():
        middle = (least + most) // 2
        rare = _at_least(middle, guessed, p) < level
        least, most = np.where(rare, least, middle), np.where(rare, middle, most)
    return _at_least(most, guessed, q) + 1 - _at_least(guessed - most + 1, guessed, q)


def _at_least(count: np.ndarray, trials: np.ndarray | int, p: float) -> np.ndarray:
    """P(Bin(trials, p) >= count): I_p(count, trials - count + 1); 1 for count <= 0, and 0 for count > trials."""
    trials = np.broadcast_to(np.asarray(trials), count.shape)
    inside = (count > 0) & (count <= trials)
    tail = betainc(np.where(inside, count, 1), np.where(inside, trials - count + 1, 1), p)
    return np.where(inside, tail, np.where(count <= 0, 1.0, 0.0))
