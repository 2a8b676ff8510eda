"""What a run's label DP adds up to, and whether the canaries bear it out; and what its noise on embeddings claims."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from vflbench.defenses.base import Defense
from vflbench.metrics.embedding_privacy import EmbeddingRelease, Sent
from vflbench.metrics.leakage import Leak
from vflbench.metrics.privacy import Exposure, Ledger
from vflbench.run.canaries import Canaries

MESSAGES_PER_EPOCH = 2
"""Most embeddings of one row that cross in an epoch, a layer: in training, and where train AUC is measured."""
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


def embedding_account(claims: Mapping[tuple[str, str], Sent], epochs: int) -> list[dict[str, Any]]:
    """The embedding_privacy part of summary.json: a row for each party, layer and defense that puts noise on embeddings.

    epsilon, delta: of one message about a row's embedding; None: nothing is claimed; reason: why not, or what is
    unusual about it. epsilon_all,
    delta_all: of all `messages` about it, each with fresh noise. epsilon_exact, epsilon_exact_all: at the same deltas, from
    the distribution of the noise rather than from a theorem; None where no eps is enough, or where there is no such figure
    (`exact` is False).
    """
    return [
        {"party": party, "layer": layer, "defense": name, "width": sent.width, **_embedding_promise(release, epochs)}
        for (party, layer), sent in claims.items()
        for name, release in sent.releases
    ]


def _embedding_promise(release: EmbeddingRelease, epochs: int) -> dict[str, Any]:
    messages = MESSAGES_PER_EPOCH * epochs
    total = release.delta_after(messages)
    exact = release.exact_after or (lambda _messages, _delta: math.inf)
    return {
        "mechanism": release.mechanism,
        "messages": messages,
        "epsilon": release.epsilon,
        "delta": release.delta,
        "epsilon_all": _finite(release.after(messages, total)),
        "delta_all": total,
        "exact": release.exact_after is not None,
        "epsilon_exact": _finite(exact(1, release.delta)),
        "epsilon_exact_all": _finite(exact(messages, total)),
        "reason": release.reason,
    }


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None


def refusals(claims: Mapping[tuple[str, str], Sent]) -> list[str]:
    """A line for each noise on embeddings of which nothing is claimed; layers of which the same is said share one."""
    found = sorted(
        (name, release.reason, f"{party} {layer}")
        for (party, layer), sent in claims.items()
        for name, release in sent.releases
        if release.epsilon is None
    )
    return [
        f"{name} claims no differential privacy for {', '.join(place for *_, place in places)}: {reason}"
        for (name, reason), places in groupby(found, key=lambda entry: entry[:2])
    ]
