"""Posterior attack: the noise that makes residuals likeliest, and the odds of the label under it."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from vflbench.attacks.base import Answers, Scores
from vflbench.attacks.exploit import through_flips
from vflbench.attacks.residual_sum import CutRows
from vflbench.messages.facts import ClassShares
from vflbench.messages.threat import View
from vflbench.numerics.directions import leading_components
from vflbench.numerics.optim import Lbfgs
from vflbench.options import Rows, options

_Noise = Literal["additive", "along"]
"""`additive`: z = a + N(0, v), the same v for all rows. `along`: z ~ N(a, 1 - a^2), as max-norm alignment makes it."""

Hypothesis = tuple[_Noise, float, int]
"""Kind of the noise, rate of changed labels, and the side of the leading direction to which the logit rises."""

Residuals = tuple[Tensor, Tensor, float]
"""What the gradients of an epoch say: ids (n,), sorted, each once; z (n,), of root mean square 1; the largest variance of
additive noise in z."""

_FLIPS = (0.0, 0.12, 0.27, 0.38)  # randomized response with an eps of infinity, 2, 1 and 0.5
_NOISES: tuple[tuple[_Noise, float], ...] = (("along", 0.0), *(("additive", q) for q in _FLIPS))
_HYPOTHESES: tuple[Hypothesis, ...] = tuple((noise, q, side) for noise, q in _NOISES for side in (1, -1))
_GROUP = 256  # rows met one after the other, in whose root mean square residuals are measured
_FITTED = 512  # rows, spread evenly, to which each hypothesis is fitted
_LEAST_ROWS = 16
_CERTAIN = 1e-3  # least probability that is undone of changes


_NODES = (-math.sqrt(3 / 2), 0.0, math.sqrt(3 / 2))  # of a Gauss-Hermite rule for N(0, 1 / 2), three points
_WEIGHTS = (1 / 6, 2 / 3, 1 / 6)
_START = (-0.2, 0.1, -0.5, -1.2)  # of slope, scale, noise, spread
_PULL = (5e-3, 2e-3, 2e-3, 5e-3)  # back to the start, in nats a row and square: parameters that the rows leave open
_LEAST = {"additive": 1e-2, "along": 2e-2}  # of a variance, for residuals whose root mean square is 1
_NEWTON, _STRIDE = 8, 2.0  # steps of Newton's method, and the longest of them


@dataclass(frozen=True)
class NoisyResiduals:
    """z_i = k_i (p_i - y_i) with noise, p_i = sigmoid(b + e^slope t_i), k_i = e^(scale + e^spread x_i), x_i unknown.

    share: of positives that gradients show, the mean of p_i, from which b follows. noise: its kind. most: the largest
    variance of additive noise. parameters: (4,) float64: slope, scale, noise and spread; the variance is
    most sigmoid(noise).
    """

    share: float
    noise: _Noise
    most: float
    parameters: Tensor

    def log_odds(self, t: Tensor) -> Tensor:
        """b + e^slope t_i. t: (n,) float64, centred, in units of its root mean square."""
        rising = self.parameters[0].exp() * t
        return rising + _intercept(rising.detach(), self.share)

    def read(self, z: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log likelihood of z, a row; log odds by t; log-likelihood ratio of y = 1 and y = 0 by z. All (n,).

        z, t: (n,) float64, in units of their root mean squares, t centred.
        """
        _, scale, noise, spread = self.parameters.unbind()
        logits = self.log_odds(t)
        p = torch.sigmoid(logits)
        k = (scale + spread.exp() * z.new_tensor(_NODES)).exp()[:, None]
        weights = z.new_tensor(_WEIGHTS).log()[:, None]

        def density(a: Tensor) -> Tensor:
            """a: (nodes, n), the residual without noise."""
            v = 1 - a.square() if self.noise == "along" else self.most * torch.sigmoid(noise)
            v = torch.clamp_min(v, _LEAST[self.noise])
            return (weights - 0.5 * (z - a).square() / v - 0.5 * (2 * math.pi * v).log()).logsumexp(dim=0)

        of_1, of_0 = density((p - 1) * k), density(p * k)
        both = torch.logaddexp(F.logsigmoid(logits) + of_1, F.logsigmoid(-logits) + of_0)
        return both, logits, of_1 - of_0


