"""Attacks at their parties, and the rows and columns that they know or are asked about."""

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from vflbench.attacks.base import MESSAGE_FACTS, Answers, Attack
from vflbench.data.base import Dataset
from vflbench.data.rows import BUFFER_ROWS, AlignedRows, EncodedRows
from vflbench.data.table import LABEL_PARTY, Features, RawTable
from vflbench.errors import UserError
from vflbench.messages.facts import (
    Auxiliary,
    BatchHints,
    ClassHints,
    ClassShares,
    Embeddings,
    Fact,
    Known,
    KnownColumn,
    LocalModel,
    PartyFeatures,
)
from vflbench.messages.threat import Facts, Role, Threat, Unavailable, Undeclared, View
from vflbench.messages.wire import Kind
from vflbench.metrics.canary import Guesses
from vflbench.metrics.leak import Key
from vflbench.numerics.directions import column_vectors
from vflbench.protocols.adversaries import Adversary, LabelAdversary
from vflbench.results.recorder import Meter
from vflbench.results.schema import FEATURES_ONLY, base_name

if TYPE_CHECKING:
    from vflbench.run.recording import RecordedRows

_COLUMNS = "features"
"""The layer under which a party's own columns stand in for messages."""

RUN_FACTS: Mapping[Role, frozenset[type[Fact]]] = {
    Role.NON_LABEL: frozenset({ClassShares, Known, BatchHints, ClassHints, Auxiliary}),
    Role.LABEL: frozenset({ClassShares, Auxiliary, KnownColumn}),
    Role.PARTICIPANT: frozenset({ClassShares}),
}
"""The facts that the run supplies to an attacker in each role, beside those of the protocol."""


Offers = Callable[[Role], frozenset[type[Fact]]]

_SAMPLE = 20_000  # training rows among which known ones are drawn, at least, and by which a column is cut and counted
_USUALLY_KNOWN = 380  # so many known rows are the same ones, however many of them the most curious attack knows
_LISTED = 12
_NEAR = 1e-9  # sums so near to a bound are at it


Population: TypeAlias = "EncodedRows | RecordedRows"
"""The training rows: of a data set, or of a recording."""
RowLookup: TypeAlias = "AlignedRows | RecordedRows"
"""What is known of rows, by their ids: of a data set, or of a recording."""


