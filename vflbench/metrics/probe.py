"""The probe: what half of the true labels make of messages and attacks' scores. A reader, and no bound on attacks."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vflbench.numerics.auc import auc
from vflbench.numerics.optim import AdamSteps, Lbfgs

_LEAST = 40  # usable rows, below which there is no probe
_PENALTIES = (1e-2, 0.15)
_FEW = 512  # rows to learn from, up to which candidates are compared on two quarters of them
_WIDTH, _WIDEST, _STEPS = 16, 64, 60  # of the network: hidden units, coordinates that it reads, steps
_SMALL = 1e-6  # share of the largest variance below which a direction is rounding error

Fitted = Callable[[Tensor], Tensor]
"""Row places (m,) -> (m, K) scores."""


def probe(
    messages: Sequence[Tensor],
    heard: Sequence[Tensor],
    labels: Tensor,
    batch: Tensor,
    classes: int,
    rng: torch.Generator,
) -> tuple[Tensor | None, Tensor]:
    """Scores of all rows, each by a probe that was trained on the labels of the other half, and the half of each row.

    It is one reader more, and may read less than an attack: what could be read is at least the larger of both.

    A probe is the best of: logistic regressions with several penalties on the messages and the attacks' scores, and on the
    scores alone; a network with one hidden layer; and each attack's scores by themselves. Which of them is best is decided
    on a quarter of the half that it may learn from, or, of few rows, on two of them in turn. Messages are read along their
    principal directions, both as they are and scaled to variance 1 in every direction. An attack's scores are read as ranks
    within a batch; they are reversed in batches in which the labels that the probe may learn from say so.

    messages: (n, d) each, nan for rows without one. heard: an attack's scores each, (n,) or (n, K), nan where it was not
    asked. labels: (n,) classes below `classes`. batch: (n,) number of the row's batch.

    Returns scores (n,) for two classes, else (n, K), and (n,) 0 or 1. None in place of scores where a half has too few rows
    or classes.
    """
    n = len(labels)
    half = torch.empty(n, dtype=torch.int64)
    half[torch.randperm(n, generator=rng)] = torch.arange(n) % 2
    if n < _LEAST or any(len(labels[half == which].unique()) < 2 for which in (0, 1)):
        return None, half
    ranks = _ranks_in_batches(heard, batch)
    along = [(torch.zeros(n, 0), torch.ones(0)), *map(_principal, messages)]
    whitened = torch.cat([coordinates for coordinates, _ in along], dim=1)
    in_proportion = torch.cat([coordinates * deviations for coordinates, deviations in along], dim=1)
    scores = torch.zeros(n, classes)
    for which in (0, 1):
        fit = half != which
        oriented = _oriented(ranks, labels, batch, fit) if classes == 2 else ranks
        scales = (whitened, in_proportion) if whitened.shape[1] else ()
        inputs = [torch.cat([coordinates, oriented], dim=1) for coordinates in scales] + [oriented]
        best = _best(inputs, labels, fit.nonzero()[:, 0], classes, rng)
        scores[half == which] = best((half == which).nonzero()[:, 0])
    return (scores[:, 1] - scores[:, 0] if classes == 2 else scores), half


def _best(inputs: Sequence[Tensor], labels: Tensor, rows: Tensor, classes: int, rng: torch.Generator) -> Fitted:
    """The best of all candidates, fitted to these rows.

    inputs: (n, D) each: messages and attacks' ranks, in two scales, where there are messages; and the ranks alone.
    """
    folds = rows[torch.randperm(len(rows), generator=rng)].chunk(4)
    turns = range(2 if len(rows) <= _FEW else 1)
    fits: list[Callable[[Tensor], Fitted]] = [
        partial(_logistic, x, labels, classes, penalty) for x in inputs if x.shape[1] for penalty in _PENALTIES
    ]
    narrow = torch.cat([*(x[:, :_WIDEST] for x in inputs[1:-1]), inputs[-1]], dim=1)
    fits.append(partial(_network, narrow, labels, classes, rng))
    if classes == 2:
        fits += [partial(_single, column) for column in inputs[-1].T]
    quality = [0.0] * len(fits)
    for held_out in (folds[turn] for turn in turns):
        inner = rows[~torch.isin(rows, held_out)]
        quality = [
            total + _quality(fit(inner)(held_out), labels[held_out]) for total, fit in zip(quality, fits, strict=True)
        ]
    return fits[max(range(len(fits)), key=quality.__getitem__)](rows)


def _single(column: Tensor, _rows: Tensor) -> Fitted:
    """One column by itself, which needs no fit."""
    return lambda places: F.pad(column[places][:, None], (1, 0))


def _quality(scores: Tensor, labels: Tensor) -> float:
    """AUC for two classes, else accuracy; 0 where it isn't defined."""
    if scores.shape[1] > 2:
        return (scores.argmax(dim=1) == labels).double().mean().item()
    value = auc(scores[:, 1] - scores[:, 0], labels != 0)
    return value if value == value else 0.0


