"""The auditor: shows attackers what their threats declare of each round, and has their answers graded."""

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from vflbench.attacks.base import Attack
from vflbench.data.rows import EncodedRows, evenly_spaced
from vflbench.generators import Generators
from vflbench.messages.facts import Auxiliary, ClassHints, ClassShares, Embeddings, Fact, Gradients, Known, KnownColumn
from vflbench.messages.threat import Facts, PrivateBatch, Role, Round, View
from vflbench.numerics.hashing import mix, unmix
from vflbench.options import restore_state, state_of
from vflbench.results.recorder import Meter
from vflbench.results.schema import AT_THE_END
from vflbench.run.attackers import (
    Attacker,
    Canaries,
    HintedRows,
    Population,
    RowIndex,
    RowLookup,
    attackers_at,
    attribute_target,
    auxiliary_rows,
    draw_known,
    draw_one_of_each,
    draw_positives,
    draw_rows,
    reference_of,
)
from vflbench.run.grade_reconstruction import ReconstructionGrader
from vflbench.run.grade_scores import Findings, Grader, QueryRows, Tables
from vflbench.run.settings import Audit

ASKED_ROWS = 20_000
"""Training rows about which an attack is asked at the end of an epoch, if it follows none of its own, at most."""
UNANSWERED = "it gave no answer that counts: none at all, or about rows that are known, are canaries or are of one class"
_KEPT = ("_is_met", "_met_rows")  # by a checkpoint
_GROUPS = 5  # of rows that are asked about at the end of an epoch, at least, so that there is an interval


