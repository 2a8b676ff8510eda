"""What a run's defenses promise, whether its leaks keep to that, and the worst attack at each level."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from vflbench.metrics.exposure import Exposure
from vflbench.metrics.leak import Leak
from vflbench.metrics.privacy import THE_LEAK, Guarantee, holds
from vflbench.metrics.verdict import Reading, above, at_levels, worst
from vflbench.results.digits import apart
from vflbench.results.levels import LEVELS, OWN_COLUMNS, PROBE, REFERENCE, base_name

if TYPE_CHECKING:
    from vflbench.defenses.base import Defense
    from vflbench.defenses.chain import Figures

TOLERABLE = 0.55
"""The leak AUC up to which no defense falls."""
NEAR = 0.05
"""So far below the model's test AUC, an attack is as good as the model."""


def promised(
    defenses: Mapping[str, Defense],
    exposure: Exposure,
    leaks: Sequence[Leak],
    levels: Mapping[str, str],
    joining: Collection[str],
    figures: Sequence[Figures],
    mixing: Collection[str] = (),
    crossing: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, dict[str, Any] | None]:
    """The guarantees part of summary.json: what holds for one message about a row, and for all messages of the run.

    exposure: of the run. levels: attack -> level. joining: attacks whose leaks are compared with the ceiling of all
    messages, as they join what they see of a row over the epochs. figures: of the defenses, in all epochs. mixing: attacks
    that read other kinds of messages as well. crossing: party -> layers that cross.

    A ceiling on one kind of message is about that message alone. It doesn't bound what is read of it and of others together,
    nor of layers below the cut, whose gradients depend on the party's own columns as well. One message is one of the last
    epoch: networks remember what earlier ones told of the labels, so label privacy counts all that was released.

    tested: for each party, layer and epoch the figures by which the assumption was tested. assumption_holds: None where
    nothing was tested, or where there is nothing to assume. exceeded: visible leaks that are surely above the ceiling, the
    strongest first, with the low end of their simultaneous interval (`metrics.verdict.above`).
    """
    from vflbench.defenses.chain import claims_of  # late: a verdict on given figures needs no torch

    made: dict[str, dict[str, Any] | None] = {}
    for name, guarantee in claims_of(defenses).of.items():
        if guarantee is None:
            made[name] = None
            continue
        bounded = [leak for leak in leaks if not guarantee.message or _is_of_one_message(leak, mixing, crossing)]
        one = Exposure() if guarantee.release is None else exposure  # weights remember what was learned from a label
        exposures = {"one_message": one, "all_messages": exposure}
        ceilings = {f"leak_auc_{seen}": guarantee.leak_auc_after(after) for seen, after in exposures.items()}
        floors = {f"error_{seen}": guarantee.error_after(after) for seen, after in exposures.items()}
        tested = _tested(name, guarantee, figures)
        made[name] = {
            "claim": guarantee.claim,
            "bounds": guarantee.bounds,
            "message": guarantee.message,
            "messages": exposure.messages,
            **ceilings,
            **floors,
            "assumption": guarantee.assumption,
            "tested": tested,
            "assumption_holds": holds([one[guarantee.tested_by[0]] for one in tested]) if tested else None,
            "exceeded": _exceeded(guarantee, ceilings, bounded, levels, joining),
        }
    return made


def _is_of_one_message(leak: Leak, mixing: Collection[str], crossing: Mapping[str, Sequence[str]]) -> bool:
    """Whether the message as it crosses is all that the attack scored."""
    return base_name(leak.attack) not in mixing and leak.layer in crossing.get(leak.party, (leak.layer,))


def _tested(name: str, guarantee: Guarantee, figures: Sequence[Figures]) -> list[dict[str, Any]]:
    made = []
    for one in figures:
        values = {figure: one.values.get(f"{name}.{figure}") for figure in guarantee.tested_by}
        if guarantee.tested_by and values[guarantee.tested_by[0]] is not None:
            made.append({"party": one.party, "layer": one.layer, **values})
    return made


def _exceeded(
    guarantee: Guarantee,
    ceilings: Mapping[str, float],
    leaks: Sequence[Leak],
    levels: Mapping[str, str],
    joining: Collection[str],
) -> list[dict[str, Any]]:
    counted = at_levels(leaks, levels, *LEVELS)
    seen = ["all_messages" if base_name(leak.attack) in joining else "one_message" for leak in counted]
    heights = [
        ceilings[f"leak_auc_{which}"] if guarantee.message in ("", leak.message) else math.nan
        for which, leak in zip(seen, counted, strict=True)
    ]
    return [
        {"level": levels[one.attack], **_place_and_value(one), "ceiling": height} for one, height in above(counted, heights)
    ]


