"""Ranks of integer matrices without a threshold: elimination modulo a prime."""

import numpy as np

PRIME = 2**31 - 1


def rank(a: np.ndarray) -> int:
    """The rank of an integer matrix over the field of 2^31 - 1 elements.

    a: (n, k) integers. The result never exceeds the rank over the rationals. It is smaller only if the prime divides every
    minor of that size. This is impossible while these minors stay below the prime (for example positive semidefinite
    matrices up to 8 x 8 with a diagonal of at most 8), and otherwise has probability 2^-31 for matrices computed from data.
    """
    a = np.array(a, dtype=np.int64) % PRIME
    pivots = 0
    for column in range(a.shape[1]):
        nonzero = np.flatnonzero(a[pivots:, column])
        if not len(nonzero):
            continue
        a[[pivots, pivots + nonzero[0]]] = a[[pivots + nonzero[0], pivots]]
        a[pivots] = a[pivots] * pow(int(a[pivots, column]), -1, PRIME) % PRIME
        a[pivots + 1 :] = (a[pivots + 1 :] - a[pivots + 1 :, column, None] * a[pivots] % PRIME) % PRIME
        pivots += 1
        if pivots == len(a):
            break
    return pivots
