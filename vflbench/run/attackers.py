"""An attack at a party: its view of a round, and nothing else. Which attacks can run, and what the run tells them."""

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from vflbench.attacks.base import Answers, Attack
from vflbench.data.table import Features
from vflbench.messages.fact import Fact
from vflbench.messages.facts import (
    BatchHints,
    ClassHints,
    ClassShares,
    Embeddings,
    Gradients,
    Known,
    KnownColumn,
    OwnColumns,
    OwnModel,
)
from vflbench.messages.message import Kind
from vflbench.messages.peer_facts import Auxiliary
from vflbench.messages.round import Facts
from vflbench.messages.threat import Seat, Threat
from vflbench.messages.view import Unavailable, Undeclared, View
from vflbench.metrics.leakage import Key
from vflbench.numerics.column_vectors import column_vectors
from vflbench.protocols.adversary import Adversary
from vflbench.protocols.label_adversary import LabelAdversary
from vflbench.results.schema import OWN_COLUMNS
from vflbench.run.known_rows import AttributeTarget, Hints, Index, RowNames, Rows

COLUMNS = "features"
"""The layer under which a party's own columns stand in for messages."""

RUN_FACTS: Mapping[Seat, frozenset[type[Fact]]] = {
    Seat.NON_LABEL: frozenset({ClassShares, Known, BatchHints, ClassHints, Auxiliary}),
    Seat.LABEL: frozenset({ClassShares, Auxiliary, KnownColumn}),
    Seat.PARTICIPANT: frozenset({ClassShares}),
}
"""The facts that the run supplies to an attacker at each seat, beside those of the protocol."""


Offers = Callable[[Seat], frozenset[type[Fact]]]


@dataclass(frozen=True)
class Attacker:
    """An attack at one party, with a generator and state of its own. visible: False where it scores, for the record, layers
    that no attacker sees.

    threat: the attack's own, active where the party cheats. on_columns: whether it reads the party's own columns in place of
    messages, as the reference for the same attack on messages; its threat then has no message.
    """

    name: str
    attack: Attack
    threat: Threat
    party: str
    rng: torch.Generator
    visible: bool
    on_columns: bool = False

    @property
    def needs_hints(self) -> bool:
        """Whether it is given the class of some rows of each batch."""
        return bool(self.threat.hints) or ClassHints in self.threat.knows

    def message_of(self, answered: Kind | None) -> Kind | None:
        """The message that an answer is about. answered: as the answer says; None where it doesn't."""
        return None if self.on_columns else answered or self.threat.message

    def key(self, layer: str, message: Kind | None = None) -> Key:
        return self.name, str(self.message_of(message) or "none"), self.party, layer, self.visible

    def hinted_rows(self, hints: Hints) -> Tensor | None:
        """Indices of the rows whose class it is given; None if the batch has too few of them."""
        positives = hints.positives[: self.threat.hints]
        classes = hints.classes if ClassHints in self.threat.knows else positives[:0]
        if len(positives) < self.threat.hints or (ClassHints in self.threat.knows and not len(classes)):
            return None
        return torch.cat([positives, classes.to(positives.device)])

    def view(self, epoch: int, step: int | None, names: Tensor, facts: Facts, hints: Hints | None = None) -> View:
        """What it sees of these rows. facts: of its party, and what the run knows, as `AttackerKnowledge` has them. hints:
        None where none are drawn for these rows.
        """
        known = dict(facts)
        if not self.visible and isinstance(embeddings := known.get(Embeddings), Embeddings):
            known[Embeddings] = Embeddings(embeddings.layers)
        if hints is not None:
            known |= {BatchHints: BatchHints(hints.positives[: self.threat.hints]), ClassHints: ClassHints(hints.classes)}
        threat = self.attack.threat if self.on_columns else self.threat
        lends = bool(vars(type(self.attack)).get("only_reads", False))  # the class's own word, and not that of a base class
        return View(self.party, epoch, step, names, self.rng, threat, known, visible=self.visible, lends=lends)

    def ask(self, view: View, *, attends: bool = False) -> Answers:
        """What it answers about a batch, or at the end of an epoch. attends: only look at a round. An error over facts names
        the attack.
        """
        method = self.attack.attend if attends else self.attack.epoch if view.step is None else self.attack.batch
        try:
            return method(view)
        except (Undeclared, Unavailable) as error:
            key = error.key or f"attack={self.name}"
            raise type(error)(error.problem, key=key, value=error.value, see=error.see) from error


