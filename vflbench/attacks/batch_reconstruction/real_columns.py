"""Batches with real-valued columns: which columns are binary, and the others, once the binary ones give the rows."""

import numpy as np

from vflbench.attacks.batch_reconstruction.gram import rank


def binary_columns(alpha: np.ndarray, beta: np.ndarray, rows: int, tolerance: float = 1e-3) -> np.ndarray:
    """The columns of a batch that can be binary, ascending, from alpha = X^T X and beta = X^T Y alone.

    One column: alpha_ii integral in [0, m]; beta_i integral, |beta_i| <= alpha_ii, both odd or both even. Pairs: alpha_ij
    integral, max(0, alpha_ii + alpha_jj - m) <= alpha_ij <= min(alpha_ii, alpha_jj). While columns violate pairs, the one
    with the most violations is left out; among equals, the one whose products are farther from integers.

    alpha: (d, d) float64, unrounded; beta: (d,). rows: m. tolerance: the largest distance from an integer, below 1/4, for
    example six standard errors. These tests are necessary, and no proof: columns of other numbers, -1 and +1 for example,
    can have the same sums, and a solver may then find another batch than the true one. Only a schema (`Schema.binary`) names
    binary columns for certain. A column that takes only 0 and 1 in this batch by chance counts as binary.
    """
    ones = np.diagonal(alpha)
    off, off_labels = np.abs(alpha - np.rint(alpha)), np.abs(beta - np.rint(beta))
    alone = (np.diagonal(off) <= tolerance) & (ones >= -tolerance) & (ones <= rows + tolerance)
    alone &= (off_labels <= tolerance) & (np.abs(beta) <= ones + 2 * tolerance) & ((np.rint(beta) - np.rint(ones)) % 2 == 0)
    least = np.maximum(0, np.add.outer(ones, ones) - rows)
    impossible = off > tolerance
    impossible |= (alpha < least - 3 * tolerance) | (alpha > np.minimum.outer(ones, ones) + 2 * tolerance)
    kept = np.flatnonzero(alone)
    np.fill_diagonal(impossible, False)
    while (pairs := impossible[np.ix_(kept, kept)]).any():
        worst = np.lexsort((off[np.ix_(kept, kept)].sum(1), pairs.sum(1)))[-1]
        kept = np.delete(kept, worst)
    return kept


def real_features(
    x_binary: np.ndarray, alpha_br: np.ndarray, alpha_rr: np.ndarray, *, tolerance: float = 1e-3
) -> tuple[np.ndarray | None, str]:
    """The other features of the same rows, (m, r), or None and the reason why there are none.

    The solution of X_B^T x = alpha_BR, unique if the rows of X_B are independent. A feature with an unknown product, nan in
    alpha_BR, stays nan.

    x_binary: (m, b) of 0 and 1, the reconstructed rows. alpha_br: (b, r), products of its columns with the real-valued ones.
    alpha_rr: (r, r), products of the real-valued columns; a check that the solution does not use, nan where unknown. Another
    batch with the same X_B^T X_B fails it or the residual. tolerance: relative, of both checks.
    """
    x, gram, rows = x_binary.astype(float), alpha_rr, len(x_binary)
    independent = rank(x_binary.astype(np.int64))
    if independent < rows:
        return None, f"the {rows} binary rows have rank {independent}, so their other features are not determined"
    solved = np.isfinite(alpha_br).all(axis=0)
    if not solved.any():
        return None, "their products with the binary columns are not known precisely"
    values = np.full((rows, alpha_br.shape[1]), np.nan)
    values[:, solved] = np.linalg.lstsq(x.T, alpha_br[:, solved], rcond=None)[0]
    residual = float(np.abs(x.T @ values - alpha_br)[:, solved].max(initial=0.0))
    if residual > tolerance * max(1.0, float(np.abs(alpha_br[:, solved]).max(initial=0.0))):
        return None, f"no features of these rows have these products (off by {residual:.2g}): not this batch, or noise"
    known = np.isfinite(gram) & np.outer(solved, solved)
    off = float(np.abs(values.T @ values - gram).max(initial=0.0, where=known))
    if off > tolerance * float(np.linalg.cond(x)) * max(1.0, float(np.abs(gram).max(initial=0.0, where=known))):
        return None, f"the products of the features among themselves are wrong (off by {off:.2g}): not this batch"
    return values, ""
