"""What a defense may claim."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Guarantee:
    """A ceiling on what any attacker can learn of the labels, under the assumptions that `claim` names.

    claim: one sentence with its assumptions. leak_auc_after: number of epochs -> ceiling of the leak AUC of an attacker who
    has seen each row in so many of them, in [0.5, 1]; 1.0 where nothing is promised.
    """

    claim: str
    leak_auc_after: Callable[[int], float]
