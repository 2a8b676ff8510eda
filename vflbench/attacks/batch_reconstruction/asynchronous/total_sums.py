"""What a pushed difference of several local steps gives away: Theorem 1's map, and the integers in its expansion."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.linalg import fractional_matrix_power

from vflbench.attacks.batch_reconstruction.recovery.affine import chance_limit, fit_affine, pairs, unit_of
from vflbench.attacks.batch_reconstruction.recovery.least_squares import SAFE, Reduction, inconsistency

Estimate = Literal["root", "rounding"]


@dataclass(frozen=True)
class LocalMap:
    """theta_n - theta_0 = eta - gamma theta_0. gamma: (d, d), not symmetric for n > 1; eta: (d,); both with standard errors.

    condition, residual, rounds: as in `Recovered`, the residual in units of the difference. refusal: why there is none.
    """

    rounds: int
    gamma: np.ndarray | None = None
    eta: np.ndarray | None = None
    gamma_error: np.ndarray | None = None
    eta_error: np.ndarray | None = None
    condition: float | None = None
    residual: float | None = None
    refusal: str | None = None


def compose(alphas: Sequence[np.ndarray], betas: Sequence[np.ndarray], rate: float) -> tuple[np.ndarray, np.ndarray]:
    """gamma and eta of one local step on each batch, in this order.

        theta_i = (I - rate/4 alpha_i) theta_{i-1} + rate/2 beta_i
        I - gamma = prod_{i=n..1} (I - rate/4 alpha_i),   eta = rate/2 sum_i prod_{j=n..i+1} (I - rate/4 alpha_j) beta_i

    alphas: n >= 1 of (d, d); betas: n of (d,). rate: of summed gradients; rate / m for mean ones. Returns ((d, d), (d,)).

    Source: Li, Huang, Chen, Hong, "Quantification of the Leakage in Federated Learning", Theorem 1.
    """
    d = len(betas[0])
    product, eta = np.eye(d), np.zeros(d)
    for alpha, beta in zip(alphas, betas, strict=True):
        product = product - rate / 4 * (alpha @ product)
        eta = eta - rate / 4 * (alpha @ eta) + rate / 2 * beta
    return np.eye(d) - product, eta


def terms(alphas: Sequence[np.ndarray], betas: Sequence[np.ndarray], order: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The integers of the expansion in powers of q = rate / 4, the first `order` of them.

        gamma / q  = A_1 - q A_2 + q^2 A_3 - ...,    A_k = sum_{i1 < ... < ik} alpha_ik ... alpha_i1
        eta / (2q) = B_1 - q B_2 + q^2 B_3 - ...,    B_k = sum_{i1 < ... < ik} alpha_ik ... alpha_i2 beta_i1

    Both end with k = n. Integer alphas and betas give integers. Returns (A_k, B_k) for k = 1..order.
    """
    d = len(betas[0])
    found = [(np.zeros_like(alphas[0]), np.zeros_like(betas[0])) for _ in range(order)]
    for alpha, beta in zip(alphas, betas, strict=True):
        for k in range(order - 1, 0, -1):
            matrix, vector = found[k - 1]
            found[k] = (found[k][0] + alpha @ matrix, found[k][1] + alpha @ vector)
        found[0] = (found[0][0] + alpha @ np.eye(d, dtype=alpha.dtype), found[0][1] + beta)
    return found


def recover_map(thetas: np.ndarray, differences: np.ndarray, *, unit: float | None = None) -> LocalMap:
    """gamma and eta by least squares from theta_0 and theta_n - theta_0 of rounds with the same batches in the same order.

    thetas, differences: (n, d), n >= d + 1, thetas affinely independent. unit: relative rounding of the differences, told
    from the values if None. Raises ValueError for shapes or numbers that make no sense.
    """
    thetas, differences = pairs(thetas, differences)
    largest = np.abs(thetas).max(initial=0.0) + np.abs(differences).max(initial=0.0)
    fit = fit_affine(thetas, differences, floor=4 * unit_of(thetas, differences, unit) * float(largest))
    if fit.refusal:
        return LocalMap(fit.rounds, condition=fit.condition, refusal=fit.refusal)
    return LocalMap(
        fit.rounds, -fit.linear.T, fit.constant, fit.linear_error.T, fit.constant_error, fit.condition, fit.residual
    )


@dataclass(frozen=True)
class TotalRecovered:
    """The sums over all batches, from one pushed difference.

    alpha_sum: (d, d) int64, X^T X of the rows of all batches together. beta_sum: (d,) int64, None if it alone is not safe.
    second: (d, d) int64, A_2 = sum_{i<j} alpha_j alpha_i; second_labels: (d,) int64, B_2 = sum_{i<j} alpha_j beta_i; None
    where they can't be told to the integer.
    proved: whether no other alpha_sum of binary batches gives this gamma up to its error; otherwise the integers are those
    that the evidence speaks for. refusal: why there is no alpha_sum, or None.
    """

    alpha_sum: np.ndarray | None = None
    beta_sum: np.ndarray | None = None
    second: np.ndarray | None = None
    second_labels: np.ndarray | None = None
    proved: bool = False
    refusal: str | None = None


