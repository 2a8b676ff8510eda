"""When a series of scores raises an alarm."""

import math
from collections.abc import Sequence

POLICIES = ("fast", "average", "voting")
"""The last score; the mean of the last `window`; the majority of all groups of `window`: below the threshold."""


def alarm(scores: Sequence[float], policy: str, window: int, threshold: float) -> bool:
    """Whether the policy raises an alarm after the last of these scores, of which there is at least one."""
    if policy == "fast":
        return scores[-1] < threshold
    if len(scores) < window:
        return False
    if policy == "average":
        return math.fsum(scores[-window:]) / window < threshold
    groups = [scores[i : i + window] for i in range(0, len(scores) - window + 1, window)]
    below = sum(math.fsum(group) / window < threshold for group in groups)
    return 2 * below > len(groups)