def fit_noisy_residuals(
    z: Tensor, t: Tensor, share: float, noise: _Noise, most: float, iterations: int = 12
) -> NoisyResiduals:
    """The likeliest parameters near a typical start, by L-BFGS; the start itself where that fails.

    z, t: (n,) float64, as in `NoisyResiduals.read`. share: in (0, 1).
    """
    start = z.new_tensor(_START)
    moving = start.clone().requires_grad_()
    model = NoisyResiduals(share, noise, most, moving)
    solver = Lbfgs([moving], max_iter=iterations, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        solver.zero_grad()
        value = (z.new_tensor(_PULL) * (moving - start).square()).sum() - model.read(z, t)[0].mean()
        value.backward()
        return value

    with torch.enable_grad():
        solver.step(loss)
    fitted = NoisyResiduals(share, noise, most, moving.detach())
    is_sound = bool(torch.cat(fitted.read(z, t)).isfinite().all())
    return fitted if is_sound else NoisyResiduals(share, noise, most, start)


def _intercept(rising: Tensor, share: float) -> Tensor:
    """b with mean sigmoid(b + rising_i) = share. rising: (n,)."""
    b = rising.new_tensor(math.log(share / (1 - share)))
    for _ in range(_NEWTON):
        p = torch.sigmoid(rising + b)
        b = b - ((p.mean() - share) / (p * (1 - p)).mean().clamp_min(1e-9)).clamp(-_STRIDE, _STRIDE)
    return b


@options
class Posterior(CutRows):
    """Score each row by the log odds of its label, given its embedding and all gradients about it, at the cut layer.

        s_i = log p_i / (1 - p_i) + sum_e log N(z_ie | y = 1) / N(z_ie | y = 0)
        z_i = <g_i, u> = k_i (p_i - y_i) and noise,   p_i = sigmoid(b + a <h_i - mean, u>)

    u: the leading direction of the gradients of an epoch, towards which the logit rises. a, the k_i's mean and spread, and
    the noise are the most likely ones for the rows of the epoch (`NoisyResiduals`); b follows from the share of
    positives. The side of u and the kind of noise are chosen by the likelihood too, added up over the epochs:

        additive    z ~ N(k (p - y), v), v at most the power in the second direction: what is isotropic is seen there too
        along       z ~ N(k (p - y), 1 - k^2 (p - y)^2), as max_norm makes it, which turns the sign of the third moment round
        flipped     additive, of labels of which a share q in {0.12, 0.27, 0.38} was changed, as label_dp does; p is then
                    undone of it, and the ratio, of all epochs, goes through the same change

    It is the adaptive attack on max_norm and gaussian; on label_dp, `residual` reads as much. `residual` adds the same two
    terms of one epoch with equal weights, and with the sign that additive noise has. Marvell's noise is of none of these
    kinds: use `remainder`.

    rows: number of rows that it follows through the run. Memory: rows x d numbers of 4 bytes in an epoch. With a prior of
    1/2 the side is a guess. A cut without gradients is left out.

    Source: ours.
    """

    rows: Rows = 4096

    def __post_init__(self) -> None:
        super().__post_init__()
        self._passed: list[Residuals] = []  # of epochs since the last answer
        self._evidence = torch.zeros(len(_HYPOTHESES), dtype=torch.float64)  # log likelihood, in nats

    def keep(self, view: View, g: Tensor) -> list[Tensor]:
        """Ids (b,), gradients (b, d)."""
        return [view.ids.cpu(), g.float()]

    def epoch(self, view: View) -> Answers:
        self.end_epoch()
        passed, prior = self._passed[::-1], view[ClassShares].positive
        self._passed = []
        if not passed or len(passed[0][0]) < _LEAST_ROWS or not 0 < prior < 1:
            return None
        embedded = self.embedded(view, torch.cat([ids for ids, _, _ in passed] + [self._ids]))
        if embedded is None or not bool(passed[0][1].any()):
            return None
        asked, order = embedded[0].sort()
        t = embedded[1][order]
        self.add(asked, {"ratios": t.new_zeros(len(asked), len(_HYPOTHESES))})  # added up over the epochs
        models = [self._learn(which, passed[0], asked, t, prior) for which in range(len(_HYPOTHESES))]
        chosen = int(self._evidence.argmax())
        for residuals in passed[1:]:
            for which in (chosen, chosen ^ 1):  # the other side
                self._learn(which, residuals, asked, t, prior)
        chosen = max(chosen, chosen ^ 1, key=lambda which: float(self._evidence[which]))
        _, q, side = _HYPOTHESES[chosen]
        p = ((torch.sigmoid(models[chosen].log_odds(side * t)) - q) / (1 - 2 * q)).clamp(_CERTAIN, 1 - _CERTAIN)
        odds = p.logit() if q else models[chosen].log_odds(side * t)
        scores = odds + through_flips(self._tables["ratios"][self.places(asked), chosen], q)
        return Scores(asked.to(view.ids.device), {self._layer: scores})

    def join(self, met: list[list[Tensor]]) -> None:
        ids, order = torch.cat([ids for ids, _ in met]).sort(stable=True)
        parts = torch.cat([g for _, g in met]).double().split(_GROUP)
        g = torch.cat([part / part.square().sum(dim=1).mean().sqrt().clamp_min(1e-300) for part in parts])
        spreads, vectors = leading_components(g, 2)
        u = self.turned(vectors[:, 0])
        most = float((spreads[1] / spreads[0].clamp_min(1e-300)).square()) if g.shape[1] > 1 else 1.0
        z = g @ u
        z = z / z.square().mean().sqrt().clamp_min(1e-300)
        first = torch.cat([torch.ones(1, dtype=torch.bool), ids[1:] != ids[:-1]])
        self._passed.append((ids[first], z[order][first], most))

    def _learn(self, which: int, residuals: Residuals, ids: Tensor, t: Tensor, prior: float) -> NoisyResiduals:
        """Fit a hypothesis to the rows with these sorted ids, and add its evidence and what it reads of them.

        t: (n,), what their embeddings say.
        """
        noise, q, side = _HYPOTHESES[which]
        met, of_met, most = residuals
        is_met = torch.isin(ids, met)
        z = side * of_met[torch.searchsorted(met, ids[is_met])]
        t = side * t[is_met]
        sample = torch.linspace(0, len(z) - 1, min(len(z), _FITTED)).long()
        share = prior + q * (1 - 2 * prior)
        model = fit_noisy_residuals(z[sample], t[sample], share, noise, most)
        likelihood, _, ratio = model.read(z, t)
        self._evidence[which] += likelihood.sum()
        self._tables["ratios"][self.places(ids[is_met]), which] += ratio
        return model
