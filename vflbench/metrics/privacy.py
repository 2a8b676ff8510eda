"""What a defense may claim."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Guarantee:
    """A ceiling on what any attacker can learn of the labels, under the assumptions that `claim` names.

    claim: one sentence with its assumptions. leak_auc_after: number of messages -> ceiling of the leak AUC of an attacker
    who has seen so many about each row, and can tell which are about the same, in [0.5, 1]; 1.0 where nothing is promised.
    error_after: number of messages -> floor of the detection error, the mean of false positive and false negative rate, of
    such an attacker, in [0, 0.5]; 0.0 where nothing is promised.
    """

    claim: str
    leak_auc_after: Callable[[int], float]
    error_after: Callable[[int], float]
