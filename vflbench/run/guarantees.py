"""What a run's defenses promise, whether leaks and canaries keep to that, and the worst attack at each level."""

import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from vflbench.defenses.base import Defense, LabelDefense, NonLabelDefense, ParticipantDefense, changes
from vflbench.defenses.chain import Figures, claims_of
from vflbench.metrics.canary import canaries_needed, power
from vflbench.metrics.embedding_privacy import Sent
from vflbench.metrics.leak import NO_MESSAGE, Leak, above, at_levels, worst
from vflbench.metrics.privacy import THE_LEAK, Exposure, Ledger, Release, holds
from vflbench.results import schema
from vflbench.results.gate import apart
from vflbench.results.schema import LEVELS, OWN_COLUMNS, PROBE, REFERENCE, Promise, Reading, base_name
from vflbench.run.attackers import Canaries

TOLERABLE = 0.55
"""The leak AUC up to which no defense falls."""
NEAR = 0.05
"""So far below the model's test AUC, an attack is as good as the model."""
MESSAGES_PER_EPOCH = 2
"""Embeddings of one row that cross in an epoch at most, per layer: in training, and where train AUC is measured."""
DELTA = 1e-6
CONFIDENCE = 0.999
"""Probability that no attack of a run seems to break a guarantee that holds."""
TOO_WEAK = (1.5, 2.0)
"""How many times the promised eps or mu a mechanism leaks, for which the power of the check is computed."""
POWER = 0.8


def promised(
    defenses: Mapping[str, Defense],
    exposure: Exposure,
    leaks: Sequence[Leak],
    levels: Mapping[str, str],
    joining: Collection[str],
    figures: Sequence[Figures],
    mixing: Collection[str] = (),
    crossing: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, Promise | None]:
    """The guarantees part of summary.json: what holds for one message about a row, and for all messages of the run.

    exposure: of the run. levels: attack -> level. joining: attacks whose leaks are compared with the ceiling of all
    messages, as they join what they see of a row over the epochs. figures: of the defenses, in all epochs. mixing: attacks
    that read other kinds of messages as well. crossing: party -> layers that cross.

    A ceiling on one kind of message is about that message alone. It doesn't bound what is read of it and of others together,
    nor of layers below the cut, whose gradients depend on the party's own columns as well. One message is one of the last
    epoch: networks remember what earlier ones told of the labels, so label privacy counts all that was released.

    tested: for each party, layer and epoch the figures by which the assumption was tested. assumption_holds: None where
    nothing was tested, or where there is nothing to assume. exceeded: visible leaks that are surely above the ceiling, the
    strongest first, with the low end of their simultaneous interval (`metrics.leak.above`).
    """
    made: dict[str, Promise | None] = {}
    counted = at_levels(leaks, levels, *LEVELS)
    for name, guarantee in claims_of(defenses).of.items():
        if guarantee is None:
            made[name] = None
            continue
        bounded = [
            leak
            for leak in counted
            if not guarantee.message  # it is about all that is sent, else about the message as it crosses
            or (base_name(leak.attack) not in mixing and leak.layer in crossing.get(leak.party, (leak.layer,)))
        ]
        one = Exposure() if guarantee.release is None else exposure  # weights remember what was learned from a label
        ceiling, of_all = guarantee.leak_auc_after(one), guarantee.leak_auc_after(exposure)
        heights = [
            (of_all if base_name(leak.attack) in joining else ceiling)
            if guarantee.message in ("", leak.message)
            else math.nan
            for leak in bounded
        ]
        tested: list[dict[str, Any]] = [
            {"party": of.party, "layer": of.layer}
            | {figure: of.values.get(f"{name}.{figure}") for figure in guarantee.tested_by}
            for of in figures
            if guarantee.tested_by and f"{name}.{guarantee.tested_by[0]}" in of.values
        ]
        made[name] = Promise(
            **{key: getattr(guarantee, key) for key in ("claim", "bounds", "message", "assumption")},
            messages=exposure.messages,
            leak_auc_one_message=ceiling,
            leak_auc_all_messages=of_all,
            error_one_message=guarantee.error_after(one),
            error_all_messages=guarantee.error_after(exposure),
            tested=tested,
            assumption_holds=holds([measured[guarantee.tested_by[0]] for measured in tested]),
            exceeded=[
                Reading(**vars(it), level=levels[it.attack], ceiling=height) for it, height in above(bounded, heights)
            ],
        )
    return made


