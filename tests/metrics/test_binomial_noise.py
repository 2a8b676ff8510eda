import math

import numpy as np
import pytest
from scipy import stats

from vflbench.metrics.embedding_privacy import hockey_stick, theorem_condition, theorem_epsilon


def test_the_theorem_as_written_out_by_hand():
    """d = 16, N = 40000, p = 1/2: V = 10000, b = 1/3, c = 7 sqrt(2) / 4, d' = 2/3."""
    delta, v = 1e-6, 10_000
    first = 4 * math.sqrt(2 * math.log(1.25e6)) / 100
    second = (4 * math.sqrt(2) * 1.75 * math.sqrt(math.log(1e7)) + 16 / 3) / (v * (1 - 1e-7))
    third = (2 / 3 * math.log(1.25e6) + 2 / 3 * math.log(3.2e8) * math.log(1e7)) / v
    assert theorem_epsilon(16, 40_000, 0.5, delta, 16, 4, 1) == pytest.approx(first + second + third, rel=1e-12)


def test_without_its_condition_the_theorem_gives_nothing():
    least = 23 * math.log(10 * 16 / 1e-6)
    assert theorem_condition(16, 512, 0.5, 1e-6, 15) == (128, pytest.approx(least))
    assert theorem_epsilon(16, 512, 0.5, 1e-6, 240, 60, 15) is None
    enough = math.ceil(4 * least)
    assert theorem_epsilon(16, enough - 1, 0.5, 1e-6, 16, 4, 1) is None
    assert theorem_epsilon(16, enough, 0.5, 1e-6, 16, 4, 1) is not None
    assert theorem_condition(1, 512, 0.5, 0.01, 10_000)[1] == 20_000


def test_heads_and_tails_are_the_same_noise():
    """Bin(N, p) mirrored is Bin(N, 1 - p), but the formula as printed gives p > 1/2 a smaller eps."""
    assert theorem_epsilon(4, 9000, 0.9, 1e-5, 4, 2, 1) == pytest.approx(theorem_epsilon(4, 9000, 0.1, 1e-5, 4, 2, 1))


def test_the_divergence_is_that_of_the_best_set_of_outcomes():
    for n, p, shift in ((20, 0.5, 1), (20, 0.3, 3), (7, 0.8, 7)):
        outcomes = np.arange(n + shift + 1)
        one, other = stats.binom.pmf(outcomes, n, p), stats.binom.pmf(outcomes - shift, n, p)
        for epsilon in (-1.0, 0.0, 0.3, 2.0):
            brute = max(np.clip(a - math.exp(epsilon) * b, 0, None).sum() for a, b in ((one, other), (other, one)))
            divergence = hockey_stick(n, p, shift, np.array([epsilon]))[0]
            assert divergence == pytest.approx(brute, abs=1e-14), f"n={n} p={p} shift={shift} eps={epsilon}"
