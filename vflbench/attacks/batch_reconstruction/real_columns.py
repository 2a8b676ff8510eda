"""Batches with real-valued columns: which columns are binary, and the others, once the binary ones give the rows."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vflbench.attacks.batch_reconstruction.gram import rank

CountViolations = Callable[[np.ndarray, int, np.ndarray], np.ndarray]
_LARGEST_TOLERANCE = 0.25  # beyond it an integer is no evidence of a binary column


@dataclass(frozen=True)
class BinaryColumns:
    """kept: ascending indices of the columns that pass all tests. left_out: column -> why it is not binary.

    alpha: (k, k) int64 and beta: (k,) int64 of the kept columns.
    """

    kept: np.ndarray
    left_out: dict[int, str]
    alpha: np.ndarray
    beta: np.ndarray


def binary_columns(
    alpha: np.ndarray,
    beta: np.ndarray,
    rows: int,
    *,
    tolerance: np.ndarray | float = 1e-3,
    intercept: int | None = None,
) -> BinaryColumns:
    """Split the columns of a batch into binary and other ones, from alpha = X^T X and beta = X^T Y alone.

    One column: alpha_ii integral in [0, m]; beta_i integral, |beta_i| <= alpha_ii, both odd or both even; with an intercept
    alpha_0i = alpha_ii, which among integer columns only binary ones satisfy (sum x = sum x^2). Pairs: alpha_ij integral,
    max(0, alpha_ii + alpha_jj - m) <= alpha_ij <= min(alpha_ii, alpha_jj). Triples: alpha_ij + alpha_ik - alpha_jk <=
    alpha_ii, and the union of three columns' ones at most m. While columns violate pairs (then triples), the one with the
    most violations is left out; among equals, the one whose products are farther from integers.

    alpha: (d, d) float64, unrounded; beta: (d,). rows: m. tolerance: the largest distance from an integer, below 1/4; a
    number or (d, d), for example six standard errors. intercept: index of the column of ones, if there is one.
    These tests are necessary, and no proof: columns of other numbers, -1 and +1 for example, can have the same sums, and a
    solver may then find a batch that is not the true one. With an intercept, a column of whole numbers that passes is
    binary. Only a schema (`Schema.binary`) names binary columns for certain. A column that takes only 0 and 1 in this batch
    by chance counts as binary. Raises ValueError for wrong shapes or a tolerance of 1/4 or more.
    """
    alpha, beta = np.asarray(alpha, dtype=float), np.asarray(beta, dtype=float)
    d = len(beta)
    if alpha.shape != (d, d) or beta.ndim != 1:
        raise ValueError(f"alpha must be (d, d) and beta (d,), not {alpha.shape} and {beta.shape}")
    slack = np.broadcast_to(np.asarray(tolerance, dtype=float), (d, d))
    if not (slack < _LARGEST_TOLERANCE).all():
        raise ValueError(f"the tolerance must be below 1/4, not {slack.max():.2g}")
    left_out = {}
    for i in range(d):
        if why := _why_not_binary(alpha, beta, rows, slack, intercept, i):
            left_out[i] = why
    kept = [i for i in range(d) if i not in left_out]
    kept = _drop_worst(
        alpha,
        rows,
        slack,
        kept,
        left_out,
        _violated_pairs,
        "{} of its products with other columns are impossible for binary ones",
    )
    kept = _drop_worst(
        alpha, rows, slack, kept, left_out, _violated_triples, "{} triples of columns with it overlap in an impossible way"
    )
    chosen = np.array(kept, dtype=np.int64)
    integers = np.rint(alpha[np.ix_(chosen, chosen)]).astype(np.int64)
    return BinaryColumns(chosen, left_out, integers, np.rint(beta[chosen]).astype(np.int64))


def _integral(x: np.ndarray, slack: np.ndarray) -> np.ndarray:
    return np.abs(x - np.rint(x)) <= slack


def _why_not_binary(
    alpha: np.ndarray, beta: np.ndarray, rows: int, slack: np.ndarray, intercept: int | None, i: int
) -> str | None:
    """Why column i is not binary, from its own sums, or None."""
    squares, near = alpha[i, i], slack[i, i]
    if abs(squares - round(squares)) > near:
        return f"the sum of its squares is {squares:.6g}, not an integer"
    if not -near <= squares <= rows + near:
        return f"the sum of its squares is {squares:.6g}, more than the {rows} rows"
    if abs(beta[i] - round(beta[i])) > near:
        return f"its product with the labels is {beta[i]:.6g}, not an integer"
    if abs(beta[i]) > squares + 2 * near:
        return f"its product with the labels is {beta[i]:.6g}, more than the {squares:.6g} of its squares"
    if round(beta[i]) % 2 != round(squares) % 2:
        return (
            f"its product with the labels, {beta[i]:.6g}, and sum of squares, {squares:.6g}, are not both odd or both even"
        )
    if intercept is not None and abs(alpha[intercept, i] - squares) > slack[intercept, i] + near:
        return f"its sum is {alpha[intercept, i]:.6g}, that of its squares {squares:.6g}: equal only for 0 and 1"
    return None


def _violated_pairs(alpha: np.ndarray, rows: int, slack: np.ndarray) -> np.ndarray:
    """The number of pairs that each column violates. (k,) int."""
    ones = np.diagonal(alpha)
    least = np.maximum(0, np.add.outer(ones, ones) - rows)
    violations = ~_integral(alpha, slack) | (alpha < least - 3 * slack) | (alpha > np.minimum.outer(ones, ones) + 2 * slack)
    np.fill_diagonal(violations, False)
    return violations.sum(1)


def _violated_triples(alpha: np.ndarray, rows: int, _: np.ndarray) -> np.ndarray:
    """The number of triples that each column violates. (k,) int."""
    a = np.rint(alpha).astype(np.int64)  # the pairs have been checked
    ones = np.diagonal(a)
    counts = np.zeros(len(a), dtype=np.int64)
    for i in range(len(a)):
        # The ones of i contain its overlaps with j and k, whose common part is at most a_jk: a_ij + a_ik - a_jk <= a_ii.
        over = a[i][:, None] + a[i][None, :] - a > ones[i]
        pairwise = a[i][:, None] + a[i][None, :] + a
        least = ones[i] + ones[:, None] + ones[None, :] - pairwise  # the union without the common ones of all three
        violations = over | (least > rows)
        np.fill_diagonal(violations, False)
        violations[i, :] = violations[:, i] = False
        counts[i] += violations.sum() // 2
        counts += violations.sum(1)
    return counts


def _drop_worst(
    alpha: np.ndarray,
    rows: int,
    slack: np.ndarray,
    kept: list[int],
    left_out: dict[int, str],
    violations: CountViolations,
    why: str,
) -> list[int]:
    kept = list(kept)
    while kept:
        part = np.ix_(kept, kept)
        counts = violations(alpha[part], rows, slack[part])
        if not counts.any():
            break
        off = np.abs(alpha[part] - np.rint(alpha[part])).sum(1)
        worst = max(range(len(kept)), key=lambda k: (counts[k], off[k], k))
        left_out[kept.pop(worst)] = why.format(int(counts[worst]))
    return kept


@dataclass(frozen=True)
class RealFeatures:
    """values: (m, r), the real-valued features of the rows of X_B, None with a refusal.

    condition: of X_B. residual: largest |X_B^T x - alpha_BR|. gram_residual: largest |X_R^T X_R - alpha_RR|, None without
    alpha_RR. refusal: why there are none, or None.
    """

    values: np.ndarray | None = None
    condition: float | None = None
    residual: float | None = None
    gram_residual: float | None = None
    refusal: str | None = None


def with_likely_columns(rows: np.ndarray, kept: np.ndarray, batch: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The unknown columns of the rows filled from another batch, if it has the same rows in the columns that are known.

    rows: (m, d), nan where unknown; kept: columns that are known. batch: (m, c), values of the columns `columns`, `kept`
    among them. Returns (m, d).
    """
    places = {int(column): k for k, column in enumerate(columns)}
    part = batch[:, [places[int(column)] for column in kept]]
    order, other = np.lexsort(rows[:, kept].T), np.lexsort(part.T)
    if not np.array_equal(rows[order][:, kept], part[other]):
        return rows
    filled = rows.copy()
    aligned = np.empty_like(batch)
    aligned[order] = batch[other]
    unknown = np.isnan(rows[:, columns])
    filled[:, columns] = np.where(unknown, aligned, rows[:, columns])
    return filled