def exceeded_ceilings(promises: Mapping[str, Promise | None]) -> dict[str, list[Reading]]:
    """Defense -> the leaks above its ceiling, of those that bound the leak. A ceiling of label privacy is no bound on it."""
    return {
        name: promise.exceeded
        for name, promise in promises.items()
        if promise is not None and promise.bounds == THE_LEAK and promise.exceeded
    }


def verdict(
    leaks: Sequence[Leak],
    levels: Mapping[str, str],
    promises: Mapping[str, Promise | None],
    test_auc: float,
    changed: Collection[str],
    crossing: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> schema.Verdict:
    """The verdict part of summary.json.

    changed: kinds of messages that the defenses change (`messages_changed`). crossing: party -> layers that cross.
    worst: the worst attack of all levels, None without a score. Of equal readings it is one that knows less, at a layer that
    crosses. Its interval allows for having picked it among all.
    levels: level -> the worst attack with its interval, and `own_columns`, the value of the same attack on the party's own
    columns; levels without a score are left out. on_changed: the same among attacks on messages that the defenses change,
    where the worst of all is on another. references: what the probe reads, and the best on own columns. falls: the
    attack to which the defenses fall, with the reason; None if they stand, or there are none.

    They fall where a leak is surely above a ceiling on the leak. Where no ceiling says anything, they fall where the worst
    attack of a level on messages that they change is as good as the model, surely: the low end of its interval is above
    TOLERABLE, above test AUC - NEAR, and above what the same attack reads on the party's own columns. Label privacy doesn't
    fall by a leak.
    """
    at_all: dict[str, Reading] = {}
    on_changed: dict[str, Reading] = {}
    for level in LEVELS:
        counted = at_levels(leaks, levels, level)
        one, other = worst(counted), worst(leak for leak in counted if leak.message in changed)
        if one is not None:
            at_all[level] = Reading(**vars(one), own_columns=_own_columns(leaks, one.attack))
            if other is not None and one.message not in changed:
                on_changed[level] = Reading(**vars(other), own_columns=_own_columns(leaks, other.attack))
    references = [leak for leak in leaks if leak.visible and levels[leak.attack] == REFERENCE]
    of_probe = worst(leak for leak in references if base_name(leak.attack) == PROBE)
    of_columns = worst(leak for leak in references if base_name(leak.attack) != PROBE)
    named = {"probe": of_probe, "own columns": of_columns}

    def demand(leak: Leak) -> tuple[int, bool]:
        return LEVELS.index(levels[leak.attack]), leak.layer not in crossing.get(leak.party, (leak.layer,))

    first = worst(sorted(at_levels(leaks, levels, *LEVELS), key=demand))
    return schema.Verdict(
        worst=None if first is None else Reading(**vars(first)),
        levels=at_all,
        on_changed=on_changed,
        references={name: Reading(**vars(one)) for name, one in named.items() if one is not None},
        falls=_falls(leaks, levels, promises, test_auc, changed) if promises or changed else None,
        changed=sorted(changed),
    )


def messages_changed(defenses: Collection[Defense]) -> set[str]:
    """The kinds of messages that they change: of a penalty embeddings, of what is learned from labels all."""
    learning = (LabelDefense.labels, LabelDefense.loss, LabelDefense.outputs, LabelDefense.entrance)
    hooks = {
        "embedding": (NonLabelDefense.embedding, LabelDefense.penalty, *learning),
        "gradient": (LabelDefense.gradient, *learning),
        "update": (ParticipantDefense.update, ParticipantDefense.order),
    }
    return {kind for kind, originals in hooks.items() if any(changes(d, hook) for d in defenses for hook in originals)}


def _falls(
    leaks: Sequence[Leak],
    levels: Mapping[str, str],
    promises: Mapping[str, Promise | None],
    test_auc: float,
    changed: Collection[str],
) -> Reading | None:
    listed = [entry for entries in exceeded_ceilings(promises).values() for entry in entries]
    if listed:
        entry = max(listed, key=lambda entry: entry.value or 0.0)
        because = f"above the ceiling of {apart(entry.value or 0.0, entry.ceiling or 0.0)[1]}"
        return entry.model_copy(update={"because": because})
    given = [promise for promise in promises.values() if promise is not None]
    if any(promise.bounds != THE_LEAK for promise in given):
        return None
    covered = [promise.message for promise in given if (promise.leak_auc_all_messages or 0.0) < 1]
    bar = max(TOLERABLE, test_auc - NEAR)
    for level in LEVELS:
        counted = [leak for leak in at_levels(leaks, levels, level) if leak.message in changed]
        one = worst(leak for leak in counted if "" not in covered and leak.message not in covered)
        if one is None or one.figure != "AUC" or math.isnan(one.low):
            continue
        if one.low > max(bar, _own_columns(leaks, one.attack) or 0.0):
            because = f"as good as the model, whose test AUC is {test_auc:.3f}"
            return Reading(**vars(one), level=level, because=because)
    return None


def _own_columns(leaks: Sequence[Leak], attack: str) -> float | None:
    """What the same attack reads on the party's own columns; None if that was not tried."""
    twin = f"{base_name(attack)}{OWN_COLUMNS}"
    one = worst(leak for leak in leaks if leak.visible and leak.attack.startswith(twin))
    return None if one is None else one.value


def account(
    defenses: Mapping[str, Defense], exposure: Exposure, leaks: Sequence[Leak], canaries: Canaries
) -> schema.Privacy | None:
    """The privacy part of summary.json; None where no label DP is guaranteed and there are no canaries.

    epsilon: the sum over releases, None if nothing is guaranteed, or no pure eps. mu: of Gaussian noise alone, else None.
    epsilon_at_delta: the least eps known to hold with delta. tried: lower bounds from the reader of the labels that were
    trained on, and from each attack on each layer that its party sees, in the last epoch. epsilon_low, mu_low: the largest
    of them, at CONFIDENCE for all together (Bonferroni); mu_low where mu is claimed, else epsilon_low. violated: whether it
    is more than the claim. power: for mechanisms 1.5 and 2 times weaker than claimed, the
    probability that the best reader's bound exceeds the claim, and how many canaries have a probability of POWER, None if a
    million have not; not violated is not verified.
    """
    made = {name: g.release for name, g in claims_of(defenses).of.items() if g is not None and g.release is not None}
    if not made and not len(canaries):
        return None
    ledger, pure = Ledger(), {name: release for name, release in made.items() if isinstance(release, Release)}
    for name, release in (pure or made).items():  # either covers all that is sent
        ledger.add(name, release, exposure)
    tried = {"the labels trained on": canaries.guesses()} if len(canaries) else {}
    for leak in leaks:
        if leak.visible and leak.guesses.total:
            read = "" if leak.message == NO_MESSAGE else f" on {leak.message}s"
            tried[f"{leak.attack}{read} of {leak.party} {leak.layer}"] = leak.guesses
    alpha, is_gaussian = (1 - CONFIDENCE) / max(1, len(tried)), ledger.mu is not None
    bounds = {
        name: guesses.mu_low(alpha, len(canaries)) if is_gaussian else guesses.epsilon_low(alpha)
        for name, guesses in tried.items()
    }
    best = max(bounds, key=bounds.__getitem__, default=None)
    low, proven = None if best is None else bounds[best], "mu_low" if is_gaussian else "epsilon_low"
    claimed = ledger.epsilon if pure else None
    limit = ledger.mu if is_gaussian else claimed
    return schema.Privacy(
        epsilon=claimed,
        mu=ledger.mu,
        delta=DELTA,
        epsilon_at_delta=None if not made else ledger.epsilon_at(DELTA),
        releases=[
            *(
                schema.Release(defense=name, mechanism=it.mechanism, epsilon=it.epsilon, times=count)
                for name, it, count in ledger.entries
            ),
            *(schema.Release(defense=name, mechanism=it.mechanism, mu=mu) for name, it, mu in ledger.gaussian),
        ],
        canaries=len(canaries),
        confidence=CONFIDENCE,
        tried={name: {"guesses": tried[name].total, proven: bound} for name, bound in bounds.items()},
        **dict.fromkeys(("epsilon_low", "epsilon_low_by", "mu_low", "mu_low_by")) | {proven: low, f"{proven}_by": best},
        violated=low is not None and limit is not None and low > limit,
        power=[
            schema.Power(
                times=times,
                probability=power(limit, times, len(canaries), alpha, gaussian=is_gaussian),
                wanted=POWER,
                canaries_needed=canaries_needed(limit, times, alpha, POWER, gaussian=is_gaussian),
            )
            for times in TOO_WEAK
            if limit is not None and 0 < limit < math.inf
        ],
    )


def failure(privacy: schema.Privacy) -> str:
    """Why a run that broke its promise counts as failed."""
    names = ", ".join(dict.fromkeys(release.defense for release in privacy.releases))
    symbol, figure = ("eps", "epsilon") if privacy.mu is None else ("mu", "mu")
    claimed, low, by = (getattr(privacy, f"{figure}{end}") for end in ("", "_low", "_low_by"))
    return (
        f"{names}: the promise of {symbol} = {claimed:.4g} is broken: {by} guessed the labels of {privacy.canaries} "
        f"canaries so well that {symbol} is at least {low:.4g} ({privacy.confidence:.1%} sure)"
    )


def embedding_account(claims: Mapping[tuple[str, str], Sent], epochs: int) -> list[schema.Plain]:
    """The embedding_privacy part of summary.json: a row for each party, layer and defense that puts noise on embeddings.

    epsilon, delta: of one message about a row's embedding; None if nothing is claimed. reason: why not, or what is unusual.
    assumes: of arithmetic and random numbers.
    epsilon_all, delta_all: of all `messages` about it, each with fresh noise. epsilon_exact, epsilon_exact_all: at the same
    deltas, from the distribution of the noise rather than from a theorem; None where no eps is enough, or where there is no
    such figure (`exact` is False).
    """
    accounts = []
    for (party, layer), sent in claims.items():
        for name, release in sent.releases:
            known = {"party": party, "layer": layer, "defense": name, "width": sent.width}
            known |= {key: getattr(release, key) for key in ("mechanism", "epsilon", "delta", "reason", "assumes")}
            messages = release.messages(epochs, (MESSAGES_PER_EPOCH - 1) * epochs)
            total, exact = release.delta_after(messages), release.exact_after or (lambda *_: math.inf)
            known |= {"epsilon_all": release.after(messages, total), "epsilon_exact": exact(1, release.delta)}
            known |= {"epsilon_exact_all": exact(messages, total), "messages": messages, "delta_all": total}
            known["exact"] = release.exact_after is not None
            accounts.append({key: None if value == math.inf else value for key, value in known.items()})
    return accounts


def refusals(claims: Mapping[tuple[str, str], Sent]) -> list[str]:
    """A line for each defense whose noise on embeddings claims nothing; layers with the same reason share a line."""
    places: dict[tuple[str, str], list[str]] = {}
    for (party, layer), sent in claims.items():
        for name, release in sent.releases:
            if release.epsilon is None:
                places.setdefault((name, release.reason), []).append(f"{party} {layer}")
    return [
        f"{name} claims no differential privacy for {', '.join(sorted(its))}: {reason}"
        for (name, reason), its in sorted(places.items())
    ]
