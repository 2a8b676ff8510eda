"""Attacks at their posts: each attack at each party of its seat, with a generator and state of its own."""

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vflbench.attacks.base import Attack
from vflbench.generators import Generators
from vflbench.messages.fact import Fact
from vflbench.messages.facts import BatchHints, ClassHints, Embeddings, OwnColumns
from vflbench.messages.message import Kind
from vflbench.messages.round import Facts
from vflbench.messages.threat import Seat, Threat
from vflbench.messages.view import View
from vflbench.metrics.leakage import Key
from vflbench.protocols.adversary import Adversary
from vflbench.protocols.label_adversary import LabelAdversary
from vflbench.results.levels import OWN_COLUMNS
from vflbench.run.known_rows import draw_one_of_each, draw_positives
from vflbench.run.unmet import RUN_FACTS, Offers


@dataclass(frozen=True)
class Hints:
    """Rows of a batch that attacks may know, as places in it. positives: as many as the most curious attack asks for;
    classes: one of each class, or none.
    """

    positives: Tensor
    classes: Tensor


class HintSource:
    """Draws hints, each kind from a generator of its own. classes: K."""

    def __init__(self, generators: Generators, classes: int):
        self._positives_rng, self._classes_rng = generators["hints"], generators["class hints"]
        self._classes = classes

    def draw(self, labels: Tensor, canary: Tensor, posts: "Sequence[Post]") -> Hints:
        """As many known positives as any of these attacks needs and as there are, and a known row of each class if any needs
        that and each class has one. labels, canary: (n,) of a batch.
        """
        positives = classes = torch.empty(0, dtype=torch.int64)
        needed = max((post.threat.hints for post in posts), default=0)
        if needed:
            positives = draw_positives(labels, canary, needed, self._positives_rng).to(labels.device)
        if any(ClassHints in post.threat.knows for post in posts):
            classes = draw_one_of_each(labels.cpu(), self._classes, self._classes_rng).to(labels.device)
        return Hints(positives, classes)


@dataclass(frozen=True)
class Post:
    """An attack at one party. visible: False where it scores, for the record, layers that no attacker sees.

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
    def only_reads(self) -> bool:
        """Whether the attack's own class, and not one that it derives from, says that it changes nothing it is shown."""
        return bool(vars(type(self.attack)).get("only_reads", False))

    @property
    def message(self) -> Kind | None:
        return self.threat.message

    @property
    def reads(self) -> frozenset[type[Fact]]:
        """The facts of a round that it needs: what the attack knows, and own columns where they stand in for messages."""
        return self.attack.threat.knows | self.threat.knows

    def message_of(self, answered: Kind | None) -> Kind | None:
        """The message that an answer is about. answered: as the answer says; None where it doesn't."""
        return None if self.on_columns else answered or self.message

    def key(self, layer: str, message: Kind | None = None) -> Key:
        return self.name, str(self.message_of(message) or "none"), self.party, layer, self.visible

    def known_places(self, hints: Hints) -> Tensor | None:
        """Places of the rows whose class it is given; None if the batch has too few of them."""
        positives = hints.positives[: self.threat.hints]
        classes = hints.classes if ClassHints in self.threat.knows else positives[:0]
        if len(positives) < self.threat.hints or (ClassHints in self.threat.knows and not len(classes)):
            return None
        return torch.cat([positives, classes.to(positives.device)])

    def facts(self, known: Facts, hints: Hints | None) -> dict[type[Fact], Fact]:
        """The declared facts of this party, and its hints, if they are drawn for these rows."""
        knows = self.attack.threat.knows
        declared = {kind: fact for kind, fact in known.items() if kind in knows}
        if not self.visible and isinstance(embeddings := declared.get(Embeddings), Embeddings):
            declared[Embeddings] = Embeddings(embeddings.layers)
        if hints is None:
            return declared
        given = {BatchHints: BatchHints(hints.positives[: self.threat.hints]), ClassHints: ClassHints(hints.classes)}
        return declared | {kind: fact for kind, fact in given.items() if kind in knows}

    def view(self, epoch: int, step: int | None, names: Tensor, facts: Facts) -> View:
        threat = self.attack.threat if self.on_columns else self.threat
        lends = self.only_reads
        return View(self.party, epoch, step, names, self.rng, threat, facts, visible=self.visible, lends=lends)


def posted(
    attacks: Mapping[str, Attack],
    seats: Mapping[Seat, tuple[str, ...]],
    cheating: Collection[str],
    rng_of: Callable[[str], torch.Generator],
) -> Iterator[Post]:
    """A post for each attack and party of its seat. cheating: parties with an adversary. rng_of: a generator by its name.

    An attack on embeddings alone also scores the label party's own layers, which nobody sees.
    """
    for name, attack in attacks.items():
        places = [(party, True) for party in seats.get(attack.threat.seat, ())]
        round_facts = attack.threat.knows - RUN_FACTS[attack.threat.seat]
        if attack.threat.seat is Seat.NON_LABEL and round_facts == {Embeddings}:
            places += [(party, False) for party in seats.get(Seat.LABEL, ())]
        for party, visible in places:
            if attack.threat.active and party not in cheating:
                continue  # an attack of a party that cheats
            threat = replace(attack.threat, active=party in cheating)
            yield Post(name, copy.deepcopy(attack), threat, party, rng_of(f"attack/{name}/{party}"), visible)


def column_references(posts: Sequence[Post], rng_of: Callable[[str], torch.Generator]) -> Iterator[tuple[Post, Post]]:
    """Each post of an attack that knows labels, and the same attack on the party's own columns.

    Where both know the same labels, the difference of their readings is what the messages gave away.
    """
    for post in posts:
        threat = post.threat
        if not (threat.knows_labels and threat.message is not None and threat.seat is Seat.NON_LABEL and post.visible):
            continue
        of_rounds = {kind for kind in threat.knows if kind.message is None}
        reads = Threat(threat.seat, of_rounds | {OwnColumns}, threat.known_rows, threat.hints)
        name = f"{post.name}{OWN_COLUMNS}"
        attack, rng = copy.deepcopy(post.attack), rng_of(f"attack/{name}/{post.party}")
        yield post, Post(name, attack, reads, post.party, rng, visible=True, on_columns=True)


def offered_with(adversaries: Iterable[Adversary], offers: Offers) -> Offers:
    """What a protocol offers to each seat, and what a label party that cheats makes for attacks at its own."""
    made = {fact for adversary in adversaries if isinstance(adversary, LabelAdversary) for fact in adversary.facts_made}
    return lambda seat: offers(seat) | (made if seat is Seat.LABEL else set())