def _logistic(x: Tensor, labels: Tensor, classes: int, penalty: float, rows: Tensor) -> Fitted:
    """min over W, b of mean cross-entropy + penalty / 2 |W|^2 over these rows, by L-BFGS."""
    inputs, truth = x[rows], labels[rows]
    weights = torch.zeros(x.shape[1], classes, requires_grad=True)
    bias = torch.zeros(classes, requires_grad=True)
    solver = Lbfgs([weights, bias], max_iter=12, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        solver.zero_grad()
        value = F.cross_entropy(inputs @ weights + bias, truth) + penalty / 2 * weights.square().sum()
        value.backward()
        return value

    solver.step(loss)
    w, b = weights.detach(), bias.detach()
    return lambda places: x[places] @ w + b


def _network(x: Tensor, labels: Tensor, classes: int, rng: torch.Generator, rows: Tensor) -> Fitted:
    """A ReLU layer and a linear one, by Adam on all these rows at once, with weight decay."""
    inputs, truth = x[rows], labels[rows]
    shapes = [(_WIDTH, x.shape[1]), (classes, _WIDTH)]
    layers = [nn.Parameter(torch.randn(shape, generator=rng) / shape[1] ** 0.5) for shape in shapes]
    biases = [nn.Parameter(torch.zeros(shape[0])) for shape in shapes]

    def logits(z: Tensor) -> Tensor:
        return F.linear(F.relu(F.linear(z, layers[0], biases[0])), layers[1], biases[1])

    solver = AdamSteps([*layers, *biases], lr=0.03, weight_decay=0.01, fused=True)
    for _ in range(_STEPS):
        solver.zero_grad(set_to_none=True)
        F.cross_entropy(logits(inputs), truth).backward()
        solver.step()
    return lambda places: logits(x[places]).detach()


def _ranks_in_batches(heard: Sequence[Tensor], batch: Tensor) -> Tensor:
    """(n, m) ranks in the batch by each column of scores, scaled to [-1, 1]; equal scores share one; 0 for nan."""
    columns = torch.cat([scores.reshape(len(batch), -1).double() for scores in heard] or [torch.zeros(len(batch), 0)], dim=1)
    ranks = torch.zeros(columns.shape)
    for number in batch.unique():
        values = columns[batch == number].T.contiguous()
        ordered, there = values.sort(dim=1).values, ~values.isnan()  # nan comes last
        ends = sum(torch.searchsorted(ordered, values, right=right) for right in (False, True))
        ranks[batch == number] = (ends / there.sum(dim=1, keepdim=True).double() - 1).where(there, 0.0).float().T
    return ranks


def _oriented(ranks: Tensor, labels: Tensor, batch: Tensor, fit: Tensor) -> Tensor:
    """Ranks, reversed in the batches in which they are lower for the positives among the rows to fit. (n, m)."""
    oriented = ranks.clone()
    for number in batch.unique():
        rows = batch == number
        given = rows & fit
        y = (labels[given] != 0).float()
        if len(y):
            agreement = (y - y.mean()) @ ranks[given]
            oriented[rows] = torch.where(agreement < 0, -ranks[rows], ranks[rows])
    return oriented


def _principal(block: Tensor) -> tuple[Tensor, Tensor]:
    """(n, r) coordinates along the principal directions, each with mean 0 and variance 1, that of the largest variance
    first; and (r,) the deviations along them, in units in which their mean square is 1. Rows of nan become 0.
    """
    there = ~block.isnan().any(dim=1)
    if int(there.sum()) < 2:
        return torch.zeros(len(block), 0), torch.ones(0)
    given = block[there].double()
    centred = given - given.mean(dim=0)
    centred = centred / centred.abs().max().clamp_min(1e-300)
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(centred))
    kept = (values > _SMALL * values[-1].clamp_min(1e-300)).nonzero()[:, 0].flip(0)
    coordinates = torch.zeros(len(block), len(kept))
    deviations = values[kept].sqrt()
    coordinates[there] = (centred @ vectors[:, kept] / deviations).float().clamp_(-10, 10)
    return coordinates, (deviations / deviations.square().mean().sqrt().clamp_min(1e-300)).float()
