"""Ranks of integer matrices without a threshold: elimination modulo a prime."""

from collections.abc import Iterator

import numpy as np

PRIME = 2**31 - 1


def primes() -> Iterator[int]:
    """The primes from 2^31 - 1 downwards. Products of two residues fit into int64."""
    return (number for number in range(PRIME, 2, -2) if _is_prime(number))


def _is_prime(number: int) -> bool:
    """For odd numbers from 9 to 2^31 (Miller-Rabin: these bases decide every number below 3.2 * 10^9)."""
    twos = ((number - 1) & (1 - number)).bit_length() - 1
    for base in (2, 3, 5, 7):
        power = pow(base, (number - 1) >> twos, number)
        squares = [pow(power, 1 << k, number) for k in range(twos)]
        if power != 1 and number - 1 not in squares:
            return False
    return True


def rank(a: np.ndarray) -> int:
    """The rank of an integer matrix over the field of 2^31 - 1 elements.

    a: (n, k) integers. The result never exceeds the rank over the rationals. It is smaller only if the prime divides every
    minor of that size: use it as a lower bound. For matrices that nobody chose, this has a probability of about 2^-31.
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


def kernel_modulo(x: np.ndarray) -> np.ndarray:
    """(k, d): a basis of the vectors w with x @ w = 0 modulo p. x: (n, d)."""
    a, d = x % PRIME, x.shape[1]
    pivots: list[int] = []
    for column in range(d):
        step = len(pivots)
        nonzero = np.flatnonzero(a[step:, column])
        if not len(nonzero):
            continue
        a[[step, step + nonzero[0]]] = a[[step + nonzero[0], step]]
        a[step] = a[step] * pow(int(a[step, column]), -1, PRIME) % PRIME
        others = np.arange(len(a)) != step
        a[others] = (a[others] - a[others, column, None] * a[step] % PRIME) % PRIME
        pivots.append(column)
    free = [column for column in range(d) if column not in pivots]
    basis = np.zeros((len(free), d), dtype=np.int64)
    for k, column in enumerate(free):
        basis[k, column] = 1
        basis[k, pivots] = -a[: len(pivots), column] % PRIME
    return basis
