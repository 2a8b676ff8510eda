"""How often each possible row occurs, as one programme: a batch, and a quadratic form that shows it to be alone."""

import numpy as np

from vflbench.attacks.batch_reconstruction.enumeration.column_order import Level
from vflbench.attacks.batch_reconstruction.enumeration.row_candidates import RowCandidates

# More candidates than this leave the relaxation undecided, and cost seconds.
LONGEST_LIST = 1000
_SCALE = 1 << 24


def lone_batch(gram: np.ndarray, levels: list[Level], tree: RowCandidates) -> tuple[np.ndarray, np.ndarray] | None:
    """The batch, and the form that proves it alone, if the relaxation to real multiplicities n_c has one solution.

        sum_c n_c c c^T = A,   0 <= n_c <= most_c,   over the candidates c of rows of [1, X]

    gram: (n, n), A. tree: to the last level. Returns X (m, d), unverified, and an integer form Y (n, n), the rounded dual
    solution: c^T Y c is about 0 for the rows of X (or negative, for those that occur most_c times) and 2^24 or more for
    all other candidates, while sum_c n_c c^T Y c = tr(Y A), so none of these occurs. `certificate.form.is_alone_among`
    verifies this. None if there is more than one solution.
    """
    if len(tree.child) < len(levels) - 1 or not 0 < len(tree.most[-1]) <= LONGEST_LIST:
        return None
    from scipy.optimize import linprog  # slow to import

    columns = [level.column for level in levels]
    rows = _listed(tree)
    pairs = np.triu_indices(len(columns))
    products = (rows[:, pairs[0]] * rows[:, pairs[1]]).astype(float)
    sums = gram[np.ix_(columns, columns)][pairs].astype(float)
    bounds = np.c_[np.zeros(len(rows)), tree.most[-1]]
    gain = np.random.default_rng(0).random(len(rows))  # an arbitrary corner; where there is only one, the batch
    corner = linprog(gain, A_eq=products.T, b_eq=sums, bounds=bounds, method="highs")
    if corner.x is None:
        return None
    counts = np.rint(corner.x).astype(np.int64)
    if np.abs(corner.x - counts).max() > 1e-6 or not np.array_equal(products.T @ counts, sums):
        return None
    others = linprog(-(counts == 0).astype(float), A_eq=products.T, b_eq=sums, bounds=bounds, method="highs")
    if others.x is None or -others.fun > 0.5:
        return None
    form = np.zeros((len(gram), len(gram)), dtype=np.int64)
    form[np.array(columns)[pairs[0]], np.array(columns)[pairs[1]]] = np.rint(-others.eqlin.marginals * _SCALE)
    return _with_dependent(np.repeat(rows, counts, axis=0), levels, len(gram)), form


def _listed(tree: RowCandidates) -> np.ndarray:
    """The candidates of the last level, (N, levels)."""
    bits = np.ones((1, 1), dtype=np.int64)
    for child in tree.child:
        parent, bit = np.nonzero(child >= 0)
        order = np.argsort(child[parent, bit])
        bits = np.c_[bits[parent[order]], bit[order]]
    return bits


def _with_dependent(bits: np.ndarray, levels: list[Level], width: int) -> np.ndarray:
    """All columns but the intercept, from the bits of the levels."""
    batch = np.empty((len(bits), width), dtype=np.int64)
    for k, level in enumerate(levels):
        batch[:, level.column] = bits[:, k]
        batch[:, level.dependent] = bits[:, : k + 1] @ level.coefficients % level.prime
    return batch[:, 1:]
