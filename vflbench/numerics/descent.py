"""Projected gradient descent on many small, independent problems at once."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

_EVERY = 10  # steps between two checks of the progress of each row
_GAIN = 0.02  # a row whose objective fell by a smaller share since the last check gets a smaller step
_SMALLEST = 2.0**-6  # a row is finished when its step is this share of the first step, or smaller
_BETA1, _BETA2, _EPS = 0.9, 0.99, 1e-12

Objective = Callable[["Tensor", "Tensor"], "Tensor"]
"""(x (m, d), rows (m,)) -> (m,): the values at x of the problems with these indices, differentiable in x."""


def descend(
    objective: Objective,
    start: Tensor,
    low: Tensor,
    high: Tensor,
    *,
    steps: int,
    size: float,
    method: Literal["adam", "momentum"] = "adam",
    enough: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Projected gradient descent: x <- clip(x - s_i u, low, high).

        adam:      u = m / (sqrt(v) + eps),  m and v the running means of g and g^2
        momentum:  u = m / (1 - beta1),      m the running mean of g / rms(g)

    s_i is halved if the objective of row i fell by less than 2 % in ten steps. A row is finished when its value is at most
    `enough` or its step is at most size / 64. Finished rows are no longer evaluated.

    start: (n, d). low, high: (d,). size: the first step s. Returns the best x visited, (n, d), and its values (n,).
    """
    best, best_value = start.clamp(low, high), torch.full((len(start),), torch.inf, device=start.device)
    rows = torch.arange(len(start), device=start.device)
    x, m, v = best.clone(), torch.zeros_like(best), torch.zeros_like(best)
    sizes, before = torch.full_like(best[:, :1], size), best_value.clone()
    for step in range(1, steps + 1):
        z = x.requires_grad_()
        values = objective(z, rows)
        (g,) = torch.autograd.grad(values.sum(), z)
        x, values = x.detach(), values.detach()
        is_better = values < best_value[rows]
        best[rows[is_better]], best_value[rows[is_better]] = x[is_better], values[is_better]
        if step % _EVERY == 0:
            improved = best_value[rows] < (1 - _GAIN) * before[rows]
            sizes = torch.where(improved[:, None], sizes, sizes / 2)
            before[rows] = best_value[rows]
            active = (best_value[rows] > enough) & (sizes[:, 0] > size * _SMALLEST)
            if not active.all():
                rows, x, g, m, v, sizes = (values[active] for values in (rows, x, g, m, v, sizes))
            if not len(rows):
                break
        if method == "momentum":
            g = g / g.square().mean(dim=1, keepdim=True).sqrt().clamp_min(_EPS)
        m = _BETA1 * m + (1 - _BETA1) * g
        v = _BETA2 * v + (1 - _BETA2) * g.square()
        along = m / (1 - _BETA1**step) / ((v / (1 - _BETA2**step)).sqrt() + _EPS) if method == "adam" else m / (1 - _BETA1)
        x = torch.minimum(torch.maximum(x - sizes * along, low), high)
    return best, best_value
