"""Packing of integers into as few bits as they need."""

import numpy as np
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

    The bits of a number follow each other, the lowest first. For more than 8, the low bytes of all numbers come first, then
    the remaining bits.
    """
    flat = numbers.reshape(-1)
    if bits > 8:
        return torch.cat([(flat & 255).to(torch.uint8), pack(flat >> 8, bits - 8)])
    each = ((flat[:, None] >> torch.arange(bits, device=flat.device)) & 1).to(torch.uint8)
    return torch.from_numpy(np.packbits(each.cpu().numpy(), bitorder="little")).to(flat.device)


def unpack(payload: Tensor, count: int, bits: int) -> Tensor:
    """The (count,) int64 numbers that `pack` wrote. payload: (packed_bytes,) uint8."""
    if len(payload) != packed_bytes(count, bits):
        needed = packed_bytes(count, bits)
        raise ValueError(f"payload={len(payload)} bytes: {count} numbers of {bits} bits take {needed} bytes")
    if bits > 8:
        return payload[:count].long() | (unpack(payload[count:], count, bits - 8) << 8)
    each = np.unpackbits(payload.cpu().numpy(), count=count * bits, bitorder="little").reshape(count, bits)
    return (torch.from_numpy(each).long() << torch.arange(bits)).sum(dim=1).to(payload.device)
