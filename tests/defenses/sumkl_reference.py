"""The same problem to 40 digits by another method: Newton's method for a given multiplier, and the root in its logarithm."""

import mpmath
from mpmath import mpf


def sumkl(u, v, d, g, l10, l20, l11, l21):
    a, b, a2, b2 = u + l10, v + l11, u + l20, v + l21
    across = (d - 1) * (a2 - b2) ** 2 / (a2 * b2) if d > 1 else 0
    return (across + (a - b) ** 2 / (a * b) + g * (1 / a + 1 / b)) / 2


def reference(u, v, d, g, p, *, target=None, power=None):
    """(l10, l20, l11, l21, sumkl, power) to 40 digits; one of target and power is given."""
    with mpmath.workdps(60):
        u, v, d, g, p = (mpf(value) for value in (u, v, d, g, p))
        goal = mpf(target if power is None else power)

        def solution(log_mu):
            mu = mpmath.exp(log_mu)
            a, b = _pair(u, v, g, (1 - p) * mu, p * mu)
            a2, b2 = _pair(u, v, mpf(0), (1 - p) * mu, p * mu) if d > 1 else (u, v)
            noise = (a - u, a2 - u, b - v, b2 - v)
            cost = p * (noise[2] + (d - 1) * noise[3]) + (1 - p) * (noise[0] + (d - 1) * noise[1])
            return (*noise, sumkl(u, v, d, g, *noise), cost)

        def excess(log_mu):
            *_, remaining, cost = solution(log_mu)
            return mpmath.log(remaining / goal) if power is None else -mpmath.log(max(cost, mpf(10) ** -200) / goal)

        scale = mpmath.log(1 / (max(u, v) + g))
        low, high = scale - 1, scale + 1
        while excess(low) > 0:
            low -= 8
        while excess(high) < 0:
            high += 8
        return solution(_root(excess, low, high))


def _root(increasing, low, high):
    """The root of an increasing function, to 40 digits: regula falsi (Illinois), every third step a bisection."""
    below, above = increasing(low), increasing(high)
    for step in range(400):
        bisect = step % 3 == 2
        middle = (low + high) / 2 if bisect else (low * above - high * below) / (above - below)
        value = increasing(middle)
        if abs(value) < mpf(10) ** -40:
            return middle
        if value < 0:
            low, below, above = middle, value, above if bisect else above / 2
        else:
            high, above, below = middle, value, below if bisect else below / 2
    raise ArithmeticError(f"no root between {low} and {high}")


def _pair(u, v, g, cost_a, cost_b):
    """argmin over a >= u, b >= v of a/b + b/a + g/a + g/b + cost_a a + cost_b b: the best of all active sets."""

    def value(a, b):
        return a / b + b / a + g / a + g / b + cost_a * a + cost_b * b

    def best(fixed, cost):  # of the other variance: -f/a^2 + 1/f - g/a^2 + cost = 0
        return mpmath.sqrt((fixed + g) / (1 / fixed + cost))

    candidates = [(max(u, best(v, cost_a)), v), (u, max(v, best(u, cost_b)))]
    a, b = _free(g, cost_a, cost_b)
    if a >= u and b >= v:
        candidates.append((a, b))
    return min(candidates, key=lambda pair: value(*pair))


def _free(g, cost_a, cost_b):
    if g == 0:
        return mpf(0), mpf(0)  # the bounds are active
    start = mpmath.sqrt(g / max(cost_a, cost_b))
    s, w = mpmath.log(start), mpmath.log(start)

    def energy(s, w):
        a, b = mpmath.exp(s), mpmath.exp(w)
        return a / b + b / a + g / a + g / b + cost_a * a + cost_b * b

    for _ in range(400):
        a, b = mpmath.exp(s), mpmath.exp(w)
        ab, ba, ga, gb, ca, cb = a / b, b / a, g / a, g / b, cost_a * a, cost_b * b
        slope_s, slope_w = ab - ba - ga + ca, ba - ab - gb + cb
        ss, ww, sw = ab + ba + ga + ca, ab + ba + gb + cb, -ab - ba
        determinant = ss * ww - sw * sw
        ds = -(ww * slope_s - sw * slope_w) / determinant
        dw = -(ss * slope_w - sw * slope_s) / determinant
        if abs(ds) + abs(dw) < mpf(10) ** -25:  # the step converges quadratically
            return mpmath.exp(s + ds), mpmath.exp(w + dw)
        step, before = mpf(1), energy(s, w)
        while step > mpf(10) ** -12 and energy(s + step * ds, w + step * dw) > before:
            step /= 2
        s, w = s + step * ds, w + step * dw
    raise ArithmeticError(f"Newton's method does not converge for {g}, {cost_a}, {cost_b}")
