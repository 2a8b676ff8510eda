"""The sums alpha and beta over several local batches, as integers, from the map of their steps."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.linalg import fractional_matrix_power

from vflbench.attacks.batch_reconstruction.asynchronous.two_steps import two_steps
from vflbench.attacks.batch_reconstruction.recovery.affine import chance_limit
from vflbench.attacks.batch_reconstruction.recovery.least_squares import SAFE_ERROR, Reduction, inconsistency

Estimate = Literal["separation", "root", "rounding"]


@dataclass(frozen=True)
class TotalSums:
    """The sums over all batches, from one update.

    alpha_sum: (d, d) int64, X^T X of the rows of all batches together. beta_sum: (d,) int64, None if only it is not safe.
    second: (d, d) int64, A_2 = sum_{i<j} alpha_j alpha_i; second_labels: (d,) int64, B_2 = sum_{i<j} alpha_j beta_i; each
    None if it is not determined to the integer.
    proved: whether no other alpha_sum of binary batches gives this gamma up to its error; otherwise the integers are the
    most plausible ones. labels_proved: the same of beta_sum. alphas: alpha_1, alpha_2 of two batches if they are proved, or
    None. error: of 2 eta / rate. needs: an assumption of the alphas. refusal: why there is no alpha_sum, or None.
    """

    alpha_sum: np.ndarray | None = None
    beta_sum: np.ndarray | None = None
    second: np.ndarray | None = None
    second_labels: np.ndarray | None = None
    proved: bool = False
    labels_proved: bool = False
    alphas: tuple[np.ndarray, np.ndarray] | None = None
    error: float = 0.0
    needs: str = ""
    refusal: str | None = None

    @property
    def assumption(self) -> str:
        """What is not proved of the sums, or nothing."""
        if self.needs:
            return self.needs
        if not self.proved:
            return "other sums of binary batches are not ruled out"
        return "" if self.beta_sum is None or self.labels_proved else "other sums of labelled rows are not ruled out"


def recover_total(
    gamma: np.ndarray,
    eta: np.ndarray,
    rate: float,
    batches: int,
    *,
    rows: int | None = None,
    reduction: Reduction = "sum",
    error: float = 0.0,
    estimate: Estimate = "separation",
) -> TotalSums:
    """The alpha and beta of all batches together, which gamma and eta determine only because they are integers.

    `rounding` rounds the symmetric part of gamma / q = A_1 - q A_2 + ..., which is right while q |A_2| < 1/2. `root` first
    subtracts the higher terms that equal batches would have, (n/q) (I - (I - gamma)^(1/n)). Its error is q/2 sum_i D_i^2,
    D_i = alpha_i - A_1/n, the fluctuation between batches, and terms of q^2, so larger rates work. If its result is not
    verified, rounding is tried. beta_sum is rounded to the parity of alpha_sum's diagonal.
    `separation` first separates every entry of gamma into its two integers, for two batches of a known size (`two_steps`),
    and takes the root where that is not proved. With two batches the expansion ends, so A_2 = (A_1 - gamma/q) / q must be
    integral: this is the check for n = 2. For more batches the root must be near integers, or the predicted q A_2 below 1/2.

    gamma: (d, d), eta: (d,), of `recover_map`. rate: the local step size; batches: n. rows: m of each batch, required for
    `mean` (the step is then rate / m), otherwise it only makes checks sharper. error: standard error of gamma's entries.
    Raises ValueError for invalid shapes or numbers.
    """
    gamma, eta = np.asarray(gamma, dtype=float), np.asarray(eta, dtype=float)
    if gamma.ndim != 2 or gamma.shape != (len(eta), len(eta)):
        raise ValueError(f"gamma must be (d, d) and eta (d,), not {gamma.shape} and {eta.shape}")
    if reduction == "mean" and rows is None:
        raise ValueError("for mean gradients the batch size must be given")
    if rate <= 0 or batches < 1:
        raise ValueError(f"the rate must be positive and the number of batches at least 1, not {rate} and {batches}")
    q = rate / 4 / (rows if reduction == "mean" else 1)
    if error / q > SAFE_ERROR:
        why = f"the rate is too small for the precision of gamma: alpha has a standard error of {error / q:.2g}"
        return TotalSums(refusal=why)
    scaled, precision = gamma / q, error / q
    separable = estimate == "separation" and batches == 2 and rows is not None
    if separable and (steps := two_steps(scaled, eta / (2 * q), q, rows, 8 * precision)):
        proved = not steps.assumption
        found = (steps.first, steps.beta_sum, steps.second, steps.second_labels, proved, proved, steps.alphas)
        return TotalSums(*found, 8 * precision, steps.assumption)
    tried = []
    for real, evident in _estimates(scaled, q, batches, estimate):
        candidate = np.rint(real).astype(np.int64)
        why, second = _check(candidate, real, scaled, q, batches, precision, evident)
        all_rows = None if rows is None else batches * rows
        why = why or inconsistency(candidate, np.diagonal(candidate).copy(), all_rows)
        if why is None:
            beta, second_labels = _labels(eta / (2 * q), candidate, q, batches, error / q)
            second_labels = None if second is None else second_labels  # both have the same third-order error
            proved = batches == 1 or _proved(scaled, candidate, q, batches, precision, all_rows)
            labels_proved = batches == 1 or (proved and _labels_proved(eta / (2 * q), candidate, q, batches, precision))
            return TotalSums(candidate, beta, second, second_labels, proved, labels_proved, error=8 * precision)
        tried.append(why)
    return TotalSums(refusal=f"the rate {rate:g} hides the sum of {batches} batches: {tried[0]}")


def _estimates(scaled: np.ndarray, q: float, n: int, estimate: Estimate) -> list[tuple[np.ndarray, bool]]:
    """Symmetric real matrices near alpha_sum, and whether their distance from integers is evidence."""
    symmetric = (scaled + scaled.T) / 2
    if n == 1:
        return [(symmetric, True)]
    estimates = []
    if estimate != "rounding" and (root := _root(scaled, q, n)) is not None:
        equal = (n / q) * (np.eye(len(scaled)) - root)
        estimates.append(((equal + equal.T) / 2, True))
    return [*estimates, (symmetric, False)]


def _root(scaled: np.ndarray, q: float, n: int) -> np.ndarray | None:
    """(I - gamma)^(1/n), or None if the steps overshoot, so that I - gamma has eigenvalues far from the positive reals."""
    product = np.eye(len(scaled)) - q * scaled
    values = np.linalg.eigvals(product)
    if (values.real <= 1e-9).any() or (np.abs(values.imag) > values.real).any():
        return None
    return np.real(fractional_matrix_power(product, 1 / n))


def _check(
    alpha: np.ndarray, real: np.ndarray, scaled: np.ndarray, q: float, n: int, precision: float, evident: bool
) -> tuple[str | None, np.ndarray | None]:
    """(Why the candidate is rejected, or None; A_2 if it is determined, or None)."""
    d = len(alpha)
    distance = float(np.abs(real - np.rint(real)).max(initial=0.0))
    limit = chance_limit(d * (d + 1) // 2)
    if n == 1:
        return (f"not integral, {distance:.2g} off" if distance > limit else None), None
    square = alpha @ alpha
    expected = q * (n - 1) / (2 * n) * square  # the symmetric part of the second-order term of equal batches
    symmetric = (scaled + scaled.T) / 2
    if not evident and np.abs(alpha - expected - symmetric).max(initial=0.0) >= 0.5:
        return "the second-order term that it predicts would have changed the rounding", None
    remainder = (alpha - scaled) / q
    second = np.rint(remainder).astype(np.int64)
    resolved = precision / q <= SAFE_ERROR and np.abs(remainder - second).max(initial=0.0) <= chance_limit(d * d)
    resolved = resolved and second.min(initial=0) >= 0 and (second + second.T <= square).all()
    if n > 2:  # A_2 - q A_3 + ... was rounded: with the A_3 of equal batches
        resolved = resolved and q * (n - 1) * (n - 2) / (6 * n * n) * float((square @ alpha).max(initial=0)) < 0.35
    if resolved and n == 2:  # A^2 - 2 (P + P^T) = (alpha_1 - alpha_2)^2
        spread = square - 2 * (second + second.T)
        resolved = np.linalg.eigvalsh(spread.astype(float))[0] >= -1e-9 * max(1.0, float(np.trace(square)))
    if n == 2 and precision / q <= SAFE_ERROR:
        return (None if resolved else "the remainder after the first-order term is no product of two integer matrices"), (
            second if resolved else None
        )
    predicted = float(expected.max(initial=0.0))
    if (evident and distance > limit) or (not evident and predicted >= 0.5):
        return f"its second-order term is too large ({predicted:.2g}), the sum is {distance:.2g} off integers", None
    return None, second if resolved else None


def _labels(
    scaled: np.ndarray, alpha: np.ndarray, q: float, n: int, precision: float
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """beta_sum and B_2 from eta / (2 q), each None if it is not safe.

    Equal batches with equal betas would give eta / (2 q) = 1/n sum_{k<n} (I - q A/n)^k beta_sum. Solved for beta_sum, the
    error is to first order q sum_i ((n - 1)/2 - i) A/n beta_i, with variance q^2 (n^2 - 1) / (12 n^2) (A^3)_kk for random
    labels. Four standard deviations must be below 1, half the step between numbers of one parity.
    """
    a = alpha.astype(float)
    step, power, mean_power = np.eye(len(a)) - q / n * a, np.eye(len(a)), np.zeros(a.shape)
    for _ in range(n):
        mean_power, power = mean_power + power / n, power @ step
    deviation = q * np.sqrt((n * n - 1) / (12 * n * n) * np.diagonal(a @ a @ a)).max(initial=0.0)
    if 4 * deviation > 1 or precision > SAFE_ERROR or np.linalg.cond(mean_power) > 1e6:
        return None, None
    parity = np.diagonal(alpha) % 2
    beta = (2 * np.rint((np.linalg.solve(mean_power, scaled) - parity) / 2) + parity).astype(np.int64)
    if (np.abs(beta) > np.diagonal(alpha)).any():
        return None, None
    remainder = (beta - scaled) / q
    second = np.rint(remainder).astype(np.int64)
    resolved = n > 1 and precision / q <= SAFE_ERROR
    integral = np.abs(remainder - second).max(initial=0.0) <= chance_limit(len(beta))
    if n == 2 and resolved and not integral:  # with two batches no further term follows: it must be integral
        return None, None
    return beta, second if resolved and integral else None


def _proved(scaled: np.ndarray, alpha: np.ndarray, q: float, n: int, precision: float, rows: int | None) -> bool:
    """Whether alpha is the only integer matrix within the bounds of the expansion.

        0 <= A_2 + A_2^T <= A_1^2,   0 <= A_k <= A_1^k,   entry by entry, as all alphas have entries >= 0

    so with A_1 <= U: S - r <= A_1 <= S + q/2 U^2 + r, S the symmetric part of gamma/q, r = q^2 U^3 + q^3 U^4 + ... (0 for
    n = 2). U starts from the number of rows, or if it is unknown from twice the candidate, and is tightened.
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


def _labels_proved(scaled: np.ndarray, alpha: np.ndarray, q: float, n: int, precision: float) -> bool:
    """Whether only one vector of alpha's parity is as near to eta / (2 q) as beta_sum must be.

    |B_k| <= A_1^(k-1) diag(A_1),   so   |beta_sum - eta / (2 q)| <= sum_{k=1..n-1} q^k A_1^k diag(A_1) + its error
    """
    rest, term = np.full(len(alpha), 8 * precision), np.diagonal(alpha).astype(float)
    for _ in range(n - 1):
        term = q * (alpha @ term)
        rest = rest + term
    parity = np.diagonal(alpha) % 2
    low, high = np.ceil((scaled - rest - parity) / 2), np.floor((scaled + rest - parity) / 2)
    return bool((low == high).all())
