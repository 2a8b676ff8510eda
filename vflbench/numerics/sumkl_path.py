"""The path of optimal noises of `sumkl`, and the point on it with a given power or sumKL. Plain arithmetic on floats.

Both problems of `sumkl`, least sumKL for a given power and least power for a given sumKL, have the same solutions: a path
with one parameter. In the logarithms of the variances the problems are convex, so a point that satisfies the
Karush-Kuhn-Tucker conditions is optimal. Let m <= M be the variances of the two classes without noise. Let q be the weight
of the class with variance m, and r = 1 - q the weight of the other class. Let x and y be their variances along e with
noise, and z the variance of class m across e. The other class gets no noise across e. Where no bound is active, with
D = q x + r y,

    t = y / x = sqrt((D + q g) / (D + r g)),   x = D / (q + r t),   mu = g (1 + t) (q + r t) / (t D^2)

where mu / 2 = -d sumKL / d power decreases in D. For a given mu, and so for a given D,

    z = clip(M / sqrt(1 + q mu M), m, M),
    x = m, y = sqrt(m (m + g) / (1 + r mu m))             if x would be below m and this y is above M; otherwise
    y = M, x = max(m, sqrt(M (M + g) / (1 + q mu M)))     if x would be below m or y below M.

Either problem is the root of a monotone function of log D, found by Newton's method inside a bracket.

numba compiles these functions unchanged. They share a module with the compiled loop because numba's cache on disk notices
changes in that module only.

Source: Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022, theorem 2 and appendix; the path
in D and the solution for a given sumKL are derived here.
"""

# ruff: noqa: N803, N806 (m and M, D: the letters of the formulas)

from collections.abc import Callable
from functools import cache
from math import exp, inf, log, sqrt

import numpy as np

_CLOSE = 1e-14  # relative accuracy of the given quantity at which the search stops
_NEGLIGIBLE = 1e-200  # g relative to the variances

Solution = tuple[float, float, float, float, float, float]
"""l10, l20, l11, l21, sumkl, power."""


def sumkl_without_noise(u: float, v: float, d: float, g: float) -> float:
    """1/2 [ d (u - v)^2 / (u v) + g (1/u + 1/v) ]; inf where a variance is 0 and the classes differ."""
    least, most = min(u, v), max(u, v)
    if least == 0:
        return inf if most > 0 or g > 0 else 0.0
    return 0.5 * (d * ((most - least) / least) * ((most - least) / most) + g / least + g / most)


def solve(u: float, v: float, d: float, g: float, p: float, goal: float, by_power: bool) -> Solution:
    """The solution for numbers in range. goal: the power if `by_power`, otherwise the sumKL."""
    before = sumkl_without_noise(u, v, d, g)
    if before == 0 or (goal == 0 if by_power else goal >= before):
        return 0.0, 0.0, 0.0, 0.0, before, 0.0
    swapped = v < u
    if swapped:
        m, M, q, r = v, u, p, 1 - p
    else:
        m, M, q, r = u, v, 1 - p, p
    unit = M + g
    m, M, g = m / unit, M / unit, g / unit
    if by_power:
        goal /= unit
    if g <= _NEGLIGIBLE * M:
        sumkl, x, z = _isotropic(m, M, d, q, goal, by_power)
        y = M
    else:
        sumkl, x, y, z = _search(m, M, d, g, q, r, goal, by_power)
    power = unit * (q * (x - m) + r * (y - M) + (d - 1) * q * (z - m))
    along_m, across_m, along_M = unit * (x - m), unit * (z - m), unit * (y - M)
    if swapped:
        return along_M, 0.0, along_m, across_m, sumkl, power
    return along_m, across_m, along_M, 0.0, sumkl, power


def _isotropic(m: float, M: float, d: float, q: float, goal: float, by_power: bool) -> tuple[float, float, float]:
    """sumkl, x, z for equal means: class m gets variance z in every direction; sumKL = d/2 (w - 1)^2 / w, w = M / z."""
    if by_power:
        z = M if q == 0 else min(M, m + goal / (q * d))
    else:
        half = goal / d
        z = max(m, M / (1 + half + sqrt(half * (2 + half))))
    return 0.5 * d * ((M - z) / z) * ((M - z) / M), z, z