def total(
    gamma: np.ndarray,
    eta: np.ndarray,
    rate: float,
    batches: int,
    *,
    rows: int | None = None,
    reduction: Reduction = "sum",
    error: float = 0.0,
    estimate: Estimate = "root",
) -> TotalRecovered:
    """The alpha and beta of all batches together, although gamma and eta leave them open over the reals.

    `rounding` rounds the symmetric part of gamma / q = A_1 - q A_2 + ..., right while q |A_2| < 1/2. `root` first takes off
    what equal batches would add, (n/q) (I - (I - gamma)^(1/n)): off by q/2 sum_i D_i^2 only, D_i = alpha_i - A_1/n, the
    fluctuation between batches, and terms of q^2: larger rates work. Where it is not verified, rounding is tried. beta_sum
    is rounded to the parity of alpha_sum's diagonal.
    Two batches end the expansion, so A_2 = (A_1 - gamma/q) / q must be integral: the check of n = 2. For more batches the
    root must lie near integers, or the predicted q A_2 be below 1/2.

    gamma: (d, d), eta: (d,), of `recover_map`. rate: the local step size; batches: n. rows: m of each batch, needed with
    `mean` (the step is then rate / m), else only sharpening checks. error: standard error of gamma's entries.
    Raises ValueError for what makes no sense.
    """
    gamma, eta = np.asarray(gamma, dtype=float), np.asarray(eta, dtype=float)
    if gamma.ndim != 2 or gamma.shape != (len(eta), len(eta)):
        raise ValueError(f"gamma is (d, d) and eta (d,), not {gamma.shape} and {eta.shape}")
    if reduction == "mean" and rows is None:
        raise ValueError("with mean gradients the batch size must be known")
    if rate <= 0 or batches < 1:
        raise ValueError(f"the rate is positive and there is a batch: not {rate} and {batches}")
    q = rate / 4 / (rows if reduction == "mean" else 1)
    if error / q > SAFE:
        why = f"the rate is too small for the precision of gamma: alpha has a standard error of {error / q:.2g}"
        return TotalRecovered(refusal=why)
    scaled, precision = gamma / q, error / q
    tried = []
    for real, evident in _estimates(scaled, q, batches, estimate):
        candidate = np.rint(real).astype(np.int64)
        why, second = _verify(candidate, real, scaled, q, batches, precision, evident)
        everything = None if rows is None else batches * rows
        why = why or inconsistency(candidate, np.diagonal(candidate).copy(), everything)
        if why is None:
            beta, second_labels = _labels(eta / (2 * q), candidate, q, batches, error / q)
            second_labels = None if second is None else second_labels  # it has the same third term before it
            proved = batches == 1 or _proved(scaled, candidate, q, batches, precision, everything)
            return TotalRecovered(candidate, beta, second, second_labels, proved)
        tried.append(why)
    return TotalRecovered(refusal=f"the rate {rate:g} hides the sum of {batches} batches: {tried[0]}")


def _estimates(scaled: np.ndarray, q: float, n: int, estimate: Estimate) -> list[tuple[np.ndarray, bool]]:
    """Symmetric real matrices near alpha_sum, and whether their distance from integers is evidence."""
    symmetric = (scaled + scaled.T) / 2
    if n == 1:
        return [(symmetric, True)]
    found = []
    if estimate == "root" and (root := _root(scaled, q, n)) is not None:
        equal = (n / q) * (np.eye(len(scaled)) - root)
        found.append(((equal + equal.T) / 2, True))
    return [*found, (symmetric, False)]


def _root(scaled: np.ndarray, q: float, n: int) -> np.ndarray | None:
    """(I - gamma)^(1/n), or None where the steps overshoot, so that it is not near real and positive."""
    product = np.eye(len(scaled)) - q * scaled
    values = np.linalg.eigvals(product)
    if (values.real <= 1e-9).any() or (np.abs(values.imag) > values.real).any():
        return None
    return np.real(fractional_matrix_power(product, 1 / n))


