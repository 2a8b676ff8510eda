"""How much eps the guesses about canaries, rows whose label is a fair coin, prove at least."""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from vflbench.numerics.interval import least_probability


@dataclass(frozen=True)
class Guesses:
    """high: canaries that were taken for positive (a class other than 0), high_right of them rightly; low, low_right: for 0.
    Canaries about which nothing was said are not counted.
    """

    high: int = 0
    high_right: int = 0
    low: int = 0
    low_right: int = 0

    def __add__(self, other: Self) -> Self:
        return Guesses(
            self.high + other.high,
            self.high_right + other.high_right,
            self.low + other.low,
            self.low_right + other.low_right,
        )

    @property
    def total(self) -> int:
        return self.high + self.low

    def epsilon_low(self, alpha: float) -> float:
        """Lower bound on eps, wrong with probability alpha at most; 0 where the guesses prove nothing.

            eps_low = max over the four ways to guess of log(p / (1 - p)),   p = Clopper-Pearson's bound at alpha / 4

        on the share that is right: of the high, of the low, and of either turned round. Each canary being a fair coin, that
        share's odds are TPR / FPR and (1 - FPR) / (1 - TPR); and of r guesses about the input of an eps-DP mechanism no more
        are right than Bin(r, e^eps / (1 + e^eps)), canaries in one run not being independent notwithstanding.

        Source: Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023, Theorem 2.1.
        """
        ways = [
            (self.high_right, self.high),
            (self.high - self.high_right, self.high),
            (self.low_right, self.low),
            (self.low - self.low_right, self.low),
        ]
        least = max(least_probability(right, guessed, alpha / len(ways)) for right, guessed in ways)
        return max(0.0, math.log(least / (1 - least))) if least > 0 else 0.0


def guess(scores: Tensor, positive: Tensor, canary: Tensor) -> Guesses:
    """Every canary whose score is above the threshold is taken for positive, every other one for 0.

    scores, positive, canary: (n,), the last two bool. The threshold is where the scores of the other rows, whose labels are
    the data's own, differ most between the classes; it depends on no canary's label.
    """
    above = scores > _threshold(scores[~canary], positive[~canary])
    high, low = canary & above, canary & ~above
    return Guesses(*(int(rows.sum()) for rows in (high, high & positive, low, low & ~positive)))


def _threshold(scores: Tensor, positive: Tensor) -> float:
    """The score t with the largest |P(s > t | 1) - P(s > t | 0)|; the median where there is one class only."""
    if not len(scores):
        return 0.0
    values, order = scores.double().sort()
    ones = positive[order].double()
    if not 0 < ones.sum() < len(ones):
        return values[len(values) // 2].item()
    gap = (ones.cumsum(0) / ones.sum() - (1 - ones).cumsum(0) / (1 - ones).sum()).abs()
    ends = torch.cat([values[1:] != values[:-1], values.new_ones(1, dtype=torch.bool)])  # of each run of equal scores
    return values[torch.where(ends, gap, -1.0).argmax()].item()
