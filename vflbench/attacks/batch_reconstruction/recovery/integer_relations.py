"""alpha and beta from fewer pairs than unknowns: their rows are small integers, so they are near lattice points."""

from dataclasses import dataclass, replace
from importlib import import_module

import numpy as np

from vflbench.attacks.batch_reconstruction.recovery.affine import checked_pairs, rounding_unit
from vflbench.attacks.batch_reconstruction.recovery.least_squares import Reduction, check_rate_and_rows, rounding_floor
from vflbench.attacks.batch_reconstruction.recovery.other_integers import (
    GUARD,
    chance_of_fit,
    other_integers,
    scaled_to_integer,
)
from vflbench.attacks.batch_reconstruction.recovery.rounding import RecoveredSums, inconsistency
from vflbench.errors import UserError
from vflbench.places import pip_install

_SLACK = 16  # rounding errors that a solution may be off
_DENSITIES = (0.5, 0.3, 0.7, 0.1, 0.9, 0.02)


@dataclass(frozen=True)
class _Relations:
    """The lattice of (v, weight (theta_t.v_alpha - 2 v_beta) for each t), v integer: reduced, and orthogonalised."""

    basis: np.ndarray  # (d + 1, d + 1 + n) Python integers
    real: np.ndarray  # the same over GUARD, float64
    orthogonal: np.ndarray  # Gram-Schmidt vectors of `real`
    shortest: float  # no lattice vector but 0 is shorter

    def closest(self, target: np.ndarray) -> np.ndarray:
        """A lattice point near the target (Babai's nearest plane), in Python integers times GUARD."""
        point = np.zeros(self.basis.shape[1], dtype=object)
        remainder = target.copy()
        for i in range(len(self.basis) - 1, -1, -1):
            b = self.orthogonal[i]
            times = round(float(remainder @ b / (b @ b)))
            remainder = remainder - times * self.real[i]
            point = point + times * self.basis[i]
        return point


def integer_relations(
    thetas: np.ndarray,
    updates: np.ndarray,
    *,
    rate: float,
    reduction: Reduction,
    rows: int | None = None,
    most_rows: int = 64,
    unit: float | None = None,
    most_pairs: int = 16,
) -> RecoveredSums:
    """alpha and beta from few pairs, as integer relations. Needs python-flint (extra `lattice`).

        4 g_i(theta_t) = sum_k alpha_ik theta_tk - 2 beta_i      for every t, alpha_ik and beta_i integers in [-m, m]

    A float64 pair carries some 45 bits for each coordinate, so two pairs determine 21 integers below 12. The lattice of
    (v, w (theta_t.v - 2 v_beta)), with w one over the rounding error of 4 g, is reduced once by LLL; row i is its point
    nearest to (centre, w 4 g_i). A solution must fit every pair up to rounding, be symmetric although each row is computed
    independently, and be consistent. `other_integers` then proves that there is no second one, or `assumption` says so.

    thetas, updates: (n, d), n >= 1; of more than `most_pairs`, evenly spaced ones are used. rate, reduction, rows, unit: as
    in `least_squares`; without rows, sizes up to most_rows are tried, least first. A refusal names too few pairs (the
    nearest point is not the only one that fits) or noise. Raises UserError if python-flint is missing, ValueError for
    invalid shapes, sizes or numbers.

    Source: the embedding technique, Lagarias and Odlyzko, "Solving low-density subset sum problems", 1985; L. Babai, "On
    Lovasz' lattice reduction and the nearest lattice point problem", 1986.
    """
    thetas, updates = checked_pairs(thetas, updates)
    check_rate_and_rows(rate, rows)
    n = len(thetas)
    if n == 0:
        return RecoveredSums(0, rows=rows, refusal="too few rounds: there is none", method="lattice")
    chosen = np.unique(np.linspace(0, n - 1, min(n, most_pairs)).round().astype(int))
    thetas, updates = thetas[chosen], updates[chosen]
    floor = rounding_floor(thetas, updates, rate, unit)
    values = -4 / rate * updates
    sizes = [rows] if rows else range(1, most_rows + 1)
    relations, error = None, 0.0
    refusal = ""
    for size in sizes:
        scale = size if reduction == "mean" else 1
        # The terms of single rows are rounded as well, theta.x and 2 y of each, also where their sum nearly vanishes.
        needed = scale * floor + rounding_unit(thetas, updates, unit) * size * float(np.abs(thetas).sum(1).max() + 8)
        if relations is None or needed > 2 * error:
            relations, error = _reduced(thetas, 1 / needed), needed
        solution, refusal = _solve(relations, thetas, scale * values, error, size)
        if solution is not None and (why := inconsistency(*solution, size)):
            solution, refusal = None, f"the solution is no batch of {size} binary rows: {why}"
        if solution is not None and _has_another(relations, *solution, rows or most_rows):
            solution, refusal = None, f"the relation is not unique: other integers fit these {len(thetas)} pairs as well"
        if solution is not None:
            alpha, beta = solution
            within, most = _SLACK * error, rows or most_rows
            verdict = other_integers(thetas, scale * values, alpha, beta, within=within, rows=most)
            if verdict == "several":
                refusal = f"the relation is not unique: other integers fit these {len(thetas)} pairs as well"
                continue
            # For sums with an unknown batch size, `size` was only a bound on the entries.
            known = rows if reduction == "sum" else size
            residuals = scale * values - thetas @ alpha + 2 * beta
            result = RecoveredSums(len(thetas), rows=known, residual=float(np.sqrt(np.mean(residuals**2))), method="lattice")
            assumptions = []
            if verdict == "undecided":
                assumptions.append(f"no other integers fit these {len(thetas)} pairs")
            if chance_of_fit(thetas, within=within, rows=most):
                assumptions.append("the updates have no noise")
            return replace(
                result,
                alpha=alpha,
                beta=beta,
                real_alpha=alpha.astype(float),
                real_beta=beta.astype(float),
                columns=np.arange(len(beta)),
                assumption="; ".join(assumptions),
            )
    if not rows:
        refusal = f"no batch size up to {most_rows} fits; of {sizes[-1]} rows, {refusal}"
    return RecoveredSums(len(thetas), rows=rows, refusal=refusal, method="lattice")


