"""The range of a figure by its name: no interval may leave it."""

import math

from vflbench.numerics.interval import ANY, UNIT, FigureRange

_ABOVE_A_COIN = ("leak_auc", "leak_two_sided", "leak_oriented", "leak_net", "leak_coin")
_SHARES: tuple[str, ...] = (
    "auc",
    "accuracy",
    "ece",
    "right",
    "certain",
    "exact",
    "contained",
    "unique",
    "proved",
    "recovered",
    "separated",
    "recognised",
    "share",
    "identified",
    "tolerance",
)
_SHARES += ("raw", "dcor", "distance_correlation", "dcs", "ended")
_AT_LEAST_0 = (
    "seconds",
    "bytes",
    "mse",
    "loss",
    "error",
    "matches",
    "rounds",
    "residual",
    "condition",
    "calibration",
    "hamming",
    "count",
    "missing",
)


def range_of(name: str) -> FigureRange:
    """The least and largest value of a figure, as `test_auc`, `leak_auc:norm`, `rebuilt.entries_right:ATTACK`.

    Two-sided AUCs are in [0.5, 1], |AUC - 0.5| in [0, 0.5], AUCs and shares in [0, 1]; R^2 and adjusted mutual
    information are 1 at most, SSIM is in [-1, 1]; losses, errors, feature distances, times
    and counts are 0 at least. Any other figure: all
    numbers.
    """
    head = name.partition(":")[0].rpartition(".")[2].lower()
    if head in _ABOVE_A_COIN:
        return 0.5, 1.0
    if head == "leak_distance":
        return 0.0, 0.5
    if head == "feature_distance":
        return 0.0, math.inf
    if head == "ssim":
        return -1.0, 1.0
    words = head.split("_")
    if "ami" in words or head == "r2":
        return -math.inf, 1.0
    if any(word in _AT_LEAST_0 for word in words) or name.startswith("bytes"):
        return 0.0, math.inf
    return UNIT if head in _SHARES or any(word in _SHARES for word in words) else ANY
