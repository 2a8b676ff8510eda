"""The total label DP of a run, whether the canaries confirm it, and what its noise on embeddings guarantees."""

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
"""Embeddings of one row that cross in an epoch at most, per layer: in training, and where train AUC is measured."""
DELTA = 1e-6
CONFIDENCE = 0.999
"""Probability that no attack of a run seems to break a guarantee that holds."""


def account(
    defenses: Mapping[str, Defense], exposure: Exposure, leaks: Sequence[Leak], canaries: Canaries
) -> dict[str, Any] | None:
    """The privacy part of summary.json; None where no label DP is guaranteed and there are no canaries.

    epsilon: the sum over releases, None if nothing is guaranteed. epsilon_at_delta: the least eps known to hold with delta.
    tried: lower bounds from the reader of the labels that were trained on, and from each attack on each layer that its party
    sees, in the last epoch. epsilon_low: the largest of them, at CONFIDENCE for all together (Bonferroni). violated: whether
    epsilon_low is more than epsilon.
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
        "epsilon_low": None if best is None else bounds[best],
        "epsilon_low_by": best,
        "violated": best is not None and claimed is not None and bounds[best] > claimed,
    }


def failure(privacy: Mapping[str, Any] | None) -> str | None:
    """Why the run counts as failed; None if it does not."""
    if privacy is None or not privacy["violated"]:
        return None
    names = ", ".join(dict.fromkeys(release["defense"] for release in privacy["releases"]))
    return (
        f"{names}: the promise of eps = {privacy['epsilon']:.4g} is broken: {privacy['epsilon_low_by']} guessed the labels "
        f"of {privacy['canaries']} canaries so well that eps is at least {privacy['epsilon_low']:.4g} "
        f"({privacy['confidence']:.1%} sure)"
    )


def embedding_account(claims: Mapping[tuple[str, str], Sent], epochs: int) -> list[dict[str, Any]]:
    """The embedding_privacy part of summary.json: a row for each party, layer and defense that puts noise on embeddings.

    epsilon, delta: of one message about a row's embedding; None if nothing is claimed. reason: why not, or what is unusual.
    epsilon_all, delta_all: of all `messages` about it, each with fresh noise. epsilon_exact, epsilon_exact_all: at the same
    deltas, from the distribution of the noise rather than from a theorem; None where no eps is enough, or where there is no
    such figure (`exact` is False).
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
    """A line for each defense whose noise on embeddings claims nothing; layers with the same reason share a line."""
    refused = sorted(
        (name, release.reason, f"{party} {layer}")
        for (party, layer), sent in claims.items()
        for name, release in sent.releases
        if release.epsilon is None
    )
    return [
        f"{name} claims no differential privacy for {', '.join(place for *_, place in places)}: {reason}"
        for (name, reason), places in groupby(refused, key=lambda entry: entry[:2])
    ]
