"""Columns whose logits are those that were observed, where the joint model is not affine."""

from collections.abc import Callable

import torch
from torch import Tensor

from vflbench.attacks.equation_solving_prior import Guess

_HALVINGS = (1.0, 0.5, 0.25, 0.0625)
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
    """Gauss-Newton steps to a point of the box with f(x) = observed, each to the nearest point to the guess g:

        x' = clip(g + S J^T (J S J^T + m I)^-1 (observed - f(x) + J (x - g)), 0, 1),   J = df/dx,  S: covariance of the guess

    with m = noise^2 + a damping of each row, which grows by 10 where no part of the step lowers |f(x) - observed| and shrinks
    where it does. It finds a point that fits, not the truth, and may end in a local minimum; of all starts, each row keeps
    the one that fits best.

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
    for _ in range(steps):
        jacobian, out = _jacobian(f, x, rows)
        jacobian, residual = jacobian * weight[:, :, None], (y - out) * weight
        spread = guess.times(jacobian) * scale  # (m, k, r)
        gram = jacobian @ spread
        size = gram.diagonal(dim1=1, dim2=2).mean(dim=1)[:, None, None] + 1e-12
        eye = torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device)
        right = residual[:, :, None] + jacobian @ (x - centre)[:, :, None]
        move = (spread @ torch.linalg.solve(gram + (damping * size + noise**2) * eye, right))[:, :, 0]
        goal = (centre + move).clamp(0, 1)
        is_better = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        best, best_value = x, value
        for share in _HALVINGS:
            tried = x + share * (goal - x)
            reached = misfit(tried)
            lower = reached < best_value
            best, best_value = torch.where(lower[:, None], tried, best), torch.where(lower, reached, best_value)
            is_better |= lower
        x, value = best, best_value
        damping = torch.where(is_better[:, None, None], damping / 10, damping * 10).clamp(1e-12, 1e6)
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
