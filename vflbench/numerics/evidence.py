"""Few labelled rows among many without labels: ridge regressions averaged by their evidence, and scores made logits."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

_NOISE = [10.0 ** (e / 2) for e in range(-10, 5)]  # of the kernel's mean square
_TRUNCATED = (1, 2, 3, 4)
_POWERS = (-2.0, -1.0, -0.5, 0.0)
_SLOPES = [10.0 ** (e / 8) for e in range(-12, 13)]
_SWEEPS = 4
_BALANCING = 20
_ROWS = 5000  # of those without labels, at least, of which covariances are taken
_NO_VARIANCE = 1e-9  # relative to the largest direction's


def averaged_ridge(known: Tensor, targets: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Scores of rows by ridge regressions with many priors, each of which counts by its evidence.

        s(x) = sum_j c_j <w_j, x - mean> / sd_j,   c_j = softmax_j log p(targets | prior j)

    Prior j: weights are Gaussian and independent along the principal directions of all rows. Their variances are powers
    v^a, a in 0, 1/2, 1, 2, of the directions' variances v, with and without the largest direction, or 1 / v in the first 1
    to 4 directions and 0 in others. The noise is one of a grid. sd_j: the standard deviation of <w_j, x> over the rows.

    Covariances come from the rows without labels, so that a direction of large variance that says nothing about the targets
    costs one known row, and directions of little variance are not fitted with noise. The evidence, in closed form, needs no
    rows to be set aside, and prefers the right prior more surely than errors on a handful of them.

    known: (k, d). targets: (k, m). rows: (n, d), the rows to score. Returns (k, m) scores of the known rows, each by the fit
    without it, and (n, m) scores, float64. Zeros where nothing varies.

    Source: MacKay, "Bayesian interpolation", Neural Computation 4, 1992; the priors are ours.
    """
    seen = torch.cat([known, rows[:: max(1, len(rows) // _ROWS)]]).double()
    scale = seen.abs().max().clamp_min(torch.finfo(torch.float64).tiny)
    mean = (seen / scale).mean(dim=0)
    centred = seen / scale - mean
    variance, directions = torch.linalg.eigh(centred.T @ centred / len(centred))
    varies = variance.flip(0) > _NO_VARIANCE * variance[-1].clamp_min(1e-30)
    variance, directions = variance.flip(0)[varies], directions.flip(1)[:, varies]
    y = targets.double() - targets.double().mean(dim=0)
    if not len(variance) or not bool(y.any()):
        return torch.zeros_like(y), y.new_zeros(len(rows), y.shape[1])
    projected = centred[: len(known)] @ directions
    fits = [_ridges(projected * deviations, deviations, y) for deviations in _priors(variance)]
    evidence, weights, without = (torch.cat(values) for values in zip(*fits, strict=True))  # (j,), (j, r, m), (j, k, m)
    spread = (variance[:, None] * weights.square()).sum(dim=(1, 2)).sqrt()
    counts = torch.where(spread > 0, torch.softmax(evidence, dim=0) / spread, 0.0)
    left_out, along = torch.tensordot(counts, without, 1), directions @ torch.tensordot(counts, weights, 1)
    return left_out, rows.double() @ (along / scale) - mean @ along


def _priors(variance: Tensor) -> Iterator[Tensor]:
    """(r,) standard deviations of the weights along directions of these variances, from the largest."""
    place = torch.arange(len(variance), device=variance.device)
    for dropped in (0, 1)[: len(variance)]:
        for power in _POWERS:
            yield torch.where(place >= dropped, (variance / variance[dropped]) ** (-power / 2), 0.0)
    for rank in _TRUNCATED:
        if rank <= len(variance):
            yield torch.where(place < rank, variance.rsqrt(), 0.0)


def _ridges(x: Tensor, deviations: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For each of l noises: the log evidence (l,), weights (l, r, m), and predictions (l, k, m) of each known row by a fit
    without it. No noises where x is zero.

    x: (k, r) in units in which the weights have variance 1. y: (k, m), centred. The scale of both variances is integrated
    out.
    """
    k, m = y.shape
    u, s, v = _thin_svd(x - x.mean(dim=0))
    squares, along = s.square(), u.T @ y
    beyond = (y.square().sum() - along.square().sum()).clamp_min(0)
    noises = squares.new_tensor(_NOISE if float(squares.sum()) > 0 else [])
    ridge = (noises * squares.sum())[:, None]
    misfit = (along.square().sum(dim=1) / (squares + ridge)).sum(dim=1) + beyond / ridge[:, 0]
    volume = (squares[: k - 1] / ridge).log1p().sum(dim=1) + (k - 1) * ridge[:, 0].log()
    evidence = -m / 2 * ((k - 1) * misfit.clamp_min(1e-300).log() + volume)
    shrunk = squares / (squares + ridge)  # (l, q)
    leverage = shrunk @ u.square().T + 1 / k  # (l, k)
    left_out = y - (y - u @ (shrunk[..., None] * along)) / (1 - leverage).clamp_min(1e-3)[..., None]
    return evidence, deviations[:, None] * (v @ ((s / (squares + ridge))[..., None] * along)), left_out


def _thin_svd(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """u (k, q), s (q,) and v (r, q) with x = u diag(s) v^T, by way of the smaller Gram matrix, which is many times faster.

    Singular values below 1e-7 of the largest, which no ridge of the grid tells from 0, are left out.
    """
    tall = len(x) > x.shape[1]
    squares, vectors = torch.linalg.eigh(x.T @ x if tall else x @ x.T)
    kept = squares > 1e-14 * squares[-1].clamp_min(1e-280)
    s, vectors = squares[kept].sqrt(), vectors[:, kept]
    return (x @ vectors / s, s, vectors) if tall else (vectors, s, x.T @ vectors / s)


def added_logits(known: Sequence[Tensor], labels: Tensor, rows: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    """Logits that add up scores from several sources, each with the slope that explains the known labels best.

        l_c(x) = b_c + sum_j a_j s_jc(x) / sd_j,   a_j > 0 maximises sum_i log p(y_i) - sum_j a_j^2 / 200

    The slopes are found one after the other on a grid, a few times around; b_c makes the mean probability of each class its
    share. sd_j: the standard deviation of source j.

    known: for each source (k, m) scores of the known rows, by fits without them; m is 1 for two classes, else K.
    labels: (k,) classes. rows: for each source (n, m). shares: K shares of the classes. Returns (n, m); log odds where
    m is 1.
    """
    binary = len(shares) == 2
    units = [1 / max(float(s.std(correction=0)), 1e-12) for s in known]
    sources = [unit * _columns(s, binary) for unit, s in zip(units, known, strict=True)]
    among_known = (torch.bincount(labels, minlength=len(shares)).double() + 0.5) / (len(labels) + 0.5 * len(shares))
    steps = sources[0].new_tensor(_SLOPES)
    slopes = [_SLOPES[0]] * len(known)
    for _ in range(_SWEEPS if len(known) > 1 else 1):
        for j, s in enumerate(sources):
            others = sum((slopes[i] * other for i, other in enumerate(sources) if i != j), torch.zeros_like(s))
            logits = others + steps[:, None, None] * s  # (slopes, k, K)
            right = torch.log_softmax(logits + _offset(logits, among_known), dim=2)
            right = right.gather(2, labels.expand(len(steps), -1)[..., None]).sum(dim=(1, 2))
            slopes[j] = _SLOPES[int((right - steps.square() / 200).argmax())]
    added = sum(a * unit * _columns(s, binary) for a, unit, s in zip(slopes, units, rows, strict=True))
    logits = added + _offset(added, added.new_tensor(shares))
    return logits[:, 1:] - logits[:, :1] if binary else logits


def _columns(scores: Tensor, binary: bool) -> Tensor:
    """(n, K); the scores of class 1 stand beside zeros for class 0."""
    return torch.cat([torch.zeros_like(scores), scores], dim=1) if binary else scores


def _offset(logits: Tensor, shares: Tensor) -> Tensor:
    """(..., 1, K) what to add to (..., n, K) logits so that the mean probability of each class is its share."""
    wanted = shares.clamp_min(1e-6).log()
    offset = wanted.expand(*logits.shape[:-2], 1, -1)
    for _ in range(_BALANCING):
        mean = torch.log_softmax(logits + offset, dim=-1).exp().mean(dim=-2, keepdim=True)
        offset = offset + wanted - mean.clamp_min(1e-12).log()
    return offset
