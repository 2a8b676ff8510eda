"""Discrete Laplace and Gaussian noise: whole numbers, drawn by comparing whole numbers, without rounding.

    Laplace of scale s      P(x) = (e^(1/s) - 1) / (e^(1/s) + 1) e^(-|x| / s)
    Gaussian of scale s     P(x) = e^(-x^2 / (2 s^2)) / sum_y e^(-y^2 / (2 s^2))

for whole s. Every coin with probability e^(-a/b) is made of coins with probability a / (b k), each of which compares a
uniform whole number below b k with a; uniform numbers come from 63 random bits, by rejection. So the distribution is exact
if the bits are uniform and independent: there is no floating-point number. One thing is left out: a proposal of a Gaussian
beyond 60 s, whose coin is below e^-1740, is drawn again. For Gaussians of small scales a table is many times faster
(`numerics.gaussian_table`).

Source: Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020 (arXiv 2004.00010),
Algorithms 1 to 3; the proposals have scale s, which makes the exponent of a Gaussian's coin (|x| - s)^2 / (2 s^2).
"""

from typing import Protocol

import torch
from torch import Tensor

from vflbench.numerics.mixing import derived, mix

LARGEST_SCALE = 2**25

_FARTHEST = 60  # proposal of a Gaussian, in scales: its square fits 63 bits
_MOST = 2**63 - 1
_STRIDE = -0x61C8864680B583EB  # 2^64 / golden ratio as int64, by which SplitMix64 counts


class Bits(Protocol):
    """63 uniform bits for each of these draws; asked again, others. count: of draws; device: on which they lie."""

    count: int
    device: torch.device

    def __call__(self, places: Tensor) -> Tensor:
        """places: (m,) of draws, 0 .. count - 1. Returns (m,) int64 numbers from 0 to 2^63 - 1."""
        ...


class DrawnBits:
    """From a generator, which is no cryptographic one."""

    def __init__(self, count: int, rng: torch.Generator):
        self.count, self.device, self._rng = count, rng.device, rng

    def __call__(self, places: Tensor) -> Tensor:
        return torch.empty(len(places), dtype=torch.int64, device=self.device).random_(generator=self._rng)


class KeyedBits:
    """Of `width` draws for each id, determined by id and key whatever the other ids are: by mixing, which is no cipher."""

    def __init__(self, ids: Tensor, width: int, key: int):
        self.count, self.device = len(ids) * width, ids.device
        columns = torch.arange(width, device=ids.device, dtype=torch.int64) * _STRIDE
        self._slots = mix(mix(ids, derived(key, "rows"))[:, None] + columns, derived(key, "slots")).flatten()
        self._asked = torch.zeros_like(self._slots)
        self._keys = derived(key, "first"), derived(key, "second")

    def __call__(self, places: Tensor) -> Tensor:
        self._asked[places] += 1
        numbers = self._slots[places] + self._asked[places] * _STRIDE
        return mix(mix(numbers, self._keys[0]), self._keys[1]) & _MOST


def discrete_laplace(bits: Bits, scale: int) -> Tensor:
    """(count,) int64 draws. scale: s, 1 .. 2^25."""
    _check(scale)
    return _redrawn(bits, lambda places: _laplace_tries(bits, places, scale))


def discrete_gaussian(bits: Bits, scale: int) -> Tensor:
    """(count,) int64 draws. scale: s, 1 .. 2^25."""
    _check(scale)

    def tries(places: Tensor) -> tuple[Tensor, Tensor]:
        x, is_drawn = _laplace_tries(bits, places, scale)
        is_drawn &= x.abs() < _FARTHEST * scale
        kept = is_drawn.nonzero()[:, 0]
        distance = (x[kept].abs() - scale).square()
        is_drawn[kept] = _is_exponential(bits, places[kept], distance, 2 * scale * scale)
        return x, is_drawn

    return _redrawn(bits, tries)


def _check(scale: int) -> None:
    if not 1 <= scale <= LARGEST_SCALE:
        raise ValueError(f"the scale must be a whole number from 1 to {LARGEST_SCALE}, got {scale}")


def _redrawn(bits: Bits, tries: "Tries") -> Tensor:
    """Each draw by the first try that succeeds."""
    answer = torch.zeros(bits.count, dtype=torch.int64, device=bits.device)
    places = torch.arange(bits.count, device=bits.device)
    while len(places):
        x, is_drawn = tries(places)
        answer[places[is_drawn]] = x[is_drawn]
        places = places[~is_drawn]
    return answer


class Tries(Protocol):
    def __call__(self, places: Tensor, /) -> tuple[Tensor, Tensor]: ...


def _laplace_tries(bits: Bits, places: Tensor, scale: int) -> tuple[Tensor, Tensor]:
    """|x| = u + s v for u below s that a coin e^(-u / s) kept and a geometric v; and whether it counts, (m,) both."""
    u = _below(bits, places, scale)
    kept = _is_exponential(bits, places, u, scale).nonzero()[:, 0]
    v, going = torch.zeros_like(u), kept
    while len(going):
        one = torch.ones_like(going)
        going = going[_is_exponential(bits, places[going], one, 1)]
        v[going] += 1
    is_drawn = torch.zeros(len(places), dtype=torch.bool, device=places.device)
    negative = torch.zeros_like(is_drawn)
    negative[kept] = (bits(places[kept]) & 1).bool()
    x = u + scale * v
    is_drawn[kept] = ~(negative[kept] & (x[kept] == 0))
    return torch.where(negative, -x, x), is_drawn


def _is_exponential(bits: Bits, places: Tensor, over: Tensor, under: int) -> Tensor:
    """(m,) bool: coins with probability e^(-over / under). over: (m,) int64 from 0."""
    is_one = torch.ones(len(places), dtype=torch.bool, device=places.device)
    whole, rest = over // under, over % under
    going = (whole > 0).nonzero()[:, 0]
    while len(going):  # e^-1 so many times
        is_one[going] = _is_small_exponential(bits, places[going], torch.ones_like(going), 1)
        whole[going] -= 1
        going = going[is_one[going] & (whole[going] > 0)]
    left = is_one.nonzero()[:, 0]
    is_one[left] = _is_small_exponential(bits, places[left], rest[left], under)
    return is_one


def _is_small_exponential(bits: Bits, places: Tensor, over: Tensor, under: int) -> Tensor:
    """The same for over <= under: whether the first of the coins a / b, a / 2b, a / 3b, ... that is 0 has an odd number."""
    odd = torch.ones(len(places), dtype=torch.bool, device=places.device)
    going, k = torch.arange(len(places), device=places.device), 1
    while len(going):
        is_one = _below(bits, places[going], under * k) < over[going]
        going, k = going[is_one], k + 1
        odd[going] = k % 2 == 1
    return odd


def _below(bits: Bits, places: Tensor, bound: int) -> Tensor:
    """(m,) uniform whole numbers from 0 to bound - 1."""
    limit = _MOST // bound * bound
    numbers = bits(places)
    while len(again := (numbers >= limit).nonzero()[:, 0]):
        numbers[again] = bits(places[again])
    return numbers % bound
