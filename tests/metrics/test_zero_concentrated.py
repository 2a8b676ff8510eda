import math

import pytest

from vflbench.metrics.analytic_gaussian import gaussian_epsilon
from vflbench.metrics.zero_concentrated import concentrated_epsilon, concentrated_sigma


@pytest.mark.parametrize("ratio", [0.3, 1.0, 4.5, 400.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.1])
def test_no_less_is_claimed_than_gaussian_noise_of_real_numbers_needs(ratio, delta):
    """Which is the limit of fine grids, whose exact eps is known."""
    exact, claimed = gaussian_epsilon(1 / ratio, delta), concentrated_epsilon(1 / (2 * ratio**2), delta)
    classical = 1 / (2 * ratio**2) + math.sqrt(2 * math.log(1 / delta)) / ratio
    assert exact - 1e-12 <= claimed <= classical


@pytest.mark.parametrize("eps", [1e-6, 0.1, 1.0, 30.0, 1e6])
def test_the_deviation_is_the_least_that_suffices(eps):
    sigma = concentrated_sigma(eps, 1e-6)
    assert concentrated_epsilon(1 / (2 * sigma**2), 1e-6) <= eps
    assert concentrated_epsilon(1 / (2 * (0.99 * sigma) ** 2), 1e-6) > eps


def test_discrete_noise_of_a_coarse_grid_keeps_the_promise():
    """The exact delta of one number with noise of scale 1 and 2, at the claimed eps, summed over all outcomes."""
    for scale, distance in ((1, 1), (2, 3), (1, 4)):
        weights = {x: math.exp(-x * x / (2 * scale**2)) for x in range(-60, 61)}
        total = sum(weights.values())
        for delta in (1e-6, 1e-2):
            eps = concentrated_epsilon((distance / scale) ** 2 / 2, delta)
            left = [weights[x] - math.exp(eps) * weights.get(x - distance, 0.0) for x in weights]
            assert sum(max(0.0, one) for one in left) / total <= delta
