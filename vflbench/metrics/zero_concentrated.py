"""Zero-concentrated differential privacy: what discrete Gaussian noise guarantees, and its composition.

N(0, s^2) on whole numbers, on each coordinate of vectors at most D apart in the L2 norm, is rho-zCDP with
rho = D^2 / (2 s^2), exactly as on the real numbers: of all orders a, the Renyi divergence is at most a rho. rho adds up
over messages, and

    eps(delta) = min_(a > 1)  a rho + (log(1 / delta) + (a - 1) log(1 - 1 / a) - log a) / (a - 1)

Every a gives a bound that holds, so the search for the least needn't be exact.

Source: Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020 (arXiv 2004.00010),
which has both; Bun and Steinke, "Concentrated differential privacy", TCC 2016.
"""

import math

_LEFT = 1 - 1e-9  # of delta, for what the sampler leaves out, which is less by orders of magnitude


def concentrated_epsilon(rho: float, delta: float) -> float:
    """The least eps >= 0 of the formula at this delta. rho > 0."""
    delta *= _LEFT

    def bound(log_order: float) -> float:
        over = math.exp(log_order)  # a - 1
        order = 1 + over
        return order * rho + (-math.log(delta) + over * -math.log1p(1 / over) - math.log(order)) / over

    low, high = -20.0, 45.0
    for _ in range(100):
        third = (high - low) / 3
        left, right = bound(low + third), bound(high - third)
        low, high = (low, high - third) if left <= right else (low + third, high)
    return max(0.0, bound((low + high) / 2)) * (1 + 1e-12)


def concentrated_sigma(epsilon: float, delta: float) -> float:
    """The least standard deviation, in units of the distance, with (eps, delta), rounded up."""
    low, high = 0.0, 1.0
    while concentrated_epsilon(1 / (2 * high * high), delta) > epsilon:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        is_enough = middle > 1e-9 and concentrated_epsilon(1 / (2 * middle * middle), delta) <= epsilon
        low, high = (low, middle) if is_enough else (middle, high)
    return high
