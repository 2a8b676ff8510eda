import math

import pytest
from scipy.optimize import brentq

from vflbench.data.synthetic import _root as root

FUNCTIONS = {
    "a line": (lambda x: 3 * x - 1, -2, 5),
    "a steep sigmoid": (lambda x: 1 / (1 + math.exp(-50 * (x - 0.123))) - 0.25, -10, 10),
    "nearly flat": (lambda x: (x - 1 / 3) ** 3, -1, 4),
    "a jump": (lambda x: -1.0 if x < math.pi else 2.0, 0, 10),
    "flat on both sides": (lambda x: math.tanh(1e6 * (x - 0.7)), -1, 1),
    "too flat": (lambda x: (x - 1 / 3) ** 9, -1, 4),
    "an end": (lambda x: x, 0, 1),
    "the other end": (lambda x: x - 1, 0, 1),
    "exponential": (lambda t: 3 * sum(math.exp(t * i / 25) for i in range(26)) - 20_000, 0.0, 40.0),
    "cosine": (lambda x: math.cos(x) - x, 0, 1),
    "tiny values": (lambda x: 1e-300 * (x**3 - 2), 0, 3),
    "an interval the other way round": (lambda x: x**3 - 2, 3, -1),
}


@pytest.mark.parametrize(("function", "low", "high"), FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("xtol", [2e-12, 1e-9, 1e-3])
def test_it_is_scipys_root_bit_for_bit(function, low, high, xtol):
    assert outcome(root, function, low, high, xtol) == outcome(brentq, function, low, high, xtol)


def outcome(solve, function, low, high, xtol):
    """The root; None where a hundred steps don't meet it."""
    try:
        return solve(function, low, high, xtol=xtol)
    except RuntimeError:
        return None


def test_it_asks_at_the_same_places_as_scipy():
    ours, theirs = [], []
    for places, solve in ((ours, root), (theirs, brentq)):
        for power in (1, 3, 5, 11):
            for target in (0.001, 0.3, 5.0):
                solve(lambda x, power=power, target=target, places=places: places.append(x) or x**power - target, -3, 7)
    assert ours == theirs


def test_equal_signs_are_refused():
    with pytest.raises(ValueError, match="the same sign"):
        root(lambda x: x * x + 1, -1, 1)