def real_features(
    x_binary: np.ndarray, alpha_br: np.ndarray, alpha_rr: np.ndarray | None = None, *, tolerance: float = 1e-3
) -> RealFeatures:
    """The other features of the same rows: the solution of X_B^T x = alpha_BR, unique if the rows of X_B are independent.

    A feature with an unknown product, nan in alpha_BR, stays nan.

    x_binary: (m, b) of 0 and 1, the reconstructed rows. alpha_br: (b, r), products of its columns with the real-valued ones;
    with beta (b, 1) in place of alpha_br the solution is the labels. alpha_rr: (r, r), products of the real-valued columns;
    a check that the solution does not use, nan where unknown. Another batch with the same X_B^T X_B fails it or the
    residual. tolerance: relative, of both checks. Raises ValueError for wrong shapes.
    """
    x, right = np.asarray(x_binary, dtype=float), np.asarray(alpha_br, dtype=float)
    if x.ndim != 2 or right.ndim != 2 or len(right) != x.shape[1]:
        raise ValueError(f"X_B must be (m, b) and alpha_BR (b, r), not {x.shape} and {right.shape}")
    rows = len(x)
    if rows == 0:
        return RealFeatures(refusal="the batch has no rows")
    independent = rank(np.asarray(x_binary, dtype=np.int64))
    if independent < rows:
        why = f"the {rows} binary rows have rank {independent}, so their other features are not determined"
        return RealFeatures(refusal=why)
    solved = np.isfinite(right).all(axis=0)
    if not solved.any():
        return RealFeatures(refusal="their products with the binary columns are not known precisely")
    values = np.full((rows, right.shape[1]), np.nan)
    values[:, solved] = np.linalg.lstsq(x.T, right[:, solved], rcond=None)[0]
    condition = float(np.linalg.cond(x))
    scale = max(1.0, float(np.abs(right[:, solved]).max(initial=0.0)))
    residual = float(np.abs(x.T @ values - right)[:, solved].max(initial=0.0))
    if residual > tolerance * scale:
        why = f"no features of these rows have these products (off by {residual:.2g}): not this batch, or noise"
        return RealFeatures(condition=condition, residual=residual, refusal=why)
    if alpha_rr is None:
        return RealFeatures(values, condition, residual)
    gram = np.asarray(alpha_rr, dtype=float)
    known = np.isfinite(gram) & np.outer(solved, solved)
    off = float(np.abs(values.T @ values - gram).max(initial=0.0, where=known))
    if off > tolerance * condition * max(1.0, float(np.abs(gram).max(initial=0.0, where=known))):
        why = f"the products of the features among themselves are wrong (off by {off:.2g}): not this batch"
        return RealFeatures(condition=condition, residual=residual, gram_residual=off, refusal=why)
    return RealFeatures(values, condition, residual, off)