def exceeded_ceilings(promises: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Defense -> the leaks above its ceiling, of those that bound the leak. A ceiling of label privacy is no bound on it."""
    return {
        name: promise["exceeded"]
        for name, promise in promises.items()
        if promise is not None and promise["bounds"] == THE_LEAK and promise["exceeded"]
    }


def verdict(
    leaks: Sequence[Leak],
    levels: Mapping[str, str],
    promises: Mapping[str, Mapping[str, Any] | None],
    test_auc: float,
    changed: Collection[str],
    crossing: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, Any]:
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
    at_all: dict[str, Any] = {}
    on_changed: dict[str, Any] = {}
    for level in LEVELS:
        counted = at_levels(leaks, levels, level)
        one, other = worst(counted), worst(leak for leak in counted if leak.message in changed)
        if one is not None:
            at_all[level] = _beside_own_columns(one, leaks)
            if other is not None and one.message not in changed:
                on_changed[level] = _beside_own_columns(other, leaks)
    references = [leak for leak in leaks if leak.visible and levels[leak.attack] == REFERENCE]
    of_probe = worst(leak for leak in references if base_name(leak.attack) == PROBE)
    of_columns = worst(leak for leak in references if base_name(leak.attack) != PROBE)
    named = {"probe": of_probe, "own columns": of_columns}
    first = worst(sorted(at_levels(leaks, levels, *LEVELS), key=lambda leak: _ease(leak, levels, crossing)))
    return {
        "worst": None if first is None else {**_place_and_value(first), "readings": first.readings},
        "levels": at_all,
        "on_changed": on_changed,
        "references": {name: _place_and_value(one) for name, one in named.items() if one is not None},
        "falls": _falls(leaks, levels, promises, test_auc, changed),
        "changed": sorted(changed),
    }


def _ease(leak: Leak, levels: Mapping[str, str], crossing: Mapping[str, Sequence[str]]) -> tuple[int, bool]:
    """How much an attack asks for: its level, and whether it is at a layer that doesn't cross."""
    return LEVELS.index(levels[leak.attack]), leak.layer not in crossing.get(leak.party, (leak.layer,))


def messages_changed(defenses: Collection[Defense]) -> set[str]:
    """The kinds of messages that they change: of a penalty embeddings, of what is learned from labels all."""
    from vflbench.defenses.base import LabelDefense, NonLabelDefense, ParticipantDefense, changes

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
    promises: Mapping[str, Mapping[str, Any] | None],
    test_auc: float,
    changed: Collection[str],
) -> dict[str, Any] | None:
    listed = [entry for entries in exceeded_ceilings(promises).values() for entry in entries]
    if listed:
        entry = max(listed, key=lambda entry: entry["value"])
        return {**entry, "because": f"above the ceiling of {apart(entry['value'], entry['ceiling'])[1]}"}
    given = [promise for promise in promises.values() if promise is not None]
    if any(promise["bounds"] != THE_LEAK for promise in given):
        return None
    covered = [promise["message"] for promise in given if promise["leak_auc_all_messages"] < 1]
    bar = max(TOLERABLE, test_auc - NEAR)
    for level in LEVELS:
        counted = [leak for leak in at_levels(leaks, levels, level) if leak.message in changed]
        one = worst(leak for leak in counted if not {"", leak.message} & {*covered})
        if one is None or one.figure != "AUC" or math.isnan(one.low):
            continue
        if one.low > max(bar, _own_columns(leaks, one.attack) or 0.0):
            because = f"as good as the model, whose test AUC is {test_auc:.3f}"
            return {"level": level, **_place_and_value(one), "because": because}
    return None


def _own_columns(leaks: Sequence[Leak], attack: str) -> float | None:
    """What the same attack reads on the party's own columns; None if that was not tried."""
    twin = f"{base_name(attack)}{OWN_COLUMNS}"
    one = worst(leak for leak in leaks if leak.visible and leak.attack.startswith(twin))
    return None if one is None else one.value


def _beside_own_columns(one: Reading, leaks: Sequence[Leak]) -> dict[str, Any]:
    return {**_place_and_value(one), "readings": one.readings, "own_columns": _own_columns(leaks, one.attack)}


def _place_and_value(one: Reading) -> dict[str, Any]:
    return {name: value for name, value in asdict(one).items() if name != "readings"}