@dataclass(eq=False)
class Auditor:
    """Asks every attacker, and lets the metrics compare its answer with the truth.

    Rounds come from a session or from a recording; the auditor can't tell. For each: `wants(step)` names the facts to
    collect, and `see(round)` attacks it. `end_epoch` returns what the epoch came to.

    Attackers tell rows apart by names, a keyed permutation of the ids: places in a file that is sorted by label would be the
    labels.

    At the end of an epoch, attacks that follow rows through the run are asked about these, and the others about rows of the
    audited batches and a sample beside them: from each audited batch come its first rows, as many as leave room for the
    other batches (`quota`), and then rows of the sample until there are `ASKED_ROWS`.

    attacks: those that can run. roles: parties in each role. train: training rows. rows: all rows by id, with the labels
    that are trained on. group: rows of a batch. how: how much of an epoch is audited. held_out: rows that are not trained
    on. auxiliary: rows for attackers. cut_layers: party -> layers that cross. cheating: parties with an adversary.
    known_rows: whose labels attackers know, where they were drawn before. keeps_rows: choose rows to ask about at the end of
    an epoch and known ones whether any attack needs them or not, because they are recorded. samples: also ask about rows of
    no audited batch. references: also ask attacks with labels about own columns in place of messages. tables: makes what the
    answers of an epoch are put into. meter: shows which attack is at work, and adds up its seconds.
    """

    attacks: Mapping[str, Attack]
    generators: InitVar[Generators]
    roles: Mapping[Role, tuple[str, ...]]
    train: Population
    rows: RowLookup
    canaries: Canaries
    group: int
    how: Audit
    held_out: EncodedRows | None = None
    auxiliary: EncodedRows | None = None
    cut_layers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    cheating: Collection[str] = ()
    known_rows: RowIndex | None = None
    keeps_rows: bool = False
    samples: bool = True
    references: bool = False
    tables: Callable[[], Tables] = Tables
    meter: Meter = field(default_factory=Meter)

    def __post_init__(self, generators: Generators) -> None:
        train, on_device = self.train, partial(generators.on, self.train.device)
        self.name_key = int(torch.randint(2**62, (), generator=generators["row names"]))
        self.attackers = list(attackers_at(self.attacks, self.roles, self.cheating, on_device))
        for one in self.attackers if self.references else ():
            one.reference = reference_of(one, on_device)
        self.attackers += [one.reference for one in self.attackers if one.reference is not None]
        self._followers = [one for one in self.attackers if one.attack.follows or one.attack.every_round]
        self._facts_followed = frozenset[type[Fact]]().union(*(one.reads for one in self._followers))
        self._facts_wanted = frozenset[type[Fact]]().union(*(one.reads for one in self.attackers))
        at_the_end = [one for one in self.attackers if one.attack.overrides("epoch")]
        self.wants_at_the_end = frozenset(kind for one in at_the_end for kind in one.attack.threat.knows)
        most = max((one.attack.follows for one in self.attackers), default=0)
        self._followed = draw_rows(train, most, generators["followed rows"])
        self._is_met = torch.zeros(len(self._followed), dtype=torch.bool, device=train.device)
        of_sample = [one for one in at_the_end if not one.attack.follows and one.threat.role is not Role.PARTICIPANT]
        self._asks = self.keeps_rows or bool(of_sample)
        count = ASKED_ROWS if self._asks and self.samples else 0
        self._sample = draw_rows(train, count, generators["sampled rows"]).ids
        self._met_rows = self._sample[:0]  # of the audited batches of this epoch
        most = max((one.threat.known_rows for one in self.attackers), default=0) or int(self.keeps_rows)
        known = self.known_rows
        self.known = draw_known(train, most, generators["known rows"], self.canaries) if known is None else known
        seed = int(torch.randint(2**62, (), generator=generators["grading"]))
        self._supplied: dict[type[Fact], Fact] = {ClassShares: ClassShares(train.class_ratios), Auxiliary: Auxiliary({})}
        if self.auxiliary is not None and Auxiliary in self._facts_wanted:
            most = max(attack.auxiliary for attack in self.attacks.values())
            self._supplied[Auxiliary] = auxiliary_rows(self.auxiliary, most, seed)
        rebuilt = None
        if self.held_out is not None and isinstance(train, EncodedRows):
            rebuilt = cache(partial(ReconstructionGrader, train, self.held_out, seed))
        targets = {
            name: attribute_target(name, attack, train)
            for name, attack in self.attacks.items()
            if KnownColumn in attack.threat.knows and hasattr(attack, "column")
        }
        self._grader = Grader(self.rows, self.cut_layers, train.class_ratios, rebuilt, targets, self.tables())
        self._hint_rngs = generators["hints"], generators["class hints"]
        self._crossing = {party: self.cut_layers.get(party, ()) for party in self.roles.get(Role.NON_LABEL, ())}
        self.probes = self.how.probe and any(self._crossing.values()) and bool(self.attackers)
        self._probe_rng = generators["probe"]

    def begin_epoch(self, number: int, steps: int, *, last: bool = True, chosen: Sequence[int] | None = None) -> None:
        """Choose the rounds that are attacked: spread evenly, the first and the last among them.

        last: whether it is the last epoch of the run, the only one in which the probe is fitted. chosen: the steps to choose
        among, where there are no others.
        """
        there = range(steps) if chosen is None else chosen
        audited = self.how.audited(len(there)) if last or self.how.epochs == "all" else 0
        self.audited = {there[index] for index in evenly_spaced(len(there), audited).tolist()} if audited else set[int]()
        self.quota = max(1, ASKED_ROWS // max(1, len(self.audited)))
        self._epoch, self._is_last = number, last

    def wants(self, step: int) -> frozenset[type[Fact]]:
        """The facts to collect of a round: of one that is not audited, those of attacks that observe every round."""
        if step not in self.audited:
            return self._facts_followed
        measured: set[type[Fact]] = {Embeddings} if self.how.dcor else set()
        measured |= {Embeddings, Gradients} if self.probes and self._is_last else set()
        return self._facts_wanted | measured

    def see(self, round_: Round) -> None:
        """A round is over: show it to the attackers that look at it, and grade what they answer."""
        if round_.training is not None and len(self.canaries):
            self.canaries.read(round_.training.ids, round_.training.labels, round_.training.evidence)
        is_audited = round_.step in self.audited
        if not is_audited and not self._followers:
            return
        ids, tables = round_.ids, self._grader.tables
        batch = self._query(ids, round_.epoch, round_.step)
        hinted = [one for one in self.attackers if one.needs_hints]
        for one in hinted:
            one.layers = round_.layers(one.party, one.threat.message)
        hints = self._draw_hints(batch, [one for one in hinted if one.attack.overrides("batch")])
        if is_audited:
            if self._asks:
                self._met_rows = torch.cat([self._met_rows, ids[: self.quota].to(self._met_rows.device)])
            if self.probes and self._is_last:
                tables.probed.add_batch(round_, batch.labels, batch.canary, self._crossing, len(self.audited))
            if round_.private is not None:
                self._grader.private[round_.step] = round_.private
        is_followed, place = self._followed.find(ids)
        for attacker in self.attackers:
            attack, facts = attacker.attack, round_.facts.get(attacker.party, {})
            if attack.overrides("observe") and (is_audited or attack.follows or attack.every_round):
                shown = torch.ones_like(batch.canary)
                if attack.follows:
                    shown = is_followed & (place < attack.follows)
                    self._is_met[place[shown]] = True
                    shown |= self.known.among(ids, attacker.threat.known_rows)
                rows = shown.nonzero()[:, 0]
                if len(rows):
                    view = self._view(attacker, batch, batch.names[rows], attacker.rows_of(facts, rows))
                    attacker.ask(view, "observe", self.meter)
            if attack.overrides("batch") and is_audited:
                answered = self._ask(attacker, batch, facts, hints)
                for layer in attacker.layers if answered is None else ():
                    tables.leaks.leave_out(attacker.key(layer))
        if self.how.dcor and is_audited:
            parties = (self.roles.get(role, ()) for role in (Role.NON_LABEL, Role.LABEL))
            tables.measure(round_, batch.labels, batch.canary, *parties)

    def _query(self, ids: Tensor, epoch: int, step: int | None = None) -> QueryRows:
        canary = self.canaries.find(ids)[0]
        labels = self.rows.labels(ids) if len(ids) else ids
        return QueryRows(ids, mix(ids, self.name_key), labels, torch.zeros_like(canary), canary, epoch, step)

    def _draw_hints(self, query: QueryRows, attackers: Sequence[Attacker]) -> HintedRows:
        """As many known positives as any of these attackers needs and as there are, and a known row of each class if any
        needs that and each class has one: the same for all of them.
        """
        positives = classes = torch.empty(0, dtype=torch.int64)
        labels, (positives_rng, classes_rng) = query.labels, self._hint_rngs
        if needed := max((one.threat.hints for one in attackers), default=0):
            positives = draw_positives(labels, query.canary, needed, positives_rng).to(labels.device)
        if any(ClassHints in one.threat.knows for one in attackers):
            classes = draw_one_of_each(labels.cpu(), len(self.train.class_ratios), classes_rng).to(labels.device)
        return HintedRows(positives, classes)

    def _ask(
        self, attacker: Attacker, query: QueryRows, facts: Facts, hints: HintedRows, groups: Sequence[Tensor] = ()
    ) -> set[str] | None:
        """Ask about a batch, or at the end of an epoch, and have it graded: in these groups of rows, if there are any.
        Returns the layers that were scored; None if the attacker has too few hints to be asked.
        """
        given = attacker.hinted_rows(hints)
        if given is None:
            why, there = "it needs a known row of each class in each batch, and no batch had one", len(hints.positives)
            if needed := attacker.threat.hints:
                why = f"it needs {needed} known positives of each batch or group of rows, and the last one had {there}"
            attacker.unasked[attacker.name] = why
            return None
        view = self._view(attacker, query, query.names.clone(), facts, hints)
        answers = attacker.ask(view, "epoch" if query.step is None else "batch", self.meter)
        known = self.known.among(query.ids, attacker.threat.known_rows)
        known[given.to(known.device)] = True
        return self._grader.grade(attacker, answers, replace(query, known=known), groups)

    def _view(
        self, attacker: Attacker, query: QueryRows, names: Tensor, facts: Facts, hints: HintedRows | None = None
    ) -> View:
        """What the attacker sees of these rows: the facts that it declares. facts: of a round, or of the end of an epoch, of
        its party. hints: None where none are drawn for these rows.
        """
        threat = attacker.attack.threat if attacker.on_columns else attacker.threat
        known, knows = attacker.shown(facts, self.rows.features, partial(unmix, key=self.name_key)), threat.knows
        known |= self._supplied  # a view keeps those that are declared
        known |= {} if hints is None else hints.facts(threat)
        ids, labels = (values[: attacker.threat.known_rows] for values in (self.known.ids, self.known.labels))
        target = self._grader.targets.get(attacker.name)
        if KnownColumn in knows and target is not None:
            values = target.values(self.rows.features(target.party, ids))
            known[KnownColumn] = KnownColumn(target.party, target.name, mix(ids, self.name_key), values, target.count)
        elif Known in knows and attacker.threat.known_rows:
            known[Known] = Known(mix(ids, self.name_key), labels)
        return View(attacker.party, query.epoch, query.step, names, attacker.rng, threat, known, visible=attacker.visible)

    @property
    def parts_at_the_end(self) -> list[Tensor]:
        """Rows at the end of an epoch, ids (n,) of each: those that are followed, the others that attacks are asked about,
        each of them once, and those whose label is known.
        """
        asked = list(dict.fromkeys([*self._met_rows.tolist(), *self._sample.tolist()]))[:ASKED_ROWS]
        return [self._followed.ids, torch.tensor(asked, dtype=torch.int64, device=self._sample.device), self.known.ids]

    def end_epoch(self, facts: Mapping[str, Facts]) -> Findings:
        """Ask the attacks that answer at the end of an epoch, and return what the epoch came to.

        facts: what each party knows between rounds about the first two of `parts_at_the_end`.
        """
        tables, ids, others = self._grader.tables, torch.cat(self.parts_at_the_end[:2]), len(self._followed)
        answered = tables.leaks.attacks  # about batches
        for attacker in self.attackers if self.audited else ():
            if attacker.attack.overrides("epoch") and not attacker.on_columns:
                both = [one for one in (attacker, attacker.reference) if one is not None]
                named = [replace(one, name=f"{one.name}{AT_THE_END}") if one.name in answered else one for one in both]
                rows = self._is_met[: attacker.attack.follows].nonzero()[:, 0]
                if not attacker.attack.follows:  # a participant's rows are its own
                    rows = torch.arange(others, others if attacker.threat.role is Role.PARTICIPANT else len(ids))
                    rows = rows.to(ids.device)
                self._ask_at_the_end(named, ids[rows], rows, facts.get(attacker.party, {}))
        if self.probes and self._is_last:
            tables.probed.grade(self.rows.classes, self._probe_rng, tables.leaks)
        self._grader.tables, self._met_rows = self.tables(), self._sample[:0]
        rebuilt = tables.reconstructions
        return Findings(tables.leaks.leaks(), tables.dependence.entries(), rebuilt.entries(), rebuilt.examples())

    def _ask_at_the_end(self, attackers: Sequence[Attacker], ids: Tensor, rows: Tensor, facts: Facts) -> None:
        """An attack, and its reference, about all rows at once, graded in groups as large as batches; or, with hints, about
        each group, which has hints of its own. rows: (n,) indices of these ids among those of the facts.
        """
        everyone = torch.arange(len(ids), device=ids.device)
        groups = everyone.chunk(max(_GROUPS, len(ids) // self.group))
        hinted, query = attackers[0].needs_hints, self._query(ids, self._epoch)
        layers: list[set[str]] = [set() for _ in attackers]
        unasked = 0
        for group in groups if hinted else [everyone]:
            hints = self._draw_hints(query.rows(group), attackers[:1])
            scored: set[str] | None = None
            for attacker, scored_layers in zip(attackers, layers, strict=True):
                known = attacker.rows_of(facts, rows[group])
                scored = self._ask(attacker, query.rows(group), known, hints, () if hinted else groups)
                scored_layers |= scored or set()
            unasked += scored is None
        for scored_layers, attacker in zip(layers, attackers, strict=True):
            for layer in unasked * sorted(scored_layers or attacker.layers):
                self._grader.tables.leaks.leave_out(attacker.key(layer))

    def unscored(self, findings: Findings) -> dict[str, str]:
        """Attack -> why none of its answers could be scored. findings: in the epoch."""
        scored = {leak.attack for leak in findings.leaks if leak.batches} | {one.attack for one in findings.reconstructions}
        reasons = {one.name: UNANSWERED for one in self.attackers if one.name not in scored}
        known = [*(one.unasked for one in self.attackers), *(one.broken for one in self.attackers)]
        return reasons | {name: why for of_one in known for name, why in of_one.items() if name not in scored}

    def state(self) -> dict[str, Any]:
        """What attacks keep, in their order, what is kept of rows and attackers, figures of the epoch."""
        return {
            "attackers": [[state_of(one.attack), one.unasked, one.broken, one.layers] for one in self.attackers],
            "votes": self.canaries.votes,
            "private": {step: vars(rows) for step, rows in self._grader.private.items()},
            "tables": self._grader.tables.state(),
            **{name: getattr(self, name) for name in _KEPT},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        kept = copy.deepcopy({name: state[name] for name in ("votes", "private", *_KEPT)})  # nothing hangs on the file
        for attacker, (of_attack, *reasons, layers) in zip(self.attackers, state["attackers"], strict=True):
            restore_state(attacker.attack, of_attack)
            attacker.unasked, attacker.broken = map(dict, reasons)
            attacker.layers = tuple(layers)
        self.canaries.votes = kept.pop("votes")
        self._grader.private = {step: PrivateBatch(**rows) for step, rows in kept.pop("private").items()}
        self._grader.tables.restore(state["tables"])
        vars(self).update(kept)
