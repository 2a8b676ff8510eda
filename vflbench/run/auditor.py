"""The auditor: shows attackers what their threats declare of each round, and has their answers graded."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vflbench.attacks.base import Answers, Attack
from vflbench.data.rows import EncodedRows, evenly_spaced
from vflbench.generators import Generators
from vflbench.messages.fact import Fact
from vflbench.messages.facts import ClassHints, ClassShares, Embeddings, Gradients, OwnColumns
from vflbench.messages.peer_facts import Auxiliary
from vflbench.messages.round import Facts, PrivateBatch, Round
from vflbench.messages.threat import Seat
from vflbench.messages.view import View
from vflbench.options import restore_state, state_of
from vflbench.run.attackers import Attacker, AttackerKnowledge, attackers_at, column_references
from vflbench.run.grade_reconstruction import ReconstructionGrader
from vflbench.run.grade_scores import Findings, Grader, QueryRows, Tables
from vflbench.run.known_rows import (
    USUALLY_KNOWN,
    AttributeTargets,
    Canaries,
    FollowedRows,
    Hints,
    KnownRows,
    Lookup,
    Population,
    RowNames,
    auxiliary_rows,
    draw_one_of_each,
    draw_positives,
)

ASKED_ROWS = 20_000
"""Training rows about which an attack is asked at the end of an epoch, if it follows none of its own, at most."""
AT_THE_END = " (epoch)"  # follows the name of an attack that answers about batches as well
_GROUPS = 5  # of rows that are asked about at the end of an epoch, at least, so that there is an interval

Rows = tuple[Tensor, Tensor, Tensor]
"""Ids and labels of rows that are asked about at the end of an epoch, and their indices among all of them."""


@dataclass(frozen=True)
class Audited:
    """What is audited, by which attacks, and how much of it.

    attacks: those that can run. seats: parties at each seat. train: training rows. rows: all rows by id, with the labels
    that are trained on. group: rows of a batch. steps_audited: steps of an epoch -> how many are attacked. held_out: rows
    that are not trained on. auxiliary: rows for attackers; held_out if left out. cut_layers: party -> layers that cross.
    cheating: parties with an adversary. offered: facts that rounds have for a non-label party. last_only: audit no epoch
    but the last. dcor: measure the distance correlation of embeddings and labels. probe: also run the reference that is
    trained on half of the true labels. known: rows whose labels attackers know, where they were drawn before. keeps_rows:
    choose rows to ask about at the end of an epoch and known ones whether any attack needs them or not, because they are
    recorded. samples: also ask about rows of no audited batch. references: also ask attacks with labels about own columns
    in place of messages. tables: makes what the answers of an epoch are put into.
    """

    attacks: Mapping[str, Attack]
    seats: Mapping[Seat, tuple[str, ...]]
    train: Population
    rows: Lookup
    canaries: Canaries
    group: int
    steps_audited: Callable[[int], int]
    held_out: EncodedRows | None = None
    auxiliary: EncodedRows | None = None
    cut_layers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    cheating: Collection[str] = ()
    offered: Collection[type[Fact]] = ()
    last_only: bool = False
    dcor: bool = False
    probe: bool = False
    known: KnownRows | None = None
    keeps_rows: bool = False
    samples: bool = True
    references: bool = True
    tables: Callable[[], Tables] = Tables


class Auditor:
    """Asks every attacker, and lets the metrics compare its answer with the truth.

    Rounds come from a session or from a recording; the auditor can't tell. For each: `wants(step)` names the facts to
    collect, and `see(round)` attacks it. `end_epoch` returns what the epoch came to.
    """

    def __init__(self, audited: Audited, generators: Generators):
        self._of, train = audited, audited.train
        self.canaries = audited.canaries
        self.names = RowNames(generators["row names"])
        on_device = partial(generators.on, train.device)
        self.attackers = list(attackers_at(audited.attacks, audited.seats, audited.cheating, on_device))
        has_columns = audited.references and OwnColumns in audited.offered
        self._references = column_references(self.attackers, on_device) if has_columns else {}
        self.attackers += self._references.values()
        self._end = RowsAtTheEnd(self.attackers, audited, generators)
        self.known = audited.known or _known_rows(self.attackers, audited, generators)
        seed = int(torch.randint(2**62, (), generator=generators["grading"]))
        wanted = {kind for attack in audited.attacks.values() for kind in attack.threat.knows}
        source, auxiliary = audited.auxiliary or audited.held_out, Auxiliary({})
        if source is not None and Auxiliary in wanted:
            auxiliary = auxiliary_rows(source, max(attack.auxiliary for attack in audited.attacks.values()), seed)
        targets, shares = AttributeTargets(audited.attacks, train, audited.rows), train.class_ratios
        self._knowledge = AttackerKnowledge(
            self.names, ClassShares(shares), self.known, auxiliary, audited.rows.features, targets
        )
        rebuilt = None
        if audited.held_out is not None and isinstance(train, EncodedRows):
            rebuilt = ReconstructionGrader(train, audited.held_out, seed)
        self._private: dict[int, PrivateBatch] = {}
        cuts = {party: layers[0] for party, layers in audited.cut_layers.items()}
        self._grader = Grader(audited.rows, cuts, shares, rebuilt, self._private, targets)
        self._hint_rngs = generators["hints"], generators["class hints"]
        visible = audited.seats.get(Seat.NON_LABEL, ())
        self._crossing = {party: tuple(audited.cut_layers.get(party, ())) for party in visible}
        probes = audited.probe and any(self._crossing.values()) and self.attackers
        self._probe_rng = generators["probe"] if probes else None
        self._followers = [one for one in self.attackers if one.attack.follows or one.attack.attends]
        self._facts_followed = frozenset(
            kind for one in self._followers for kind in one.attack.threat.knows | one.threat.knows
        )
        self._facts_wanted = frozenset(wanted | ({OwnColumns} if self._references else set()))
        self._broken: dict[tuple[str, str], str] = {}  # name and party of a reference -> why it can't read own columns
        self._shortage: dict[str, tuple[int, int]] = {}  # attack -> hints that it needs, and the most that it could have had
        self._layers: dict[tuple[str, str], tuple[str, ...]] = {}  # of attackers with hints, in the last round
        self.audited: set[int] = set()
        self.tables, self._epoch, self._is_last = audited.tables(), 0, True

    @property
    def probes(self) -> bool:
        """Whether the probe runs."""
        return self._probe_rng is not None

    def begin_epoch(self, number: int, steps: int, *, last: bool = True, chosen: Sequence[int] | None = None) -> None:
        """Choose the rounds that are attacked: spread evenly, the first and the last among them.

        last: whether it is the last epoch of the run, the only one in which the probe is fitted. chosen: the steps to choose
        among, where there are no others.
        """
        there = range(steps) if chosen is None else chosen
        audited = self._of.steps_audited(len(there)) if last or not self._of.last_only else 0
        self.audited = {there[index] for index in evenly_spaced(len(there), audited).tolist()} if audited else set()
        self._epoch, self._is_last = number, last
        self._end.begin_epoch(len(self.audited))

    def wants(self, step: int) -> frozenset[type[Fact]]:
        """The facts to collect of a round: of one that is not audited, those of attacks that follow rows or attend all."""
        if step not in self.audited:
            return self._facts_followed
        measured: set[type[Fact]] = {Embeddings} if self._of.dcor else set()
        measured |= {Embeddings, Gradients} if self.probes and self._is_last else set()
        return self._facts_wanted | measured

    def see(self, round_: Round) -> None:
        """A round is over: show it to the attackers that look at it, and grade what they answer."""
        if round_.training is not None:
            self.canaries.read(round_.training.ids, round_.training.labels)
        is_audited = round_.step in self.audited
        if not is_audited and not self._followers:
            return
        ids, canary = round_.ids, self.canaries.among(round_.ids)
        batch = QueryRows(ids, self.names.of(ids), self._of.rows.labels(ids), torch.zeros_like(canary), canary)
        hinted = [one for one in self.attackers if one.needs_hints]
        self._layers |= {(one.name, one.party): round_.layers(one.party, one.message) for one in hinted}
        hints = self._draw_hints(batch, [one for one in hinted if not one.attack.follows])
        if is_audited:
            self._end.add_batch(ids)
            if self.probes and self._is_last:
                self.tables.probed.add_batch(round_, batch.labels, canary, self._crossing, len(self.audited))
            if round_.private is not None:
                self._private[round_.step] = round_.private
        counts = sorted({one.attack.follows for one in self.attackers} - {0})
        followed = {count: self._end.followed.among(ids, count) for count in counts}
        for attacker in self.attackers:
            attack = attacker.attack
            if attack.follows:
                self._show(attacker, round_, batch, self._with_known(attacker, ids, followed[attack.follows]))
            elif is_audited and attack.collects:
                self._show(attacker, round_, batch, torch.arange(len(ids), device=ids.device))
            elif is_audited and attack.answers_batches():
                self._ask_about_batch(attacker, round_, batch, hints)
            elif attack.attends:
                self._show(attacker, round_, batch, torch.arange(len(ids), device=ids.device))
        if self._of.dcor and is_audited:
            parties = (self._of.seats.get(seat, ()) for seat in (Seat.NON_LABEL, Seat.LABEL))
            self.tables.measure(round_, batch.labels, canary, *parties)

    def _with_known(self, attacker: Attacker, ids: Tensor, followed: Tensor) -> Tensor:
        """Indices of the rows of a batch that an attack follows, and of those whose label it knows."""
        if not attacker.threat.known_rows:
            return followed
        is_shown = self.known.among(ids, attacker.threat.known_rows)
        return is_shown.index_fill_(0, followed, True).nonzero()[:, 0]

    def _draw_hints(self, query: QueryRows, attackers: Sequence[Attacker]) -> Hints:
        """As many known positives as any of these attackers needs and as there are, and a known row of each class if any
        needs that and each class has one: the same for all of them.
        """
        positives = classes = torch.empty(0, dtype=torch.int64)
        labels, (positives_rng, classes_rng) = query.labels, self._hint_rngs
        if needed := max((one.threat.hints for one in attackers), default=0):
            positives = draw_positives(labels, query.canary, needed, positives_rng).to(labels.device)
        if any(ClassHints in one.threat.knows for one in attackers):
            classes = draw_one_of_each(labels.cpu(), len(self._of.train.class_ratios), classes_rng).to(labels.device)
        return Hints(positives, classes)

    def _show(self, attacker: Attacker, round_: Round, batch: QueryRows, rows: Tensor) -> None:
        """Rows of a batch for an attack that only keeps what it sees. rows: (m,) indices."""
        if not len(rows):
            return
        facts = _rows_of(attacker, round_.facts.get(attacker.party, {}), rows)
        view = attacker.view(round_.epoch, round_.step, batch.names[rows], self._knowledge.of(attacker, facts))
        if attacker.attack.attends:
            attacker.attend(view)
        else:
            self._ask(attacker, view)

    def _ask_about_batch(self, attacker: Attacker, round_: Round, batch: QueryRows, hints: Hints) -> None:
        given = attacker.hinted_rows(hints)
        if given is None:
            self._note_shortage(attacker, hints)
            self._leave_out(attacker, self._layers[attacker.name, attacker.party])
            return
        facts = self._knowledge.of(attacker, round_.facts.get(attacker.party, {}))
        answers = self._ask(attacker, attacker.view(round_.epoch, round_.step, batch.names.clone(), facts, hints))
        query = replace(batch, known=self._is_known(attacker, batch.ids, given))
        self._grader.grade(attacker, answers, query, self.tables)

    def _ask(self, attacker: Attacker, view: View) -> Answers:
        """What it answers. A reference on own columns may fail, as not every attack can do without its layers."""
        if not attacker.on_columns:
            return attacker.ask(view)
        if (attacker.name, attacker.party) in self._broken:
            return None
        try:
            return attacker.ask(view)
        except Exception as error:  # whatever a user's attack raises for layers of other names and widths
            why = f"it can't read own columns in place of messages: {type(error).__name__}: {error}"
            self._broken[attacker.name, attacker.party] = why
            return None

    def _is_known(self, attacker: Attacker, ids: Tensor, given: Tensor) -> Tensor:
        """(n,) bool: rows whose label the attacker was given, in this batch or for the whole run."""
        mask = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
        mask[given.to(ids.device)] = True
        return mask | self.known.among(ids, attacker.threat.known_rows) if attacker.threat.known_rows else mask

    def _note_shortage(self, attacker: Attacker, hints: Hints) -> None:
        """A batch, or a group of rows, has too few rows that the attack could be given the class of."""
        most = max(len(hints.positives), self._shortage.get(attacker.name, (0, 0))[1])
        self._shortage[attacker.name] = (attacker.threat.hints, most)

    def _leave_out(self, attacker: Attacker, layers: Sequence[str]) -> None:
        for layer in layers:
            self.tables.leaks.leave_out(attacker.key(layer))

    @property
    def rows_at_the_end(self) -> Tensor:
        """(n,) ids of the rows about which attacks are asked at the end of an epoch."""
        return torch.cat(self.parts_at_the_end[:2])

    @property
    def parts_at_the_end(self) -> list[Tensor]:
        """The same rows, ids (n,) of each: those that are followed, the others, and those whose label is known."""
        return [self._end.followed.ids, self._end.asked, self.known.ids]

    @property
    def wants_at_the_end(self) -> frozenset[type[Fact]]:
        """The facts that attacks read at the end of an epoch."""
        asked = [one for one in self.attackers if one.attack.answers_epochs()]
        return frozenset(kind for one in asked for kind in one.attack.threat.knows)

    def end_epoch(self, facts: Mapping[str, Facts]) -> Findings:
        """Ask the attacks that answer at the end of an epoch, and return what the epoch came to.

        facts: what each party knows between rounds about `rows_at_the_end`.
        """
        answered = {one.name for one in self.attackers if self.tables.leaks.has(one.name)}  # about batches
        for attacker in self.attackers if self.audited else ():
            if attacker.attack.answers_epochs() and not attacker.on_columns:
                twin = self._references.get((attacker.name, attacker.party))
                both = [one for one in (attacker, twin) if one is not None]
                named = [replace(one, name=f"{one.name}{AT_THE_END}") if one.name in answered else one for one in both]
                ask = self._ask_in_groups if attacker.needs_hints else self._ask_about_all
                ask(named, self._end.of(attacker), facts.get(attacker.party, {}))
        if self._probe_rng is not None and self._is_last:
            self.tables.probed.grade(self._of.rows.classes, self._probe_rng, self.tables.leaks)
        findings, self.tables = self.tables.findings(), self._of.tables()
        self._end.end_epoch()
        return findings

    def _groups(self, ids: Tensor) -> Sequence[Tensor]:
        """Indices of the rows that are graded together, as those of a batch."""
        return torch.arange(len(ids), device=ids.device).chunk(max(_GROUPS, len(ids) // self._of.group))

    def _query(self, attacker: Attacker, ids: Tensor, labels: Tensor, given: Tensor) -> QueryRows:
        known = self._is_known(attacker, ids, given)
        return QueryRows(ids, self.names.of(ids), labels, known, self.canaries.among(ids), is_batch=False)

    def _ask_about_all(self, attackers: Sequence[Attacker], rows: Rows, facts: Facts) -> None:
        """An attack, and its reference, about all rows at once; graded in groups."""
        ids, labels, index = rows
        for attacker in attackers:
            query = self._query(attacker, ids, labels, ids[:0])
            known = self._knowledge.of(attacker, _rows_of(attacker, facts, index))
            view = attacker.view(self._epoch, None, query.names.clone(), known, Hints(ids[:0], ids[:0]))
            self._grader.grade(attacker, self._ask(attacker, view), query, self.tables, self._groups(ids))

    def _ask_in_groups(self, attackers: Sequence[Attacker], rows: Rows, facts: Facts) -> None:
        """An attack with hints, and its reference: each group has hints of its own."""
        ids, labels, index = rows
        layers: list[set[str]] = [set() for _ in attackers]
        unasked = 0
        for group in self._groups(ids):
            hints = self._draw_hints(self._query(attackers[0], ids[group], labels[group], ids[:0]), attackers[:1])
            given = attackers[0].hinted_rows(hints)
            unasked += given is None
            for number, attacker in enumerate(attackers):
                if given is None:
                    self._note_shortage(attacker, hints)
                    continue
                query = self._query(attacker, ids[group], labels[group], given)
                known = self._knowledge.of(attacker, _rows_of(attacker, facts, index[group]))
                answers = self._ask(attacker, attacker.view(self._epoch, None, query.names.clone(), known, hints))
                layers[number] |= self._grader.grade(attacker, answers, query, self.tables)
        for scored, attacker in zip(layers, attackers, strict=True):
            there = self._layers.get((attacker.name.removesuffix(AT_THE_END), attacker.party), ())
            self._leave_out(attacker, unasked * sorted(scored or there))

    def unscored(self, found: Findings) -> dict[str, str]:
        """Attack -> why none of its answers could be scored. found: in the epoch."""
        scored = {leak.attack for leak in found.leaks if leak.batches} | {one.attack for one in found.reconstructions}
        reasons = unanswered([one.name for one in self.attackers], scored)
        reasons |= {
            name: f"it needs {needed} known positives of each batch or group of rows, and none had more than {most}"
            if needed
            else "it needs a known row of each class in each batch, and no batch had one"
            for name, (needed, most) in self._shortage.items()
            if name not in scored
        }
        return reasons | {name: why for (name, _), why in self._broken.items() if name not in scored}

    def state(self) -> dict[str, Any]:
        """What attacks keep, [attack, party, state] each, rows that were met, figures of the epoch."""
        return {
            "attackers": [[one.name, one.party, state_of(one.attack)] for one in self.attackers],
            "end": self._end.state(),
            "canaries": self.canaries.state(),
            "private": [[step, rows.owner, rows.x, rows.y, rows.steps] for step, rows in self._private.items()],
            "shortage": [[name, *counts] for name, counts in self._shortage.items()],
            "broken": [[*reference, why] for reference, why in self._broken.items()],
            "layers": [[*attacker, list(layers)] for attacker, layers in self._layers.items()],
            "tables": self.tables.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        for attacker, (_, _, saved) in zip(self.attackers, state["attackers"], strict=True):
            restore_state(attacker.attack, saved)
        self._end.restore(state["end"])
        self.canaries.restore(state["canaries"])
        self._private.clear()
        self._private |= {n: PrivateBatch(owner, *(v.clone() for v in rows)) for n, owner, *rows in state["private"]}
        self._shortage = {name: (needed, most) for name, needed, most in state["shortage"]}
        self._broken = {(name, party): why for name, party, why in state["broken"]}
        self._layers = {(name, party): tuple(layers) for name, party, layers in state["layers"]}
        self.tables = Tables.from_state(state["tables"])


def _rows_of(attacker: Attacker, facts: Facts, rows: Tensor) -> dict[type[Fact], Fact]:
    """Those facts of these rows that the attack reads, and own columns where they stand in for messages."""
    reads = attacker.attack.threat.knows | attacker.threat.knows
    return {kind: fact.rows(rows) for kind, fact in facts.items() if kind in reads}


def unanswered(attacks: Sequence[str], scored: Collection[str]) -> dict[str, str]:
    """Attack -> why it has no score, for those that were asked and have none."""
    reason = "it gave no answer that counts: none at all, or about rows that are known, are canaries or are of one class"
    return dict.fromkeys((name for name in attacks if name not in scored), reason)


def _known_rows(attackers: Sequence[Attacker], audited: Audited, generators: Generators) -> KnownRows:
    most_known = max((one.threat.known_rows for one in attackers), default=0)
    most = max(most_known, USUALLY_KNOWN) if most_known or audited.keeps_rows else 0
    return KnownRows(audited.train, most, generators["known rows"], audited.canaries)


class RowsAtTheEnd:
    """Rows that attacks follow through the run; and for the others, rows of the audited batches and a sample beside them.

    From each audited batch come its first rows, as many as leave room for the other batches, and then rows of the sample
    until there are `ASKED_ROWS`.
    """

    def __init__(self, attackers: Sequence[Attacker], audited: Audited, generators: Generators):
        most, train = max((one.attack.follows for one in attackers), default=0), audited.train
        self.followed = FollowedRows(train, most, generators["followed rows"], audited.canaries)
        self._asks = audited.keeps_rows or any(map(asked_about_others, attackers))
        count = ASKED_ROWS if self._asks and audited.samples else 0
        self._sample = FollowedRows(train, count, generators["sampled rows"], audited.canaries).ids
        self._labels_of = audited.rows.labels
        self._audited = self._sample[:0]
        self._quota = ASKED_ROWS

    def begin_epoch(self, audited: int) -> None:
        """audited: the number of batches that will be audited."""
        self._quota = max(1, ASKED_ROWS // max(1, audited))

    def end_epoch(self) -> None:
        self._audited = self._sample[:0]

    def add_batch(self, ids: Tensor) -> None:
        """The rows of an audited batch."""
        if self._asks:
            self._audited = torch.cat([self._audited, ids[: self._quota].to(self._audited.device)])

    @property
    def asked(self) -> Tensor:
        """(n,) ids of the rows about which attacks are asked that follow none, each of them once."""
        others = self._sample[~torch.isin(self._sample, self._audited)]
        return torch.cat([_first_of_each(self._audited), others])[:ASKED_ROWS]

    def of(self, attacker: Attacker) -> Rows:
        """Ids and labels of the rows that an attack is asked about, and their indices among all, the followed ones first."""
        first, ids = attacker.attack.follows, self.followed.ids
        if first:
            is_met = self.followed.is_met[:first]
            return *self.followed.met(first), torch.arange(len(is_met), device=ids.device)[is_met]
        asked = self.asked if asked_about_others(attacker) else ids[:0]
        labels = self._labels_of(asked) if len(asked) else self.followed.labels[:0]
        return asked, labels, torch.arange(len(asked), device=ids.device) + len(ids)

    def state(self) -> dict[str, Any]:
        return {"met": self.followed.is_met, "audited": self._audited}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.followed.is_met.copy_(state["met"])
        self._audited = state["audited"].clone().to(self._sample.device)


def _first_of_each(ids: Tensor) -> Tensor:
    """The ids in their order, without those that came before: left-over rows of an epoch may come twice."""
    values, order = ids.sort(stable=True)
    is_first = torch.ones_like(values, dtype=torch.bool)
    is_first[1:] = values[1:] != values[:-1]
    return ids[order[is_first].sort().values]


def asked_about_others(attacker: Attacker) -> bool:
    """Whether it answers at the end of an epoch and follows no rows; a participant's rows are its own."""
    at_a_party = attacker.threat.seat in (Seat.NON_LABEL, Seat.LABEL)
    return at_a_party and attacker.attack.answers_epochs() and not attacker.attack.follows
