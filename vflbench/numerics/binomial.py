"""Differential privacy of binomial noise on integers."""

import math

import numpy as np


def theorem_condition(width: int, trials: int, chance: float, delta: float, largest: float) -> tuple[float, float]:
    """The variance N p (1 - p) of the noise, and the smallest variance for which `theorem_epsilon` holds.

    Source: Agarwal et al., "cpSGD: communication-efficient and differentially-private distributed SGD", 2018, Theorem 1.
    """
    return trials * chance * (1 - chance), max(23 * math.log(10 * width / delta), 2 * largest)


def theorem_epsilon(
    width: int, trials: int, chance: float, delta: float, l1: float, l2: float, largest: float
) -> float | None:
    """eps for which independent Bin(N, p) noise on d integers is (eps, delta)-DP; None if the condition fails.

        eps =  l2 sqrt(2 log(1.25 / delta)) / sqrt(V)  +  (l2 c sqrt(log(10 / delta)) + l1 b) / (V (1 - delta / 10))
             + (2/3 l8 log(1.25 / delta) + l8 d' log(20 d / delta) log(10 / delta)) / V,      V = N p (1 - p)
        b = 2/3 (p^2 + q^2) + (1 - 2 p),   c = sqrt(2) (3 p^3 + 3 q^3 + 2 p^2 + 2 q^2),   d' = 4/3 (p^2 + q^2),   q = 1 - p

    if V >= max(23 log(10 d / delta), 2 l8). Noise with p > 1/2 is the mirror image of noise with 1 - p, and has its eps.
    l1, l2, largest (l8): sensitivities, the largest distances of two neighbours in the L1, L2 and maximum norm.

    Source: Agarwal et al., "cpSGD: communication-efficient and differentially-private distributed SGD", 2018, Theorem 1.
    """
    variance, least = theorem_condition(width, trials, chance, delta, largest)
    if variance < least:
        return None
    p = min(chance, 1 - chance)
    squares = p**2 + (1 - p) ** 2
    b = 2 / 3 * squares + (1 - 2 * p)
    c = math.sqrt(2) * (3 * p**3 + 3 * (1 - p) ** 3 + 2 * squares)
    d = 4 / 3 * squares
    log10, log125 = math.log(10 / delta), math.log(1.25 / delta)
    return (
        l2 * math.sqrt(2 * log125 / variance)
        + (l2 * c * math.sqrt(log10) + l1 * b) / (variance * (1 - delta / 10))
        + (2 / 3 * largest * log125 + largest * d * math.log(20 * width / delta) * log10) / variance
    )


def hockey_stick(trials: int, chance: float, shift: int, epsilons: np.ndarray) -> np.ndarray:
    """max_S P(S) - e^eps Q(S) for P, Q = Bin(N, p) and Bin(N, p) + shift; the larger value of both orders of P and Q.

    epsilons: (m,), any sign. Returns (m,) float64.

    The binomial distribution is log-concave. So the likelihood ratio increases with the outcome, the best S is a tail, and
    no smaller shift has a larger divergence.
    """
    outcomes = np.arange(trials + shift + 1)
    from scipy import stats  # slow to import, and needed by few runs

    log_p, log_q = stats.binom.logpmf(outcomes, trials, chance), stats.binom.logpmf(outcomes - shift, trials, chance)
    return np.maximum(_divergence(log_p, log_q, epsilons), _divergence(log_q, log_p, epsilons))


def _divergence(log_p: np.ndarray, log_q: np.ndarray, epsilons: np.ndarray) -> np.ndarray:
    possible = log_p > -np.inf
    log_p, log_q = log_p[possible], log_q[possible]
    loss = log_p - log_q
    order = np.argsort(-loss, kind="stable")
    p, q = (np.concatenate([[0.0], np.cumsum(np.exp(x[order]))]) for x in (log_p, log_q))
    above = np.searchsorted(-loss[order], -epsilons, side="left")  # number of larger losses
    bounded = np.minimum(epsilons, 700.0)
    divergence = np.where(q[above] > 0, p[above] - np.exp(bounded + np.log(np.maximum(q[above], 1e-300))), p[above])
    return np.clip(divergence, np.maximum(0.0, -np.expm1(bounded)), 1.0)