def _reduced(thetas: np.ndarray, weight: float) -> _Relations:
    try:
        flint = import_module("flint")
    except ImportError as error:
        problem = f"it needs python-flint: {pip_install('lattice')}"
        raise UserError(problem, key="attack.batch_reconstruction.recovery", value="lattice") from error
    n, d = thetas.shape
    columns = np.vstack([thetas.T, np.full((1, n), -2.0)])
    rows = []
    for i, column in enumerate(columns):
        scaled = [scaled_to_integer(weight * GUARD, x) for x in column]
        rows.append([GUARD if j == i else 0 for j in range(d + 1)] + scaled)
    reduced = flint.fmpz_mat(rows).lll(delta=0.999)
    basis = np.array([[int(x) for x in row] for row in reduced.tolist()], dtype=object)
    real = basis.astype(float) / GUARD
    orthogonal = real.copy()
    for _ in range(2):  # twice is enough: the basis is reduced, its vectors are nearly orthogonal
        for i in range(len(real)):
            for j in range(i):
                b = orthogonal[j]
                orthogonal[i] = orthogonal[i] - (orthogonal[i] @ b) / (b @ b) * b
    return _Relations(basis, real, orthogonal, float(np.linalg.norm(orthogonal, axis=1).min()))


def _solve(
    relations: _Relations, thetas: np.ndarray, values: np.ndarray, error: float, rows: int
) -> tuple[tuple[np.ndarray, np.ndarray] | None, str]:
    """(alpha, beta) that fit, or None and the reason. error: the unit of the lattice's last n coordinates."""
    d = thetas.shape[1]
    alpha, beta = np.zeros((d, d), dtype=np.int64), np.zeros(d, dtype=np.int64)
    for i in range(d):
        row = _row(relations, thetas, values[:, i], error, rows, i)
        if row is None:
            certain = relations.shortest > 2 * _largest_distance(d, rows, values.shape[0])
            causes = (
                "noise, clipping, a batch that changes or columns that are not binary"
                if certain
                else "too few pairs for so many coordinates, or noise, clipping or columns that are not binary"
            )
            return None, f"no small integers fit coordinate {i} in {len(thetas)} pairs: {causes}"
        alpha[i], beta[i] = row
    if not np.array_equal(alpha, alpha.T):
        why = (
            f"the relation is not unique: {len(thetas)} pairs are too few for {d} coordinates, the solution is not symmetric"
        )
        return None, why
    return (alpha, beta), ""


def _has_another(relations: _Relations, alpha: np.ndarray, beta: np.ndarray, rows: int) -> bool:
    """Whether a neighbouring solution fits as well and is consistent.

    If (v, w) is a relation of the thetas themselves, theta_t.v = 2 w for every t, then alpha + v v^T and beta + w v fit too,
    and with two of them alpha + v u^T + u v^T. Every other solution is a sum of such; those of the reduced basis are tried.
    """
    d = len(beta)
    fit = np.abs(relations.real[:, d + 1 :]).max(1)
    short = [b[: d + 1] for b, off in zip(np.rint(relations.real).astype(np.int64), fit, strict=True) if off <= _SLACK]
    short = [b for b in short if np.abs(b).max() <= rows]
    for k, one in enumerate(short):
        for other in short[: k + 1]:
            change = np.outer(one[:d], other)
            turned = change if other is one else change + np.outer(other[:d], one)
            for times in (1, -1, 2, -2):
                near, beta_near = alpha + times * turned[:, :d], beta + times * turned[:, d]
                if near.min() >= 0 and near.max() <= rows and not inconsistency(near, beta_near, rows):
                    return True
    return False


def _largest_distance(d: int, rows: int, n: int) -> float:
    """A bound on the distance of a true row from its centre: entries up to m/2 off, beta up to m, and rounding."""
    return float(np.sqrt(d * (rows / 2) ** 2 + rows**2 + n))


def _row(
    relations: _Relations, thetas: np.ndarray, values: np.ndarray, error: float, rows: int, i: int
) -> tuple[np.ndarray, int] | None:
    """Row i of alpha and beta_i: of those that fit, the one nearest to its centre, for several guesses of the density."""
    d = thetas.shape[1]
    best, nearest = None, float("inf")
    for density in _DENSITIES:
        centre = np.full(d + 1, rows * density**2)
        centre[i], centre[d] = rows * density, 0.0
        target = np.concatenate([centre, values / error])
        point = relations.closest(target)
        row = np.array([int(x) // GUARD for x in point[: d + 1]], dtype=np.int64)
        residuals = values - thetas @ row[:d] + 2 * row[d]
        inside = row[:d].min() >= 0 and row[:d].max() <= row[i] <= rows and abs(row[d]) <= row[i]
        if not inside or (row[d] - row[i]) % 2 or np.abs(residuals).max() > _SLACK * error:
            continue
        distance = float(np.linalg.norm(point.astype(float) / GUARD - target))
        if distance < nearest:
            best, nearest = (row[:d], int(row[d])), distance
    return best
