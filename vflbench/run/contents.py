"""What is in a recording, and which attacks can run on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vflbench.attacks.base import Attack
from vflbench.messages.fact import Fact
from vflbench.messages.facts import Embeddings, OwnModel
from vflbench.messages.manifest import LABELS
from vflbench.messages.recorded_messages import RecordedMessages
from vflbench.messages.run_head import RunHead
from vflbench.messages.threat import Seat
from vflbench.run.attackers import unmet_attacks
from vflbench.run.recorded_facts import RecordedFacts


@dataclass(frozen=True)
class Contents:
    """facts: name -> text, on the whole. layers: (party, layer, width, whether it crosses), as text. kinds: (party, kind,
    batches that have it). refused: attack -> why it can't run. notes: lines for the user.
    """

    facts: Mapping[str, str]
    layers: Sequence[tuple[str, str, str, str]]
    kinds: Sequence[tuple[str, str, str]]
    refused: Mapping[str, str]
    notes: Sequence[str]


def contents(folder: Path, attacks: Mapping[str, Attack], labels: str | None = None) -> Contents:
    """Read what holds for all batches, their headers and ids, and the labels if they are there. Raises UserError."""
    recording = RecordedMessages(folder)
    manifest, epochs = recording.manifest, recording.epochs
    seats = {str(seat): ", ".join(parties) for seat, parties in recording.seats.items() if parties}
    facts = {
        "recording": str(folder),
        "written by": manifest.producer,
        "parties": "; ".join(f"{parties} ({seat})" for seat, parties in seats.items()),
        "epochs": f"{len(epochs):,}",
        "batches": f"{sum(map(len, epochs.values())):,} recorded" + ("" if manifest.complete else ", maybe a sample of all"),
        "classes": str(manifest.classes),
    }
    refused, notes = _without_labels(recording, attacks), []
    if labels is None and not (folder / LABELS).is_file():
        notes.append("no labels are here: --labels FILE names them, and --scores-only DIR attacks without any")
    else:
        source = RecordedFacts(recording, None if labels is None else Path(labels))
        shares = ", ".join(f"{share:.4f}" for share in source.labelled_rows.class_ratios)
        facts |= {"training rows": f"{len(source.labelled_rows):,} with labels", "class shares": shares}
        facts["ids"] = "a row has the same in every epoch" if source.ids.repeat else "none comes in two epochs"
        refused, notes = source.skipped(attacks), source.notes
    if manifest.batch_size is not None:
        facts["batch size"] = f"{manifest.batch_size:,}"
    if manifest.claims.label_dp is not None:
        claim = manifest.claims.label_dp
        facts["claim"] = f"label DP with eps = {claim.eps:g}" + (", labels drawn again in each epoch" if claim.fresh else "")
    if manifest.model:
        facts["the model"] = ", ".join(f"{name} {value:.4f}" for name, value in manifest.model.items())
    layers = [
        (party, layer, str(width), "yes" if party != manifest.labels and layer in manifest.cut(party) else "no")
        for party, of_party in manifest.parties.items()
        for layer, width in of_party.layers.items()
    ]
    kinds = [
        (party, kind, f"{count:,} of {coverage.batches:,}")
        for party, coverage in recording.coverage.items()
        for kind, count in sorted(coverage.kinds.items())
    ]
    return Contents({name: text for name, text in facts.items() if text}, layers, kinds, refused, notes)


def _without_labels(recording: RecordedMessages, attacks: Mapping[str, Attack]) -> dict[str, str]:
    """Attack -> why it can't run, as far as the messages alone say it."""

    def offers(seat: Seat) -> frozenset[type[Fact]]:
        offered = recording.offers(seat)
        return offered | {OwnModel} if seat is Seat.NON_LABEL and Embeddings in offered else offered

    cheating = (RunHead.read(recording.folder) or RunHead()).cheating
    return unmet_attacks(attacks, offers, recording.manifest.classes, cheating=cheating, where="this recording")
