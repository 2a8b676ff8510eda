"""The density of residuals p - y under noise, beside what an embedding says of p, and which noise makes them likeliest."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from vflbench.numerics.optim import Lbfgs

Noise = Literal["additive", "along"]
"""`additive`: z = a + N(0, v), the same v for all rows. `along`: z ~ N(a, 1 - a^2), as max-norm alignment makes it."""

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
    noise: Noise
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
    z: Tensor, t: Tensor, share: float, noise: Noise, most: float, iterations: int = 12
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
