"""The rows of a batch from one update of it: the hidden subset sum problem, solved by orthogonal lattices."""

import math
from dataclasses import dataclass

import numpy as np

from vflbench.attacks.batch_reconstruction.enumeration.lattice_reduction import flint_installed
from vflbench.attacks.batch_reconstruction.modular_rank import PRIME, kernel_modulo

MOST_ROWS = 16
"""Of one update: 2^16 vectors are tried for rows."""
_MOST_CANDIDATES = 128
_GAP = 1.5  # in length, between relations of the rows and those of chance
_MARGIN = 64.0  # times the rounding that an explanation may be off


@dataclass(frozen=True)
class OneUpdate:
    """x: (m, d) of 0 and 1, y: (m,) of -1 and 1, None with a refusal. relations: short ones that were used. candidates: 0/1
    vectors that the relations leave. refusal: why there is no batch, or "".
    """

    x: np.ndarray | None = None
    y: np.ndarray | None = None
    relations: int = 0
    candidates: int = 0
    refusal: str = ""


def rows_of_one_update(update: np.ndarray, theta: np.ndarray, rows: int, step: float, error: float) -> OneUpdate:
    """A batch X, y with the update u = X^T s, whose weights s_r = step (y_r / 2 - x_r.theta / 4) are not known either.

    A relation w, integers with w.u = 0, holds for every row, X w = 0, unless it is as long as chance makes it: the weights
    are generic numbers. LLL finds d - rank X short ones where d numbers have enough digits. The rows are 0/1 vectors in the
    lattice orthogonal to them, where 2^rank combinations are tried. How often each occurs, and with which label, are whole
    numbers n that solve  sum_c,y n_cy c step (y / 2 - c.theta / 4) = u.

    update, theta: (d,) float64. rows: m. step: rate / m of a mean, rate of a sum. error: largest rounding of an entry of
    the update. What is returned gives the update up to 64 errors; that no other batch does is not proved.

    Source: Nguyen and Stern, "The Hardness of the Hidden Subset Sum Problem and Its Cryptographic Implications", CRYPTO
    1999; that weights are known up to the label, and the integer programme, are ours. Needs python-flint.
    """
    d = len(update)
    if not flint_installed():
        return OneUpdate(refusal="it needs python-flint: pip install 'vflbench[lattice]'")
    if not theta.any():
        return OneUpdate(refusal="at theta = 0 all rows have the same weight")
    if rows > MOST_ROWS or rows >= d:
        return OneUpdate(refusal=f"one update reveals at most {min(MOST_ROWS, d - 1)} rows of {d} columns, not {rows}")
    relations = _short_relations(update, error, d - rows)
    if relations is None:
        return OneUpdate(refusal="the update has no short integer relations: noise, or too few digits")
    candidates = _binary_vectors(relations)
    found = len(relations), len(candidates)
    if not 0 < len(candidates) <= _MOST_CANDIDATES:
        return OneUpdate(None, None, *found, refusal=f"{len(candidates)} vectors can be rows")
    solved = _multiplicities(candidates, update, theta, rows, step, error)
    if solved is None:
        return OneUpdate(None, None, *found, refusal="no rows and labels give this update")
    return OneUpdate(*solved, *found)


def _short_relations(update: np.ndarray, error: float, least: int) -> list[list[int]] | None:
    """(k, d) integers orthogonal to the update up to its error, those before the largest gap in length; k >= least."""
    from flint import fmpz_mat

    d, largest = len(update), float(np.abs(update).max())
    digits = math.floor(math.log2(largest / error)) if largest > error > 0 else 0
    if digits < 8:
        return None
    scaled = [round(float(u) / largest * 2**digits) for u in update]
    basis = fmpz_mat([[int(i == j) for j in range(d)] + [scaled[i]] for i in range(d)]).lll()
    vectors = sorted(([int(basis[i, j]) for j in range(d + 1)] for i in range(d)), key=lambda v: sum(x * x for x in v))
    lengths = [math.sqrt(sum(x * x for x in v)) for v in vectors]
    gaps = [lengths[k] / lengths[k - 1] for k in range(least, d)]
    count = least + int(np.argmax(gaps)) if max(gaps) > _GAP else least
    return [v[:d] for v in vectors[:count]]


def _binary_vectors(relations: list[list[int]]) -> np.ndarray:
    """(n, d) uint8: the 0/1 vectors, but 0, that are orthogonal to the relations, modulo the prime."""
    basis = kernel_modulo((np.array(relations, dtype=object) % PRIME).astype(np.int64))
    if len(basis) > MOST_ROWS:
        return np.zeros((0, basis.shape[1]), dtype=np.uint8)
    bits = (np.arange(1, 2 ** len(basis))[:, None] >> np.arange(len(basis))) & 1
    for column in basis.T:  # column by column, as most combinations fail early
        bits = bits[bits @ column % PRIME <= 1]
    return (bits @ basis % PRIME).astype(np.uint8)


def _multiplicities(
    candidates: np.ndarray, update: np.ndarray, theta: np.ndarray, rows: int, step: float, error: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """Rows (m, d) and labels (m,) that give the update, or None."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import

    zero = np.zeros((1, len(update)), dtype=np.uint8)  # a row of zeros adds nothing, whatever its label
    x = np.vstack([candidates, candidates, zero])
    y = np.repeat([1.0, -1.0, 1.0], [len(candidates), len(candidates), 1])
    parts = x * (step * (y / 2 - x @ theta / 4))[:, None]
    scale = step / 2
    slack = max(_MARGIN * error / scale, 1e-6)
    matching = LinearConstraint(parts.T / scale, update / scale - slack, update / scale + slack)
    total = LinearConstraint(np.ones((1, len(x))), rows, rows)
    options = {"node_limit": 10_000}
    result = milp(
        np.zeros(len(x)), constraints=[matching, total], bounds=Bounds(0, rows), integrality=np.ones(len(x)), options=options
    )
    if result.x is None:
        return None
    n = np.rint(result.x).astype(int)
    if n.sum() != rows or (np.abs(n @ parts - update) > _MARGIN * error).any():
        return None
    return np.repeat(x, n, axis=0), np.repeat(y, n)
