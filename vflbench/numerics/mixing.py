"""Integers mixed by a key: names for rows, and a random number for each of them that needs no memory."""

import torch
from torch import Tensor


def mix(x: Tensor, key: int) -> Tensor:
    """A bijection of the 64-bit integers, chosen by `key`: neighbours come to lie anywhere.

    x: int64 of any shape. SplitMix64's mixing: xor-shifts and multiplications by odd numbers, each of which can be undone.
    No cipher: who knows x and mix(x) knows the key.

    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
    """

    def mixed(x: Tensor, shift: int) -> Tensor:
        return x ^ ((x >> shift) & ((1 << (64 - shift)) - 1))  # a shift that brings in zeros

    x = mixed(x ^ key, 30) * _signed(0xBF58476D1CE4E5B9)
    x = mixed(x, 27) * _signed(0x94D049BB133111EB)
    return mixed(x, 31) ^ key


def uniform(x: Tensor, key: int) -> Tensor:
    """A number in [0, 1) for each integer, the same at each call: the upper 53 bits of mix(mix(x)). float64."""
    bits = mix(mix(x, key), _signed(0x9E3779B97F4A7C15) ^ key)
    return ((bits >> 11) & ((1 << 53) - 1)).to(torch.float64) * 2.0**-53


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number
