"""The affine map of several local steps: what an update of asynchronous training is a function of (Theorem 1)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vflbench.attacks.batch_reconstruction.recovery.affine import checked_pairs, fit_affine, rounding_unit


@dataclass(frozen=True)
class LocalMap:
    """theta_n - theta_0 = eta - gamma theta_0. gamma: (d, d), not symmetric for n > 1; eta: (d,); both with standard errors.

    condition, residual, rounds: as in `RecoveredSums`, the residual in units of the difference. refusal: why there is none.
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


def expansion_terms(
    alphas: Sequence[np.ndarray], betas: Sequence[np.ndarray], order: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The first `order` integer terms of the expansion in powers of q = rate / 4.

        gamma / q  = A_1 - q A_2 + q^2 A_3 - ...,    A_k = sum_{i1 < ... < ik} alpha_ik ... alpha_i1
        eta / (2q) = B_1 - q B_2 + q^2 B_3 - ...,    B_k = sum_{i1 < ... < ik} alpha_ik ... alpha_i2 beta_i1

    Both end with k = n. Integer alphas and betas give integers. Returns (A_k, B_k) for k = 1..order.
    """
    d = len(betas[0])
    expansion = [(np.zeros_like(alphas[0]), np.zeros_like(betas[0])) for _ in range(order)]
    for alpha, beta in zip(alphas, betas, strict=True):
        for k in range(order - 1, 0, -1):
            matrix, vector = expansion[k - 1]
            expansion[k] = (expansion[k][0] + alpha @ matrix, expansion[k][1] + alpha @ vector)
        expansion[0] = (expansion[0][0] + alpha @ np.eye(d, dtype=alpha.dtype), expansion[0][1] + beta)
    return expansion


def recover_map(
    thetas: np.ndarray, differences: np.ndarray, *, unit: float | None = None, intermediate: float = 0.0
) -> LocalMap:
    """gamma and eta by least squares, from theta_0 and theta_n - theta_0 of rounds with the same batches in the same order.

    thetas, differences: (n, d), n >= d + 1, thetas affinely independent. unit: relative rounding of the differences,
    estimated from the values if None. intermediate: how far labels can move the models between the local steps, rate / 2
    times the rows of all steps (sum) or the number of steps (mean). These models are rounded as well, and may be far larger
    than the first and the last one, where labels cancel. Raises ValueError for invalid shapes or numbers.
    """
    thetas, differences = checked_pairs(thetas, differences)
    largest = np.abs(thetas).max(initial=0.0) + np.abs(differences).max(initial=0.0) + intermediate
    fit = fit_affine(thetas, differences, floor=4 * rounding_unit(thetas, differences, unit) * float(largest))
    if fit.refusal:
        return LocalMap(fit.rounds, condition=fit.condition, refusal=fit.refusal)
    return LocalMap(
        fit.rounds, -fit.linear.T, fit.constant, fit.linear_error.T, fit.constant_error, fit.condition, fit.residual
    )
