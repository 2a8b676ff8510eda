"""The direction of a layer in which the logit rises, as the gradients of that layer show it."""

import torch
from torch import Tensor

from vflbench.numerics.eigen import top_eigenvectors


def gradient_moments(g: Tensor) -> tuple[Tensor, Tensor]:
    """Moments of a batch of gradients; those of several batches are added.

        M = sum_i g_i g_i^T,   t = v sum_i <g_i - mean, v>^3,   v the top eigenvector of M

    The sign of v doesn't matter to t. g: (n, d). Returns M (d, d) and t (d,), float64.
    """
    g = g.double()
    second = g.T @ g
    v = top_eigenvectors(second[None])[0]
    along = g @ v
    return second, (along - along.mean()).pow(3).sum() * v


def logit_direction(second: Tensor, third: Tensor, prior: float) -> Tensor:
    """The unit vector along which a model's logit rises.

    With logits z_i and cross-entropy,

        g_i = (p_i - y_i) dz_i/dh_i

    so where dz/dh has much the same direction for all rows, it is the top eigenvector of M, up to its sign. Along it, the
    coefficients p_i - y_i of the rarer class are the larger ones. They are negative for positives, so for a prior below 1/2
    the skewness of the coefficients is negative in the direction in which the logit rises. Isotropic noise keeps both.

    second: M (d, d), third: t (d,), of all batches together. prior: the share of positives. Returns (d,) float64, zeros
    where all gradients were zero.
    """
    v = top_eigenvectors(second[None])[0]
    return v if (float(third @ v) <= 0) == (prior <= 0.5) else -v


def without_loudness(direction: Tensor, spreads: Tensor, vectors: Tensor) -> Tensor:
    """The direction, with less of its part along the first component of the rows.

        u - (1 - max(spread_2 / spread_1, |<u, v_1>|)) <u, v_1> v_1

    A defense that hides the label behind a loud direction, such as dcor, makes the first component vary up to 30 times more
    than the others. A small error of u along it then drowns the rest. The part is scaled down as if v_1 varied no more
    than v_2, but for the share of it that u has: where u is v_1, nothing changes.

    direction: u (d,), of length 1. spreads (2,), vectors (d, 2): the first two components of the rows, as
    `eigen.leading_components` returns them.
    """
    if not float(spreads[0]) > 0:
        return direction
    along = direction @ vectors[:, 0]
    kept = torch.maximum(spreads[1] / spreads[0], along.abs())
    return direction - (1 - kept) * along * vectors[:, 0]
