"""The point of a box that fulfils linear conditions and is nearest to a given one, for many points at once."""

import torch
from torch import Tensor

_STEPS = 2000
_CLOSE = 1e-10


def singular_rows(c: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
    """U (r, m), s (m,), V (m, u) of the singular value decomposition c = U diag(s) V, without values below tolerance s_max.

    c: (r, u) float64. m is the rank.
    """
    u, s, v = torch.linalg.svd(c, full_matrices=False)
    rank = int((s > tolerance * s[:1]).sum()) if len(s) and s[0] > 0 else 0
    return u[:, :rank], s[:rank], v[:rank]


def nearest_in_box(start: Tensor, c: Tensor, low: Tensor, high: Tensor, steps: int = _STEPS) -> Tensor:
    """argmin |x - start_i|^2 over x in [0, 1]^u with low_i <= c x <= high_i, for each row i.

    Solved in the dual, x = clip(start - c^T l, 0, 1), by accelerated proximal gradient steps with restarts. If the
    conditions contradict each other by a little, as with rounded numbers, the answer is off by about as much; the box
    always holds. No point that fulfils the conditions is nearer to start than to the answer: a projection onto a convex
    set.

    start: (n, u) float64. c: (r, u). low, high: (n, r), infinite where there is no bound.
    """
    x = start.clamp(0, 1)
    scale = torch.linalg.matrix_norm(c, 2).square() if c.numel() else c.new_zeros(())
    if not scale > 0:
        return x
    step = 1 / scale
    dual = torch.zeros_like(low)
    ahead, momentum = dual, torch.ones(len(start), 1, dtype=start.dtype, device=start.device)
    for _ in range(steps):
        point = ahead + step * ((start - ahead @ c).clamp(0, 1) @ c.T)
        new = point - step * torch.minimum(torch.maximum(point / step, low), high)
        is_turning = ((ahead - new) * (new - dual)).sum(dim=1, keepdim=True) > 0
        momentum = torch.where(is_turning, 1.0, momentum)
        following = (1 + (1 + 4 * momentum.square()).sqrt()) / 2
        ahead = new + torch.where(is_turning, 0.0, (momentum - 1) / following) * (new - dual)
        moved = float((new - dual).abs().amax()) if dual.numel() else 0.0
        dual, momentum = new, following
        if moved * float(scale) ** 0.5 < _CLOSE:
            break
    return (start - dual @ c).clamp(0, 1)