class RowIndex:
    """Rows in an order that means something: an attack knows, or follows, the first so many.

    ids: (k,). labels: (k,); none where it takes no labels to tell them apart.
    """

    def __init__(self, ids: Tensor, labels: Tensor | None = None):
        self.ids, self.labels = ids, ids[:0] if labels is None else labels
        self._sorted, self._order = ids.sort(stable=True)

    def __len__(self) -> int:
        return len(self.ids)

    def find(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """(n,) bool, which of these rows are there, and (n,) their places; the first place of an id that comes twice."""
        if not len(self):
            return torch.zeros_like(ids, dtype=torch.bool), torch.zeros_like(ids)
        at = torch.searchsorted(self._sorted, ids).clamp_(max=len(self) - 1)
        return self._sorted[at] == ids, self._order[at]

    def among(self, ids: Tensor, first: int) -> Tensor:
        """(n,) bool: which of these rows are among the first so many."""
        is_there, place = self.find(ids)
        return is_there & (place < first)


class Canaries(RowIndex):
    """Some training rows get, before any defense, a label that is either of two classes with equal chance: 0 and 1, or of
    more than two classes any two, drawn for each row, so that none is met much more often than before.

    Label DP bounds what messages reveal about a row's label given everything else. The data's own labels can't show whether
    attacks stay within that bound, because features predict them too, to any extent, without breaking it. A canary's label
    depends on no feature, so whatever an attack learns about it came through the mechanism. The price: to the model, these
    labels are noise.

    Beside the attacks, two readers see in each epoch what the label party trains on: the classes, and what noise on labels
    tells of them (`LabelDefense.evidence`). All messages are computed from these, so no attacker should know more. Each adds
    up what it saw of a row, and guesses by the sign of the sum. A mechanism that leaks the label in another way is left to
    the attacks.

    votes: (2, n) float64 sums of the readers, each positive for the second of a row's two classes.
    """

    def __init__(self, ids: Tensor, labels: Tensor, sides: Tensor | None = None, classes: int = 2):
        """ids: (n,); labels: (n,) their coins; sides: (2, n), what a coin chooses from, if not 0 and 1. classes: K."""
        super().__init__(ids, labels)
        self.sides, self.classes = torch.stack([0 * ids, 0 * ids + 1]) if sides is None else sides, classes
        self.votes = torch.zeros(2, len(labels), dtype=torch.float64, device=labels.device)

    def planted(self, ids: Tensor, labels: Tensor) -> Tensor:
        """(n,) labels of these rows, with the coins in place of canaries' own."""
        if not len(self):
            return labels
        is_canary, place = self.find(ids)
        return torch.where(is_canary, self.labels[place], labels)

    def read(self, ids: Tensor, trained_on: Tensor, evidence: Tensor | None = None) -> None:
        """The label party trained on these (n,) labels. evidence: (n, C), of `LabelDefense`."""
        is_canary, place = self.find(ids)
        place, seen = place[is_canary], trained_on[is_canary]
        self.votes[0, place] += (seen == self.sides[1, place]).double() - (seen == self.sides[0, place]).double()
        if evidence is not None:
            by_class = torch.cat([torch.zeros_like(evidence), evidence], dim=1) if evidence.shape[1] == 1 else evidence
            low, high = by_class[is_canary].to(self.votes).gather(1, self.sides[:, place].T).unbind(dim=1)
            self.votes[1, place] += high - low

    def guesses(self, which: int = 0, beyond: float = 0.0, *, every: bool = False) -> Guesses:
        """A reader's guesses from all epochs so far, about canaries whose sum is farther than `beyond` from 0. which: 0 of
        the classes, 1 of evidence. every: guess at a tie too, by the row's id.
        """
        sums, positive = self.votes[which], self.labels == self.sides[1]
        sums = torch.where((sums == 0) & every, self.ids % 2 - 0.5, sums)
        high, low = sums > beyond + _NEAR, sums < -beyond - _NEAR
        return Guesses(*(int(rows.sum()) for rows in (high, high & positive, low, low & ~positive)))


def draw_canaries(train: EncodedRows, count: int, rng: torch.Generator) -> Canaries:
    """train: rows to choose from, spread evenly. count: how many; 0 for none."""
    ids = torch.empty(0, dtype=torch.int64)
    if count:
        candidates = train.sample(count).ids.cpu()
        ids = candidates[torch.randperm(len(candidates), generator=rng)[:count]].sort().values
    coins = torch.randint(2, (1, len(ids)), generator=rng)
    shift = torch.randint(1, train.classes, (len(ids),), generator=rng)
    first = torch.randint(train.classes if train.classes > 2 else 1, (len(ids),), generator=rng)
    sides, on = torch.stack([first, (first + shift) % train.classes]), train.device
    return Canaries(ids.to(on), sides.gather(0, coins)[0].to(on), sides.to(on), train.classes)


@dataclass(frozen=True)
class HintedRows:
    """Rows of a batch that attacks may know, as indices. positives: as many as the most curious attack asks for; classes:
    one of each class, or none.
    """

    positives: Tensor
    classes: Tensor

    def facts(self, threat: Threat) -> dict[type[Fact], Fact]:
        """What an attacker with this threat knows of them."""
        return {BatchHints: BatchHints(self.positives[: threat.hints]), ClassHints: ClassHints(self.classes)}


def draw_positives(labels: Tensor, canary: Tensor, count: int, rng: torch.Generator) -> Tensor:
    """Places of at most so many positives, canaries aside, drawn at random. labels, canary: (n,)."""
    positives = ((labels != 0) & ~canary).nonzero()[:, 0].cpu()
    return positives[torch.randperm(len(positives), generator=rng)[:count]]


def draw_one_of_each(labels: Tensor, classes: int, rng: torch.Generator) -> Tensor:
    """(K,) the place of one row of each class, drawn at random; empty if a class has no row. labels: (n,) on the CPU."""
    order = torch.randperm(len(labels), generator=rng)
    is_class = labels[order] == torch.arange(classes)[:, None]
    return order[is_class.int().argmax(dim=1)] if bool(is_class.any(dim=1).all()) else order[:0]


def draw_known(train: Population, most: int, rng: torch.Generator, canaries: Canaries) -> RowIndex:
    """Training rows whose labels attackers know during the whole run. most: how many the most curious attack knows; 0 for no
    row, else at least 380 are drawn.

    Canaries are not among them. Up to 380 of them are the same however many any attack knows, so that no attack changes what
    another one reads. The first K rows are of K different classes, as far as the sample has them, so that few known rows
    show every class.
    """
    if not most:
        return RowIndex(*torch.empty((2, 0), dtype=torch.int64, device=train.device))
    most = max(most, _USUALLY_KNOWN)
    rows = train.sample(min(len(train), max(_SAMPLE, 50 * most + 1000)))
    kept = (~canaries.find(rows.ids)[0]).nonzero()[:, 0].cpu()
    order = kept[torch.randperm(len(kept), generator=rng)].to(rows.ids.device)
    labels = rows.labels[order]
    leading = torch.cat([(labels == k).nonzero()[:1, 0] for k in range(train.classes)])[:most]
    is_leading = torch.zeros(len(order), dtype=torch.bool, device=order.device).index_fill_(0, leading, True)
    chosen = torch.cat([leading, (~is_leading).nonzero()[:, 0]])[:most]
    return RowIndex(rows.ids[order[chosen]], labels[chosen])


def draw_rows(train: Population, count: int, rng: torch.Generator) -> RowIndex:
    """So many training rows, in a random order."""
    ids = train.sample(count).ids if count else torch.empty(0, dtype=torch.int64, device=train.device)
    return RowIndex(ids[torch.randperm(len(ids), generator=rng)[:count].to(train.device)])


def auxiliary_rows(held_out: EncodedRows, count: int, seed: int) -> Auxiliary:
    """At most so many held-out rows, in a random order: the columns of every party, and the classes."""
    rows = held_out.sample(count)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:count].to(rows.ids.device)
    drawn = rows.rows(order)
    columns = {party: PartyFeatures(block.numeric, block.categorical) for party, block in drawn.features.items()}
    return Auxiliary(columns, drawn.labels)


