"""A proof that a batch is alone with its Gram matrix: its columns generate every vector of integers."""

import math
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

# Determinants whose common divisor is taken, each from so many columns more than rows if they suffice.
_DETERMINANTS, _SPARE = 3, 16


def is_alone(x: np.ndarray, tick: Callable[[], None]) -> bool:
    """Whether the columns of Z = [1, X] generate Z^m over the integers, which proves that X is alone up to row order.

    x: (m, d) of 0 and 1. The columns of Z generate Z^m if and only if Z has rank m modulo every prime. Then another batch
    with Z'^T Z' = Z^T Z has Z' = Q Z with an orthogonal Q, unique since Z has rank m. Each unit vector is Z c for integers
    c, so the columns of Q are Z' c: Q is integral, a signed permutation, and no sign is negative, since Q takes the column
    of ones to itself. False means nothing. tick: called often; what it raises ends the check.
    """
    z = np.c_[np.ones(len(x), dtype=np.int64), np.asarray(x, dtype=np.int64)]
    if len(z) > z.shape[1]:
        return False
    common = 0
    for order in islice(_orders(z.shape[1]), _DETERMINANTS):
        minor = _minor(z[:, order[: len(z) + _SPARE]], tick) or _minor(z[:, order], tick)
        if minor == 0:
            return False
        if (common := math.gcd(common, minor)) == 1:
            return True
    # Any other prime leaves the first minor. Which primes divide it need not be known: see `_divisor`.
    moduli = [common]
    while moduli:
        modulus = moduli.pop()
        if modulus == 1:
            continue
        divisor = _divisor(z, modulus, tick)
        if divisor == 0:
            return False
        if divisor != 1:
            moduli += [divisor, modulus // divisor]
    return True


def _orders(columns: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    while True:
        yield rng.permutation(columns)


def _minor(z: np.ndarray, tick: Callable[[], None]) -> int:
    """|det| of the first m independent columns, 0 if the rank is less than m. Fraction-free, by rows."""
    a, before = z.copy(), 1
    for k in range(len(a)):
        tick()
        columns = np.flatnonzero(a[k])
        if not len(columns):
            return 0
        if a.dtype != object and 2 * int(np.abs(a).max()) ** 2 >= 1 << 62:
            a = a.astype(object)
        column = int(columns[0])
        value = int(a[k, column])
        a[k + 1 :] = (value * a[k + 1 :] - np.outer(a[k + 1 :, column], a[k])) // before
        before = value
    return abs(before)


def _divisor(z: np.ndarray, modulus: int, tick: Callable[[], None]) -> int:
    """1 if Z has rank m modulo every prime that divides the modulus, 0 if for one it has not, else a proper divisor.

    Elimination modulo the modulus, as if it were prime. An entry that can't be inverted has a divisor in common with it.
    """
    a = (z if modulus < 1 << 31 else z.astype(object)) % modulus
    for k in range(len(a)):
        tick()
        common = np.gcd(a[k], modulus)
        units = np.flatnonzero(common == 1)
        if not len(units):
            proper = common[(common != 1) & (common != modulus)]
            return int(proper[0]) if len(proper) else 0
        inverse = pow(int(a[k, units[0]]), -1, modulus)
        row = a[k] * inverse % modulus
        a[k + 1 :] = (a[k + 1 :] - np.outer(a[k + 1 :, units[0]], row) % modulus) % modulus
    return 1
