"""The total label DP of a run, whether the canaries confirm it, and what its noise on embeddings guarantees."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from vflbench.defenses.base import Defense
from vflbench.defenses.chain import claims_of
from vflbench.metrics.canary_power import canaries_needed, power
from vflbench.metrics.embedding_privacy import EmbeddingRelease, Sent
from vflbench.metrics.exposure import Exposure
from vflbench.metrics.leakage import Leak
from vflbench.metrics.privacy import Ledger, Release
from vflbench.metrics.verdict import NO_MESSAGE
from vflbench.run.known_rows import Canaries

MESSAGES_PER_EPOCH = 2
"""Embeddings of one row that cross in an epoch at most, per layer: in training, and where train AUC is measured."""
DELTA = 1e-6
CONFIDENCE = 0.999
"""Probability that no attack of a run seems to break a guarantee that holds."""
TOO_WEAK = (1.5, 2.0)
"""How many times the promised eps or mu a mechanism leaks, for which the power of the check is computed."""
POWER = 0.8


def account(
    defenses: Mapping[str, Defense], exposure: Exposure, leaks: Sequence[Leak], canaries: Canaries
) -> dict[str, Any] | None:
    """The privacy part of summary.json; None where no label DP is guaranteed and there are no canaries.

    epsilon: the sum over releases, None if nothing is guaranteed, or no pure eps. mu: of Gaussian noise alone, else None.
    epsilon_at_delta: the least eps known to hold with delta. tried: lower bounds from the reader of the labels that were
    trained on, and from each attack on each layer that its party sees, in the last epoch. epsilon_low, mu_low: the largest
    of them, at CONFIDENCE for all together (Bonferroni); mu_low where mu is claimed, else epsilon_low. violated: whether it
    is more than the claim. power: what the check could have found (`power_of`); not violated is not verified.
    """
    ledger = Ledger()
    made = {name: g.release for name, g in claims_of(defenses).of.items() if g is not None and g.release is not None}
    pure = {name: release for name, release in made.items() if isinstance(release, Release)}
    for name, release in (pure or made).items():  # either covers all that is sent
        ledger.add(name, release, exposure)
    if ledger.is_empty and not len(canaries):
        return None
    claimed = ledger.epsilon if pure else None
    tried = {"the labels trained on": canaries.guesses()} if len(canaries) else {}
    tried |= {_place(leak): leak.guesses for leak in leaks if leak.visible and leak.guesses.total}
    alpha = (1 - CONFIDENCE) / max(1, len(tried))
    if ledger.mu is None:
        bounds = {name: guesses.epsilon_low(alpha) for name, guesses in tried.items()}
    else:
        bounds = {name: guesses.mu_low(alpha, len(canaries)) for name, guesses in tried.items()}
    best = max(bounds, key=bounds.__getitem__, default=None)
    low, proven = None if best is None else bounds[best], "epsilon_low" if ledger.mu is None else "mu_low"
    limit = claimed if ledger.mu is None else ledger.mu
    return {
        "epsilon": claimed,
        "mu": ledger.mu,
        "delta": DELTA,
        "epsilon_at_delta": None if ledger.is_empty else ledger.epsilon_at(DELTA),
        "releases": [
            {"defense": name, "mechanism": release.mechanism, "epsilon": release.epsilon, "times": count}
            for name, release, count in ledger.entries
        ]
        + [
            {"defense": name, "mechanism": release.mechanism, "mu": mu, "epochs": release.epochs}
            for name, release, mu in ledger.gaussian
        ],
        "canaries": len(canaries),
        "confidence": CONFIDENCE,
        "tried": {name: {"guesses": tried[name].total, proven: bound} for name, bound in bounds.items()},
        "epsilon_low": low if ledger.mu is None else None,
        "epsilon_low_by": best if ledger.mu is None else None,
        "mu_low": None if ledger.mu is None else low,
        "mu_low_by": None if ledger.mu is None else best,
        "violated": low is not None and limit is not None and low > limit,
        "power": [] if limit is None else power_of(limit, len(canaries), alpha, gaussian=ledger.mu is not None),
    }


def _place(leak: Leak) -> str:
    """`norm on gradients of a f5`; of a reader of no message `completion (own columns) of a features`."""
    read = leak.attack if leak.message == NO_MESSAGE else f"{leak.attack} on {leak.message}s"
    return f"{read} of {leak.party} {leak.layer}"


def power_of(claim: float, canaries: int, alpha: float, *, gaussian: bool = False) -> list[dict[str, Any]]:
    """For mechanisms 1.5 and 2 times weaker than claimed: the probability that the best reader's bound exceeds the claim.

    canaries_needed: so many have a probability of POWER; None if a million have not.
    """
    if not 0 < claim < math.inf:
        return []
    return [
        {
            "times": times,
            "probability": power(claim, times, canaries, alpha, gaussian=gaussian),
            "wanted": POWER,
            "canaries_needed": canaries_needed(claim, times, alpha, POWER, gaussian=gaussian),
        }
        for times in TOO_WEAK
    ]


def failure(privacy: Mapping[str, Any] | None) -> str | None:
    """Why the run counts as failed; None if it does not."""
    if privacy is None or not privacy["violated"]:
        return None
    names = ", ".join(dict.fromkeys(release["defense"] for release in privacy["releases"]))
    figure, symbol = ("epsilon", "eps") if privacy["mu"] is None else ("mu", "mu")
    return (
        f"{names}: the promise of {symbol} = {privacy[figure]:.4g} is broken: {privacy[f'{figure}_low_by']} guessed the "
        f"labels of {privacy['canaries']} canaries so well that {symbol} is at least {privacy[f'{figure}_low']:.4g} "
        f"({privacy['confidence']:.1%} sure)"
    )


def embedding_account(claims: Mapping[tuple[str, str], Sent], epochs: int) -> list[dict[str, Any]]:
    """The embedding_privacy part of summary.json: a row for each party, layer and defense that puts noise on embeddings.

    epsilon, delta: of one message about a row's embedding; None if nothing is claimed. reason: why not, or what is unusual.
    assumes: of arithmetic and random numbers.
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
    messages = release.messages(epochs, (MESSAGES_PER_EPOCH - 1) * epochs)
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
        "assumes": release.assumes,
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


def refused_lines(defenses: Mapping[str, Defense]) -> list[str]:
    """A line for each defense whose claim of label privacy doesn't stand beside the others."""
    return [f"{name} claims nothing here: {reason}" for name, reason in claims_of(defenses).refused.items()]
