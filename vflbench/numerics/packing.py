"""Packing of integers into as few bits as they need."""

import torch
from torch import Tensor


def bits_for(largest: int) -> int:
    """Bits per number in 0 .. largest; 1 if largest is 0."""
    return max(1, largest.bit_length())


def packed_bytes(count: int, bits: int) -> int:
    """Length of the packed payload: ceil(count bits / 8)."""
    return (count * bits + 7) // 8


def pack(numbers: Tensor, bits: int) -> Tensor:
    """Pack numbers with `bits` bits each, without gaps; the last byte is filled with zeros.

    numbers: int64 of any shape, each in [0, 2^bits), 1 <= bits <= 56; packed row by row. Returns (packed_bytes,) uint8.

    Eight numbers of w <= 7 bits make w bytes. For w > 8 the low bytes of all numbers come first, then the remaining bits.
    """
    flat = numbers.reshape(-1)
    if bits > 8:
        return torch.cat([_low_byte(flat), pack(flat >> 8, bits - 8)])
    if bits == 8:
        return _low_byte(flat)
    word = torch.nn.functional.pad(flat, (0, -len(flat) % 8))
    for width in (bits, 2 * bits, 4 * bits):  # two, four, eight numbers per word
        word = word[0::2] | (word[1::2] << width)
    return word.view(-1, 1).view(torch.uint8)[:, :bits].reshape(-1)[: packed_bytes(len(flat), bits)]


def unpack(payload: Tensor, count: int, bits: int) -> Tensor:
    """The (count,) int64 numbers that `pack` wrote. payload: (packed_bytes,) uint8."""
    if len(payload) != packed_bytes(count, bits):
        needed = packed_bytes(count, bits)
        raise ValueError(f"payload={len(payload)} bytes: {count} numbers of {bits} bits take {needed} bytes")
    if bits > 8:
        return payload[:count].long() | (unpack(payload[count:], count, bits - 8) << 8)
    if bits == 8:
        return payload.long()
    filled = torch.nn.functional.pad(payload, (0, -len(payload) % bits)).view(-1, bits)
    word = torch.nn.functional.pad(filled, (0, 8 - bits)).view(torch.int64)  # (n / 8, 1)
    shifts = torch.arange(0, 8 * bits, bits, device=payload.device)
    return ((word >> shifts) & ((1 << bits) - 1)).reshape(-1)[:count]


def _low_byte(numbers: Tensor) -> Tensor:
    return (numbers & 255).to(torch.uint8)
