"""What is in a recording, and which attacks can run on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vflbench.attacks.base import Attack
from vflbench.errors import UserError
from vflbench.messages.facts import Embeddings, Gradients
from vflbench.messages.recording import Recording
from vflbench.messages.round import Round
from vflbench.run.offline import RecordedRows, refused


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
    """Read the head, the list of rows and the first batch. Raises UserError for what is no recording."""
    if labels is not None:
        raise UserError("this version reads the labels of the recording only", key="--labels", value=labels)
    recording = Recording(folder)
    head, train = recording.head, RecordedRows(recording)
    first = next((round_ for epoch in range(len(head.steps)) for round_, _ in recording.rounds(epoch)), None)
    rounds = "all batches" if head.complete else f"{sum(map(len, head.recorded)):,} of them recorded"
    facts = {
        "recording": str(folder),
        "parties": "; ".join(f"{', '.join(parties)} ({seat})" for seat, parties in head.seats.items() if parties),
        "epochs": str(len(head.steps)),
        "batches": f"{sum(head.steps):,} in training, {rounds}; {head.batch_size:,} rows each",
        "training rows": f"{len(train):,}"
        + ("" if train.has_all else " in the recorded batches; the others are not listed"),
        "classes": f"{train.classes}, with shares {', '.join(f'{share:.4f}' for share in head.class_shares)}",
        "seed": str(head.seed),
    }
    if head.cheating:
        facts["deviating"] = ", ".join(head.cheating)
    layers = [] if first is None else _layers(first, head.cut_layers)
    return Contents(facts, layers, refused(attacks, head, train))


def _layers(round_: Round, cut: Mapping[str, Sequence[str]]) -> list[tuple[str, str, str, str, str]]:
    made = []
    for party, known in round_.facts.items():
        kinds: dict[str, dict[str, str]] = {}
        for name, fact in (("embedding", known.get(Embeddings)), ("gradient", known.get(Gradients))):
            if isinstance(fact, Embeddings | Gradients):
                for layer, values in fact.layers.items():
                    width = str(values.shape[1]) if values.ndim > 1 else "1"
                    kinds.setdefault(layer, {})[name] = f"{width} {str(values.dtype).removeprefix('torch.')}"
        for layer, of_layer in kinds.items():
            widths = " / ".join(dict.fromkeys(of_layer.values()))
            made.append((party, layer, widths, ", ".join(of_layer), "yes" if layer in cut.get(party, ()) else "no"))
        others = sorted(kind.title or kind.__name__ for kind in known if kind not in (Embeddings, Gradients))
        if others:
            made.append((party, "-", "-", ", ".join(others), "-"))
    return made