def rows_of_another_source(dataset: Dataset, path: str, train: EncodedRows, rng: torch.Generator) -> EncodedRows:
    """The rows at `path`, read by the dataset's own loader and encoded as the training rows are; rows that are rows of the
    run, to the bit, are left out.

    Raises UserError if they have other columns, more classes or categorical columns (whose vocabularies can't be compared),
    or if most are rows of the run.
    """

    def refused(problem: str) -> UserError:
        return UserError(problem, key="audit.auxiliary_path", value=path)

    options = {option.name for option in fields(dataset)}
    if "path" not in options:
        raise refused(f"dataset={type(dataset).__name__} reads no path; auxiliary rows are then test rows (null)")
    changes: dict[str, Any] = {"path": path, "rows": None} | {name: None for name in ("images", "labels") if name in options}
    try:
        raw, _ = replace(dataset, **changes).read(rng)
    except UserError as error:
        raise refused(f"it can't be read like the dataset: {error}") from error
    base = train.raw
    if (
        raw.numeric_names != base.numeric_names
        or raw.categorical_names != base.categorical_names
        or raw.classes > base.classes
    ):
        sizes = f"it has {len(raw.names)} and {raw.classes} classes, the dataset {len(base.names)} and {base.classes}"
        raise refused(f"it must have the dataset's columns, in the same order, and no more classes; {sizes}")
    if raw.categorical_names:
        raise refused("the columns must be numeric: ids of categories are counted in each source by itself")
    kind = raw.take(np.arange(1)).numeric.dtype
    known = set(_hashes(base, kind))
    is_new = np.array([row not in known for row in _hashes(raw, kind)], dtype=np.uint8)
    if 2 * int(is_new.sum()) < len(raw):
        raise refused("it holds rows of the run itself; auxiliary rows must be other ones")
    return EncodedRows(raw, train.encoding, is_new, 1, train.device)


