"""What a run's label DP adds up to, and whether the canaries bear it out."""

from collections.abc import Mapping, Sequence
from typing import Any

from vflbench.canaries import Canaries
from vflbench.defenses.base import Defense
from vflbench.metrics.leakage import Leak
from vflbench.metrics.privacy import Exposure, Ledger

DELTA = 1e-6
CONFIDENCE = 0.999
"""That no attack of a run seems to break a promise that holds."""


def account(
    defenses: Mapping[str, Defense], exposure: Exposure, leaks: Sequence[Leak], canaries: Canaries
) -> dict[str, Any] | None:
    """The privacy part of summary.json; None where no label DP is promised and there are no canaries.

    epsilon: the sum over releases (None: nothing is promised); epsilon_at_delta: the least that is known to hold with delta.
    epsilon_low: what the best of all that was tried proves, at CONFIDENCE for all together (Bonferroni); tried: the reader
    of the labels that were trained on, and each attack on each layer that its party sees, in the last epoch. violated:
    whether that is more than epsilon.
    """
    ledger = Ledger()
    for name, defense in defenses.items():
        guarantee = defense.guarantee()
        if guarantee is not None and guarantee.release is not None:
            ledger.add(name, guarantee.release, exposure)
    if not ledger.entries and not len(canaries):
        return None
    claimed = ledger.epsilon if ledger.entries else None
    tried = {"the labels trained on": canaries.guesses()} if len(canaries) else {}
    tried |= {
        f"{leak.attack} on {leak.message}s of {leak.party} {leak.layer}": leak.guesses
        for leak in leaks
        if leak.visible and leak.guesses.total
    }
    bounds = {name: guesses.epsilon_low((1 - CONFIDENCE) / len(tried)) for name, guesses in tried.items()}
    best = max(bounds, key=bounds.__getitem__, default=None)
    return {
        "epsilon": claimed,
        "delta": DELTA,
        "epsilon_at_delta": None if claimed is None else ledger.epsilon_at(DELTA),
        "releases": [
            {"defense": name, "mechanism": release.mechanism, "epsilon": release.epsilon, "times": count}
            for name, release, count in ledger.entries
        ],
        "canaries": len(canaries),
        "confidence": CONFIDENCE,
        "tried": {name: {"guesses": tried[name].total, "epsilon_low": bound} for name, bound in bounds.items()},
        "epsilon_low": bounds.get(best),
        "epsilon_low_by": best,
        "violated": best is not None and claimed is not None and bounds[best] > claimed,
    }


def failure(privacy: Mapping[str, Any] | None) -> str | None:
    """Why the run counts as failed; None if it doesn't."""
    if privacy is None or not privacy["violated"]:
        return None
    names = ", ".join(dict.fromkeys(release["defense"] for release in privacy["releases"]))
    return (
        f"{names}: the promise of eps = {privacy['epsilon']:.4g} is broken: {privacy['epsilon_low_by']} told the labels of "
        f"{privacy['canaries']} canaries so well that eps is {privacy['epsilon_low']:.4g} at least "
        f"({privacy['confidence']:.1%} sure)"
    )
