"""Model completion: a head on the attacker's own messages, fitted to a few rows whose labels it knows."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from vflbench.attacks.base import Answers, Attack, FollowedRows, Scores
from vflbench.messages.facts import ClassShares, Fact, Gradients, Known, LocalModel
from vflbench.messages.threat import Threat, View
from vflbench.options import Rows, options

_RANKS = (0, 1, 2, 4, 8, 16, 32, 64)  # of the directions that are removed before a length is measured
_FLOOR = 1e-12  # of squared lengths, relative to their mean

_FACTS: Mapping[str, set[type[Fact]]] = {
    "embeddings": {LocalModel},
    "gradients": {Gradients},
    "both": {LocalModel, Gradients},
}


_NOISE = [10.0 ** (e / 2) for e in range(-10, 5)]  # of the kernel's mean square
_TRUNCATED = (1, 2, 3, 4)
_POWERS = (-2.0, -1.0, -0.5, 0.0)
_SLOPES = [10.0 ** (e / 8) for e in range(-12, 13)]
_SWEEPS = 4
_BALANCING = 20
_ROWS = 5000  # of those without labels, at least, of which covariances are taken
_NO_VARIANCE = 1e-9  # relative to the largest direction's


@options
class Completion(FollowedRows, Attack):
    """Fit a head to the messages about k rows whose labels are known for the whole run, and score all other rows with it.

        s(x) = log share + a <w, x> + b <v, n>,   w, v: averages of ridge regressions on the known rows

    The priors of the regressions follow the covariance of the rows without labels, and count by their evidence (see
    `averaged_ridge`). With few known rows, a fit without these priors overfits to directions of little variance.

    message: `embeddings`: x are the activations of the party's own network at the end of the epoch. `gradients`: x are means
    over the epochs so far of the gradients about a row, and of unit vectors along them, which show the sign of p - y for a
    confident and an unsure prediction alike; n are logs of their lengths outside the first 0, 1, 2, 4, ..., 64 singular
    directions of an epoch, where noise that is added to one class shows. `both`: x has the activations as well. Each part
    of x is in units of its mean length.

    `both` is the adaptive attack on randomized response: the sign of a gradient is the released label, the activations say
    what the features predict, and log-likelihood ratios add up. Noise that is drawn again in each epoch averages out.

    Memory: rows x (3 d + 8) numbers of 4 bytes for each layer of width d, 6.6 MB for 4,196 rows of 128.

    known: rows whose labels it knows. Those that it hasn't met yet are left out. rows: number of other rows that it follows
    through the run, for gradients and both. Scores of two classes are log odds (n,), of more of them logits (n, K).

    `model_completion` is the published attack, which trains a head by MixMatch.

    Source: Fu et al., "Label inference attacks against vertical federated learning", USENIX Security 2022; the heads
    are ours.
    """

    max_classes: ClassVar[float] = math.inf

    known: Rows = 100
    message: Literal["embeddings", "gradients", "both"] = "embeddings"
    rows: Rows = 4096

    def __post_init__(self) -> None:
        super().__post_init__()  # layer -> (n, 2 d + ranks + 1); last: how many messages
        self.follows = 0 if self.message == "embeddings" else self.rows
        self._met: list[tuple[Tensor, dict[str, Tensor]]] = []  # of this epoch: ids, and layer -> gradients (b, d)

    @property
    def threat(self) -> Threat:
        return Threat(knows={ClassShares, *_FACTS[self.message]}, known_rows=self.known)

    def observe(self, view: View) -> None:
        if self.follows:
            self._met.append((view.ids.cpu(), {layer: g.cpu().float() for layer, g in view[Gradients].layers.items()}))

    def epoch(self, view: View) -> Answers:
        known, shares = view[Known], view[ClassShares].shares
        met, ids, labels = known.ids, view.ids, known.labels
        if self.follows:
            self._end_epoch()
            is_met, here = (torch.isin(rows.cpu(), self._ids).to(rows.device) for rows in (known.ids, view.ids))
            met, ids, labels = known.ids[is_met], view.ids[here], known.labels[is_met]
        if not len(met) or not len(ids):
            return None
        known_parts, parts = self._parts(view, met), self._parts(view, ids)
        return Scores(ids, {layer: completed(known_parts[layer], labels.cpu(), parts[layer], shares) for layer in parts})

    def _parts(self, view: View, ids: Tensor) -> dict[str, list[list[Tensor]]]:
        """Layer -> groups of values (n, d) of these rows; those of a group share a regression."""
        joined = self._means(ids.cpu()) if self.follows else {}
        if self.message == "gradients":
            return {layer: [[total, units], [lengths]] for layer, (total, units, lengths) in joined.items()}
        embedded = {layer: h.cpu() for layer, h in view[LocalModel].embed(ids).items()}
        if self.message == "embeddings":
            return {layer: [[h]] for layer, h in embedded.items()}
        common = [layer for layer in joined if layer in embedded]
        return {layer: [[embedded[layer], *joined[layer][:2]], [joined[layer][2]]] for layer in common}

    def _end_epoch(self) -> None:
        """Add what was met since the last call to the sums."""
        if not self._met:
            return
        ids, order = torch.cat([ids for ids, _ in self._met]).sort()
        layers = {layer: torch.cat([g[layer] for _, g in self._met])[order] for layer in self._met[0][1]}
        self.add(ids, {layer: _parts(g) for layer, g in layers.items()})
        self._met = []

    def _means(self, ids: Tensor) -> dict[str, Sequence[Tensor]]:
        """Layer -> means of the messages (n, d), of unit vectors along them (n, d), and of their log lengths (n, r).

        ids: rows that were met.
        """
        places = self.places(ids)
        means = {layer: sums[places, :-1] / sums[places, -1:] for layer, sums in self._tables.items()}
        d = {layer: (mean.shape[1] - len(_RANKS)) // 2 for layer, mean in means.items()}
        return {layer: mean.tensor_split([d[layer], 2 * d[layer]], dim=1) for layer, mean in means.items()}


def completed(
    known: Sequence[Sequence[Tensor]], labels: Tensor, rows: Sequence[Sequence[Tensor]], shares: Sequence[float]
) -> Tensor:
    """Logits of rows by the labels of known ones: (n,) log odds for two classes, (n, K) for more.

    known: groups of values (k, d), each group for a regression of its own. labels: (k,) classes. rows: the same groups of
    values (n, d). shares: K shares of the classes.
    """
    classes = len(shares)
    targets = torch.nn.functional.one_hot(labels, classes).double()[:, 1 if classes == 2 else 0 :]
    fits = [averaged_ridge(k, targets, r) for k, r in (_side_by_side(*group) for group in zip(known, rows, strict=True))]
    logits = added_logits([left_out for left_out, _ in fits], labels, [scores for _, scores in fits], shares)
    return logits[:, 0] if classes == 2 else logits


def _side_by_side(known: Sequence[Tensor], rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The parts of a group in one matrix, each centred, and in units of its mean length."""
    joined = []
    for k, r in zip(known, rows, strict=True):
        both = torch.cat([k, r]).double()
        centred = both - both.mean(dim=0)
        joined.append(centred / centred.norm(dim=1).mean().clamp_min(1e-300))
    whole = torch.cat(joined, dim=1)
    return whole[: len(known[0])], whole[len(known[0]) :]


def _parts(g: Tensor) -> Tensor:
    """(n, 2 d + ranks + 1): g, unit vectors along it, logs of the squared lengths outside its first singular directions, 1.

    A row of zeros has no direction, and the shortest length. g: (n, d).
    """
    scaled = g.double() / g.abs().max().clamp_min(torch.finfo(g.dtype).tiny)
    _, directions = torch.linalg.eigh(scaled.T @ scaled)  # the largest last
    outside = (scaled @ directions).square().cumsum(dim=1)  # column j: outside all but the smallest j + 1
    columns = [max(g.shape[1] - 1 - rank, 0) for rank in _RANKS]
    lengths = (outside[:, columns] + _FLOOR * outside[:, -1].mean() + 1e-30).log()
    units = torch.nn.functional.normalize(scaled, eps=1e-30)
    return torch.cat([g, units.float(), lengths.float(), torch.ones(len(g), 1)], dim=1)


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
