"""Discrete Gaussian noise of small scales by a table of its distribution function, in whole numbers.

    P(|x| <= k) = F_k = C_k / C_K,   C_k = w_0 + 2 (w_1 + ... + w_k),   w_k = e^(-k^2 / (2 s^2)) to 512 bits, k <= K = 17 s

A draw is the number of F_k that a uniform U in [0, 1) reaches, with a random sign. The first 62 bits of U decide unless they
are those of an F_k, which happens less than once in 10^13 draws; then 558 bits do. Of the distribution in
`numerics.discrete_noise`, the largest |x|, of a probability below 2^-205, are left out, and the logarithm of any other
probability is off by less than 2^-200, both given uniform bits.

Source: inversion; Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, for what it
is needed for.
"""

from collections.abc import Iterator
from decimal import Decimal, localcontext
from functools import lru_cache

import torch
from torch import Tensor

from vflbench.numerics.discrete_noise import Bits

LARGEST_SCALE = 2**13

_PRECISION = 512
_FARTHEST = 17  # in scales
_FIRST = 62  # bits that are looked up
_WORDS = 9  # of so many bits, where those don't decide


def tabled_gaussian(bits: Bits, scale: int) -> Tensor:
    """(count,) int64 draws. scale: s, 1 .. 2^13."""
    if not 1 <= scale <= LARGEST_SCALE:
        raise ValueError(f"the scale must be a whole number from 1 to {LARGEST_SCALE}, got {scale}")
    limits, total = _limits(scale)
    limits = limits.to(bits.device)
    places = torch.arange(bits.count, device=bits.device)
    drawn = bits(places)
    first, negative = drawn >> 1, (drawn & 1).bool()
    x = torch.searchsorted(limits, first, right=True)
    undecided = ((limits[(x - 1).clamp_min(0)] == first) & (x > 0)).nonzero()[:, 0]
    for place in undecided.tolist():
        x[place] = _resolved(bits, place, int(first[place]), scale, total)
    return torch.where(negative, -x, x)


def _resolved(bits: Bits, place: int, first: int, scale: int, total: int) -> int:
    """The number of F_k that U reaches, by all its bits."""
    u, at = first, torch.tensor([place], device=bits.device)
    for _ in range(_WORDS - 1):
        u = (u << _FIRST) + (int(bits(at)) >> 1)
    u *= total
    return sum(1 for cumulated in _cumulated(scale) if cumulated << (_FIRST * _WORDS) <= u)


@lru_cache(maxsize=16)
def _limits(scale: int) -> tuple[Tensor, int]:
    """The first 62 bits of each F_k, (K + 1,), and C_K."""
    cumulated = list(_cumulated(scale))
    return torch.tensor([(one << _FIRST) // cumulated[-1] for one in cumulated]), cumulated[-1]


def _cumulated(scale: int) -> Iterator[int]:
    """C_0, C_1, ... C_K, in units of 2^-512. w_(k + 1) = w_k r_k and r_(k + 1) = r_k q, each rounded down."""
    with localcontext() as context:
        context.prec = 170
        unit, square = Decimal(1 << _PRECISION), Decimal(scale * scale)
        r, q = int((-1 / (2 * square)).exp() * unit), int((-1 / square).exp() * unit)
    w = total = 1 << _PRECISION
    yield total
    for _ in range(_FARTHEST * scale):
        w, r = (w * r) >> _PRECISION, (r * q) >> _PRECISION
        total += 2 * w
        yield total
