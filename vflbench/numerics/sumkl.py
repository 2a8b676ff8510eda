"""The least Gaussian noise that brings two classes of Gaussian gradients within a given sumKL of each other.

Negative gradients ~ N(m0, u I), positive ~ N(m1, v I) in R^d, g = |m1 - m0|^2, p the share of positives. Noise N(0, S_y),

    S_y = (l1y - l2y) e e^T + l2y I,    e = (m1 - m0) / sqrt(g)

is added to class y, so that the variances become a = u + l10 and b = v + l11 along e, and a2 = u + l20 and b2 = v + l21
along each of the d - 1 directions across it. What still tells the classes apart is

    sumKL = KL(0 || 1) + KL(1 || 0) = 1/2 [ (d-1) (a2 - b2)^2 / (a2 b2) + (a - b)^2 / (a b) + g (1/a + 1/b) ]

and what it costs is the power, p tr S_1 + (1-p) tr S_0. Both problems, least sumKL for a power and least power for a sumKL,
have the same solutions: a path of one parameter. In the logarithms of the variances everything is convex, so that a point
where the Karush-Kuhn-Tucker conditions hold is the optimum. Let m <= M be the two variances, q the weight of the class with
variance m, r = 1 - q that of the other, x and y their variances along e and z the variance of class m across e; the
other class gets no noise across e. Where no bound holds anything back, with D = q x + r y,

    t = y / x = sqrt((D + q g) / (D + r g)),   x = D / (q + r t),   mu = g (1 + t) (q + r t) / (t D^2)

with mu / 2 = -d sumKL / d power, which falls as D grows. At a given mu, and so at a given D,

    z = clip(M / sqrt(1 + q mu M), m, M),
    x = m, y = sqrt(m (m + g) / (1 + r mu m))             where x would fall below m, and this y is above M, or else
    y = M, x = max(m, sqrt(M (M + g) / (1 + q mu M)))     where x would fall below m or y below M.

One monotone root in log D, found by Newton's method inside a bracket, solves either problem.

Source: Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022, theorem 2 and appendix; the form of
sumKL without cancellation, the path in D and the solution for a given sumKL are derived here.
"""

from functools import cache
from math import exp, inf, log, sqrt
from typing import Any, NamedTuple

import numpy as np

_CLOSE = 1e-14  # relative, of the quantity that is given
_NEGLIGIBLE = 1e-200  # of g beside the variances


class Noise(NamedTuple):
    """Variances to add, and what they come to: floats, or arrays of one shape.

    First digit: 1 along e, 2 across it. Second digit: the class. sumkl: what is left. power: p tr S_1 + (1-p) tr S_0.
    """

    l10: Any
    l20: Any
    l11: Any
    l21: Any
    sumkl: Any
    power: Any


def solve_power(u: Any, v: Any, d: Any, g: Any, p: Any, power: Any) -> Noise:
    """The noise of at most this power that leaves the least sumKL.

    u, v: variance a coordinate of class 0 and 1, >= 0. d: coordinates, >= 1. g: squared distance of the class means, >= 0.
    p: share of class 1, in [0, 1]. power: >= 0 and finite, in the units of u, v and g; less is used where less makes the
    classes alike (g = 0). Numbers give numbers; where any is an array, all are broadcast and solved one by one, compiled if
    numba is installed. Relative accuracy about 1e-12, in any units. Raises ValueError for anything out of range.
    """
    return _solve_all(u, v, d, g, p, power, True)


def solve_target(u: Any, v: Any, d: Any, g: Any, p: Any, sumkl: Any) -> Noise:
    """The noise of least power that leaves at most this sumKL, > 0; inf asks for none. The rest as in `solve_power`.

    Where so little is left without noise, none is added.
    """
    return _solve_all(u, v, d, g, p, sumkl, False)


def sumkl_without_noise(u: float, v: float, d: float, g: float) -> float:
    """1/2 [ d (u - v)^2 / (u v) + g (1/u + 1/v) ]; inf where a variance is 0 and the classes differ."""
    least, most = min(u, v), max(u, v)
    if least == 0:
        return inf if most > 0 or g > 0 else 0.0
    return 0.5 * (d * ((most - least) / least) * ((most - least) / most) + g / least + g / most)


def _solve_all(u: Any, v: Any, d: Any, g: Any, p: Any, goal: Any, by_power: bool) -> Noise:
    if all(isinstance(value, float | int) for value in (u, v, d, g, p, goal)):
        problem = _allowed(u, v, d, g, p, goal, by_power)
        if not problem:
            raise ValueError(_complaint(u, v, d, g, p, goal, by_power))
        return Noise(*_solve(float(u), float(v), float(d), float(g), float(p), float(goal), by_power))
    columns = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in (u, v, d, g, p, goal)))
    shape = columns[0].shape
    problems = np.stack([column.ravel() for column in columns], axis=1)
    for problem in problems[~_all_allowed(problems.T, by_power)][:1]:
        raise ValueError(_complaint(*problem.tolist(), by_power))
    solved = _compiled()(problems, by_power)
    return Noise(*(solved[:, i].reshape(shape) for i in range(6)))


