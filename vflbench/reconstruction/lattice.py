"""The rows by lattice reduction, where the batch has full row rank and its columns generate Z^m."""

import numpy as np


def installed() -> bool:
    """Whether python-flint is there: `pip install 'vflbench[lattice]'`."""
    try:
        import flint  # noqa: F401
    except ImportError:
        return False
    return True


def only_batch(gram: np.ndarray, order: list[int]) -> np.ndarray | None:
    """The batch, if a lattice reduction yields it; it is then the only one.

    gram: (n, n) integers, the Gram matrix A of [1, X], of rank m, the number of rows. order: m columns S that span the
    others. The rows of A generate a lattice in that of the rows r of [1, X]. Under the form r^T A^+ r the rows are
    orthonormal, so theirs is Z^m, whose vectors of norm 1 are the rows and their negatives. Where the two lattices are
    one, which a reduced basis of norm 1 throughout proves, the basis is the rows up to sign, and no other batch has them.
    Likely from m + 4 columns on. Returns (m, d) int64, not yet verified, or None where the reduction decides nothing.
    """
    from flint import fmpz_mat

    whole = fmpz_mat(gram[:, order].tolist())
    basis = whole.hnf()
    basis = fmpz_mat([[basis[i, j] for j in range(len(order))] for i in range(len(order))])
    # Coordinates in S determine the row: its form is that of the inverse of A_SS, and integral on the lattice of A's rows.
    form, denominator = (basis * fmpz_mat(gram[np.ix_(order, order)].tolist()).solve(basis.transpose())).numer_denom()
    if denominator != 1:
        return None
    reduced, change = form.lll(transform=True, rep="gram")
    rank = len(order)
    if any(reduced[i, j] != (i == j) for i in range(rank) for j in range(rank)):
        return None
    rows = change * basis
    return _extended(gram, order, rows)


def _extended(gram: np.ndarray, order: list[int], rows) -> np.ndarray:
    """From the coordinates in S to all of them, signs by the intercept, which is 1."""
    from flint import fmpz_mat

    inside = fmpz_mat(gram[np.ix_(order, order)].tolist())
    coefficients = inside.solve(fmpz_mat(gram[order].tolist()))
    whole, denominator = (rows * coefficients).numer_denom()
    found = np.array([[int(v) for v in row] for row in whole.tolist()], dtype=object)
    if denominator != 1:
        found = found * 0 - 1  # no integers: no batch, and the verification will say so
    signs = np.where(found[:, :1] < 0, -1, 1)
    return np.clip(found * signs, -2, 2).astype(np.int64)[:, 1:]