def _verify(
    alpha: np.ndarray, real: np.ndarray, scaled: np.ndarray, q: float, n: int, precision: float, evident: bool
) -> tuple[str | None, np.ndarray | None]:
    """(Why the candidate is none, A_2 if it can be told)."""
    d = len(alpha)
    distance = float(np.abs(real - np.rint(real)).max(initial=0.0))
    limit = chance_limit(d * (d + 1) // 2)
    if n == 1:
        return (f"not integral, {distance:.2g} off" if distance > limit else None), None
    square = alpha @ alpha
    expected = q * (n - 1) / (2 * n) * square  # of the second term's symmetric part, were the batches equal
    symmetric = (scaled + scaled.T) / 2
    if not evident and np.abs(alpha - expected - symmetric).max(initial=0.0) >= 0.5:
        return "with the second term that it makes likely it is no longer what was rounded", None
    left = (alpha - scaled) / q
    second = np.rint(left).astype(np.int64)
    told = precision / q <= SAFE and np.abs(left - second).max(initial=0.0) <= chance_limit(d * d)
    told = told and second.min(initial=0) >= 0 and (second + second.T <= square).all()
    if n > 2:  # A_2 - q A_3 + ... was rounded: A_3 as equal batches would have it
        told = told and q * (n - 1) * (n - 2) / (6 * n * n) * float((square @ alpha).max(initial=0)) < 0.35
    if told and n == 2:  # A^2 - 2 (P + P^T) = (alpha_1 - alpha_2)^2
        spread = square - 2 * (second + second.T)
        told = np.linalg.eigvalsh(spread.astype(float))[0] >= -1e-9 * max(1.0, float(np.trace(square)))
    if n == 2 and precision / q <= SAFE:
        return (None if told else "what is left after the first term is no product of two integer matrices"), (
            second if told else None
        )
    predicted = float(expected.max(initial=0.0))
    if (evident and distance > limit) or (not evident and predicted >= 0.5):
        return f"its second term is too large ({predicted:.2g}), the sum is {distance:.2g} off integers", None
    return None, second if told else None


def _labels(
    scaled: np.ndarray, alpha: np.ndarray, q: float, n: int, precision: float
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """beta_sum and B_2 from eta / (2 q), each None where it is not safe.

    Equal batches with equal betas would give eta / (2 q) = 1/n sum_{k<n} (I - q A/n)^k beta_sum: solved for it, the error is
    q sum_i ((n - 1)/2 - i) A/n beta_i to first order, of variance q^2 (n^2 - 1) / (12 n^2) (A^3)_kk for labels that are
    drawn. Four of its deviations must stay below 1, half the step between numbers of one parity.
    """
    a = alpha.astype(float)
    step, power, total_power = np.eye(len(a)) - q / n * a, np.eye(len(a)), np.zeros(a.shape)
    for _ in range(n):
        total_power, power = total_power + power / n, power @ step
    deviation = q * np.sqrt((n * n - 1) / (12 * n * n) * np.diagonal(a @ a @ a)).max(initial=0.0)
    if 4 * deviation > 1 or precision > SAFE or np.linalg.cond(total_power) > 1e6:
        return None, None
    parity = np.diagonal(alpha) % 2
    beta = (2 * np.rint((np.linalg.solve(total_power, scaled) - parity) / 2) + parity).astype(np.int64)
    if (np.abs(beta) > np.diagonal(alpha)).any():
        return None, None
    left = (beta - scaled) / q
    second = np.rint(left).astype(np.int64)
    resolved = n > 1 and precision / q <= SAFE
    integral = np.abs(left - second).max(initial=0.0) <= chance_limit(len(beta))
    if n == 2 and resolved and not integral:  # with two batches nothing follows: it had to be
        return None, None
    return beta, second if resolved and integral else None


def _proved(scaled: np.ndarray, alpha: np.ndarray, q: float, n: int, precision: float, rows: int | None) -> bool:
    """Whether alpha is the only integer matrix within the bounds of the expansion.

        0 <= A_2 + A_2^T <= A_1^2,   0 <= A_k <= A_1^k,   entry by entry, as all alphas have entries >= 0

    so with A_1 <= U: S - r <= A_1 <= S + q/2 U^2 + r, S the symmetric part of gamma/q, r = q^2 U^3 + q^3 U^4 + ... (0 for
    n = 2). U starts from the number of rows, or where it is not known from twice the candidate, and is tightened.
    """
    symmetric = (scaled + scaled.T) / 2
    slack = 8 * precision + 1e-9
    upper = np.full(alpha.shape, float(rows)) if rows else 2.0 * alpha + 1
    for _ in range(50):
        rest = np.zeros(alpha.shape)
        if n > 2:
            if q * np.abs(upper).sum(1).max() >= 1:
                return False
            rest = q**2 * upper @ upper @ upper @ np.linalg.inv(np.eye(len(alpha)) - q * upper)
        bound = np.minimum(upper, np.floor(symmetric + q / 2 * upper @ upper + rest + slack))
        if np.array_equal(bound, upper):
            break
        upper = bound
    least = np.ceil(symmetric - rest - slack)
    return bool((least == upper).all() and (upper == alpha).all())
