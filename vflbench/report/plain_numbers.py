"""Numbers in sentences."""

import math
from collections.abc import Sequence


def percent(share: float) -> str:
    """`91 %`; as many digits as it takes to tell a share from none and from all. `unknown` for nan."""
    if math.isnan(share):
        return "unknown"
    for digits in range(4):
        text = f"{100 * share:.{digits}f}"
        if float(text) not in (0.0, 100.0) or share in (0.0, 1.0):
            break
    return f"{text} %"


def auc_text(value: float) -> str:
    """`0.91`; more digits where the value would look like 1.00 without being 1. `undefined` for nan."""
    if math.isnan(value):
        return "undefined"
    for digits in (2, 3, 4):
        text = f"{value:.{digits}f}"
        if float(text) < 1.0:
            return text
    return "1.00"


def mean(values: Sequence[float]) -> float:
    """Of the values that are defined; nan if none is."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan
