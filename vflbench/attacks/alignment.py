"""Alignment attack: noise along a gradient leaves its odd moments, and these tell the classes apart."""

from collections.abc import Mapping

from torch import Tensor

from vflbench.attacks.mixture import LeadingProjections, TwoNormals
from vflbench.options import options


@options
class Alignment(LeadingProjections):
    """Score each row by the log odds of its class in a mixture of two normal distributions. The third moment says which of
    the two is positive.

        s_i = log p N(z_i; m1, v1) - log (1 - p) N(z_i; m0, v0),   z_i = <g_i, v>, v: the leading direction of its batch

    It is the adaptive attack on max_norm, and differs from `mixture` in how it finds the end of z at which positives are.
    Max-norm alignment changes a gradient of length a (in units of the longest) to z ~ N(a, 1 - a^2) along its own direction.
    The second moment of z is 1 for every a, and the third moment is 3 a - 2 a^3. Hence

        sum_i (3 z_i - z_i^3) / 2 = sum_i +-a_i^3   on average, with z in units of its root mean square.

    Residuals y - p add up to 0. So the rarer class has the longer gradients, and its sign wins. Sums are added up over all
    epochs so far. If gradients are nearly parallel, z has the same moments as the length with the sign of z. For p = 1/2 the
    end is a guess. With additive noise or without noise, the third moment has the other sign: use `mixture` then.

    Source: ours.
    """

    def evidence(self, z: Tensor, prior: float, ends: Mapping[bool, TwoNormals]) -> float:
        """The sum of signed a^3, as it is where positives are the rarer class."""
        return sum_of_signed_cubes(z) * (1 if prior <= 0.5 else -1)


def sum_of_signed_cubes(z: Tensor) -> float:
    """sum_i (3 z_i - z_i^3) / 2 of z (n,) float64 in units of its root mean square; 0 where all are zero."""
    unit = z / z.square().mean().sqrt().clamp_min(1e-300)
    return float((3 * unit - unit**3).sum() / 2)
