"""What an audit says of the recording beside its findings."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from vflbench.messages.facts import Embeddings, Gradients
from vflbench.messages.message import Kind
from vflbench.messages.threat import Seat
from vflbench.run.attackers import Attacker
from vflbench.run.auditor import Auditor
from vflbench.run.findings import Findings
from vflbench.run.recorded_source import RecordedSource


def described(source: RecordedSource, seed: int | None) -> dict[str, Any]:
    """What an audit says of its recording. seed: that was asked for."""
    manifest = source.recording.manifest
    return {
        "layers": {party: list(of_party.layers) for party, of_party in manifest.parties.items()},
        "cut_layers": {party: list(manifest.cut(party)) for party in manifest.non_label_parties},
        "class_shares": list(source.rows.class_ratios),
        "listed": len(source.rows),
        "batch_size": manifest.batch_size or source.ids.first,
        "seed": source.seed if seed is None else seed,
        "model": dict(manifest.model),
        "claims": {} if manifest.claims.label_dp is None else {"label_dp": asdict(manifest.claims.label_dp)},
        "notes": list(source.notes),
    }


def unread(source: RecordedSource, findings: Sequence[Findings]) -> list[str]:
    """A line for each kind of message that is there, and of which no attack has a score."""
    leaks = [leak for leak in (findings[-1].leaks if findings else []) if leak.visible and leak.batches]
    read = {leak.message for leak in leaks}
    offered = {Embeddings: Kind.EMBEDDING, Gradients: Kind.GRADIENT}
    there = [kind for fact, kind in offered.items() if fact in source.offers(Seat.NON_LABEL)]
    return [
        f"no attack has read the {kind}s, so nothing is said of what they give away" for kind in there if kind not in read
    ]


def as_they_knew(auditor: Auditor) -> list[Attacker]:
    """The attackers, with as many known rows as there were: fewer than an attack would take, where few are recorded."""
    there = len(auditor.known.ids)
    made = []
    for attacker in auditor.attackers:
        few = 0 < there < attacker.threat.known_rows
        made.append(replace(attacker, threat=replace(attacker.threat, known_rows=there)) if few else attacker)
    return made
