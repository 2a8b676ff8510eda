"""Many small problems minimised side by side, each row on its own, within a box."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

_EVERY = 10  # steps between looks at what a row has gained
_GAIN = 0.02  # of its objective, less than which makes the row's step smaller
_SMALLEST = 2.0**-6  # of the first step size; a row with a smaller step is done
_BETA1, _BETA2, _EPS = 0.9, 0.99, 1e-12

Objective = Callable[[Tensor, Tensor], Tensor]
"""(x (m, d), rows (m,)) -> (m,): the values at x of the problems with these numbers, differentiable in x."""


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

    s_i is halved for each row i that gained less than 2 % in ten steps. A row is done when its value is at most `enough`, or
    its step is below size / 64; later steps cost what the rows that are left cost.

    start: (n, d). low, high: (d,). size: the first s. Returns the best x (n, d) met and its values (n,).
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
            gained = best_value[rows] < (1 - _GAIN) * before[rows]
            sizes = torch.where(gained[:, None], sizes, sizes / 2)
            before[rows] = best_value[rows]
            left = (best_value[rows] > enough) & (sizes[:, 0] > size * _SMALLEST)
            if not left.all():
                rows, x, g, m, v, sizes = (values[left] for values in (rows, x, g, m, v, sizes))
            if not len(rows):
                break
        if method == "momentum":
            g = g / g.square().mean(dim=1, keepdim=True).sqrt().clamp_min(_EPS)
        m = _BETA1 * m + (1 - _BETA1) * g
        v = _BETA2 * v + (1 - _BETA2) * g.square()
        along = m / (1 - _BETA1**step) / ((v / (1 - _BETA2**step)).sqrt() + _EPS) if method == "adam" else m / (1 - _BETA1)
        x = torch.minimum(torch.maximum(x - sizes * along, low), high)
    return best, best_value
