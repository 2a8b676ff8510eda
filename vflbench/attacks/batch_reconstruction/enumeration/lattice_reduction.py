"""The rows by lattice reduction, where the batch has full row rank and its columns generate Z^m."""

import numpy as np

from vflbench.attacks.batch_reconstruction.enumeration.time_limit import Clock

# Reductions from another order of the basis, before it is given up.
_ROUNDS = 100


def installed() -> bool:
    """Whether python-flint is there: `pip install 'vflbench[lattice]'`."""
    try:
        import flint  # noqa: F401
    except ImportError:
        return False
    return True


def only_batch(gram: np.ndarray, order: list[int], clock: Clock) -> np.ndarray | None:
    """The batch, if a lattice reduction yields it; it is then the only one.

    gram: (n, n) integers, the Gram matrix A of [1, X], of rank m, the number of rows. order: m columns S that span the
    others. The rows of A generate a lattice in that of the rows r of [1, X]. Under the form r^T A^+ r the rows are
    orthonormal, so theirs is Z^m, whose vectors of norm 1 are the rows and their negatives. Where the two lattices are
    one, which a reduced basis of norm 1 throughout proves, the basis is the rows up to sign, and no other batch has them.
    Likely from m + 4 columns on. Returns (m, d) int64, not yet verified, or None where the reduction decides nothing.
    Raises TimeIsUp, between two reductions.
    """
    from flint import fmpz_mat

    whole = fmpz_mat(gram[:, order].tolist())
    basis = whole.hnf()
    basis = fmpz_mat([[basis[i, j] for j in range(len(order))] for i in range(len(order))])
    # Coordinates in S determine the row: its form is that of the inverse of A_SS, and integral on the lattice of A's rows.
    form, denominator = (basis * fmpz_mat(gram[np.ix_(order, order)].tolist()).solve(basis.transpose())).numer_denom()
    if denominator != 1 or form.det() != 1:
        return None
    change = _orthonormal(form, clock)
    return None if change is None else _extended(gram, order, change * basis)


def _orthonormal(form, clock: Clock):
    """The change of basis that makes a unimodular form the identity, or None where reductions do not get there.

    From some 80 rows on one reduction ends in a basis of longer vectors; from another order of these it gets further.
    """
    rank = form.nrows()
    reduced, change = form.lll(transform=True, rep="gram")
    for attempt in range(_ROUNDS):
        norms = np.array([int(reduced[i, i]) for i in range(rank)])
        if (norms == 1).all():
            return change
        clock.tick()
        order = np.random.default_rng(attempt).permutation(rank)
        order = order[np.argsort(norms[order] != 1, kind="stable")].tolist()
        reduced = type(form)([[reduced[i, j] for j in order] for i in order])
        reduced, further = reduced.lll(transform=True, rep="gram", delta=0.999)
        change = further * type(form)([[change[i, j] for j in range(rank)] for i in order])
    return None


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
