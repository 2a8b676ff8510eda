"""The root of a function of one number, without scipy.optimize, which takes 0.2 s to import for it."""

import math
from collections.abc import Callable

_RELATIVE = 4 * 2.0**-52
_MOST_STEPS = 100


def root(function: Callable[[float], float], low: float, high: float, xtol: float = 2e-12) -> float:
    """x with f(x) = 0 between low and high, where f has opposite signs: Brent's method, step by step the bits of
    `scipy.optimize.brentq`.

    b is the best point so far, a the one before, and the root lies between b and c. Each step goes to where the parabola
    through the three (by the inverse of f; the secant of two) is 0, or to the middle of b and c where that is shorter than
    half the step before the last. xtol: how near to the root, besides 4 units of its last place.

    Raises ValueError where the signs are the same. Source: Brent, "Algorithms for Minimization Without Derivatives", 1973,
    chapter 4, with the hyperbolic extrapolation of scipy.
    """
    a, b = float(low), float(high)
    of_a, of_b = float(function(a)), float(function(b))
    if of_a == 0:
        return a
    if of_b == 0:
        return b
    if (of_a < 0) == (of_b < 0):
        raise ValueError(f"the function has the same sign at {low} and {high}")
    c = of_c = before = step = 0.0
    for _ in range(_MOST_STEPS):
        if of_a != 0 and of_b != 0 and (of_a < 0) != (of_b < 0):
            c, of_c = a, of_a
            before = step = b - a
        if abs(of_c) < abs(of_b):
            a, b, c = b, c, b
            of_a, of_b, of_c = of_b, of_c, of_b
        near = (xtol + _RELATIVE * abs(b)) / 2
        half = (c - b) / 2
        if of_b == 0 or abs(half) < near:
            return b
        trial = _trial(a, b, c, of_a, of_b, of_c) if abs(before) > near and abs(of_b) < abs(of_a) else math.inf
        is_short = 2 * abs(trial) < min(abs(before), 3 * abs(half) - near)
        before, step = (step, trial) if is_short else (half, half)
        a, of_a = b, of_b
        b += step if abs(step) > near else math.copysign(near, half)
        of_b = float(function(b))
    raise RuntimeError(f"no root was met in {_MOST_STEPS} steps")


def _trial(a: float, b: float, c: float, of_a: float, of_b: float, of_c: float) -> float:
    """The step from b by which the interpolated function is 0; infinite where there is none."""
    if a == c:
        return -of_b * (b - a) / (of_b - of_a)
    slope_a, slope_c = (of_a - of_b) / (a - b), (of_c - of_b) / (c - b)
    steepness = slope_c * slope_a * (of_c - of_a)
    return -of_b * (of_c * slope_c - of_a * slope_a) / steepness if steepness else math.inf
