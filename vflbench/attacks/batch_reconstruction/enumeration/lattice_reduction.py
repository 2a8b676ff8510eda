"""The rows by lattice reduction, if the batch has full row rank and its columns generate Z^m."""

from typing import Any

import numpy as np

from vflbench.attacks.batch_reconstruction.enumeration.time_limit import TimeLimit

# The largest number of reductions, each from another order of the basis.
_ROUNDS = 100


def flint_installed() -> bool:
    """Whether python-flint can be imported: `pip install 'vflbench[lattice]'`."""
    try:
        import flint  # noqa: F401
    except ImportError:
        return False
    return True


def unique_batch(gram: np.ndarray, order: list[int], time_limit: TimeLimit) -> np.ndarray | None:
    """The batch, if a lattice reduction yields it; no other batch then has this Gram matrix.

    gram: (n, n) integers, the Gram matrix A of [1, X], of rank m, the number of rows. order: m columns S that span the
    others. The rows of A generate a sublattice of the one that the rows r of [1, X] generate. Under the form r^T A^+ r the
    rows r are orthonormal, so their lattice is Z^m, whose vectors of norm 1 are the rows and their negatives. A reduced
    basis of vectors of norm 1 proves that both lattices are equal: the basis is then the rows up to sign, and no other batch
    has them. This is likely from m + 4 columns on. Returns (m, d) int64, not yet verified, or None if the reduction is
    inconclusive. Raises TimeLimitReached, between two reductions.
    """
    from flint import fmpz_mat

    gram_columns = fmpz_mat(gram[:, order].tolist())
    basis: Any = gram_columns.hnf()
    basis = fmpz_mat([[basis[i, j] for j in range(len(order))] for i in range(len(order))])
    # Coordinates in S determine a row: its form is that of the inverse of A_SS, and integral on the lattice of A's rows.
    form, denominator = (basis * fmpz_mat(gram[np.ix_(order, order)].tolist()).solve(basis.transpose())).numer_denom()
    if denominator != 1 or form.det() != 1:
        return None
    change = _orthonormal(form, time_limit)
    return None if change is None else _extended(gram, order, change * basis)


def _orthonormal(form: Any, time_limit: TimeLimit) -> Any:
    """The change of basis that makes a unimodular form the identity, or None if the reductions do not reach it. form:
    fmpz_mat.

    From some 80 rows on, one reduction ends in a basis of longer vectors; another order of these gets further.
    """
    rank = form.nrows()
    reduced, change = form.lll(transform=True, rep="gram")
    for attempt in range(_ROUNDS):
        norms = np.array([int(reduced[i, i]) for i in range(rank)])
        if (norms == 1).all():
            return change
        time_limit.check()
        order = np.random.default_rng(attempt).permutation(rank)
        order = order[np.argsort(norms[order] != 1, kind="stable")].tolist()
        reduced = type(form)([[reduced[i, j] for j in order] for i in order])
        reduced, further = reduced.lll(transform=True, rep="gram", delta=0.999)
        change = further * type(form)([[change[i, j] for j in range(rank)] for i in order])
    return None


def _extended(gram: np.ndarray, order: list[int], rows: Any) -> np.ndarray:
    """From the coordinates in S to all columns; the intercept, which is 1, determines the signs."""
    from flint import fmpz_mat

    inside = fmpz_mat(gram[np.ix_(order, order)].tolist())
    coefficients = inside.solve(fmpz_mat(gram[order].tolist()))
    products, denominator = (rows * coefficients).numer_denom()
    coordinates = np.array([[int(v) for v in row] for row in products.tolist()], dtype=object)
    if denominator != 1:
        coordinates = coordinates * 0 - 1  # not integral, so no batch: the verification rejects it
    signs = np.where(coordinates[:, :1] < 0, -1, 1)
    return np.clip(coordinates * signs, -2, 2).astype(np.int64)[:, 1:]
