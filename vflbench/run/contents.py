"""What is in a recording, and which attacks can run on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vflbench.attacks.base import Attack
from vflbench.messages.manifest import LABELS
from vflbench.messages.recorded_messages import RecordedMessages
from vflbench.run.recorded_source import RecordedSource


@dataclass(frozen=True)
class Contents:
    """facts: name -> text, on the whole. layers: (party, layer, width, kinds, whether it crosses), as text. refused: attack
    -> why it can't run. notes: lines for the user.
    """

    facts: Mapping[str, str]
    layers: Sequence[tuple[str, str, str, str, str]]
    refused: Mapping[str, str]
    notes: Sequence[str] = ()


def contents(folder: Path, attacks: Mapping[str, Attack], labels: str | None = None) -> Contents:
    """Read what all files say of themselves, and the ids; of recordings without labels too. Raises UserError for what is no
    recording.
    """
    recording = RecordedMessages(folder)
    labelled = labels is not None or (folder / LABELS).is_file()
    source = RecordedSource(recording, None if labels is None else Path(labels), labelled=labelled)
    manifest, batches = recording.manifest, sum(map(len, recording.epochs.values()))
    which = "all batches of training" if manifest.complete else "a sample of the batches"
    again = "the same in several epochs" if source.ids.repeat else "each in one epoch only"
    facts = {
        "recording": str(folder),
        "producer": manifest.producer or "unknown",
        "parties": "; ".join(f"{', '.join(parties)} ({seat})" for seat, parties in recording.seats.items() if parties),
        "epochs": str(len(recording.epochs)),
        "batches": f"{batches:,}, {which}; {manifest.batch_size or source.ids.first:,} rows each",
        "rows": f"{len(source.ids.all):,} ids in messages, {again}",
        "labels": _labels(source),
        "classes": f"{manifest.classes}" + _shares(source),
    }
    if source.head is not None:
        facts["seed"] = str(source.head.seed)
        if source.head.cheating:
            facts["deviating"] = ", ".join(source.head.cheating)
    if manifest.claims.label_dp is not None:
        fresh = ", drawn again in each epoch" if manifest.claims.label_dp.fresh else ""
        facts["claim"] = f"label DP with eps {manifest.claims.label_dp.eps:g}{fresh}"
    facts |= {name.replace("_", " "): f"{value:.4f}" for name, value in manifest.model.items()}
    return Contents(facts, _layers(recording), source.skipped(attacks), source.notes)


def _labels(source: RecordedSource) -> str:
    return f"of {len(source.rows):,} rows" if source.labelled else "none: only --scores-only can be had"


def _shares(source: RecordedSource) -> str:
    if not source.labelled and source.recording.manifest.class_shares is None:
        return ""
    return f", with shares {', '.join(f'{share:.4f}' for share in source.rows.class_ratios[:10])}"


def _layers(recording: RecordedMessages) -> list[tuple[str, str, str, str, str]]:
    made = []
    for party, coverage in recording.coverage.items():
        layers, cut = recording.manifest.parties[party].layers, recording.manifest.cut(party)
        there = [kind for kind in ("embedding", "gradient") if coverage.kinds[kind]]
        some = [kind if coverage.kinds[kind] == coverage.batches else _partly(kind, recording, party) for kind in there]
        types = " / ".join(sorted(str(kind).removeprefix("torch.") for kind in coverage.types))
        crosses = "nobody sees it" if party == recording.manifest.labels else None
        for layer, width in layers.items():
            yes = crosses or ("yes" if layer in cut else "no")
            made.append((party, layer, f"{width} {types}", ", ".join(some), yes))
        others = sorted(kind.replace("_", " ") for kind in coverage.kinds if kind not in ("embedding", "gradient"))
        if others:
            made.append((party, "-", "-", ", ".join(others), "-"))
    return made


def _partly(kind: str, recording: RecordedMessages, party: str) -> str:
    coverage = recording.coverage[party]
    return f"{kind} in {coverage.kinds[kind]:,} of {coverage.batches:,} batches"
