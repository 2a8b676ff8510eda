"""Compressed embeddings and gradients: the bytes that cross, and how their receiver decodes them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from vflbench.numerics.packing import bits_for, pack, packed_bytes, unpack

_DISTANCES = 2**24  # computed at a time


@dataclass(frozen=True)
class Grid:
    """Evenly spaced numbers, known to both sides: code c stands for low + step c, c = 0 .. top.

    low, step: numbers, or (n, 1) float32 where each row has its own; step >= 0. levels: values that a compressed coordinate
    can take; the codes above leave room for noise. noise_mean: mean of the noise added to the codes. corrected: whether the
    receiver subtracts that mean when it decodes.
    """

    low: float | Tensor
    step: float | Tensor
    levels: int
    top: int
    noise_mean: float = 0.0
    corrected: bool = False

    @classmethod
    def over(cls, low: float, high: float, levels: int) -> Self:
        """levels numbers from low to high, both included."""
        return cls(low, (high - low) / (levels - 1), levels, levels - 1)

    @property
    def bits(self) -> int:
        return bits_for(self.top)

    def codes(self, h: Tensor, u: Tensor | None = None) -> Tensor:
        """The nearest code without noise of each number, int64; of numbers outside, the first or the last one. 0 in a row
        whose step is 0.

        u: of the shape of h, uniform in [0, 1): in place of the nearest, one of the two next to it, with that mean.
        """
        places = (h.double() - _double(self.low)) / _double(self.step)
        if isinstance(self.step, Tensor):
            places = torch.where(self.step > 0, places, 0.0)
        whole = places.round() if u is None else (places + u).floor()
        return whole.clamp(0, self.levels - 1).long()

    def numbers(self, codes: Tensor, *, corrected: bool) -> Tensor:
        shift = self.noise_mean if corrected else 0.0
        return (_double(self.low) + _double(self.step) * (codes.double() - shift)).float()

    def rows(self, index: Tensor) -> Self:
        """That of these rows alone."""
        if isinstance(self.low, Tensor) and isinstance(self.step, Tensor):
            return replace(self, low=self.low[index], step=self.step[index])
        return self


def _double(number: float | Tensor) -> float | Tensor:
    return number.double() if isinstance(number, Tensor) else number


@dataclass(frozen=True)
class Codebook:
    """Words known to both sides: code c stands for the c-th. words: (K, s) float32."""

    words: Tensor

    @property
    def bits(self) -> int:
        return bits_for(len(self.words) - 1)

    def codes(self, h: Tensor) -> Tensor:
        """(n, m) the nearest word to each run of s coordinates of h (n, d), the last one filled up with zeros."""
        parts = self.parts(h)
        return nearest_codeword(parts.flatten(end_dim=1), self.words).view(parts.shape[:2])

    def parts(self, h: Tensor) -> Tensor:
        """(n, m, s)"""
        size = self.words.shape[1]
        return torch.nn.functional.pad(h, (0, -h.shape[1] % size)).view(len(h), -1, size)

    def numbers(self, codes: Tensor, width: int) -> Tensor:
        return self.words[codes].flatten(start_dim=1)[:, :width]


@dataclass(frozen=True)
class Encoded:
    """An embedding or a gradient (n, width) that crosses as fewer bytes than its 4 n width.

    numbers: (n, k) float32, or int64 codes of `code`; for a codebook (n, m). places: (n, k) their coordinates, in rising
    order; None: all of them. Coordinates that are not sent are 0. announced: (a,) float32 that define the code and cross
    with it, where the receiver doesn't know them yet.

    `payload` is what crosses; `values` and `corrected` are decoded from its bytes. Number of rows, width, k and the code are
    known to both sides.
    """

    width: int
    numbers: Tensor
    code: Grid | Codebook | None = None
    places: Tensor | None = None
    announced: Tensor | None = None

    @cached_property
    def payload(self) -> Tensor:
        """(nbytes,) uint8: what is announced, the places, and the numbers or codes."""
        parts = [] if self.announced is None else [_as_bytes(self.announced)]
        if self.places is not None:
            parts.append(self._packed_places(self.places))
        parts.append(_as_bytes(self.numbers) if self.code is None else pack(self.numbers, self.code.bits))
        return torch.cat(parts)

    @property
    def nbytes(self) -> int:
        return len(self.payload)

    @cached_property
    def arrived(self) -> Encoded:
        """The same, read from the bytes."""
        start = 0 if self.announced is None else 4 * len(self.announced)
        places = None
        if self.places is not None:
            end = start + packed_bytes(*self._place_layout(self.places))
            places, start = self._unpacked_places(self.payload[start:end], self.places), end
        rest, shape = self.payload[start:], self.numbers.shape
        read = rest.clone().view(torch.float32) if self.code is None else unpack(rest, self.numbers.numel(), self.code.bits)
        return replace(self, numbers=read.view(shape), places=places)

    @cached_property
    def values(self) -> Tensor:
        """(n, width) float32: the message as it is decoded, with the mean of noise unless decoding subtracts it."""
        grid = self.code if isinstance(self.code, Grid) else None
        return self.arrived._decoded(corrected=grid is not None and grid.corrected)

    @cached_property
    def corrected(self) -> Tensor:
        """(n, width) float32: the same without the mean of the noise, which is public; the networks learn from these."""
        return self.arrived._decoded(corrected=True) if self.is_biased else self.values

    @property
    def is_biased(self) -> bool:
        """Whether the mean of the noise is still in `values`."""
        return isinstance(self.code, Grid) and bool(self.code.noise_mean) and not self.code.corrected

    def rows(self, index: Tensor) -> Encoded:
        """The encoding of these rows alone."""
        places = None if self.places is None else self.places[index]
        code = self.code.rows(index) if isinstance(self.code, Grid) else self.code
        return replace(self, numbers=self.numbers[index], places=places, code=code)

    def _decoded(self, *, corrected: bool) -> Tensor:
        if isinstance(self.code, Codebook):
            return self.code.numbers(self.numbers, self.width)
        numbers = self.numbers if self.code is None else self.code.numbers(self.numbers, corrected=corrected)
        if self.places is None:
            return numbers
        return numbers.new_zeros(len(numbers), self.width).scatter_(1, self.places, numbers)

    def compress(self, h: Tensor) -> Tensor:
        """What other embeddings (m, width) of this layer would become by the same rule, without noise."""
        if isinstance(self.code, Codebook):
            return self.code.numbers(self.code.codes(h), self.width)
        places = None if self.places is None else largest(h, self.places.shape[1])
        numbers = h if places is None else h.gather(1, places)
        if self.code is not None:
            numbers = self.code.numbers(self.code.codes(numbers), corrected=False)
        return numbers if places is None else torch.zeros_like(h).scatter(1, places, numbers)

    def _place_layout(self, places: Tensor) -> tuple[int, int]:
        """Numbers and bits each that encode the places: an index each, or a bit a coordinate, whichever is shorter."""
        rows, kept = places.shape
        by_index = bits_for(self.width - 1)
        return (rows * self.width, 1) if self.width < kept * by_index else (rows * kept, by_index)

    def _packed_places(self, places: Tensor) -> Tensor:
        count, bits = self._place_layout(places)
        if count == places.numel():
            return pack(places, bits)
        mask = torch.zeros(len(places), self.width, dtype=torch.int64, device=places.device)
        return pack(mask.scatter_(1, places, 1), 1)

    def _unpacked_places(self, payload: Tensor, places: Tensor) -> Tensor:
        count, bits = self._place_layout(places)
        numbers = unpack(payload, count, bits)
        if count == places.numel():
            return numbers.view(places.shape)
        return numbers.view(-1, self.width).nonzero()[:, 1].view(places.shape)


def nearest_codeword(points: Tensor, words: Tensor) -> Tensor:
    """(m,) which word (K, s) is nearest to each point (m, s); the first of several. In slices that fit into memory."""
    lengths = words.square().sum(dim=1)
    slices = points.split(max(1, _DISTANCES // len(words)))
    return torch.cat([(lengths - 2 * part @ words.T).argmin(dim=1) for part in slices])


def largest(h: Tensor, count: int) -> Tensor:
    """(n, count) places of the largest magnitudes of each row, in rising order."""
    return h.abs().topk(count, dim=1, sorted=False).indices.sort(dim=1).values


def kept(fraction: float, width: int) -> int:
    """How many of `width` coordinates a fraction of them is: to the nearest, at least one."""
    return max(1, math.floor(fraction * width + 0.5))


def _as_bytes(numbers: Tensor) -> Tensor:
    return numbers.contiguous().view(torch.uint8).reshape(-1)