def _hashes(table: RawTable, kind: np.dtype[Any]) -> Iterator[int]:
    for start in range(0, len(table), BUFFER_ROWS):
        rows = table.take(np.arange(start, min(start + BUFFER_ROWS, len(table)))).numeric.astype(kind)
        yield from (hash(row.tobytes()) for row in rows)


@dataclass(frozen=True)
class AttributeTarget:
    """cut: of a numeric column. common: (m,) of a categorical one, its most frequent ids; all others count as one."""

    party: str
    name: str
    place: int
    cut: float | None
    common: Tensor
    count: int

    def values(self, features: Features) -> Tensor:
        """(n,) 0 .. count - 1. features: of its party."""
        if self.cut is not None:
            return (features.numeric[:, self.place] > self.cut).long()
        is_common, place = RowIndex(self.common).find(features.categorical[:, self.place].long())
        return torch.where(is_common, place, len(self.common))


def attribute_target(attack: str, options: Any, train: Population) -> AttributeTarget:
    """The column that the options name; the first one of another party where they name none.

    options: of an attack with `KnownColumn`: column, threshold and values, as `attacks.attribute.Attribute` has them. Raises
    UserError for a column that there isn't, is the label party's own, or has one value.
    """
    sample = train.sample(min(len(train), _SAMPLE))
    held = [(name, party) for party, of in sample.columns.items() for name in (*of.numeric, *of.categorical)]
    others = [(name, party) for name, party in held if party != LABEL_PARTY]
    key, wanted = f"attack.{attack}.column", options.column
    name, party = next((column for column in others if wanted in (None, column[0])), (wanted, None))
    if name is None or party is None:
        problem = "the label party holds it itself; " if (wanted, LABEL_PARTY) in held else "there is no such column; "
        listed = ", ".join(f"{name} ({party})" for name, party in others[:_LISTED]) + ", ..." * (len(others) > _LISTED)
        raise UserError(f"{problem}others hold {listed}", key=key, value=wanted)
    features = sample.features[party]
    if name in features.columns.numeric:
        place = features.columns.numeric.index(name)
        column = features.numeric[:, place].double()
        cut = float(column.median()) if options.threshold is None else options.threshold
        if options.threshold is None and not bool((column > cut).any()):
            cut = (cut + float(column.min())) / 2  # most rows have the largest value
        target = AttributeTarget(party, name, place, cut, torch.empty(0), 2)
    else:
        place = features.columns.categorical.index(name)
        ids, counts = features.categorical[:, place].long().unique(return_counts=True)
        values = features.columns.cardinalities[place]
        common = ids[counts.argsort(descending=True, stable=True)][: min(options.values, values)]
        target = AttributeTarget(party, name, place, None, common, len(common) + int(values > len(common)))
    if len(target.values(features).unique()) < 2:
        raise UserError("it has one value alone, where it is cut, so that there is nothing to learn", key=key, value=name)
    return target


