"""Which setting is good: Pareto front, utility at a tolerable leak, defense capability score."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vflbench.numerics.interval import UNIT, OverRuns, over_runs
from vflbench.report.groups import Group

BETA = 0.5
COIN = 0.5
"""The leak AUC of an attack that guesses."""
TOLERABLE = 0.55
"""The two-sided leak AUC that headline numbers allow."""


def dcs(attack: float, utility: float, *, ideal_attack: float, ideal_utility: float, beta: float = BETA) -> float:
    """Defense capability score, in (0, 1]; 1 for a defense that stops the attack and costs nothing.

        DCS = 1 / (1 + sqrt((1 - beta) (AP - AP*)^2 + beta (MP - MP*)^2))

    attack, utility: AP and MP. ideal_attack: AP*, of an attack that learns nothing. ideal_utility: MP*, of the model
    without defense. beta: the weight of the utility.

    Source: Zou et al., "VFLAIR: A Research Library and Benchmark for Vertical Federated Learning", ICLR 2024, section on
    metrics. Here AP is the two-sided leak AUC of the worst attack, AP* = 0.5, MP the test AUC, MP* the test AUC of the
    undefended run with the same seed, and beta = 0.5.
    """
    distance = math.sqrt((1 - beta) * (attack - ideal_attack) ** 2 + beta * (utility - ideal_utility) ** 2)
    return 1 / (1 + distance)


def dcs_of(group: Group, baseline: Group | None, x: str, y: str, layer: str | None) -> tuple[OverRuns, int]:
    """Mean and 95 % interval over seeds, and the number of runs with an undefended run of the same seed."""
    if baseline is None:
        return over_runs([]), 0
    attack, utility, ideal = group.values(y, layer), group.values(x, layer), baseline.values(x, layer)
    seeds = [seed for seed in attack if seed in utility and seed in ideal]
    scores = [dcs(attack[s], utility[s], ideal_attack=COIN, ideal_utility=ideal[s]) for s in seeds]
    return over_runs(scores, UNIT), len(scores)


def pareto(points: Sequence[tuple[float, float]], *, x_low: bool = False, y_low: bool = True) -> list[int]:
    """Indices of the points that no other point dominates, which means: is as good in both coordinates and better in one.

    x_low, y_low: whether small values are better. A point with nan is on no front.
    """
    signed = [(-x if x_low else x, -y if y_low else y) for x, y in points]
    front = []
    for index, (x, y) in enumerate(signed):
        dominated = any(a >= x and b >= y and (a > x or b > y) for a, b in signed)
        if not dominated and not math.isnan(x + y):
            front.append(index)
    return sorted(front, key=lambda index: points[index])


@dataclass(frozen=True)
class Headline:
    """The setting with the largest mean utility among those whose mean leak is TOLERABLE at most.

    surely: the upper end of the leak's interval is TOLERABLE at most as well.
    """

    group: Group
    utility: OverRuns
    leak: OverRuns
    surely: bool


def utility_at_tolerable_leak(groups: Sequence[Group], x: str, y: str, layer: str | None) -> Headline | None:
    """None if every setting leaks more, or nothing was attacked."""
    measured = [(g, g.interval(x, layer), g.interval(y, layer)) for g in groups]
    tolerable = [(g, u, leak) for g, u, leak in measured if leak.mean <= TOLERABLE and not math.isnan(u.mean)]
    if not tolerable:
        return None
    group, utility, leak = max(tolerable, key=lambda entry: entry[1].mean)
    return Headline(group, utility, leak, surely=leak.high <= TOLERABLE)