@dataclass(frozen=True)
class AttackerKnowledge:
    """What the run adds to the facts of a party, as far as an attack declares it.

    names: of rows. shares: of the classes. known: rows with known labels. auxiliary: rows that are not trained on. columns:
    (party, row ids (n,)) -> its columns, where they are there. targets: attack -> the column whose values it knows of known
    rows.
    """

    names: RowNames
    shares: ClassShares
    known: Rows
    auxiliary: Auxiliary
    columns: Callable[[str, Tensor], Features]
    targets: Mapping[str, AttributeTarget]

    def of(self, attacker: Attacker, facts: Facts) -> dict[type[Fact], Fact]:
        """The facts that the attacker declares. facts: of a round, or of the end of an epoch, of its party."""
        knows = attacker.attack.threat.knows
        held = self._columns_for_messages(attacker, facts) if attacker.on_columns else facts
        known = {kind: fact.named(self.names.ids) for kind, fact in held.items() if kind in knows}
        if ClassShares in knows:
            known[ClassShares] = self.shares
        if Auxiliary in knows:
            known[Auxiliary] = self.auxiliary
        ids, labels = (values[: attacker.threat.known_rows] for values in (self.known.ids, self.known.labels))
        target = self.targets.get(attacker.name)
        if KnownColumn in knows and target is not None:
            values = target.values(self.columns(target.party, ids))
            known[KnownColumn] = KnownColumn(target.party, target.name, self.names.of(ids), values, target.count)
        elif Known in knows and attacker.threat.known_rows:
            known[Known] = Known(self.names.of(ids), labels)
        return known

    def _columns_for_messages(self, attacker: Attacker, facts: Facts) -> dict[type[Fact], Fact]:
        """The party's own columns in the form of each message that the attack reads."""
        read = attacker.attack.threat.knows
        held = {kind: fact for kind, fact in facts.items() if fact.message is None}
        columns = facts.get(OwnColumns)
        if isinstance(columns, OwnColumns):
            layers = {COLUMNS: column_vectors(columns.numeric, columns.categorical)}
            held |= {kind: kind(layers) for kind in (Embeddings, Gradients) if kind in read}
        if OwnModel in read:

            def embed(ids: Tensor) -> dict[str, Tensor]:
                own = self.columns(attacker.party, ids)
                return {COLUMNS: column_vectors(own.numeric, own.categorical)}

            held[OwnModel] = OwnModel(embed)
        return held


def attackers_at(
    attacks: Mapping[str, Attack],
    seats: Mapping[Seat, tuple[str, ...]],
    cheating: Collection[str],
    rng_of: Callable[[str], torch.Generator],
) -> Iterator[Attacker]:
    """Each attack at each party of its seat. cheating: parties with an adversary. rng_of: a generator by its name.

    An attack on embeddings alone also scores the label party's own layers, which nobody sees.
    """
    for name, attack in attacks.items():
        parties = [(party, True) for party in seats.get(attack.threat.seat, ())]
        round_facts = attack.threat.knows - RUN_FACTS[attack.threat.seat]
        if attack.threat.seat is Seat.NON_LABEL and round_facts == {Embeddings}:
            parties += [(party, False) for party in seats.get(Seat.LABEL, ())]
        for party, visible in parties:
            if attack.threat.active and party not in cheating:
                continue  # an attack of a party that cheats
            threat = replace(attack.threat, active=party in cheating)
            yield Attacker(name, copy.deepcopy(attack), threat, party, rng_of(f"attack/{name}/{party}"), visible)


