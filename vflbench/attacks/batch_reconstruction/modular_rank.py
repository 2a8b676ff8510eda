"""Ranks of integer matrices without a threshold: elimination modulo a prime."""

import numpy as np

PRIME = 2**31 - 1


def rank(a: np.ndarray) -> int:
    """The rank of an integer matrix over the field of 2^31 - 1 elements.

    a: (n, k) integers. Never more than the rank over the rationals, and less only where the prime divides every minor of
    that size: impossible while these stay below the prime (positive semidefinite matrices up to 8 x 8 with a diagonal of
    at most 8, for one), and of chance 2^-31 for what arises from data otherwise.
    """
    a = np.array(a, dtype=np.int64) % PRIME
    found = 0
    for column in range(a.shape[1]):
        pivots = np.flatnonzero(a[found:, column])
        if not len(pivots):
            continue
        a[[found, found + pivots[0]]] = a[[found + pivots[0], found]]
        a[found] = a[found] * pow(int(a[found, column]), -1, PRIME) % PRIME
        a[found + 1 :] = (a[found + 1 :] - a[found + 1 :, column, None] * a[found] % PRIME) % PRIME
        found += 1
        if found == len(a):
            break
    return found
