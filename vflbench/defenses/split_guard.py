"""SplitGuard: some batches are sent in another order, and the answers tell whether the label party trains the task."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from vflbench.defenses.base import Context, NonLabelDefense
from vflbench.numerics.interval import alarm
from vflbench.options import Count, Fraction, NonNegativeInt, Positive, options

_FAKE, _FIRST, _SECOND = range(3)


@options
class SplitGuard(NonLabelDefense):
    """Send some batches with rows and labels that do not belong together, and compare the gradients that come back. Those of
    an honest label party are longer and have another direction; those of a party that hijacks are like all others.

        S = (theta(F, R) d(F, R) - theta(R1, R2) d(R1, R2)) / (d(F, R) + d(R1, R2)),   score = sigmoid(alpha S)^beta

    F: gradients of fake batches with respect to the parameters of the party's first layer. R: those of all other batches
    since `burn_in`, in two random halves R1 and R2. theta(A, B): the angle between the means of A and B, in radians. d(A,
    B): the difference of their mean lengths. The score of an honest label party tends to sigmoid(alpha theta)^beta. The
    score of a label party whose answer doesn't depend on the order varies about 2^-beta, 0.25 as published. The party never
    learns from a fake batch, sends none while rows are predicted, and computes a score after each.

    The published client has labels, and sends wrong ones. This party has none: it takes the rows of the batch in a random
    cycle, so that each row gets the label of another row. With K equally frequent classes, a K-th of the rows keeps its
    class by chance. The label party learns from the fake batches as they are, which costs test AUC. It takes what it
    rebuilds from them for the rows that it asked for, and is graded in this way.

    It falls to a hijacker who is honest until its top has learned and then answers batches that look fake honestly
    (`adversary.fsha.start` with `evades`): the score then rises to almost 1. A hijacker who mixes in honest gradients is
    noticed less often, and rebuilds less. If a party's embeddings matter little, or the top has not learned yet, the answers
    to honest and fake batches look alike as well. This causes false alarms (docs/experiments/fsha.md).

    p_fake: the probability of a fake batch. burn_in: batches before the first. alpha, beta: 5 and 2 in the authors' code.
    policy: what is compared with `threshold` after each score: fast, the score; average, the mean of the last `window`;
    voting, the means of groups of `window`, of which more than half must be below. memory: the weight of a gradient in its
    group shrinks by 1 - 1 / memory with each later one; null: all weigh the same, as published. on_alarm: report it, or
    stop: training ends with the current batch, and the run counts as failed.

    Source: Erdogan, Kupcu and Cicek, "SplitGuard: detecting and mitigating training-hijacking attacks in split learning",
    WPES 2022, arXiv 2108.09052; details after the authors' public code.
    """

    p_fake: Fraction = 0.1
    burn_in: NonNegativeInt = 20
    alpha: Positive = 5.0
    beta: Positive = 2.0
    policy: Literal["fast", "average", "voting"] = "average"
    window: Count = 10
    threshold: Fraction = 0.7
    memory: Count | None = None
    on_alarm: Literal["report", "stop"] = "report"

    def __post_init__(self) -> None:
        self._batches = 0  # that were sent
        self._group: int | None = None  # of the batch in hand; None: it isn't scored
        self._groups: list[list[Any]] = [[0.0, 0.0, 0.0] for _ in range(3)]  # sums of gradients (p,), lengths and weights
        self._scores: list[float] = []
        self._noticed: int | None = None  # the batch, counted from 0
        self._notes: list[str] = []

    def arrange(self, context: Context) -> Tensor | None:
        coins = torch.rand(2, generator=context.rng, device=context.rng.device, dtype=torch.float64).tolist()
        self._batches += 1
        self._group = None if self._batches <= self.burn_in else _FIRST if coins[1] < 0.5 else _SECOND
        if self._group is None or coins[0] >= self.p_fake or len(context.ids) < 2:
            return None
        self._group = _FAKE
        cycle = torch.randperm(len(context.ids), generator=context.rng, device=context.rng.device)
        return torch.empty_like(cycle).index_copy_(0, cycle, cycle.roll(1))

    def learns(self, gradient: Tensor, context: Context) -> bool:
        group = self._group
        if group is not None and len(gradient):
            kept = 1.0 if self.memory is None else 1 - 1 / self.memory
            new = gradient, float(gradient.norm()), 1
            self._groups[group] = [kept * total + one for total, one in zip(self._groups[group], new, strict=True)]
            if group == _FAKE and all(weight for *_, weight in self._groups):
                self._judge()
        self.tally("fakes", int(group == _FAKE))
        return group != _FAKE

    def _judge(self) -> None:
        sums, lengths, weights = zip(*self._groups, strict=True)
        score = split_guard_score(sums, lengths, weights, self.alpha, self.beta)
        self._scores.append(score)
        batch = self._batches - 1
        self._notes.append(f"split_guard score {score:.6f} at batch {batch}")
        if self._noticed is None and alarm(self._scores, self.policy, self.window, self.threshold):
            self._noticed = batch
            self.tally("noticed_step", batch)
            why = f"scores of fake batches are below {self.threshold:g} ({self.policy}), the last {score:.3f}"
            self._notes.append(f"split_guard noticed at batch {batch}: {why}")

    def notes(self) -> list[str]:
        notes, self._notes = self._notes, []
        return notes

    @property
    def stopped(self) -> str:
        if self._noticed is None or self.on_alarm != "stop":
            return ""
        return f"split_guard noticed at batch {self._noticed} that the answers are not those of an honest label party"

    def figures(self) -> dict[str, float]:
        """fakes: batches. score: the last one. noticed_step: the batch of the run, from 0, of the alarm; said once."""
        figures = super().figures()
        if self._scores:
            figures["score"] = self._scores[-1]
        return {name: figures[name] for name in ("fakes", "score", "noticed_step") if name in figures}


def split_guard_score(
    sums: Sequence[Tensor], lengths: Sequence[float], counts: Sequence[float], alpha: float = 5.0, beta: float = 2.0
) -> float:
    """The score of three groups of gradients: fake ones, and two halves of regular ones. sums: (p,) of each group. lengths:
    sums of their lengths. counts: gradients, at least one a group, or sums of their weights.
    """
    fake, first, second = (total.double() for total in sums)
    mean_lengths = [length / count for length, count in zip(lengths, counts, strict=True)]
    regular = (lengths[_FIRST] + lengths[_SECOND]) / (counts[_FIRST] + counts[_SECOND])
    difference = abs(mean_lengths[_FAKE] - regular)
    usual = abs(mean_lengths[_FIRST] - mean_lengths[_SECOND])
    unlike_usual = _angle(fake, first + second) * difference - _angle(first, second) * usual
    s = unlike_usual / (difference + usual) if difference + usual else 0.0
    return float((1 + math.exp(-alpha * s)) ** -beta)


def _angle(a: Tensor, b: Tensor) -> float:
    """In radians; 0 where one of them is 0."""
    lengths = float(a.norm() * b.norm())
    return math.acos(max(-1.0, min(1.0, float(a @ b) / lengths))) if lengths else 0.0
