"""Euclidean distances between rows, block by block: by matrix products, and pair by pair where these lose digits."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

_BLOCK = 1024
_BLOCK_ELSEWHERE = 8192  # on devices that wait whenever they are asked for a number
_NEAR = 1e-3  # squared distance / squared norms below which |x|^2 + |y|^2 - 2 x.y loses too many digits
_VERY_NEAR = 1e-6  # ... for float32, where it is computed in float64
_STRAY = 64  # squared distance from the mean, over the mean one
_FEW = 32  # near pairs are taken one by one if they are at most such a part of a block
_NUMBERS = 2**20  # at a time, of differences that are computed pair by pair

Block = tuple[int, int]
"""First row and first column."""


def block_pairs(n: int, device: torch.device) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of the blocks on and above the diagonal of an (n, n) matrix."""
    size = _BLOCK if device.type == "cpu" else _BLOCK_ELSEWHERE
    cuts = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    for place, rows in enumerate(cuts):
        for columns in cuts[place:]:
            yield rows, columns


def size_of_blocks(n: int, device: torch.device) -> int:
    """How many numbers these blocks hold."""
    return sum((rows.stop - rows.start) * (columns.stop - columns.start) for rows, columns in block_pairs(n, device))


class Points:
    """The rows of x (n, d), float32 or float64 and finite, and their distances a_ij in units of `unit`.

    centred: (n, d) x - mean, in these units. keeps: whether `excesses` keeps what `inverses` yields, until `forget`; what is
    computed again has the same bits.
    """

    def __init__(self, x: Tensor, unit: float = 1.0, *, keeps: bool = False):
        self._scratch = x.new_empty(0)
        self.x, self.unit, self.keeps = x, unit, keeps
        mean = x.mean(dim=0, dtype=torch.float64)
        self.centred = torch.cat([((part.double() - mean) / unit).to(x.dtype) for part in x.split(_BLOCK)])
        lengths = self.centred.square().sum(dim=1)
        cuts = {rows.start: rows for rows, _ in block_pairs(len(x), x.device)}
        self._parts = {start: (self.centred[rows], lengths[rows]) for start, rows in cuts.items()}
        longest = torch.stack([lengths[rows].amax() for rows in cuts.values()] + [lengths.sum()]).tolist()
        self._longest, self._sum = dict(zip(cuts, longest, strict=False)), longest[-1]
        self._kept: dict[Block, Tensor] = {}
        self._near: dict[Block, _Near] = {}
        self._groups: Tensor | None = None

    def blocks(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """Yields rows, columns and a_ij (rows, columns), for the blocks on and above the diagonal."""
        for rows, columns in block_pairs(len(self.x), self.x.device):
            yield rows, columns, self.distances(rows, columns)

    def distances(self, rows: slice, columns: slice) -> Tensor:
        """a_ij (rows, columns)."""
        squares, inverses = self._squares_and_inverses(rows, columns)
        return self._excess(squares, inverses, 0.0, on_diagonal=rows == columns)

    def excesses(self, typical: float) -> Iterator[tuple[slice, slice, Tensor]]:
        """Yields rows, columns and a_ij - typical, of the same blocks, and 0 on the diagonal."""
        for rows, columns in block_pairs(len(self.x), self.x.device):
            squares, inverses = self._squares_and_inverses(rows, columns)
            if self.keeps and inverses.dtype == self.x.dtype:
                self._kept[_place(rows, columns)] = inverses
            yield rows, columns, self._excess(squares, inverses, typical, on_diagonal=rows == columns)

    def inverses(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """Yields rows, columns and 1 / a_ij, 0 between equal rows, of the same blocks."""
        for rows, columns in block_pairs(len(self.x), self.x.device):
            kept = self._kept.get(_place(rows, columns))
            yield rows, columns, self._squares_and_inverses(rows, columns)[1] if kept is None else kept

    def forget(self) -> None:
        """Free what is kept."""
        self._kept.clear()

    def typical(self) -> float:
        """The root of the mean squared distance of different rows."""
        return math.sqrt(2 * self._sum / max(1, len(self.x) - 1))

    def stray(self) -> bool:
        """Whether a row lies so far from the mean that float32 leaves too few digits for the others."""
        return max(self._longest.values()) * len(self.x) > _STRAY * self._sum

    def add_differences(
        self, gradient: Tensor, weights: Tensor, rows: slice, columns: slice, inverses: Tensor, w: Tensor
    ) -> None:
        """Add sum_j W_ij (x_i - x_j) of the block's rows, and sum_i W_ij (x_j - x_i) of its columns, in `unit`, to gradient
        (n, d); or only the second terms, and the sums of W to weights (n,). inverses: 1 / a_ij. Changes W.
        """
        near = self._near.get(_place(rows, columns))
        if near is not None and near.pairs is None:
            self._add_exactly(gradient, rows, columns, inverses, w)
            return
        if near is not None and near.pairs is not None:
            i, j = near.pairs
            self._add_pairs(gradient, rows, columns, i, j, w[i, j])
            w[i, j] = 0.0
        weights[rows] += w.sum(dim=1)
        gradient[rows].addmm_(w, self._parts[columns.start][0], alpha=-1)
        if rows != columns:
            weights[columns] += w.sum(dim=0)
            gradient[columns].addmm_(w.T, self._parts[rows.start][0], alpha=-1)

    def _squares_and_inverses(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor]:
        """a_ij^2, infinite on the diagonal, and 1 / a_ij, 0 between equal rows."""
        (left, left_lengths), (right, right_lengths) = self._parts[rows.start], self._parts[columns.start]
        shape = len(left), len(right)
        if len(self._scratch) < shape[0] * shape[1]:  # one for all: beside what is kept, each would leave a hole in memory
            self._scratch = left.new_empty(shape[0] * shape[1])
        squares = self._scratch[: shape[0] * shape[1]].view(shape)
        torch.add(left_lengths[:, None], right_lengths, out=squares)
        squares.addmm_(left, right.T, alpha=-2)
        if rows == columns:
            squares.fill_diagonal_(math.inf)
        limit = _NEAR * (self._longest[rows.start] + self._longest[columns.start])
        if squares.amin().item() >= limit:
            return squares, squares.rsqrt()
        pairs = _few(squares < limit) or _few(squares < _NEAR * (left_lengths[:, None] + right_lengths))
        if not self.keeps:
            self._near.clear()
        self._near[_place(rows, columns)] = _Near(pairs)
        if pairs is None:
            return self._exact(rows, columns)
        inverses = squares.rsqrt()
        for i, j in _portions(self.x.shape[1], *pairs):
            values = self._differences(rows, columns, i, j).square_().sum(dim=1)
            squares[i, j] = values.to(squares.dtype)
            inverses[i, j] = self._inverse(values).to(inverses.dtype)
        return squares, inverses

    def _inverse(self, squares: Tensor) -> Tensor:
        """1 / a, 0 where a is, without overflow in the type of x. squares: a^2 in float64."""
        largest = torch.finfo(self.x.dtype).max / 2**40
        return squares.rsqrt().clamp_max_(largest).masked_fill_(squares == 0, 0.0)

    @staticmethod
    def _excess(squares: Tensor, inverses: Tensor, typical: float, *, on_diagonal: bool) -> Tensor:
        """a_ij - typical, in place of the squares; 0 on the diagonal."""
        e = torch.addcmul(squares.new_full((), -typical), squares, inverses, out=squares)
        return e.fill_diagonal_(0.0) if on_diagonal else e

    def _exact(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor]:
        """Of a block with many near pairs, in float64, and pair by pair where even that loses digits."""
        left, right, limits = self._in_float64(rows, columns)
        squares = torch.addmm(limits, left, right.T, alpha=-2)
        limit = _NEAR if self.x.dtype == torch.float64 else _VERY_NEAR
        if self._groups is None:
            self._groups = self.x.unique(dim=0, return_inverse=True)[1]
        equal = self._groups[rows, None] == self._groups[columns]
        squares.masked_fill_(equal, 0.0)
        for i, j in _portions(self.x.shape[1], *((squares < limits.mul_(limit)) & ~equal).nonzero(as_tuple=True)):
            squares[i, j] = self._differences(rows, columns, i, j).square_().sum(dim=1)
        inverses = self._inverse(squares)
        return squares.fill_diagonal_(math.inf) if rows == columns else squares, inverses

    def _add_exactly(self, gradient: Tensor, rows: slice, columns: slice, inverses: Tensor, w: Tensor) -> None:
        left, right, limits = self._in_float64(rows, columns)
        near = inverses.square() * limits.mul_(_VERY_NEAR) > 1
        i, j = near.nonzero(as_tuple=True)
        self._add_pairs(gradient, rows, columns, i, j, w[i, j])
        w.masked_fill_(near, 0.0)
        gradient[rows] += torch.addmm(left * w.sum(dim=1, keepdim=True), w, right, alpha=-1)
        if rows != columns:
            gradient[columns] += torch.addmm(right * w.sum(dim=0)[:, None], w.T, left, alpha=-1)

    def _add_pairs(self, gradient: Tensor, rows: slice, columns: slice, i: Tensor, j: Tensor, w: Tensor) -> None:
        for here, there, part in _portions(self.x.shape[1], i, j, w):
            terms = (part[:, None] * self._differences(rows, columns, here, there)).to(gradient.dtype)
            gradient[rows].index_add_(0, here, terms)
            if rows != columns:
                gradient[columns].index_add_(0, there, terms, alpha=-1)

    def _differences(self, rows: slice, columns: slice, i: Tensor, j: Tensor) -> Tensor:
        """x_i - x_j of pairs of a block (m, d), in float64."""
        return (self.x[rows][i].double() - self.x[columns][j]) / self.unit

    def _in_float64(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Both parts of the rows, without rounding, less their median, which no outlier moves, and |x_i|^2 + |x_j|^2."""
        centre = torch.cat([self.x[rows], self.x[columns]]).median(dim=0).values.double()
        left, right = ((self.x[part].double() - centre) / self.unit for part in (rows, columns))
        return left, right, left.square().sum(dim=1)[:, None] + right.square().sum(dim=1)


@dataclass(frozen=True)
class _Near:
    """Of a block: its near pairs, rows and columns, if these are few."""

    pairs: tuple[Tensor, Tensor] | None


def _few(near: Tensor) -> tuple[Tensor, Tensor] | None:
    """Rows and columns of what is marked, if it is little."""
    i, j = near.nonzero(as_tuple=True)
    return (i, j) if _FEW * len(i) <= near.numel() else None


def _portions(width: int, *parts: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Parts of tensors of one length, so that the differences of so many pairs take little memory."""
    return zip(*(part.split(max(1, _NUMBERS // width)) for part in parts), strict=True)


def _place(rows: slice, columns: slice) -> Block:
    return rows.start, columns.start
