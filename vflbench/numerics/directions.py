"""Rows as vectors, and directions in which they vary: first components, and the one along which a model's logit rises."""

import torch
from torch import Tensor

_NOTHING = 1e-12  # of the largest eigenvalue: what is below is rounding


def eigenvectors(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (d,) in falling order, and unit eigenvectors in the columns of (d, d), each of arbitrary sign.

    matrix: (d, d) float64, symmetric, in any units. Rows of zeros come last: their eigenvectors are zero.
    """
    alive = (matrix != 0).any(dim=0).nonzero()[:, 0]
    inner = matrix[alive][:, alive]
    try:
        solved = torch.linalg.eigh(inner)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # on some ordinary matrices; the slower iteration ends
        import scipy.linalg  # late: hardly ever needed, and takes a tenth of a second

        solved = [torch.from_numpy(part).to(inner) for part in scipy.linalg.eigh(inner.cpu().numpy(), driver="ev")]
    values, vectors = matrix.new_zeros(len(matrix)), torch.zeros_like(matrix)
    values[: len(alive)], vectors[alive, : len(alive)] = solved[0].flip(0), solved[1].flip(1)
    return values, vectors


def top_eigenvector(matrix: Tensor) -> Tensor:
    """(d,) of the largest eigenvalue of a positive semidefinite matrix (d, d); zeros for a matrix of zeros."""
    return eigenvectors(matrix)[1][:, 0]


def leading_components(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The first right singular vectors of rows that are centred, and the spread of the rows along each of them.

        x = U diag(s) V^T,   spread_j = s_j / sqrt(n)

    x: (n, d), centred, in any units. Returns spreads (count,) in falling order, in units of x, and vectors (d, count), in
    float64 and of arbitrary sign; both are zero beyond the directions in which the rows vary by more than rounding. By way
    of X^T X in float64.
    """
    largest = x.abs().amax().double().clamp_min(torch.finfo(x.dtype).tiny)
    scaled = x.double() / largest
    values, vectors = (part[..., :count] for part in eigenvectors(scaled.T @ scaled / max(len(x), 1)))
    varies = values > _NOTHING * values[:1]
    values, vectors = torch.where(varies, values, 0), torch.where(varies, vectors, 0)
    pad = torch.nn.functional.pad
    return pad(values.sqrt() * largest, (0, count - len(values))), pad(vectors, (0, count - len(values)))


def gradient_moments(g: Tensor) -> tuple[Tensor, Tensor]:
    """Moments of a batch of gradients; those of several batches are added.

        M = sum_i g_i g_i^T,   t = v sum_i <g_i - mean, v>^3,   v the top eigenvector of M

    The sign of v doesn't matter to t. g: (n, d). Returns M (d, d) and t (d,), float64.
    """
    g = g.double()
    second = g.T @ g
    v = top_eigenvector(second)
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
    v = top_eigenvector(second)
    return v if (float(third @ v) <= 0) == (prior <= 0.5) else -v


def without_loudness(direction: Tensor, spreads: Tensor, vectors: Tensor) -> Tensor:
    """The direction, with less of its part along the first component of the rows.

        u - (1 - max(spread_2 / spread_1, |<u, v_1>|)) <u, v_1> v_1

    A defense that hides the label behind a loud direction, such as dcor, makes the first component vary many times more than
    the others. A small error of u along it then drowns the rest. The part is scaled down as if v_1 varied no more than v_2,
    but for the share of it that u has: where u is v_1, nothing changes.

    direction: u (d,), of length 1. spreads (2,), vectors (d, 2): the first two components of the rows, as
    `leading_components` returns them.
    """
    if not float(spreads[0]) > 0:
        return direction
    along = direction @ vectors[:, 0]
    kept = torch.maximum(spreads[1] / spreads[0], along.abs())
    return direction - (1 - kept) * along * vectors[:, 0]


_BUCKETS = 8  # coordinates of a categorical column; ids that are equal modulo this share one


def column_vectors(numeric: Tensor, categorical: Tensor) -> Tensor:
    """(n, k + 8 c) numeric columns, and 8 coordinates for each categorical one, of which that of the id modulo 8 is 1.

    Rows with equal categories have the larger inner product, as with one-hot vectors. numeric: (n, k). categorical: (n, c)
    ids from 0.
    """
    n, c = categorical.shape
    one_hot = numeric.new_zeros(n, c * _BUCKETS)
    places = categorical.long() % _BUCKETS + torch.arange(c, device=one_hot.device) * _BUCKETS
    return torch.cat([numeric, one_hot.scatter_(1, places, 1.0)], dim=1)
