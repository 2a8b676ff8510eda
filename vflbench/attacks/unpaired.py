"""Linear maps between two spaces, fitted to rows of both that are not paired but have classes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor
from torch.nn import functional as F

_DIRECTIONS = 96  # of embeddings
_COORDINATES = 40  # principal ones of the columns, in which rows are matched
_RIDGE = 0.02  # of matched rows; in units of the mean variance along the directions
_FIRST_RIDGE = 1e-3  # of class means
_PATCH = 5  # cells, both ways
_PATCH_RIDGE = 1e-3  # in units of the mean square of an embedding
_MOMENTS = 20  # principal coordinates whose products with the columns are compared
_WEIGHT = 0.5  # of such a product, beside a mean


_MOST = 512  # points of a class that are matched at once; the time grows with the cube


@dataclass(frozen=True)
class LocalGrid:
    """An embedding's cells: channels (h w) numbers, channel by channel, and the pixels that lie under it."""

    channels: int
    height: int
    width: int
    pixel_channels: int
    pixel_height: int
    pixel_width: int

    @property
    def steps(self) -> tuple[int, int]:
        """Pixels per cell."""
        return self.pixel_height // self.height, self.pixel_width // self.width

    @property
    def fits(self) -> bool:
        return (self.height * self.steps[0], self.width * self.steps[1]) == (self.pixel_height, self.pixel_width)

    def patches(self, h: Tensor) -> Tensor:
        """(n, cells, channels 25): each cell with its neighbours. h: (n, channels h w)."""
        shaped = h.reshape(-1, self.channels, self.height, self.width)
        return F.unfold(shaped, _PATCH, padding=_PATCH // 2).transpose(1, 2)

    def pixels(self, x: Tensor) -> Tensor:
        """(n, cells, pixels of a cell). x: (n, pixels) as columns."""
        shaped = x.reshape(-1, self.pixel_height, self.pixel_width, self.pixel_channels).permute(0, 3, 1, 2)
        return F.unfold(shaped, self.steps, stride=self.steps).transpose(1, 2)

    def columns(self, cells: Tensor) -> Tensor:
        """The inverse of `pixels`."""
        shaped = F.fold(cells.transpose(1, 2), (self.pixel_height, self.pixel_width), self.steps, stride=self.steps)
        return shaped.permute(0, 2, 3, 1).flatten(1)


@dataclass(frozen=True)
class Affine:
    """x = (h - mean) basis weights + offset. h: (n, d)."""

    mean: Tensor
    basis: Tensor
    weights: Tensor

    def features(self, h: Tensor) -> Tensor:
        return F.pad((h - self.mean) @ self.basis, (0, 1), value=1.0)

    def __call__(self, h: Tensor) -> Tensor:
        return self.features(h) @ self.weights


@dataclass(frozen=True)
class _Local:
    """The same affine map from each cell's neighbourhood to its pixels. scale: of an embedding's numbers."""

    grid: LocalGrid
    scale: Tensor
    weights: Tensor

    def __call__(self, h: Tensor) -> Tensor:
        grid, (kernel, bias) = self.grid, (self.weights[:-1], self.weights[-1])
        cells = (h / self.scale).reshape(-1, grid.channels, grid.height, grid.width)
        out = F.conv2d(cells, kernel.T.reshape(-1, grid.channels, _PATCH, _PATCH), bias, padding=_PATCH // 2)
        return grid.columns(out.flatten(2).transpose(1, 2))


def by_matching(
    h: Tensor,
    classes: Tensor,
    x: Tensor,
    classes_of_x: Tensor,
    rng: torch.Generator,
    *,
    rounds: int,
    starts: Sequence[Tensor] = (),
) -> Affine:
    """A map from h to x such that the rows of each class are spread as those of x are.

        W <- argmin sum_i |W h_i - x_(p(i))|^2 + ridge |W|^2,   p: the cheapest matching of W h_i and x_j of one class

    It begins with the map that takes class means to class means. starts: other guesses (n, k) of the rows to begin with. All
    are followed for a third of the rounds, then the one with the least cost.

    h: (n, d). x: (m, k). classes: (n,), (m,).
    """
    mean = h.mean(dim=0)
    basis = principal(h - mean, min(_DIRECTIONS, *h.shape), rng)
    spread = ((h - mean) @ basis).square().mean().sqrt().clamp_min(1e-12)
    fit = Affine(mean, basis / spread, torch.zeros(0))
    z, centre = fit.features(h), x.mean(dim=0)
    coordinates = principal(x - centre, min(_COORDINATES, *x.shape), rng)
    targets = (x - centre) @ coordinates
    counts, means_of_h, means_of_x = _class_means(z, classes, x, classes_of_x)
    first = z @ ridge(means_of_h, means_of_x, counts, _FIRST_RIDGE)

    def follow(guess: Tensor, count: int) -> tuple[float, Tensor, Tensor]:
        cost, weights = torch.inf, torch.zeros(0)
        for _ in range(count):
            partner = _matched(spread_as((guess - centre) @ coordinates, targets), classes, targets, classes_of_x, rng)
            weights = ridge(z, x[partner], torch.ones(len(z), device=z.device), _RIDGE)
            guess = z @ weights
            cost = float((guess - x[partner]).square().mean())
        return cost, guess, weights

    tried = [follow(guess, max(1, rounds // 3)) for guess in (first, *starts)]
    best = min(range(len(tried)), key=lambda i: tried[i][0])
    _, _, weights = follow(tried[best][1], max(1, rounds - rounds // 3))
    return replace(fit, weights=weights)


def by_moments(
    h: Sequence[Tensor],
    grids: Sequence[LocalGrid],
    classes: Tensor,
    x: Sequence[Tensor],
    classes_of_x: Tensor,
    rng: torch.Generator,
    *,
    rounds: int,
) -> list[_Local]:
    """For each part of a picture a map W from neighbourhoods of cells to pixels, under which moments of every class agree.

        E[g W h | c] = E[g x | c],   g in {1, u_1, .., u_20},   u: principal coordinates of x, or of the present W h

    Each class, each g and each cell is an equation for the same few weights. The first round has g = 1 alone. Principal
    coordinates of W h are given the mean and the variance of those of x.
    """
    whole = torch.cat(list(x), dim=1)
    centre = whole.mean(dim=0)
    coordinates = principal(whole - centre, min(_MOMENTS, *whole.shape), rng)
    targets = (whole - centre) @ coordinates
    scale = targets.std(dim=0).clamp_min(1e-9)
    scales = [part.square().mean().sqrt().clamp_min(1e-12) for part in h]
    maps: list[_Local] = []
    for count in range(rounds):
        if count:
            guess = torch.cat([fit(part) for fit, part in zip(maps, h, strict=True)], dim=1)
            u = spread_as((guess - centre) @ coordinates, targets) / scale
            of_h, of_x = F.pad(u, (1, 0), value=1.0), F.pad(targets / scale, (1, 0), value=1.0)
        else:
            of_h, of_x = h[0].new_ones(len(h[0]), 1), h[0].new_ones(len(targets), 1)
        weight = torch.full((of_h.shape[1],), _WEIGHT, device=of_h.device)
        weight[0] = 1.0
        maps = []
        for part, points, grid, unit in zip(h, x, grids, scales, strict=True):
            left, right, constant, weights = [], [], [], []
            for k in _common(classes, classes_of_x):
                mine, theirs = classes == k, classes_of_x == k
                left.append(of_h[mine].T @ part[mine] / unit / mine.sum())
                right.append(of_x[theirs].T @ points[theirs] / theirs.sum())
                constant.append(of_h[mine].mean(dim=0))
                weights.append(weight * mine.sum() / len(classes))
            z = grid.patches(torch.cat(left))
            z = torch.cat([z, torch.cat(constant)[:, None, None].expand(-1, z.shape[1], 1)], dim=2)
            equation_weights = torch.cat(weights)[:, None].expand(-1, z.shape[1]).flatten()
            solution = ridge(z.flatten(0, 1), grid.pixels(torch.cat(right)).flatten(0, 1), equation_weights, _PATCH_RIDGE)
            maps.append(_Local(grid, unit, solution))
    return maps


def _class_means(h: Tensor, classes: Tensor, x: Tensor, classes_of_x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of h, and the mean of h and of x, of each class that both have. (K,), (K, d), (K, k)."""
    common = _common(classes, classes_of_x)
    counts = torch.tensor([int((classes == k).sum()) for k in common], dtype=h.dtype, device=h.device)
    of_h = [h[classes == k].mean(dim=0) for k in common] or [h.mean(dim=0)]
    of_x = [x[classes_of_x == k].mean(dim=0) for k in common] or [x.mean(dim=0)]
    return (counts if common else h.new_ones(1)), torch.stack(of_h), torch.stack(of_x)


def _common(classes: Tensor, others: Tensor) -> list[int]:
    return sorted(set(classes.tolist()) & set(others.tolist()))


def spread_as(points: Tensor, like: Tensor) -> Tensor:
    """The same points (n, k) with the mean and the standard deviation of `like` (m, k) along every coordinate."""
    spread = points.std(dim=0, correction=0).clamp_min(1e-9)
    return (points - points.mean(dim=0)) / spread * like.std(dim=0, correction=0) + like.mean(dim=0)


def ridge(z: Tensor, targets: Tensor, weights: Tensor, strength: float) -> Tensor:
    """argmin sum_i w_i |z_i B - t_i|^2 + strength sum(w) |B|^2, in float64. z's last coordinate, a constant, is free."""
    z64, weighted = z.double(), (z * weights[:, None]).double()
    penalty = torch.full((z.shape[1],), strength * float(weights.sum()), dtype=torch.float64, device=z.device)
    penalty[-1] = 1e-6 * float(weights.sum())
    return torch.linalg.solve(weighted.T @ z64 + penalty.diag(), weighted.T @ targets.double()).to(z)


def principal(centred: Tensor, count: int, rng: torch.Generator) -> Tensor:
    """(d, count) orthonormal: the leading directions of centred rows (n, d), by subspace iteration in float64."""
    x = centred.double()
    start = torch.randn(x.shape[1], count, generator=rng, device=x.device, dtype=x.dtype)

    def step(basis: Tensor, _: int) -> Tensor:
        return torch.linalg.qr(x.T @ (x @ basis))[0]

    basis = reduce(step, range(4), torch.linalg.qr(start)[0])
    _, _, rotation = torch.linalg.svd(x @ basis, full_matrices=False)
    return (basis @ rotation.T).to(centred)


def _matched(points: Tensor, classes: Tensor, others: Tensor, classes_of_others: Tensor, rng: torch.Generator) -> Tensor:
    """(n,) for each point the place of its partner among the others, of the same class, at the least sum of |p - o|^2.

    Where there are more points than others of a class, each of these is a partner as often as the next, give or take one.
    Where there are fewer, as many others are drawn at random. A class of more than 512 points is matched in chunks of random
    points. Points of a class that no other has are matched with others of any class.

    points: (n, k). others: (m, k). classes: (n,), (m,).
    """
    from scipy.optimize import linear_sum_assignment  # late: it takes half a second to import

    partner = torch.zeros(len(points), dtype=torch.int64, device=points.device)
    for k in classes.unique().tolist():
        members = (classes == k).nonzero()[:, 0]
        candidates = (classes_of_others == k).nonzero()[:, 0]
        if not len(candidates):
            candidates = torch.arange(len(others), device=points.device)
        members = members[torch.randperm(len(members), generator=rng, device=points.device)]
        for chunk in members.split(_MOST):
            order = candidates[torch.randperm(len(candidates), generator=rng, device=points.device)]
            drawn = order.repeat(-(-len(chunk) // len(order)))[: len(chunk)]
            cost = torch.cdist(points[chunk].double(), others[drawn].double()).square()
            rows, columns = linear_sum_assignment(cost.cpu().numpy())
            partner[chunk[torch.from_numpy(rows).to(chunk)]] = drawn[torch.from_numpy(columns).to(chunk)]
    return partner
