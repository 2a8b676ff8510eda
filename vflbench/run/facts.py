"""Facts about a run, which it writes into its manifest: the data, the layers, and the threats of its attacks."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from vflbench.attacks.base import Attack
from vflbench.data.labels import listed_rows
from vflbench.data.rows import TrainTest
from vflbench.data.table import Columns
from vflbench.messages.threat import Level, Threat
from vflbench.protocols.adversary import Adversary
from vflbench.protocols.base import Session
from vflbench.results.levels import OWN_COLUMNS, PROBE
from vflbench.run.attackers import Attacker
from vflbench.run.leak_summary import leak_quantities
from vflbench.run.summary import EpochResult

_PROBE_TEXT = (
    "No attacker: a reference that is given the labels of half of the audited rows, all messages that cross and the scores "
    "of every attack, and is graded on the other half."
)


_SHARED = "In this protocol every party holds the labels."


def run_facts(
    data: TrainTest,
    session: Session,
    attackers: Sequence[Attacker],
    attacks: Mapping[str, Attack],
    skipped: Mapping[str, str],
    adversaries: Mapping[str, Adversary],
    *,
    probed: bool = False,
) -> dict[str, Any]:
    """The data, cut layers, layers, threats, also of references, skipped attacks with reasons, and adversaries. Where
    every party holds the labels, each threat says so.
    """
    cheats = [f"party {a.party} cheats: {a.text()}" for a in adversaries.values()]
    threats = threats_of(attackers, attacks, cheats, probed=probed)
    for threat in threats.values() if session.labels_shared else ():
        threat["text"] = f"{threat['text']} {_SHARED}"
    return {
        "data": describe(data, session.columns),
        "cut_layers": {party: list(layers) for party, layers in session.cut_layers().items()},
        "layers": {party: list(layers) for party, layers in session.layers().items()},
        "threats": threats,
        "skipped": dict(skipped),
        "adversary": {name: {"party": a.party, "text": a.text()} for name, a in adversaries.items()},
    }


def threats_of(
    attackers: Sequence[Attacker], attacks: Mapping[str, Attack], cheats: Sequence[str] = (), *, probed: bool = False
) -> dict[str, dict[str, Any]]:
    """Attack -> who attacks and what it does, also of attacks that are skipped, and of references. cheats: a line for each
    adversary, which belongs to the threat of active attacks.
    """
    seated = {one.name: one.threat for one in sorted(attackers, key=lambda one: one.threat.active)}
    active = {name for name, threat in seated.items() if threat.active}
    threats = {
        name: seated.get(name, attack.threat).record() | {"does": _first_paragraph(attack)}
        for name, attack in attacks.items()
    }
    for attacker in attackers:
        if attacker.on_columns:
            does = (
                f"{attacker.name.removesuffix(OWN_COLUMNS)} with the party's own columns in place of messages: a reference."
            )
            threats[attacker.name] = attacker.threat.record() | {"does": does}
    if probed:
        threats[PROBE] = Threat().record() | {"level": str(Level.REFERENCE), "does": _PROBE_TEXT, "text": _PROBE_TEXT}
    for name in active & set(threats):
        threats[name]["text"] = " ".join([threats[name]["text"], *(f"{cheat[0].upper()}{cheat[1:]}" for cheat in cheats)])
    return threats


def quantities(result: EpochResult) -> list[str]:
    """Names of what a run measured in its last epoch, as the axes of a report take them."""
    names = [f"{split}_{metric}" for split, metrics in result.utility.items() for metric in metrics]
    return sorted({*names, "loss", "bytes_sent", "seconds", *leak_quantities(result.leaks, result.reconstructions)})


def _first_paragraph(attack: Attack) -> str:
    """Of the docstring of its class, or of the nearest class below `Attack` that has one."""
    kinds = type(attack).__mro__[: type(attack).__mro__.index(Attack)]
    docstring = next((cls.__doc__ for cls in kinds if cls.__doc__), "")
    return " ".join(inspect.cleandoc(docstring).split("\n\n")[0].split()) or f"{type(attack).__name__} has no docstring."


def describe(data: TrainTest, held: Mapping[str, Columns]) -> dict[str, Any]:
    """What manifest.json records about the data. held: party -> columns."""
    parties = {
        party: {"numeric": list(columns.numeric), "categorical": list(columns.categorical)}
        for party, columns in held.items()
    }
    return {
        "fingerprint": data.fingerprint,
        "train_rows": len(data.train),
        "test_rows": len(data.test),
        "classes": data.train.classes,
        "train_positive_ratio": data.train.positive_ratio,
        "train_class_ratios": list(data.train.class_ratios),
        "ids": sum(sum(columns.cardinalities) for columns in held.values()),
        "parties": parties,
        **data.facts,
    }


def introduce(data: TrainTest, columns: Mapping[str, Columns] | None = None) -> str:
    """One line on the data and the parties. columns: of each party; those of the data if left out."""
    held = ", ".join(f"{party}: {len(its)} columns" for party, its in (columns or data.train.columns).items())
    facts = "".join(
        f", {key.replace('_', ' ')} {value:.4f}" for key, value in data.facts.items() if isinstance(value, float)
    )
    rows = data.facts.get("class_rows", {})
    classes = f"; classes {listed_rows(rows)}" if rows else ""
    return (
        f"{len(data.train):,} training and {len(data.test):,} test rows, "
        f"positive ratio {data.train.positive_ratio:.4f}{facts}{classes}; {held}"
    )