def _search(
    m: float, M: float, d: float, g: float, q: float, r: float, goal: float, by_power: bool
) -> tuple[float, float, float, float]:
    """sumkl, x, y, z where the power, or the sumKL, is `goal`: Newton's method on its logarithm as a function of log D."""
    D = _guess(m, M, d, g, q, r, goal, by_power)
    low, high = 0.0, inf
    while True:
        sumkl, x, y, z, mu, gain = _point(D, m, M, d, g, q, r)
        if by_power:
            value = q * (x - m) + r * (y - M) + (d - 1) * q * (z - m)
            slope, too_low = gain, value < goal
        else:
            value = sumkl
            slope, too_low = -0.5 * mu * gain, value > goal
        if abs(value - goal) <= _CLOSE * goal:
            break
        if too_low:
            low = D
        else:
            high = D
        step = value / slope * log(goal / value) if slope != 0 and 0 < value < inf else inf
        following = D * exp(step) if abs(step) < 50 else 0.0
        if not low < following < high:
            if high == inf:
                following = 8 * low
            elif low == 0:
                following = high / 8
            else:
                following = sqrt(low) * sqrt(high)
        if following == D or not low < following < high:
            break
        D = following
    return sumkl, x, y, z


def _guess(m: float, M: float, d: float, g: float, q: float, r: float, goal: float, by_power: bool) -> float:
    """Initial D: exact for t = 1 without active bounds."""
    if by_power:
        D = goal + q * m + r * M
        if d > 1 and m < M:  # the smaller of: all power along e; the share across e for large mu
            shared = (D + (d - 1) * q * m) / (1 + (d - 1) * sqrt(0.5 * q * M / g))
            D = max(min(D, shared), D - (d - 1) * q * (M - m))
        return D
    D = g / goal
    if d > 1 and q > 0:
        half = goal / (d - 1)
        excess = half + sqrt(half * (2 + half))  # w - 1, w = M / z, where the directions across e alone reach the goal
        if m * (1 + excess) < M:
            D = max(D, sqrt(2 * g * q * M / (excess * (2 + excess))))
    return D


def _point(
    D: float, m: float, M: float, d: float, g: float, q: float, r: float
) -> tuple[float, float, float, float, float, float]:
    """One point of the path: sumkl, x, y, z, mu, d power / d log D. Along the path d sumkl = -mu/2 d power."""
    at_q, at_r = D + q * g, D + r * g
    t = sqrt(at_q / at_r)
    weight = q + r * t
    mu = g * (1 + t) * weight / (t * D * D)
    log_t = 0.5 * D * g * (r - q) / (at_q * at_r)  # d log t / d log D
    log_mu = log_t * (t / (1 + t) + r * t / weight - 1) - 2  # d log mu / d log D
    k = q * mu * M
    pull = -0.5 * k / (1 + k) * log_mu  # d log f / d log D for any f proportional to 1 / sqrt(1 + k)

    w = sqrt(1 + k)
    z = M / w
    across, gain = 0.0, 0.0
    if d == 1 or m == M:
        z = m
    elif z > m:
        across = (d - 1) * (k / (1 + w)) ** 2 / w  # (w - 1)^2 / w
        gain = (d - 1) * q * z * pull
    else:
        z = m
        across = (d - 1) * ((M - m) / m) * ((M - m) / M)

    x = D / weight
    y = t * x
    if x >= m and y >= M:
        gain += D
        along = (g * (q - r) / (at_r * (1 + t))) ** 2 / t + g * (1 + t) / y  # t - 1 without cancellation
    else:
        j = r * mu * m
        y_at_m = sqrt(m * (m + g) / (1 + j))
        if x < m and y_at_m > M:
            x, y = m, y_at_m
            gain += r * y * -0.5 * j / (1 + j) * log_mu
        else:
            x, y = sqrt(M * (M + g) / (1 + k)), M
            if x > m:
                gain += q * x * pull
            else:
                x = m
        along = ((x - y) / x) * ((x - y) / y) + g / x + g / y
    return 0.5 * (across + along), x, y, z, mu, gain


def _solve_in_python(problems: np.ndarray, by_power: bool) -> np.ndarray:
    """As `_one_by_one`, without numpy's scalars."""
    solved = [solve(u, v, d, g, p, goal, by_power) for u, v, d, g, p, goal in problems.tolist()]
    return np.array(solved).reshape(-1, 6)


def _one_by_one(problems: np.ndarray, by_power: bool) -> np.ndarray:
    """(N, 6) problems u, v, d, g, p, goal -> (N, 6) solutions."""
    solved = np.empty((len(problems), 6))
    for i in range(len(problems)):
        u, v, d, g, p, goal = problems[i]
        solved[i] = solve(u, v, d, g, p, goal, by_power)
    return solved


@cache
def compiled() -> Callable[[np.ndarray, bool], np.ndarray]:
    """`_one_by_one` compiled by numba, or `_solve_in_python` if numba is not installed."""
    try:
        import numba
        from numba.extending import register_jitable
    except ImportError:
        return _solve_in_python
    for function in (sumkl_without_noise, _isotropic, _guess, _point, _search, solve):
        register_jitable(function)
    return numba.njit(_one_by_one, cache=True, error_model="numpy")
