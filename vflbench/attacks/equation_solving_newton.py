"""Columns whose logits are those that were observed, where the joint model is not affine."""

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from vflbench.attacks.equation_solving_prior import Guess

_HALVINGS = (1.0, 0.5, 0.25, 0.0625)
_LEAST = 1e-9  # damping, in units of the mean squared slope
_FAR = 1e-9  # by which a start with a misfit as small is chosen for being nearer to the guess


def newton(
    f: Callable[[Tensor, Tensor], Tensor],
    observed: Tensor,
    is_known: Tensor,
    guess: Guess,
    rng: torch.Generator,
    *,
    starts: int,
    steps: int,
    noise: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Gauss-Newton steps within the box: of two, and of parts of them, the one with the least |f(x) - observed|.

        x' = clip(g + S J^T (J S J^T + noise^2 I)^-1 (r + J (x - g)), 0, 1),   r = observed - f(x),  J = df/dx
        x' = clip(x + S J_F^T (J_F S J_F^T + m I)^-1 r, 0, 1)

    The first is the point nearest to the guess g, in the metric of its covariance S, at which the linearised f fits. The
    second stays near x, the more so the larger the damping m, and moves no column that is at a bound and would leave the
    box. m grows by 10 where neither step helps, and shrinks where one does. This finds a point that fits, not the truth,
    and may end in a local minimum; of all starts, each row keeps the one that fits best.

    f: (x (m, k), rows (m,)) -> (m, r), differentiable in x. observed: (n, r); is_known: (n, r) bool, others don't count.
    starts: the guess, and random points. Returns x (n, k) and |f(x) - observed|^2 (n,).
    """
    n, k = guess.mean.shape
    rows = torch.arange(n, device=observed.device).repeat(starts)
    random = torch.rand(n * (starts - 1), k, generator=rng, device=observed.device, dtype=torch.float64)
    x = torch.cat([guess.mean.clamp(0, 1), random])
    centre, weight, y = guess.mean[rows], is_known[rows].double(), observed[rows].nan_to_num()
    scale = guess.spread**2

    def misfit(x: Tensor) -> Tensor:
        return ((f(x, rows).detach() - y) * weight).square().sum(dim=1)

    value, damping = misfit(x), torch.full((len(x), 1, 1), 1e-3, dtype=torch.float64, device=x.device)
    eye = torch.eye(observed.shape[1], dtype=torch.float64, device=x.device)

    def move(jacobian: Tensor, right: Tensor, ridge: Tensor) -> Tensor:
        spread = guess.times(jacobian) * scale  # (m, k, r)
        gram = jacobian @ spread
        size = gram.diagonal(dim1=1, dim2=2).mean(dim=1)[:, None, None] + 1e-12
        return (spread @ torch.linalg.solve(gram + (ridge * size + noise**2) * eye, right[:, :, None]))[:, :, 0]

    for _ in range(steps):
        jacobian, out = _jacobian(f, x, rows)
        jacobian, residual = jacobian * weight[:, :, None], (y - out) * weight
        linear = residual + (jacobian @ (x - centre)[:, :, None])[:, :, 0]
        downhill = (residual[:, None, :] @ jacobian)[:, 0]
        is_free = ~(((x <= 0) & (downhill < 0)) | ((x >= 1) & (downhill > 0)))
        goals = [centre + move(jacobian, linear, _LEAST * torch.ones_like(damping))]
        goals.append(x + move(jacobian * is_free[:, None], residual, damping))
        is_better = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        best, best_value = x, value
        for goal, share in product(goals, _HALVINGS):
            tried = x + share * (goal.clamp(0, 1) - x)
            reached = misfit(tried)
            lower = reached < best_value
            best, best_value = torch.where(lower[:, None], tried, best), torch.where(lower, reached, best_value)
            is_better |= lower
        x, value = best, best_value
        damping = torch.where(is_better[:, None, None], damping / 10, damping * 10).clamp(_LEAST, 1e6)
    far = (x - centre).square().sum(dim=1)
    order = (value + _FAR * far).view(starts, n).argmin(dim=0) * n + torch.arange(n, device=x.device)
    return x[order], value[order]


def _jacobian(f: Callable[[Tensor, Tensor], Tensor], x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """(m, r, k) and f(x) (m, r)."""
    with torch.enable_grad():
        z = x.detach().requires_grad_()
        out = f(z, rows)
        parts = [torch.autograd.grad(out[:, j].sum(), z, retain_graph=True)[0] for j in range(out.shape[1])]
    return torch.stack(parts, dim=1), out.detach()
