"""Keyed mixing of integers: pseudonyms for row ids, and a random number per row without memory."""

import hashlib

import torch
from torch import Tensor

_FIRST, _SECOND = 0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64)
_FIRST_INVERSE, _SECOND_INVERSE = 0x96DE1B173F119089 - (1 << 64), 0x319642B2D24D8EC3  # modulo 2^64


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