def _allowed(u: float, v: float, d: float, g: float, p: float, goal: float, by_power: bool) -> bool:
    right = 0 <= u < inf and 0 <= v < inf and 1 <= d < inf and 0 <= g < inf and 0 <= p <= 1
    return right and (0 <= goal < inf if by_power else goal > 0)


def _all_allowed(columns: np.ndarray, by_power: bool) -> np.ndarray:
    u, v, d, g, p, goal = columns
    right = (u >= 0) & (v >= 0) & (d >= 1) & (g >= 0) & (p >= 0) & (p <= 1)
    right &= np.isfinite(u) & np.isfinite(v) & np.isfinite(d) & np.isfinite(g)
    return right & ((goal >= 0) & np.isfinite(goal) if by_power else goal > 0)


def _complaint(u: float, v: float, d: float, g: float, p: float, goal: float, by_power: bool) -> str:
    asked = f"power = {goal}, which must be finite and >= 0" if by_power else f"sumkl = {goal}, which must be > 0"
    return (
        f"u = {u}, v = {v}, g = {g} must be finite and >= 0, d = {d} finite and >= 1, p = {p} in [0, 1], and {asked}: "
        "one of them is not"
    )


# From here on plain arithmetic on floats, which numba compiles as it stands.


def _solve(
    u: float, v: float, d: float, g: float, p: float, goal: float, by_power: bool
) -> tuple[float, float, float, float, float, float]:
    """l10, l20, l11, l21, sumkl, power."""
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
    """sumkl, x, z for equal means: class m gets the same variance z everywhere; sumKL = d/2 (w - 1)^2 / w, w = M / z."""
    if by_power:
        z = M if q == 0 else min(M, m + goal / (q * d))
    else:
        half = goal / d
        z = max(m, M / (1 + half + sqrt(half * (2 + half))))
    return 0.5 * d * ((M - z) / z) * ((M - z) / M), z, z


def _search(
    m: float, M: float, d: float, g: float, q: float, r: float, goal: float, by_power: bool
) -> tuple[float, float, float, float]:
    """sumkl, x, y, z at the point of the path where the power, or the sumKL, is `goal`: Newton on its logarithm in log D."""
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
    """D if t = 1 and nothing is held back."""
    if by_power:
        D = goal + q * m + r * M
        if d > 1 and m < M:  # all of it along e, or the share across e that is right for large mu
            shared = (D + (d - 1) * q * m) / (1 + (d - 1) * sqrt(0.5 * q * M / g))
            D = max(min(D, shared), D - (d - 1) * q * (M - m))
        return D
    D = g / goal
    if d > 1 and q > 0:
        half = goal / (d - 1)
        excess = half + sqrt(half * (2 + half))  # w - 1, w = M / z, where the directions across e alone come to the goal
        if m * (1 + excess) < M:
            D = max(D, sqrt(2 * g * q * M / (excess * (2 + excess))))
    return D


def _point(
    D: float, m: float, M: float, d: float, g: float, q: float, r: float
) -> tuple[float, float, float, float, float, float]:
    """One point of the path: sumkl, x, y, z, mu, and d power / d log D. d sumkl = -mu/2 d power along the path."""
    at_q, at_r = D + q * g, D + r * g
    t = sqrt(at_q / at_r)
    weight = q + r * t
    mu = g * (1 + t) * weight / (t * D * D)
    log_t = 0.5 * D * g * (r - q) / (at_q * at_r)  # d log t / d log D
    log_mu = log_t * (t / (1 + t) + r * t / weight - 1) - 2  # d log mu / d log D
    k = q * mu * M
    pull = -0.5 * k / (1 + k) * log_mu  # d log / d log D of whatever goes with 1 / sqrt(1 + k)

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


def _one_by_one(problems: np.ndarray, by_power: bool) -> np.ndarray:
    """(N, 6) problems -> (N, 6) solutions."""
    solved = np.empty((len(problems), 6))
    for i in range(len(problems)):
        u, v, d, g, p, goal = problems[i]
        solved[i] = _solve(u, v, d, g, p, goal, by_power)
    return solved


@cache
def _compiled() -> Any:
    """`_one_by_one`, compiled where numba is installed."""
    try:
        import numba
        from numba.extending import register_jitable
    except ImportError:
        return lambda problems, by_power: np.array([_solve(*problem, by_power) for problem in problems.tolist()]).reshape(
            -1, 6
        )
    for function in (sumkl_without_noise, _isotropic, _guess, _point, _search, _solve):
        register_jitable(function)
    return numba.njit(_one_by_one, cache=True, error_model="numpy")