@dataclass(eq=False)
class Attacker:
    """An attack at one party, with a generator and state of its own. visible: False where it scores, for the record, layers
    that no attacker sees.

    threat: the attack's own, active where the party cheats. on_columns: whether it reads the party's own columns in place of
    messages, as the reference for the same attack on messages; its threat then has no message.
    unasked: name under which it was to answer -> why it was not asked. broken: the same of a reference, why it can't read
    own columns. layers: of a message of the last round, of an attacker with hints. reference: of this one, on own columns.
    """

    name: str
    attack: Attack
    threat: Threat
    party: str
    rng: torch.Generator
    visible: bool
    on_columns: bool = False
    unasked: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    layers: tuple[str, ...] = ()
    reference: "Attacker | None" = None

    @property
    def reads(self) -> frozenset[type[Fact]]:
        """What the attack declares, and own columns where they stand in for messages."""
        return frozenset(self.attack.threat.knows | self.threat.knows)

    def rows_of(self, facts: Facts, rows: Tensor) -> dict[type[Fact], Fact]:
        """Those facts of these rows that it reads."""
        return {kind: fact.rows(rows) for kind, fact in facts.items() if kind in self.reads}

    def shown(
        self, facts: Facts, columns: Callable[[str, Tensor], Features], ids_of: Callable[[Tensor], Tensor]
    ) -> dict[type[Fact], Fact]:
        """Its party's facts as it is shown them: of a reference, own columns in the form of each message that it reads.

        columns: (party, row ids (n,)) -> its own. ids_of: names (n,) -> row ids (n,).
        """

        def layers(features: Any) -> dict[str, Tensor]:
            return {_COLUMNS: column_vectors(features.numeric, features.categorical)}

        read = self.attack.threat.knows if self.on_columns else frozenset()
        held = {kind: fact for kind, fact in facts.items() if not self.on_columns or fact.message is None}
        if features := facts.get(PartyFeatures):
            held |= {kind: kind(layers(features)) for kind in MESSAGE_FACTS.values() if kind in read}
        if LocalModel in read:
            held[LocalModel] = LocalModel(lambda ids: layers(columns(self.party, ids)))
        if isinstance(model := held.get(LocalModel), LocalModel):
            held[LocalModel] = model.named(ids_of)
        if not self.visible and isinstance(embeddings := held.get(Embeddings), Embeddings):
            held[Embeddings] = Embeddings(embeddings.layers)
        return held

    @property
    def needs_hints(self) -> bool:
        """Whether it is given the class of some rows of each batch."""
        return bool(self.threat.hints) or ClassHints in self.threat.knows

    def message_of(self, answered: Kind | None) -> Kind | None:
        """The message that an answer is about. answered: as the answer says; None where it doesn't."""
        return None if self.on_columns else answered or self.threat.message

    def key(self, layer: str, message: Kind | None = None) -> Key:
        return self.name, str(self.message_of(message) or "none"), self.party, layer, self.visible

    def hinted_rows(self, hints: HintedRows) -> Tensor | None:
        """Indices of the rows whose class it is given; None if the batch has too few of them."""
        positives = hints.positives[: self.threat.hints]
        classes = hints.classes if ClassHints in self.threat.knows else positives[:0]
        if len(positives) < self.threat.hints or (ClassHints in self.threat.knows and not len(classes)):
            return None
        return torch.cat([positives, classes.to(positives.device)])

    def ask(self, view: View, method: str, meter: Meter) -> Answers:
        """What its `observe`, `batch` or `epoch` answers. An error over facts names the attack. A reference on own columns
        may fail, as not every attack can do without its layers; it is then not asked again.
        """
        if self.name in self.broken:
            return None
        try:
            with meter.phase(f"audit/{base_name(self.name)}", f"attack={self.name}"):
                answers: Answers = getattr(self.attack, method)(view)
            return answers
        except Exception as error:
            if self.on_columns:  # whatever a user's attack raises for layers of other names and widths
                why = f"it can't read own columns in place of messages: {type(error).__name__}: {error}"
                self.broken[self.name] = why
                return None
            if isinstance(error, Undeclared | Unavailable):
                key = error.key or f"attack={self.name}"
                raise type(error)(error.problem, key=key, value=error.value, see=error.see) from error
            raise


def attackers_at(
    attacks: Mapping[str, Attack],
    roles: Mapping[Role, tuple[str, ...]],
    cheating: Collection[str],
    rng_of: Callable[[str], torch.Generator],
) -> Iterator[Attacker]:
    """Each attack at each party of its role. cheating: parties with an adversary. rng_of: a generator by its name.

    An attack on embeddings alone also scores the label party's own layers, which nobody sees.
    """
    for name, attack in attacks.items():
        role, knows, active = attack.threat.role, attack.threat.knows, attack.threat.active
        parties = [(party, True) for party in roles.get(role, ())]
        if role is Role.NON_LABEL and knows - RUN_FACTS[role] == {Embeddings}:
            parties += [(party, False) for party in roles.get(Role.LABEL, ())]
        for party, visible in parties:
            if party in cheating or not active:  # an active attack is of a party that cheats
                threat = replace(attack.threat, active=party in cheating)
                yield Attacker(name, copy.deepcopy(attack), threat, party, rng_of(f"attack/{name}/{party}"), visible)