def column_references(
    attackers: Sequence[Attacker], rng_of: Callable[[str], torch.Generator]
) -> dict[tuple[str, str], Attacker]:
    """Name and party of each attacker that knows labels -> the same attack on the party's own columns.

    Where both know the same labels, the difference of their readings is what the messages gave away.
    """
    references = {}
    for attacker in attackers:
        threat = attacker.threat
        if not (threat.knows_labels and threat.message is not None and threat.seat is Seat.NON_LABEL and attacker.visible):
            continue
        of_rounds = {kind for kind in threat.knows if kind.message is None}
        reads = Threat(threat.seat, of_rounds | {OwnColumns}, threat.known_rows, threat.hints)
        name = f"{attacker.name}{OWN_COLUMNS}"
        attack, rng = copy.deepcopy(attacker.attack), rng_of(f"attack/{name}/{attacker.party}")
        twin = Attacker(name, attack, reads, attacker.party, rng, visible=True, on_columns=True)
        references[attacker.name, attacker.party] = twin
    return references


def unmet_attacks(
    attacks: Mapping[str, Attack],
    offers: Offers,
    classes: int,
    *,
    cheating: Collection[str] = (),
    where: str = "this protocol",
    labels_shared: bool = False,
) -> dict[str, str]:
    """Attack -> why it can't run here. offers: facts that the protocol, or a recording, has for a seat. labels_shared:
    whether every party holds the labels.
    """
    reasons: dict[str, str] = {}
    for name, attack in attacks.items():
        seat = attack.threat.seat
        offered = offers(seat)
        if attack.threat.active and not cheating:
            reasons[name] = "it needs a party that cheats; choose one with adversary=NAME (see: vflbench list adversary)"
            continue
        reason = attack.unmet(offered | RUN_FACTS[seat], classes, where)
        if labels_shared and attack.on_labels and seat is Seat.NON_LABEL:
            reason = f"it infers labels, and every party holds the labels in {where}"
        if reason is not None and not offered:
            reason = f"it attacks at {seat.place}, of whom there is nothing in {where}"
        if reason is not None:
            reasons[name] = reason
    return reasons


def offered_with(adversaries: Iterable[Adversary], offers: Offers) -> Offers:
    """What a protocol offers to each seat, and what a label party that cheats makes for attacks at its own."""
    made = {fact for adversary in adversaries if isinstance(adversary, LabelAdversary) for fact in adversary.facts_made}
    return lambda seat: offers(seat) | (made if seat is Seat.LABEL else set())


def remembered(facts: Mapping[str, Facts], parts: Sequence[Tensor]) -> dict[str, Facts]:
    """The same facts, in which each network embeds the rows of a part at once, and only once, however many attacks ask for
    any of them. parts: ids (n,) each. What a row is embedded as then depends on its part alone, to the last bit.
    """
    made: dict[str, Facts] = {}
    for party, of_party in facts.items():
        model = of_party.get(OwnModel)
        made[party] = of_party
        if isinstance(model, OwnModel):
            made[party] = {**of_party, OwnModel: OwnModel(_remembering(model.embed, parts))}
    return made


def _remembering(embed: Callable[[Tensor], Mapping[str, Tensor]], parts: Sequence[Tensor]) -> Callable[[Tensor], Any]:
    """embed: ids (n,) -> layer -> (n, d). Of a row of several parts, the first one counts."""
    index, ends = Index(torch.cat(list(parts))), list(accumulate(map(len, parts)))
    layers_of: dict[int, Mapping[str, Tensor]] = {}

    def remembering(ids: Tensor) -> dict[str, Tensor]:
        is_there, place = index.find(ids.to(index.ids.device))
        part = torch.where(is_there, torch.bucketize(place, torch.tensor(ends, device=place.device), right=True), len(parts))
        rows, pieces = [], []
        for number in part.unique().tolist() or [len(parts)]:
            rows.append((part == number).nonzero()[:, 0])
            if number == len(parts):
                pieces.append(embed(ids[rows[-1].to(ids.device)]))
                continue
            if number not in layers_of:
                layers_of[number] = embed(parts[number])
            here = place[rows[-1]] - ends[number] + len(parts[number])
            pieces.append({layer: h[here.to(h.device)] for layer, h in layers_of[number].items()})
        order = torch.cat(rows).argsort()
        return {layer: torch.cat([of[layer] for of in pieces])[order.to(h.device)] for layer, h in pieces[0].items()}

    return remembering
