"""Keyed mixing of integers: pseudonyms for row ids, and random numbers per row without memory."""

import hashlib

import torch
from torch import Tensor

_FIRST, _SECOND = 0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64)
_FIRST_INVERSE, _SECOND_INVERSE = 0x96DE1B173F119089 - (1 << 64), 0x319642B2D24D8EC3  # modulo 2^64
_STRIDE = -0x61C8864680B583EB  # 2^64 / golden ratio as int64, by which SplitMix64 counts
_HALF_A_STEP = 2.0**-54  # uniform numbers are multiples of 2^-53, from 0 on: this keeps them off 0 and 1


def mix(x: Tensor, key: int) -> Tensor:
    """A bijection of the 64-bit integers, chosen by `key`, that scatters neighbours.

    x: int64 of any shape. The mixing function of SplitMix64: xor-shifts and multiplications by odd numbers, each invertible.
    It is not a cipher: x and mix(x) determine the key.

    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
    """

    def mixed(x: Tensor, shift: int) -> Tensor:
        return x ^ ((x >> shift) & ((1 << (64 - shift)) - 1))  # logical shift

    x = mixed(x ^ key, 30) * _FIRST
    x = mixed(x, 27) * _SECOND
    return mixed(x, 31) ^ key


def unmix(x: Tensor, key: int) -> Tensor:
    """The inverse of `mix`: unmix(mix(x, key), key) = x, for any int64 x."""

    def unshifted(x: Tensor, shift: int) -> Tensor:
        result = x
        for _ in range(64 // shift):  # each pass restores `shift` more bits, from the top
            result = x ^ ((result >> shift) & ((1 << (64 - shift)) - 1))
        return result

    x = unshifted(x ^ key, 31) * _SECOND_INVERSE
    x = unshifted(x, 27) * _FIRST_INVERSE
    return unshifted(x, 30) ^ key


def uniform(x: Tensor, key: int) -> Tensor:
    """A number in [0, 1) for each integer, determined by x and key: the upper 53 bits of mix(mix(x)), with two keys that
    follow from this one by a hash. float64.

    Keys that were the same but for known bits would cancel between the two, and leave a key that can be searched for with as
    many trials as 2^64 / rows (Even and Mansour, "A construction of a cipher from a single pseudorandom permutation", 1997).
    """
    bits = mix(mix(x, derived(key, "first")), derived(key, "second"))
    return ((bits >> 11) & ((1 << 53) - 1)).to(torch.float64) * 2.0**-53


def derived(key: int, *purpose: object) -> int:
    """A 64-bit key for a purpose, from another: BLAKE2b of both."""
    text = repr((key, *purpose)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True)


def drawn_key(rng: torch.Generator) -> int:
    """A 64-bit key."""
    return int(torch.randint(-(2**63), 2**63 - 1, (), generator=rng, device=rng.device))


def normals(ids: Tensor, key: int, place: int, count: int) -> Tensor:
    """(n, count) standard normal float64 numbers: those from `place` on of an endless row of them for each id, set by `key`.

    By the inverse of the distribution function, from 53 bits: none is beyond 8.3.
    """
    places = torch.arange(place, place + count, device=ids.device, dtype=torch.int64) * _STRIDE
    u = uniform(mix(ids, derived(key, "rows"))[:, None] + places, key)
    return torch.special.ndtri(u + _HALF_A_STEP)


def laplace(u: Tensor, scale: float) -> Tensor:
    """-b sign(v) log(1 - 2 |v|) with v = u - 1/2: for u uniform in [0, 1), Laplace with density e^(-|x| / b) / (2 b).

    u: float64, of any shape. scale: b > 0. Noise has mean 0, variance 2 b^2, and at most 37 b of size. Like all such noise
    it is a floating-point number: the proof of pure eps is one of real numbers.
    """
    v = u + (_HALF_A_STEP - 0.5)
    return -scale * v.sign() * torch.log1p(-2 * v.abs())