def reference_of(one: Attacker, rng_of: Callable[[str], torch.Generator]) -> Attacker | None:
    """Of an attacker that knows labels, the same attack on the party's own columns.

    Where both know the same labels, the difference of their readings is what the messages gave away.
    """
    threat, name = one.threat, f"{one.name}{FEATURES_ONLY}"
    if not (threat.knows_labels and threat.message is not None and threat.role is Role.NON_LABEL and one.visible):
        return None
    of_rounds = {kind for kind in threat.knows if kind.message is None}
    reads = Threat(threat.role, of_rounds | {PartyFeatures}, threat.known_rows, threat.hints)
    rng = rng_of(f"attack/{name}/{one.party}")
    return Attacker(name, copy.deepcopy(one.attack), reads, one.party, rng, visible=True, on_columns=True)


def unmet_attacks(
    attacks: Mapping[str, Attack],
    offers: Offers,
    classes: int,
    *,
    cheating: Collection[str] = (),
    where: str = "this protocol",
    labels_shared: bool = False,
) -> dict[str, str]:
    """Attack -> why it can't run here. offers: facts that the protocol, or a recording, has for a role. labels_shared:
    whether every party holds the labels.
    """
    reasons: dict[str, str] = {}
    for name, attack in attacks.items():
        role = attack.threat.role
        nothing_left = labels_shared and attack.on_labels and role is Role.NON_LABEL
        reason = attack.unmet(offers(role) | RUN_FACTS[role], classes, where)
        if attack.threat.active and not cheating:
            reason = "it needs a party that cheats; choose one with adversary=NAME (see: vflbench list adversary)"
        elif (reason is not None or nothing_left) and not offers(role):
            reason = f"it attacks at {role.place}, of whom there is nothing in {where}"
        elif nothing_left:
            reason = f"it infers labels, and every party holds the labels in {where}"
        if reason is not None:
            reasons[name] = reason
    return reasons


def offered_with(adversaries: Iterable[Adversary], offers: Offers) -> Offers:
    """What a protocol offers to each role, and what a label party that cheats makes for attacks of its own."""
    made = {fact for adversary in adversaries if isinstance(adversary, LabelAdversary) for fact in adversary.facts_made}
    return lambda role: offers(role) | (made if role is Role.LABEL else set())


def remembered(facts: Mapping[str, Facts], parts: Sequence[Tensor]) -> dict[str, Facts]:
    """The same facts, in which each network embeds these parts of the rows once, each at once, however many attacks ask for
    any of them. parts: ids (n,) each. What a row is embedded as then depends on its part alone, to the last bit; of a row of
    several parts, the first one counts.
    """
    rows = RowIndex(torch.cat(list(parts)))

    def remembering(embed: Callable[[Tensor], Mapping[str, Tensor]]) -> Callable[[Tensor], Mapping[str, Tensor]]:
        @cache
        def of_all() -> dict[str, Tensor]:
            made = [embed(part) for part in parts if len(part)]
            return {layer: torch.cat([layers[layer] for layers in made]) for layer in made[0]}

        def looked_up(ids: Tensor) -> Mapping[str, Tensor]:
            is_there, place = rows.find(ids.to(rows.ids.device))
            if not len(rows) or not bool(is_there.all()):
                return embed(ids)
            return {layer: h[place.cpu()] for layer, h in of_all().items()}

        return looked_up

    made = {party: dict(of_party) for party, of_party in facts.items()}
    for of_party in made.values():
        if isinstance(model := of_party.get(LocalModel), LocalModel):
            of_party[LocalModel] = LocalModel(remembering(model.embed))
    return made  # type: ignore[return-value]
